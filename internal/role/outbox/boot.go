package outbox

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/freshet-io/freshet/internal/core/notes"
	"github.com/freshet-io/freshet/internal/core/segment"
)

// bootFile is the file with the incarnations whose windows were written in one boot of the machine. Its first note
// names the boot, each later note an incarnation. It is not synced: after a power loss it names another boot, or
// cannot be read, and no incarnation is known.
const bootFile = "boot"

// boot knows the incarnations whose windows were written in the present boot of the machine.
type boot struct {
	name  string // empty if it is not known; then no incarnation is known, either
	notes notes.File
	known map[uint64]bool
}

// readBoot reads the file. After an error of the disk no incarnation is known, which is always safe.
func readBoot(fs segment.FS, name string) boot {
	b := boot{name: name, notes: notes.In(fs, bootFile), known: map[uint64]bool{}}
	all, err := b.notes.Notes()
	if err != nil || name == "" || len(all) == 0 || string(all[0]) != name {
		return b
	}
	for _, note := range all[1:] {
		if len(note) == 8 {
			b.known[binary.LittleEndian.Uint64(note)] = true
		}
	}
	return b
}

// keep keeps only the incarnations of which a window waits.
func (b *boot) keep(waiting []held) {
	known := map[uint64]bool{}
	for _, h := range waiting {
		if i := h.last().incarnation; b.known[i] {
			known[i] = true
		}
	}
	b.known = known
}

// add writes the file, with one more incarnation, before the first window of the incarnation is written. If that
// fails, the next process knows no incarnation, or fewer.
func (b *boot) add(incarnation uint64) {
	if b.name == "" || b.known[incarnation] {
		return
	}
	b.known[incarnation] = true
	all := [][]byte{[]byte(b.name)}
	for _, i := range slices.Sorted(maps.Keys(b.known)) {
		all = append(all, binary.LittleEndian.AppendUint64(nil, i))
	}
	_ = b.notes.BeginNotes(all)
	b.notes.Close()
}

func (b *boot) has(incarnation uint64) bool { return b.known[incarnation] }
