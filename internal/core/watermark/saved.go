package watermark

import (
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/lib/fields"
)

// savedVersion begins saved senders. docs/format/databases.md draws them.
const savedVersion = 1

// AppendTo appends what Restore needs in another process: the senders and their habits.
func (t *Tenant) AppendTo(b []byte, now int64) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	b = append(b, savedVersion)
	b = binary.AppendVarint(b, now)
	b = binary.AppendUvarint(b, uint64(len(t.senders)))
	for k, s := range t.senders {
		b = fields.AppendBytes(b, k.Pair)
		address, _ := k.Sender.Addr.MarshalBinary() // never fails
		b = fields.AppendBytes(b, address)
		b = binary.AppendVarint(b, int64(k.Sender.PID))
		b = binary.AppendVarint(b, int64(k.Sender.UID))
		b = fields.AppendBytes(b, k.Sender.Agent)
		b = binary.AppendVarint(b, s.newest)
		b = binary.AppendVarint(b, s.heard)
		b = binary.AppendVarint(b, s.arrival)
		b = appendTimes(b, s.gaps)
		b = appendTimes(b, s.lags)
	}
	return b
}

func appendTimes(b []byte, times []int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(times)))
	for _, t := range times {
		b = binary.AppendVarint(b, t)
	}
	return b
}

var errSaved = errors.New("the saved senders are malformed")

// Restore takes the senders that AppendTo appended in an earlier process. A sender that should have sent
// meanwhile holds data that nobody took, so it is late until it sends. The time without a process does
// not count toward the timeout.
func (t *Tenant) Restore(saved []byte, now int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, at, err := decode(saved)
	if err != nil {
		return err
	}
	down := max(now-at, 0)
	for _, s := range all {
		s.newest = min(s.newest, now)
		s.awaited = s.expected() && now-s.heard > slices.Max(s.gaps)
		s.arrival = min(s.arrival+down, now)
		s.burst = s.arrival
	}
	maps.Copy(t.senders, all)
	return nil
}

// Resume is called when this process begins to wait for the senders, whose requests went to other processes
// before. A sender that should have sent since its last request is late until it sends.
func (t *Tenant) Resume(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.senders {
		s.awaited = s.expected() && now-s.heard > slices.Max(s.gaps)
	}
}

// Paused is called when this process has stood still for a time: it was stopped, or its machine, or the clock was set
// forward. That time does not count toward the timeout, and a sender that should have sent meanwhile is late until it
// sends.
func (t *Tenant) Paused(now, pause int64) {
	t.mu.Lock()
	for _, s := range t.senders {
		s.arrival = min(s.arrival+pause, now)
	}
	t.mu.Unlock()
	t.Resume(now)
}

// decode returns saved senders, and when they were saved.
func decode(saved []byte) (all map[Key]*state, at int64, err error) {
	r := &fields.Reader{B: saved}
	if r.Byte() != savedVersion {
		return nil, 0, errSaved
	}
	at = r.Varint()
	n := r.Count()
	if n > MaxSenders {
		return nil, 0, errSaved
	}
	all = make(map[Key]*state, n)
	for range n {
		k := Key{Pair: r.Text()}
		var address netip.AddrPort
		if address.UnmarshalBinary(r.Bytes()) != nil {
			return nil, 0, errSaved
		}
		k.Sender = sender.Sender{Addr: address, PID: int32(r.Varint()), UID: int32(r.Varint()), Agent: r.Text()}
		all[k] = &state{newest: r.Varint(), heard: r.Varint(), arrival: r.Varint(), gaps: times(r), lags: times(r)}
	}
	if !r.Done() {
		return nil, 0, errSaved
	}
	return all, at, nil
}

// times takes what appendTimes appended.
func times(r *fields.Reader) (all []int64) {
	n := r.Count()
	if n > samples {
		r.Fail()
		return nil
	}
	for range n {
		all = append(all, r.Varint())
	}
	return all
}
