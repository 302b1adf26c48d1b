package top

import (
	"cmp"
	"net/netip"

	"github.com/freshet-io/freshet/internal/core/sender"
)

const (
	// maxSenders bounds the senders of a tenant, and the senders of a socket in one window.
	maxSenders = 1024

	// maxPorts is how many senders of a host are listed one by one. A shell script that sends by echo
	// uses another port for each datagram.
	maxPorts = 8
)

// Tally is what one socket received in a window, by sender. It belongs to the goroutine that
// reads the socket; its memory is reused in the next window.
//
// A flood of ports must not hide the other hosts: a port for which there is no room is counted under its
// host. There is room for as many hosts as for ports.
type Tally struct {
	places   map[sender.Sender]int32 // in amounts
	amounts  []tallied
	others   Amount
	examples []example        // of malformed lines
	faults   map[fault]uint64 // malformed lines
}

type tallied struct {
	sender.Sender
	Amount
}

// Add counts a datagram.
func (t *Tally) Add(s sender.Sender, bytes, lines int) {
	a := Amount{Count: 1, Bytes: uint64(bytes), Lines: uint64(lines)}
	if at, ok := t.places[s]; ok {
		t.amounts[at].add(a)
		return
	}
	t.first(s, a)
}

// first counts a datagram of a sender that is not yet among the amounts.
func (t *Tally) first(s sender.Sender, a Amount) {
	room := len(t.amounts) < maxSenders
	if !room && s.Addr.IsValid() {
		s = s.Host()
		if at, ok := t.places[s]; ok {
			t.amounts[at].add(a)
			return
		}
		room = len(t.amounts) < 2*maxSenders
	}
	if !room {
		t.others.add(a)
		return
	}
	if t.places == nil {
		t.places = map[sender.Sender]int32{}
	}
	t.places[s] = int32(len(t.amounts))
	t.amounts = append(t.amounts, tallied{s, a})
}

// Reset empties the tally.
func (t *Tally) Reset() {
	clear(t.places)
	clear(t.faults)
	t.amounts, t.others, t.examples = t.amounts[:0], Amount{}, t.examples[:0]
}

// Senders counts the datagrams of a tenant by sender.
type Senders struct {
	rows     rows[sender.Sender]
	hosts    rows[sender.Sender] // for each host, the traffic of its ports without a place in rows
	others   recent
	faults   rows[fault] // malformed lines by sender or host, and reason
	examples []example   // of malformed lines, the oldest first
}

// SenderRow is one row: a sender, or a host with many ports.
type SenderRow struct {
	sender.Sender
	Ports int // known senders of the host; 0 for a single sender
	Amount
	Reasons map[string]uint64 // malformed lines by reason, of rows of Busiest
}

// NewSenders returns an empty table.
func NewSenders() *Senders {
	return &Senders{rows: newRows[sender.Sender](maxSenders), hosts: newRows[sender.Sender](maxSenders),
		faults: newRows[fault](maxFaults)}
}

// Add adds the datagrams that a socket received in the window of a second.
func (s *Senders) Add(second int64, t *Tally) {
	for i := range t.amounts {
		from := &t.amounts[i]
		s.at(second, from.Sender).add(second, from.Amount)
	}
	s.others.add(second, t.others)
	s.addFaults(second, t.faults)
	s.keep(t.examples)
}

func (s *Senders) at(second int64, from sender.Sender) *recent {
	ofHost := from.Addr.IsValid() && from.Addr.Port() == 0
	if !ofHost {
		if row := s.rows.at(second, from); row != nil {
			return row
		}
	}
	if from.Addr.IsValid() {
		if row := s.hosts.at(second, from.Host()); row != nil {
			return row
		}
	}
	return &s.others
}

// Len returns the number of senders held.
func (s *Senders) Len() int { return len(s.rows.byKey) + len(s.hosts.byKey) }

// Busiest returns the senders of the most datagrams in the seconds [from, to), and the sum of
// the others.
func (s *Senders) Busiest(from, to int64, limit int) ([]SenderRow, Rest) {
	kept, rest := busiest(s.merged(from, to, func(a Amount) bool { return a.Count > 0 }), limit,
		func(r SenderRow) Amount { return r.Amount }, bySender)
	rest.add(s.others.sum(from, to))
	for i := range kept {
		kept[i].Reasons = s.reasons(&kept[i], from, to)
	}
	return kept, rest
}

func bySender(a, b SenderRow) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.PID, b.PID), cmp.Compare(a.UID, b.UID))
}

// merged returns the wanted rows, with one row for a host of many ports.
func (s *Senders) merged(from, to int64, wanted func(Amount) bool) (all []SenderRow) {
	hosts := map[netip.Addr]*SenderRow{}
	for key, row := range s.hosts.byKey {
		if a := row.sum(from, to); wanted(a) {
			hosts[key.Addr.Addr()] = &SenderRow{Sender: key, Ports: maxPorts + 1, Amount: a}
		}
	}
	for key, row := range s.rows.byKey {
		a := row.sum(from, to)
		if !wanted(a) {
			continue
		}
		if !key.Addr.IsValid() {
			all = append(all, SenderRow{Sender: key, Amount: a})
			continue
		}
		h := hosts[key.Addr.Addr()]
		if h == nil {
			h = &SenderRow{Sender: key.Host()}
			hosts[key.Addr.Addr()] = h
		}
		h.Ports++
		h.add(a)
	}
	for key, row := range s.rows.byKey {
		a := row.sum(from, to)
		if h := hosts[key.Addr.Addr()]; wanted(a) && h != nil && h.Ports <= maxPorts {
			all = append(all, SenderRow{Sender: key, Amount: a})
		}
	}
	for _, h := range hosts {
		if h.Ports > maxPorts {
			all = append(all, *h)
		}
	}
	return all
}
