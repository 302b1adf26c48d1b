package replica

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"
)

const (
	// askAgain is after how many ticks a question to the leader is taken for lost.
	askAgain = 5

	maxBarriers = 1 << 16
)

// Read is a barrier that has ended: the entries up to Index are applied. A tenant whose stores are
// behind waits until they have them.
type Read struct{ Barrier, Index uint64 }

// barriers are what waits for the leader to say where the order ends, and then until that is
// applied here. One question is under way at a time, and stands for all barriers that came before
// it.
type barriers struct {
	life   uint64 // random: no answer to an earlier life of this member is taken for one to this
	number uint64 // of the last barrier
	last   uint64 // question

	asking  bool
	ticks   int      // since the last question
	asked   []uint64 // barriers that it stands for
	waiting []uint64 // barriers that came after it
	known   []Read   // not applied here yet
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

// overdue counts a tick, and reports whether to ask again.
func (b *barriers) overdue() bool {
	b.ticks++
	return b.asking && b.ticks >= askAgain
}

// ask asks the leader where the order ends. Raft drops the question if there is no leader, and the
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

// alone reports whether this member is the only voter, and does not know yet what is committed: its
// commit index on disk may be behind what it has acknowledged. Raft would answer all the same. With
// several voters it waits by itself.
func (r *Replica) alone() bool {
	m := r.members.now
	return r.role.Leads && !r.begun && len(m.GetVoters()) == 1 && len(m.GetVotersOutgoing()) == 0
}

// question returns what the answer must repeat.
func (b *barriers) question() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, b.life), b.last)
}

// confirm takes an answer. One to an earlier question knows nothing of the barriers since.
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
