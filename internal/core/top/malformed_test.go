package top

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// A sender of malformed lines is listed with the share of malformed lines, and with one of these lines.
func TestMalformed(t *testing.T) {
	s, tally := NewSenders(), new(Tally)
	good, bad, worse := udp("192.0.2.1:1"), udp("192.0.2.1:2"), sender.Sender{PID: 7, UID: 1000}
	for second := int64(100); second < 103; second++ {
		for i := range 10 {
			tally.Add(good, 10, 4)
			tally.Add(bad, 10, 4)
			tally.Malformed(bad, 1, "bad_value", fmt.Appendf(nil, "a:x%d|c", i))
			tally.Add(worse, 10, 2)
			tally.Malformed(worse, 2, "no_type", []byte("\xff"+strings.Repeat("y", 500)))
		}
		s.Add(second, tally)
		tally.Reset()
	}
	rows := s.Malformed(100, 102, 10)
	if len(rows) != 2 || rows[0].Sender != worse || rows[1].Sender != bad {
		t.Fatalf("senders: %+v", rows)
	}
	if r := rows[0]; r.Malformed != 40 || r.Lines != 40 || r.Reason != "no_type" ||
		r.Example != "\uFFFD"+strings.Repeat("y", maxBadLine-1) {
		t.Errorf("the process: %+v", r)
	}
	if r := rows[1]; r.Malformed != 20 || r.Lines != 80 || r.Reason != "bad_value" || r.Example != "a:x0|c" {
		t.Errorf("the port: %+v", r)
	}
	if got := s.Malformed(100, 102, 1); len(got) != 1 || got[0].Sender != worse {
		t.Errorf("cut to one row: %+v", got)
	}
	if got := s.Malformed(110, 112, 10); len(got) > 0 {
		t.Errorf("too long ago: %+v", got)
	}
}

// Rows have their malformed lines by reason: those of one sender, and of a host with many ports of which few sent
// malformed lines.
func TestReasons(t *testing.T) {
	s, tally := NewSenders(), new(Tally)
	one := udp("192.0.2.1:1")
	for second := int64(100); second < 102; second++ {
		tally.Add(one, 10, 9)
		tally.Malformed(one, 3, "bad_value", []byte("a:x|c"))
		tally.Malformed(one, 2, "no_type", nil)
		for port := range 12 {
			from := sender.Sender{Addr: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), uint16(port+1))}
			tally.Add(from, 1, 2)
			if port < 4 {
				tally.Malformed(from, 1, "no_type", []byte("x"))
			}
		}
		s.Add(second, tally)
		tally.Reset()
	}
	rows, _ := s.Busiest(100, 102, 10)
	if len(rows) != 2 || rows[0].Ports != 12 || !maps.Equal(rows[0].Reasons, map[string]uint64{"no_type": 8}) ||
		rows[1].Sender != one || !maps.Equal(rows[1].Reasons, map[string]uint64{"bad_value": 6, "no_type": 4}) {
		t.Errorf("rows: %+v", rows)
	}
	if rows, _ := s.Busiest(101, 102, 10); rows[0].Reasons["no_type"] != 4 {
		t.Errorf("the last second: %+v", rows)
	}
}

// Each malformed line has a reason, also if there is no room for more reasons.
func TestReasonsAreBounded(t *testing.T) {
	s, tally := NewSenders(), new(Tally)
	for pid := range int32(maxSenders) {
		tally.Add(sender.Sender{PID: pid + 1}, 1, 3)
		for _, why := range []string{"no_type", "bad_value", "bad_rate"} {
			tally.Malformed(sender.Sender{PID: pid + 1}, 1, why, nil)
		}
	}
	s.Add(100, tally)
	if n := len(s.faults.byKey); n != maxFaults {
		t.Errorf("%d reasons are kept, want %d", n, maxFaults)
	}
	rows, _ := s.Busiest(100, 101, maxSenders)
	for _, r := range rows {
		sum := uint64(0)
		for _, n := range r.Reasons {
			sum += n
		}
		if sum != r.Malformed || sum != 3 {
			t.Fatalf("the reasons of %+v", r)
		}
	}
	if r := rows[len(rows)-1]; r.Reasons[otherReason] != 3 {
		t.Errorf("the last row: %+v", r)
	}
}

// A host that keeps changing its port is one row, and other hosts keep their own rows. Examples are
// bounded, and every malformed line is counted.
func TestMalformedIsBounded(t *testing.T) {
	s, tally := NewSenders(), new(Tally)
	quiet := udp("192.0.2.1:9")
	tally.Add(quiet, 1, 1)
	for port := range 5000 {
		from := sender.Sender{Addr: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(port+1000))}
		tally.Add(from, 1, 2)
		tally.Malformed(from, 1, "no_type", []byte("x"))
	}
	for pid := range int32(5000) {
		tally.Add(sender.Sender{PID: pid + 1}, 1, 1)
		tally.Malformed(sender.Sender{PID: pid + 1}, 1, "no_type", []byte("x"))
	}
	s.Add(100, tally)
	if len(tally.examples) > maxBadLines || len(s.examples) > maxBadLines || s.Len() > 2*maxSenders {
		t.Errorf("%d examples in the tally, %d in the table, %d rows; want at most %d examples each and %d rows",
			len(tally.examples), len(s.examples), s.Len(), maxBadLines, 2*maxSenders)
	}
	rows := s.Malformed(100, 101, 10_000)
	if rows[0].Sender != udp("192.0.2.1:0") || rows[0].Malformed != 5000 || rows[0].Lines != 10_000 ||
		rows[0].Example != "x" {
		t.Errorf("the host: %+v", rows[0])
	}
	sum := s.others.sum(100, 101).Malformed
	for _, r := range rows {
		sum += r.Malformed
	}
	if sum != 10_000 {
		t.Errorf("%d malformed lines are counted, want 10000", sum)
	}
}
