package entrylog

import (
	"bytes"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// Whatever bytes the last segment has, the log either does not open, or returns only entries that are in
// the files byte for byte, in order. A log that opens takes further entries.
func FuzzOpen(f *testing.F) {
	// The fuzzer changes the last of three segments. This segment replaced an entry of the second.
	fs := memfs.New()
	l := mustCreate(f, fs)
	mustAppend(f, l, entries(1, 2, 10), &State{1, 2, 5})
	mustAppend(f, l, entries(1, 11, 14), nil)
	before := fs.Crash()
	mustAppend(f, l, entries(2, 12, 13), &State{2, 3, 11})
	mustAppend(f, l, nil, &State{2, 3, 12})
	mustAppend(f, l, []Entry{{Index: 14, Term: 3}, memberChange(f, 15, 3, 0, "l4")}, &State{3, 1, 13})
	first := l.segments[len(l.segments)-1].first
	data := fs.Files[format.Name(first)].Data
	f.Add(data, false)
	f.Add(data[:len(data)-5], false)
	f.Add(data[:beginBytes-1], false)
	f.Add(data[beginBytes:], true)
	f.Add(append(bytes.Clone(data[beginBytes:]), data[beginBytes:]...), true)
	for _, at := range []int{3, 40, 70, beginBytes + 5, beginBytes + 100, len(data) - 30} {
		flipped := bytes.Clone(data)
		flipped[at] ^= 1
		f.Add(flipped, false)
	}
	// These frames have good checksums, but no log would write them.
	foreign := bytes.Clone(data[:beginBytes])
	for _, frame := range []segment.Frame{
		{Tag: tag(entryFrame, 0), Stamp: 99, Payload: appendEntry(nil, &Entry{Term: 2})},
		{Tag: tag(entryFrame, 5), Stamp: 12, Payload: []byte("short")},
		{Tag: tag(stateFrame, 1), Stamp: 99, Payload: appendState(nil, State{1, 1, 99})},
		{Tag: tag(headFrame, 0), Stamp: 11, Payload: []byte{1}},
	} {
		frame.Pos = first + 1
		f.Add(format.AppendFrame(bytes.Clone(foreign), testMark, &frame), false)
	}
	head := segment.AppendHeader(nil, format.Magic, testMark, first)
	for _, payload := range [][]byte{make([]byte, headBytes), bytes.Repeat([]byte{0xff}, headBytes)} {
		f.Add(format.AppendFrame(bytes.Clone(head), testMark,
			&segment.Frame{Pos: first, Tag: tag(headFrame, 0), Stamp: 11, Payload: payload}), false)
	}

	f.Fuzz(func(t *testing.T, tail []byte, withHead bool) {
		if withHead { // otherwise few inputs would reach the entries
			tail = append(bytes.Clone(data[:beginBytes]), tail...)
		}
		fs := before.Crash()
		fs.Files[format.Name(first)] = &memfs.File{Data: bytes.Clone(tail)}
		l, err := Open(fs, testOptions)
		if err != nil {
			return
		}
		all := bytes.Clone(tail)
		for _, file := range before.Files {
			all = append(all, file.Data...)
		}
		list, err := l.Entries(l.Base()+1, l.Last()+1, 1<<40)
		if err != nil && l.Last() > l.Base() || uint64(len(list)) != l.Last()-l.Base() {
			t.Fatalf("got %d entries, want the entries %d to %d; error: %v", len(list), l.Base()+1, l.Last(), err)
		}
		last := uint64(0)
		for i, e := range list {
			term, err := l.Term(e.GetIndex())
			if err != nil || term != e.GetTerm() || term < last || e.GetIndex() != l.Base()+1+uint64(i) {
				t.Fatalf("entry %d: %v, %v", i, e, err)
			}
			last = term
			if payload := appendEntry(nil, &Entry{Term: term, Data: e.GetData()}); !bytes.Contains(all, payload) {
				t.Fatalf("entry %d is not in the files", e.GetIndex())
			}
		}
		state, end := l.state, l.Last()
		if state.Commit > end {
			t.Fatalf("entry %d is committed, want at most the last entry, %d", state.Commit, end)
		}
		if _, err := l.membersAt(end); err != nil {
			return // Raft refuses the change as well
		}
		mustAppend(t, l, []Entry{{Index: end + 1, Term: last + 1, Data: []byte("more")}}, nil)
		again, err := Open(fs, testOptions)
		if err != nil || again.Last() != end+1 || again.Base() != l.Base() || again.state != state {
			t.Fatalf("Open after one more entry: error %v, log %+v", err, again)
		}
	})
}
