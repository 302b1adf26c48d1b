package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/core/sender"
)

const (
	// maxBadLines bounds the malformed lines that are kept, one per sender: 64 x 300 bytes.
	maxBadLines = 64

	// maxBadLine is how many bytes of a line are kept.
	maxBadLine = 200

	// maxFaults bounds the pairs of a sender and a reason that are counted.
	maxFaults = 1024

	// otherReason stands for reasons of malformed lines that found no room.
	otherReason = "other"
)

// fault is why lines of a sender were malformed.
type fault struct {
	sender.Sender
	reason string
}

// example is a malformed line.
type example struct {
	sender.Sender
	reason string
	line   []byte // its memory is reused
}

// Malformed counts the lines of the datagram that was added last that were malformed for one reason. s must be its
// sender. It copies the first line of each sender in a window; a nil line is no example.
func (t *Tally) Malformed(s sender.Sender, lines uint64, reason string, line []byte) {
	at, ok := t.places[s]
	if !ok {
		at, ok = t.places[s.Host()]
	}
	if !ok {
		t.others.Malformed += lines
		return
	}
	row := &t.amounts[at]
	first := row.Malformed == 0
	row.Malformed += lines
	why := fault{row.Sender, reason}
	if n, known := t.faults[why]; known || len(t.faults) < maxFaults {
		if t.faults == nil {
			t.faults = map[fault]uint64{}
		}
		t.faults[why] = n + lines
	}
	if !first || line == nil || len(t.examples) == maxBadLines {
		return
	}
	t.examples = slices.Grow(t.examples, 1)[:len(t.examples)+1]
	e := &t.examples[len(t.examples)-1]
	e.Sender, e.reason, e.line = s, reason, append(e.line[:0], line[:min(len(line), maxBadLine)]...)
}

// keep keeps the newest example of each sender.
func (s *Senders) keep(newer []example) {
	for i := range newer {
		e := newer[i]
		e.line = slices.Clone(e.line) // the tally owns the memory
		s.examples = slices.DeleteFunc(s.examples, func(o example) bool { return o.Sender == e.Sender })
		if len(s.examples) == maxBadLines {
			s.examples = slices.Delete(s.examples, 0, 1)
		}
		s.examples = append(s.examples, e)
	}
}

// addFaults adds the reasons of a window.
func (s *Senders) addFaults(second int64, faults map[fault]uint64) {
	for why, n := range faults {
		row := s.faults.at(second, why)
		if row == nil && why.Addr.IsValid() {
			row = s.faults.at(second, fault{why.Host(), why.reason})
		}
		if row != nil {
			row.add(second, Amount{Count: n})
		}
	}
}

// reasons returns the malformed lines of a row in the seconds [from, to), by reason; nil if there are none.
func (s *Senders) reasons(r *SenderRow, from, to int64) (by map[string]uint64) {
	if r.Malformed == 0 {
		return nil
	}
	by, left := map[string]uint64{}, r.Malformed
	for why, row := range s.faults.byKey {
		if why.Sender != r.Sender && (r.Ports <= maxPorts || why.Host() != r.Sender) {
			continue
		}
		if n := min(row.sum(from, to).Count, left); n > 0 {
			by[why.reason] += n
			left -= n
		}
	}
	if left > 0 {
		by[otherReason] = left
	}
	return by
}

// MalformedRow is a sender of malformed lines, or a host with many ports that sent some.
type MalformedRow struct {
	SenderRow
	Reason, Example string // of one line, which may be cut off; empty if none was kept
}

// Malformed returns the senders of the most malformed lines in the seconds [from, to).
func (s *Senders) Malformed(from, to int64, limit int) (all []MalformedRow) {
	for _, row := range s.merged(from, to, func(a Amount) bool { return a.Malformed > 0 }) {
		m := MalformedRow{SenderRow: row}
		for _, e := range s.examples {
			if e.Sender == row.Sender || row.Addr.IsValid() && e.Host() == row.Sender {
				m.Reason, m.Example = e.reason, strings.ToValidUTF8(string(e.line), "\uFFFD")
			}
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b MalformedRow) int {
		return cmp.Or(cmp.Compare(b.Malformed, a.Malformed), bySender(a.SenderRow, b.SenderRow))
	})
	return all[:min(limit, len(all))]
}
