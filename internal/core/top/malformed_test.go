package top

import (
	"fmt"
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
