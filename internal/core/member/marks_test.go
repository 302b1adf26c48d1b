package member

import (
	"testing"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// marksOf returns the hashes of a member's marks, by index.
func marksOf(m *Member) map[uint64]uint64 {
	all := map[uint64]uint64{}
	for _, x := range m.Marks() {
		all[x.Index] = x.Hash
	}
	return all
}

// Members that apply one log have the same marks, no matter when their stores take the work, and also
// after restarts.
func TestMarks(t *testing.T) {
	compared, restarts := 0, 0
	for seed := range uint64(20) {
		log := logOf(t, seed, 400)
		want := marksOf(plainly(t, log).member)
		if len(want) != 6 {
			t.Fatalf("seed %d: %d marks of 400 entries, want 6", seed, len(want))
		}
		r, n, _, _ := faultily(t, log, seed)
		restarts += n
		for index, hash := range marksOf(r.member) {
			if compared++; want[index] != hash {
				t.Errorf("seed %d: the mark of entry %d is %x, want %x", seed, index, hash, want[index])
			}
		}
	}
	if compared < 30 || restarts < 10 {
		t.Errorf("only %d marks were compared, with %d restarts", compared, restarts)
	}
}

// A different outcome changes all later marks. A different tile changes only the next mark.
func TestMarksDiffer(t *testing.T) {
	log := logOf(t, 3, 400)
	want := marksOf(plainly(t, log).member)

	other := newRun()
	spoilt := uint64(0)
	for i, data := range log {
		other.apply(t, uint64(i)+2, data)
		for all := other.member.Work(); len(all) > 0; all = other.member.Work() {
			for _, w := range all {
				other.stores.take(t, w)
				if i > 200 && spoilt == 0 && len(w.Requests) > 0 {
					spoilt = w.Requests[0].Index
					w.Requests[0].Write.Outcome.Refused[outcome.TooOld].Samples++
				}
				other.member.Done(w)
			}
		}
	}
	for index, hash := range marksOf(other.member) {
		if differs := want[index] != hash; differs != (index >= spoilt) {
			t.Errorf("with another outcome of entry %d, the mark of entry %d differs: got %v, want the opposite",
				spoilt, index, differs)
		}
	}

	value := newRun()
	for i, data := range log {
		value.apply(t, uint64(i)+2, data)
		value.drain(t)
		if i == 200 {
			value.member.marks.Closed([]*tile.Waiting{{Samples: [tile.NumWidths][]tile.Sample{{{T: 1, V: 2}}}}})
		}
	}
	for index, hash := range marksOf(value.member) {
		if differs := want[index] != hash; differs != (index == 256) {
			t.Errorf("with another tile closed by entry 202, the mark of entry %d differs: got %v, want the opposite",
				index, differs)
		}
	}
}
