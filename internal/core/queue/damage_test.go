package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// sample returns a queue of frames 1 to 12, three per segment. Frames 1 and 2 are done.
func sample(t testing.TB) *memfs.FS {
	t.Helper()
	fs := memfs.New()
	q, _ := open(t, fs, Options{SegmentBytes: 1})
	for id := uint64(1); id < 12; id += 3 {
		if _, err := q.Append(entries(id, id+1, id+2)...); err != nil {
			t.Fatal(err)
		}
	}
	take(t, q)
	take(t, q)
	return fs
}

// left returns the numbers of the frames that wait in the sample.
func left() []uint64 { return upTo(12)[2:] }

func firstsOf(fs *memfs.FS) (firsts []segment.Position) {
	for name := range fs.Files {
		if first, ok := segmentFormat.ParseName(name); ok {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts
}

func lostOf(damage []segment.Damage) (n uint64) {
	for _, d := range damage {
		n += d.Frames
	}
	return n
}

// The process may die at any byte of an append. Afterwards the queue has all acknowledged frames. Of the
// torn write, it has only the whole frames before the cut.
func TestTornAppendAtEveryByte(t *testing.T) {
	cuts, torn := 0, 0
	before := memfs.New()
	for id := uint64(1); id < 20; id += 3 {
		after := before.Crash()
		q, _ := open(t, after, Options{})
		// The second write goes into the segment that the first one began.
		for n := uint64(0); n < 3; n += 2 {
			acknowledged := id + n - 1
			before = after.Crash()
			if _, err := q.Append(entries(id+n, id+n+1)[:2-n/2]...); err != nil {
				t.Fatal(err)
			}
			written := acknowledged + 2 - n/2
			for name, f := range after.Files {
				start := 0
				if old := before.Files[name]; old != nil {
					start = len(old.Data)
				}
				for cut := start; cut < len(f.Data); cut++ {
					cuts++
					crashed := before.Crash()
					crashed.Files[name] = &memfs.File{Data: slices.Clone(f.Data[:cut])}
					q, damage := open(t, crashed, Options{})
					appendIDs(t, q, 100) // so that the reader passes the end of the torn segment
					got := takeAll(t, q)
					n := uint64(len(got)) - 1
					if n < acknowledged || n > written || !slices.Equal(got, append(upTo(n), 100)) {
						t.Fatalf("%s cut at %d: %d frames were acknowledged, but got %v", name, cut, acknowledged, got)
					}
					if lostOf(*damage) != 0 || len(*damage) > 1 {
						t.Fatalf("%s cut at %d: nothing acknowledged is lost, but the report says %v", name, cut, *damage)
					}
					torn += len(*damage)
				}
			}
		}
		before = after.Crash()
	}
	if cuts < 500 || torn < cuts-20 { // cuts between two frames tear nothing
		t.Fatalf("%d cuts were tried, want at least 500; damage was reported for %d", cuts, torn)
	}
}

// A bit flips anywhere on disk. The queue opens, never returns a wrong frame (idOf checks), loses
// no more than it must, and reports the loss.
func TestFlippedBitAtEveryByte(t *testing.T) {
	whole := sample(t)
	for name, f := range whole.Files {
		first, isSegment := segmentFormat.ParseName(name)
		for at := range f.Data {
			for bit := range 8 {
				flipped := whole.Crash()
				flipped.Files[name].Data[at] ^= 1 << bit
				q, damage := open(t, flipped, Options{})
				appendIDs(t, q, 13) // a further append must not lose more
				got := takeAll(t, q)
				want := append(left(), 13)
				most := 1
				switch {
				case !isSegment:
					most = 0
					want = upTo(13)[13-len(got):] // frames that are done may be returned again
				case at < segment.HeaderBytes:
					most = 3 // all frames of the segment
				}
				lost := 0
				for _, id := range want {
					if !slices.Contains(got, id) {
						lost++
					}
				}
				if !slices.IsSorted(got) || len(got) != len(want)-lost {
					t.Fatalf("%s byte %d: got %v, want only frames of %v, in order", name, at, got, want)
				}
				if lost > most {
					t.Fatalf(
						"%s byte %d: %d frames are lost, want at most %d; damage %v", name, at, lost, most, *damage)
				}
				// The reader cannot know whether the end of the last segment is torn.
				last := len(*damage) == 1 && strings.Contains((*damage)[0].Reason, "torn")
				if lost > 0 && (len(*damage) == 0 || uint64(lost) > lostOf(*damage) && !last) {
					t.Fatalf("%s byte %d (the segment begins at frame %d): %d frames are lost, but the report says %v",
						name, at, first, lost, *damage)
				}
			}
		}
	}
}

// Each case damages the sample, and has the report that the operator gets. The segments begin at
// frames 1, 4, 7 and 10.
func TestReport(t *testing.T) {
	nth := func(fs *memfs.FS, i int) *memfs.File { return fs.Files[segmentFormat.Name(firstsOf(fs)[i])] }
	cases := []struct {
		name   string
		damage func(fs *memfs.FS)
		lost   []uint64
		want   []string
	}{
		{"a whole queue has nothing to say", func(*memfs.FS) {}, nil, nil},
		{"a missing segment is a gap of known size", func(fs *memfs.FS) { delete(fs.Files, segmentFormat.Name(4)) },
			[]uint64{4, 5, 6},
			[]string{"00000000000000000001.segment, byte 259: frames 4 to 6 are damaged or missing (0 bytes, " +
				"at most 3 frames lost)"}},
		{"the oldest segment is missing", func(fs *memfs.FS) { delete(fs.Files, segmentFormat.Name(1)) }, []uint64{3},
			[]string{"00000000000000000004.segment, byte 0: frames 3 to 3 should come before this segment and are missing (0 " +
				"bytes, at most 1 frames lost)"}},
		{"a lost header costs its segment", func(fs *memfs.FS) { clear(nth(fs, 1).Data[:8]) }, []uint64{4, 5, 6},
			[]string{"00000000000000000004.segment, byte 0: cannot be read: header is damaged (233 bytes, " +
				"at most 3 frames lost)"}},
		{"a renamed segment is not believed", func(fs *memfs.FS) {
			fs.Files[segmentFormat.Name(100)] = nth(fs, 3)
			delete(fs.Files, segmentFormat.Name(10))
		}, []uint64{10, 11, 12}, []string{
			"00000000000000000007.segment, byte 264: frames 10 to 99 are damaged or missing (0 bytes, at most 90 frames lost)",
			"00000000000000000100.segment, byte 0: cannot be read: header is damaged: it says position 10 (320 bytes, " +
				"at most 11 frames lost)"}},
		{"zeros at the end, as after a power loss", func(fs *memfs.FS) {
			f := nth(fs, 3)
			f.Data = append(f.Data, make([]byte, 4096)...)
		}, nil,
			[]string{"00000000000000000010.segment, byte 320: no waiting frame: a frame that is done, " +
				"or a torn or failed write, never acknowledged unless power was lost (4096 bytes)"}},
		{"all segments are missing: their content is unknown", func(fs *memfs.FS) {
			for _, first := range firstsOf(fs) {
				delete(fs.Files, segmentFormat.Name(first))
			}
		}, left(), nil},
		{"the read position is missing, and the begin of the queue is unknown", func(fs *memfs.FS) {
			delete(fs.Files, doneName)
			delete(fs.Files, segmentFormat.Name(1))
		}, []uint64{3}, nil},
		{"damage to frames that are done loses nothing", func(fs *memfs.FS) {
			r := entry(1)
			nth(fs, 0).Data[segment.HeaderBytes+2*headBytes+len(r.Payload)] ^= 1
		}, nil,
			[]string{"00000000000000000001.segment, byte 101: no waiting frame: a frame that is done, " +
				"or a torn or failed write, never acknowledged unless power was lost (68 bytes)"}},
		{"an empty segment, as after a power loss", func(fs *memfs.FS) { fs.Files[segmentFormat.Name(13)] = &memfs.File{} },
			nil,
			[]string{"00000000000000000013.segment, byte 0: removed, since it holds no whole frame: a torn write, " +
				"never acknowledged unless power was lost (0 bytes)"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fs := sample(t)
			c.damage(fs)
			q, damage := open(t, fs, Options{})
			appendIDs(t, q, 13)
			want := slices.DeleteFunc(append(left(), 13), func(id uint64) bool { return slices.Contains(c.lost, id) })
			if got := takeAll(t, q); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			var said []string
			for _, d := range *damage {
				said = append(said, d.String())
			}
			if !slices.Equal(said, c.want) {
				t.Errorf("report:\n%s\nwant:\n%s", strings.Join(said, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// Frames that are damaged after they were counted no longer count as waiting.
func TestDamageInUse(t *testing.T) {
	fs := sample(t)
	q, damage := open(t, fs, Options{})
	fs.Files[segmentFormat.Name(4)].Data[segment.HeaderBytes+headBytes] ^= 1 // frame 4
	delete(fs.Files, segmentFormat.Name(7))
	if got := takeAll(t, q); !slices.Equal(got, []uint64{3, 5, 6, 10, 11, 12}) || lostOf(*damage) != 4 {
		t.Errorf("got %v; damage %v", got, *damage)
	}
	appendIDs(t, q, upTo(20)[12:]...)
	delete(fs.Files, segmentFormat.Name(firstsOf(fs)[len(firstsOf(fs))-1])) // the segment that is being written
	takeAll(t, q)
	appendIDs(t, q, 21)
	if got := takeAll(t, q); !slices.Equal(got, []uint64{21}) {
		t.Errorf("after the loss of the active segment: got %v, want 21", got)
	}
	if sum, _ := q.Waiting(); sum != (Amount{}) {
		t.Errorf("an empty queue has %+v waiting", sum)
	}
}

// If a sector cannot be read, the frames behind it in its segment are lost. The queue does not
// reuse positions that those frames may have, since the sector may become readable again, and no
// two frames may have the same position.
func TestUnreadableSector(t *testing.T) {
	fs := memfs.New()
	q, _ := open(t, fs, Options{SegmentBytes: 8 << 20})
	large := make([]byte, 1<<20)
	for range 4 {
		if _, err := q.Append(Frame{Payload: large}); err != nil {
			t.Fatal(err)
		}
	}
	reads := 0
	fs.Fail = func(op, _ string) error {
		if reads++; op == "read" && reads > 4 {
			return errors.New("input/output error")
		}
		return nil
	}
	q, damage := open(t, fs, Options{})
	fs.Fail = nil
	appendIDs(t, q, 1)
	for range 4 {
		if r, ok, err := q.Peek(); !ok || err != nil || len(r.Payload) != len(large) {
			t.Fatalf("Peek returned %d bytes, want %d; found %v, error %v", len(r.Payload), len(large), ok, err)
		}
		if counted, err := q.Done(); !counted || err != nil {
			t.Fatalf("Done counted the frame: %v, want true; error %v", counted, err)
		}
		if sum, _ := q.Waiting(); sum.Frames > 4 || sum.Bytes > 4*1<<20 {
			t.Fatalf("waiting: %+v, want at most 4 of 5 frames", sum)
		}
	}
	if got := takeAll(t, q); !slices.Equal(got, []uint64{1}) {
		t.Errorf("got %v behind the unreadable sector, want 1; damage %v", got, *damage)
	}
	if sum, _ := q.Waiting(); sum != (Amount{}) {
		t.Errorf("an empty queue has %+v waiting", sum)
	}
}

// A sender forges a frame inside its payload. Every field is as the queue would write it, except the
// mark. When the frame around the forged frame is damaged, the reader does not take the forged frame for
// a real one. With the right mark, the reader would take it for a real one, so the mark is secret.
func TestForgedFrame(t *testing.T) {
	for _, c := range []struct {
		mark uint32
		want bool
	}{{testMark + 1, false}, {testMark, true}} {
		forged := frame(c.mark, 2, &Frame{Payload: []byte("forged")})
		fs := memfs.New()
		q, _ := open(t, fs, Options{})
		// Room for two frames, so that position 2 is plausible.
		if _, err := q.Append(Frame{Payload: append(make([]byte, 2*headBytes), forged...)}); err != nil {
			t.Fatal(err)
		}
		fs.Files[segmentFormat.Name(1)].Data[segment.HeaderBytes+headBytes] ^= 1
		q, _ = open(t, fs, Options{})
		if _, ok, err := q.Peek(); ok != c.want || err != nil {
			t.Errorf("mark %x: found a frame: %v, want %v; error %v", c.mark, ok, c.want, err)
		}
	}
}

// The reader recognizes a misplaced frame by the position in the frame.
func TestMisplacedFrame(t *testing.T) {
	fs := memfs.New()
	q, damage := open(t, fs, Options{SegmentBytes: 1 << 20})
	for i := range 6 {
		if _, err := q.Append(Frame{Samples: uint32(i), Payload: []byte("payload")}); err != nil {
			t.Fatal(err)
		}
	}
	frames := fs.Files[segmentFormat.Name(1)].Data[segment.HeaderBytes:]
	one := len(frames) / 6
	copy(frames[3*one:4*one], frames[one:2*one]) // frame 2 in the place of frame 4
	copy(frames[:one], frame(testMark, 1e6, &Frame{Payload: []byte("payload")}))
	var got []uint32
	for r, ok, err := q.Peek(); ok; r, ok, err = q.Peek() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Samples)
		if _, err := q.Done(); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, []uint32{1, 2, 4, 5}) || lostOf(*damage) != 2 {
		t.Errorf("got %v; damage %v", got, *damage)
	}
}

// The queue does not overwrite files that an operator can repair or that a newer program wrote.
func TestOpenRefuses(t *testing.T) {
	newer := func(magic string) *memfs.File {
		b := segment.AppendHeader(nil, magic, testMark, 13)
		binary.LittleEndian.PutUint32(b[8:], 2)
		binary.LittleEndian.PutUint32(b[24:], crc32.Checksum(b[:24], crc32.MakeTable(crc32.Castagnoli)))
		return &memfs.File{Data: b}
	}
	cases := []struct {
		name   string
		change func(fs *memfs.FS)
		want   string
	}{
		{"a segment of a newer version", func(fs *memfs.FS) { fs.Files[segmentFormat.Name(13)] = newer(segmentFormat.Magic) },
			"read queue segment 00000000000000000013.segment: unknown format version 2, but this program knows only 1: " +
				"start the program that wrote the file"},
		{"a read position of a newer version", func(fs *memfs.FS) { fs.Files[doneName] = newer(doneMagic) },
			"read the read position of the queue, done: unknown format version 2, but this program knows only 1: " +
				"start the program that wrote the file"},
		{"a directory that cannot be listed", failing("list", ""), "list the queue: injected fault"},
		{"a segment that cannot be opened", failing("open", segmentFormat.Name(4)),
			"open queue segment 00000000000000000004.segment: injected fault"},
		{"a read position that cannot be opened", failing("open", doneName),
			"open the read position of the queue, done: injected fault"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fs := sample(t)
			c.change(fs)
			if _, err := Open(fs, Options{MaxBytes: memfs.Plenty}); err == nil || err.Error() != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func failing(op, name string) func(*memfs.FS) {
	return func(fs *memfs.FS) {
		fs.Fail = func(o, n string) error {
			if o == op && n == name {
				return memfs.ErrInjected
			}
			return nil
		}
	}
}

// If a file temporarily cannot be opened, its frames are neither skipped nor lost.
func TestPeekFails(t *testing.T) {
	fsys := sample(t)
	q, _ := open(t, fsys, Options{})
	failing("open", segmentFormat.Name(1))(fsys)
	if _, ok, err := q.Peek(); ok || !errors.Is(err, memfs.ErrInjected) || errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Peek found a frame: %v, want false; error %v, want the injected one", ok, err)
	}
	fsys.Fail = nil
	if got := takeAll(t, q); !slices.Equal(got, left()) {
		t.Errorf("then %v", got)
	}
}

// A failed append returns an error, and the next one works as if the failed one had not happened.
func TestAppendFails(t *testing.T) {
	for _, op := range []string{"create", "write", "sync", "syncdir"} {
		fs := memfs.New()
		q, damage := open(t, fs, Options{Sync: true})
		for id := range uint64(6) {
			fs.Fail = func(o, name string) error {
				if o == op {
					return fmt.Errorf("%s %s: %w", o, name, memfs.ErrInjected)
				}
				return nil
			}
			// The queue calls syncdir only for new segments.
			if _, err := q.Append(entry(50)); !errors.Is(err, memfs.ErrInjected) && (op == "write" || op == "sync" || id == 0) {
				t.Errorf("%s: %v", op, err)
			} else if err == nil {
				takeOnly(t, q, 50)
			}
			fs.Fail = nil
			crashed, crashDamage := open(t, fs.Crash(), Options{})
			if got := takeAll(t, crashed); len(got) > 0 || len(*crashDamage) > 0 {
				t.Errorf("%s: after a crash: got %v, damage %v; want none", op, got, *crashDamage)
			}
			appendIDs(t, q, id+1)
			takeOnly(t, q, id+1)
		}
		if len(*damage) > 0 {
			t.Errorf("%s: damage %v", op, *damage)
		}
	}
}

func takeOnly(t *testing.T, q *Queue, want uint64) {
	t.Helper()
	if got := takeAll(t, q); !slices.Equal(got, []uint64{want}) {
		t.Fatalf("got %v, want %d alone", got, want)
	}
}
