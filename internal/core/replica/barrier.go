package replica

import (
	"encoding/binary"
	"slices"

	"go.etcd.io/raft/v3"
)

const (
	// askAgain is the number of ticks after which a question to the leader counts as lost.
	askAgain = 5

	maxBarriers = 1 << 16
)

// Read is a barrier that has ended: the entries up to Index are applied. If a tenant's stores are
// behind, a read of that tenant still has to wait for them.
type Read struct{ Barrier, Index uint64 }

// barriers holds the barriers that have not ended. The member asks the leader for the index at
// which the order ends. A barrier ends once that index is applied here. One question is under way
// at a time, for all barriers that began before it.
type barriers struct {
	life   uint64 // random, so that answers to an earlier life of this member do not count
	number uint64 // of the last barrier
	last   uint64 // number of the last question

	asking  bool
	ticks   int      // since the last question
	asked   []uint64 // barriers that the answer to the last question ends
	waiting []uint64 // barriers that began after the last question
	known   []Read   // barriers whose index is known, but not applied here yet
}

// Barrier implements Group.
func (r *Replica) Barrier() (number uint64, err error) {
	b := &r.barriers
	if len(b.asked)+len(b.waiting)+len(b.known) >= maxBarriers {
		return 0, ErrFull
	}
	err = r.do(func() error {
		b.number++
		number = b.number
		b.waiting = append(b.waiting, number)
		if !b.asking {
			r.ask()
		}
		return nil
	})
	return number, err
}

// Cancel implements Group.
func (r *Replica) Cancel(number uint64) {
	b := &r.barriers
	b.asked, b.waiting = without(b.asked, number), without(b.waiting, number)
	b.known = slices.DeleteFunc(b.known, func(read Read) bool { return read.Barrier == number })
}

// without is a helper that removes a number from an ascending list.
func without(list []uint64, number uint64) []uint64 {
	if i, has := slices.BinarySearch(list, number); has {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// overdue counts a tick, and reports whether to ask again.
func (b *barriers) overdue() bool {
	b.ticks++
	return b.asking && b.ticks >= askAgain
}

// ask asks the leader for the end of the order. Raft drops the question if there is no leader, and the
// network may lose it or the answer.
func (r *Replica) ask() {
	b := &r.barriers
	b.last++
	b.asking, b.ticks = true, 0
	b.asked, b.waiting = append(b.asked, b.waiting...), nil
	if !r.alone() {
		r.node.ReadIndex(b.question())
	}
}

// alone is true if this member is the only voter, and leads without a committed entry of its term.
// Its commit index may then be lower than the last entry that it acknowledged before a crash. Raft
// would still answer with that index (etcd-io/raft#105). With several voters, Raft itself waits for
// such an entry.
func (r *Replica) alone() bool {
	m := r.members.now
	return r.leadership.Leads && !r.begun && len(m.GetVoters()) == 1 && len(m.GetVotersOutgoing()) == 0
}

// question returns the bytes that the answer must repeat.
func (b *barriers) question() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, b.life), b.last)
}

// confirm takes the leader's answer to a question. An answer to an earlier question does not end
// later barriers.
func (r *Replica) confirm(answer *raft.ReadState) {
	b := &r.barriers
	if !b.asking || string(answer.RequestCtx) != string(b.question()) {
		return
	}
	for _, number := range b.asked {
		b.known = append(b.known, Read{number, answer.Index})
	}
	b.asking, b.asked = false, nil
	r.release()
	if len(b.waiting) > 0 {
		r.ask()
	}
}

// release ends the barriers whose index is applied.
func (r *Replica) release() {
	kept := r.barriers.known[:0]
	for _, read := range r.barriers.known {
		if read.Index <= r.applied || mutant.readUnapplied {
			r.out.Reads = append(r.out.Reads, read)
		} else {
			kept = append(kept, read)
		}
	}
	r.barriers.known = kept
}
