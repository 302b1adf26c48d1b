package world

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// Fate is what became of a message.
type Fate struct{ Lost, Twice bool }

// Send carries a message from one node to another. It calls `deliver` after a while: usually once, else
// twice or never. A calm network repeats nothing, delays nothing for long, and loses only messages on
// cut links. `deliver` must ask Cut again, since the link may be cut meanwhile.
func (w *World) Send(from, to int, calm bool, deliver func()) (fate Fate) {
	if w.Cut(from, to) || !calm && w.Chance(0.5) {
		return Fate{Lost: true}
	}
	times := 1
	if !calm && w.Chance(1) {
		times, fate.Twice = 2, true
	}
	for range times {
		delay := w.Between(2, 20)
		if !calm && w.Chance(1) {
			delay = w.Between(20, 8*Second)
		}
		w.At(delay, nil, deliver)
	}
	return fate
}

// Cut reports whether messages from one node to another are lost.
func (w *World) Cut(from, to int) bool { return w.cut[[2]int{from, to}] }

// Part cuts links of one of three nodes for a while: all, all incoming, all outgoing, or both links with
// one other node.
func (w *World) Part(node int, lasts int64) {
	other := (node + 1 + w.Rand.IntN(2)) % 3
	how := w.Rand.IntN(4)
	w.Tell("node %d: cut off for %d ms, %s", node, lasts, []string{
		"in both directions", "incoming links only", "outgoing links only", fmt.Sprintf("from node %d only", other)}[how])
	set := func(cut bool) {
		for o := range 3 {
			if o == node || how == 3 && o != other {
				continue
			}
			if how != 1 {
				w.cut[[2]int{node, o}] = cut
			}
			if how != 2 {
				w.cut[[2]int{o, node}] = cut
			}
		}
	}
	set(true)
	w.At(lasts, nil, func() { set(false) })
}

// PowerLoss returns a disk after a power loss: all synced bytes, and any part of the bytes written
// since, perhaps with a hole.
func (w *World) PowerLoss(d *memfs.FS) *memfs.FS {
	lost := d.PowerLoss(rand.New(rand.NewPCG(w.Rand.Uint64(), 1)))
	for _, name := range slices.Sorted(maps.Keys(lost.Files)) {
		f, synced := lost.Files[name], d.Durable[name].Synced
		if unsynced := len(f.Data) - synced; unsynced > 0 && w.Chance(50) {
			from := synced + w.Rand.IntN(unsynced)
			clear(f.Data[from:min(len(f.Data), from+1+w.Rand.IntN(64))])
		}
	}
	return lost
}

// BreakOff runs a write, and lets the process die once the write has called the disk `calls` times.
// It reports whether the process died during the write. The memory of the writer must not be used
// afterwards.
func BreakOff(d *memfs.FS, calls int, write func()) (broken bool) {
	type death struct{}
	d.Fail = func(string, string) error {
		if calls--; calls < 0 {
			panic(death{})
		}
		return nil
	}
	defer func() {
		d.Fail = nil
		if cause := recover(); cause != nil {
			if _, ok := cause.(death); !ok {
				panic(cause)
			}
			broken = true
		}
	}()
	write()
	return false
}
