package journal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/series"
)

// sample returns a small journal with everything in it: two checkpoints, segments that only the
// older one needs, and segments that both need.
func sample(t testing.TB) (*memfs.FS, state) {
	t.Helper()
	fs, s, id := memfs.New(), state{}, uint64(1)
	l, _ := mustOpen(t, fs, 250)
	appendSome := func(batches int) {
		for range batches {
			var frames []Frame
			for range 3 {
				frames = append(frames, entry(id))
				s.fold(t, entry(id))
				id++
			}
			if _, err := l.Append(frames); err != nil {
				t.Fatal(err)
			}
		}
	}
	appendSome(2)
	checkpointAll(t, l, s)
	appendSome(3)
	checkpointAll(t, l, s)
	appendSome(4)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return fs, s
}

func count(s state) (n int) {
	for _, ids := range s {
		n += len(ids)
	}
	return n
}

// subsequence reports whether `got` is `want` with some elements left out.
func subsequence(got, want []uint64) bool {
	for _, id := range got {
		i := slices.Index(want, id)
		if i < 0 {
			return false
		}
		want = want[i+1:]
	}
	return true
}

// The process dies at any byte of a write. All acknowledged frames are recovered. Of the torn batch,
// only the first few whole frames may be recovered.
func TestTornWriteAtEveryByte(t *testing.T) {
	fs, acknowledged, id := memfs.New(), state{}, uint64(1)
	l, _ := mustOpen(t, fs, 300)
	cuts := 0
	for batch := range 8 {
		if batch == 3 {
			checkpointAll(t, l, acknowledged)
		}
		before := fs.Crash()
		var frames []Frame
		var all []uint64
		after := state{}
		for shard, ids := range acknowledged {
			after[shard] = slices.Clone(ids)
		}
		for range 4 {
			frames, all = append(frames, entry(id)), append(all, id)
			after.fold(t, entry(id))
			id++
		}
		if _, err := l.Append(frames); err != nil {
			t.Fatal(err)
		}
		for name, f := range fs.Files {
			start := 0
			if old := before.Files[name]; old != nil {
				start = len(old.Data)
			}
			for cut := start; cut <= len(f.Data) && start < len(f.Data); cut++ {
				cuts++
				torn := before.Crash()
				torn.Files[name] = &memfs.File{Data: slices.Clone(f.Data[:cut])}
				l, report := mustOpen(t, torn, 300)
				got := recovered(t, l)
				var extra []uint64
				for _, shard := range testShards {
					want := acknowledged[shard]
					if len(got[shard]) < len(want) || !slices.Equal(got[shard][:len(want)], want) {
						t.Fatalf("%s cut at %d: shard %d: acknowledged %v, recovered %v", name, cut, shard, want, got[shard])
					}
					extra = append(extra, got[shard][len(want):]...)
				}
				slices.Sort(extra)
				if !slices.Equal(extra, all[:len(extra)]) {
					t.Fatalf("%s cut at %d: recovered %v, want only the first frames of the torn batch %v",
						name, cut, extra, all)
				}
				if report.LostFrames != 0 {
					t.Fatalf("%s cut at %d: nothing acknowledged is lost, but the report says %+v", name, cut, report)
				}
				// The first start has cut off the tail, and the journal continues.
				if _, report := mustOpen(t, torn, 300); len(report.Damage) > 0 {
					t.Fatalf("%s cut at %d: the second start says %+v", name, cut, report)
				}
				if _, err := l.Append([]Frame{entry(1000)}); err != nil {
					t.Fatal(err)
				}
				again, report := mustOpen(t, torn, 300)
				if len(report.Damage) > 0 || count(recovered(t, again)) != count(got)+1 {
					t.Fatalf("%s cut at %d: frames are lost or damaged after an append: %+v", name, cut, report)
				}
			}
		}
		acknowledged = after
	}
	if cuts < 1000 {
		t.Fatalf("only %d cuts were tried", cuts)
	}
}

// A bit flips anywhere on disk. The journal opens and reports the damage, never returns a wrong frame
// (the method fold checks this), and loses no more than it must.
func TestFlippedBitAtEveryByte(t *testing.T) {
	whole, want := sample(t)
	l, _ := mustOpen(t, whole.Crash(), 250)
	base := l.base
	for name, f := range whole.Files {
		first, isSegment := segmentFormat.ParseName(name)
		for at := range f.Data {
			for bit := range 8 {
				if testing.Short() && bit != at%8 {
					continue
				}
				flipped := whole.Crash()
				flipped.Files[name].Data[at] ^= 1 << bit
				l, report := mustOpen(t, flipped, 250)
				got := recovered(t, l)
				for _, shard := range testShards {
					if !subsequence(got[shard], want[shard]) {
						t.Fatalf("%s byte %d: shard %d: recovered %v, want only frames of %v, in order",
							name, at, shard, got[shard], want[shard])
					}
				}
				lost := count(want) - count(got)
				most := 0
				switch {
				case isSegment && first > base && at < segment.HeaderBytes:
					most = 3 // all frames of the segment
				case isSegment && first > base:
					most = 1
				}
				if lost > most {
					t.Fatalf("%s byte %d: %d frames are lost, want at most %d\n%+v", name, at, lost, most, report)
				}
				isOld := isSegment && first <= base || name == checkpointFormat.Name(6)
				if (len(report.Damage) == 0) != isOld {
					t.Fatalf("%s byte %d: damage in the report should be %t; report %+v", name, at, !isOld, report)
				}
				tail := len(report.Damage) == 1 && strings.Contains(report.Damage[0].Reason, "torn tail")
				if uint64(lost) > report.LostFrames && !tail {
					t.Fatalf("%s byte %d: %d frames are lost, but the report has fewer: %+v", name, at, lost, report)
				}
				// A further append and start must not lose more.
				if _, err := l.Append([]Frame{entry(1000)}); err != nil {
					t.Fatal(err)
				}
				again, _ := mustOpen(t, flipped, 250)
				if n := count(recovered(t, again)); n != count(got)+1 {
					t.Fatalf("%s byte %d: %d frames after one more append, want %d", name, at, n, count(got)+1)
				}
			}
		}
	}
}

// A checkpoint cut at any byte, even between two sections, is not taken for a whole one in which
// the missing shards are empty.
func TestShortCheckpointAtEveryByte(t *testing.T) {
	whole, want := sample(t)
	size := len(whole.Files[checkpointFormat.Name(15)].Data)
	for cut := range size {
		fs := whole.Crash()
		f := fs.Files[checkpointFormat.Name(15)]
		f.Data = f.Data[:cut]
		l, report := mustOpen(t, fs, 250)
		if n := count(want) - count(recovered(t, l)); n != 0 || len(report.Damage) != 1 {
			t.Fatalf("cut to %d of %d bytes: %d frames are lost, want 0; want one damage in the report %+v",
				cut, size, n, report)
		}
	}
}

// Each case damages the sample, and lists the damage that a start reports to the operator. The sample
// has the frames 1 to 27, and checkpoints at 6 and 15.
func TestReport(t *testing.T) {
	segments := func(fs *memfs.FS) []string {
		var after []string
		for _, f := range segment.After(segmentFormat.Files(slices.Collect(maps.Keys(fs.Files))), 15) {
			after = append(after, f.Name)
		}
		return after
	}
	cases := []struct {
		name   string
		damage func(fs *memfs.FS)
		lost   uint64
		want   []string // the text of each damage, in order
	}{
		{"a whole journal has nothing to say", func(*memfs.FS) {}, 0, nil},
		{"a missing segment is a gap of known size", func(fs *memfs.FS) { delete(fs.Files, segments(fs)[1]) }, 3,
			[]string{"00000000000000000016.segment, byte 163: frames 19 to 21 are missing (0 bytes, at most 3 frames lost)"}},
		{"the first segment is missing", func(fs *memfs.FS) { delete(fs.Files, segments(fs)[0]) }, 3,
			[]string{"00000000000000000019.segment, byte 0: frames 16 to 18 should come before this segment and are missing " +
				"(0 bytes, at most 3 frames lost)"}},
		{"the newest checkpoint is missing: the one before suffices",
			func(fs *memfs.FS) { delete(fs.Files, checkpointFormat.Name(15)) }, 0, nil},
		{"both checkpoints are missing: what they covered is lost", func(fs *memfs.FS) {
			delete(fs.Files, checkpointFormat.Name(15))
			delete(fs.Files, checkpointFormat.Name(6))
		}, 6,
			[]string{"00000000000000000007.segment, byte 0: frames 1 to 6 should come before this segment and are missing (0 " +
				"bytes, at most 6 frames lost)"}},
		{"a lost header costs its segment", func(fs *memfs.FS) { clear(fs.Files[segments(fs)[0]].Data[:8]) }, 3,
			[]string{"00000000000000000016.segment, byte 0: frames 16 to 18 are missing: header is damaged (163 bytes, " +
				"at most 3 frames lost)"}},
		{"a renamed segment is not believed", func(fs *memfs.FS) {
			fs.Files[segmentFormat.Name(100)] = fs.Files[segments(fs)[3]]
			delete(fs.Files, segments(fs)[3])
		}, 84, []string{
			"00000000000000000022.segment, byte 239: frames 25 to 99 are missing (0 bytes, at most 75 frames lost)",
			"00000000000000000100.segment, byte 0: the last segment cannot be read to its end: header is damaged: " +
				"it says position 25 (225 bytes, at most 9 frames lost)"}},
		{"zeros at the end, as after a power loss", func(fs *memfs.FS) {
			f := fs.Files[segments(fs)[3]]
			f.Data = append(f.Data, make([]byte, 4096)...)
		}, 0,
			[]string{"00000000000000000025.segment, byte 225: torn tail, cut off; it was never acknowledged, " +
				"unless power was lost (4096 bytes)"}},
		{"a checkpoint without its end", func(fs *memfs.FS) {
			f := fs.Files[checkpointFormat.Name(15)]
			f.Data = f.Data[:len(f.Data)-10]
		}, 0,
			[]string{"00000000000000000015.checkpoint, byte 244: checkpoint is damaged or incomplete; " +
				"4 sections of it are good (18 bytes)"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fs, want := sample(t)
			c.damage(fs)
			l, report := mustOpen(t, fs, 250)
			var got []string
			for _, d := range report.Damage {
				got = append(got, d.String())
			}
			if !slices.Equal(got, c.want) || report.LostFrames != c.lost {
				t.Errorf("lost %d frames:\n%s\nwant %d frames:\n%s",
					report.LostFrames, strings.Join(got, "\n"), c.lost, strings.Join(c.want, "\n"))
			}
			if n := count(want) - count(recovered(t, l)); uint64(n) > c.lost {
				t.Errorf("%d frames are lost", n)
			}
		})
	}
}

// A good section is used even if its neighbour is damaged, and even if files that the older
// checkpoint needs are missing: shards do not depend on each other.
func TestDamagedSection(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(name string, pos Position) bool
	}{
		{"the older checkpoint is missing", func(name string, _ Position) bool { return name == checkpointFormat.Name(6) }},
		{"the older checkpoint's segments are missing", func(_ string, pos Position) bool { return pos > 6 && pos < 15 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs, want := sample(t)
			for name := range fs.Files {
				base, _ := checkpointFormat.ParseName(name)
				first, _ := segmentFormat.ParseName(name)
				if c.lose(name, max(base, first)) {
					delete(fs.Files, name)
				}
			}
			// This byte is in the payload of the first section, which is of shard 0.
			fs.Files[checkpointFormat.Name(15)].Data[segment.HeaderBytes+segment.FrameBytes] ^= 1
			l, _ := mustOpen(t, fs, 250)
			got := recovered(t, l)
			for _, shard := range testShards[1:] {
				if !slices.Equal(got[shard], want[shard]) {
					t.Errorf("shard %d: %v, want %v", shard, got[shard], want[shard])
				}
			}
			if len(got[0]) == 0 || !subsequence(got[0], want[0]) {
				t.Errorf("shard 0: recovered %v, want some frames of %v, in order", got[0], want[0])
			}
		})
	}
}

// A second checkpoint at the same position replaces the first, and must not remove the checkpoint
// before them.
func TestCheckpointTwiceInARow(t *testing.T) {
	fs, want := sample(t)
	l, _ := mustOpen(t, fs, 250)
	checkpointAll(t, l, want)
	checkpointAll(t, l, want)
	clear(fs.Files[checkpointFormat.Name(27)].Data)
	l, report := mustOpen(t, fs, 250)
	if n := count(want) - count(recovered(t, l)); n != 0 {
		t.Errorf("%d frames are lost: %+v", n, report)
	}
}

// A disk that writes a block to the wrong place can misplace good frames of this very process. The
// position of such a frame shows that it is misplaced.
func TestMisplacedFrames(t *testing.T) {
	fs := memfs.New()
	l, _ := mustOpen(t, fs, 0)
	for range 10 {
		if _, err := l.Append([]Frame{{Shard: 1, Payload: []byte("payload")}}); err != nil {
			t.Fatal(err)
		}
	}
	frames := fs.Files[segmentFormat.Name(1)].Data[segment.HeaderBytes:]
	one := len(frames) / 10
	copy(frames[5*one:6*one], frames[2*one:3*one]) // frame 3 instead of frame 6
	copy(frames[8*one:9*one], frames[9*one:])      // frame 10 in the place of frame 9, and in its own
	copy(frames[0:one], frame(testMark, 1, 0, 1e6, []byte("payload")))
	l, report := mustOpen(t, fs, 0)
	var got []Position
	if err := l.Replay(func(pos Position, _ Frame) error { got = append(got, pos); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := []Position{2, 3, 4, 5, 7, 8, 10}; !slices.Equal(got, want) || report.Last != 10 {
		t.Errorf("positions %v, want %v\n%+v", got, want, report)
	}
}

// A sender may put a frame into its payload, with every field except the mark as the journal would write
// it. If the frame around it is damaged, the forged frame is neither read nor replayed. With the right
// mark it would be read, so the mark is secret.
func TestForgedFrame(t *testing.T) {
	for _, c := range []struct {
		mark uint32
		want int
	}{{testMark + 1, 0}, {testMark, 1}} {
		forged := frame(c.mark, 5, 9, 2, []byte("forged"))
		fs := memfs.New()
		l, _ := mustOpen(t, fs, 0)
		// Room for two frames, so that position 2 is plausible.
		payload := append(make([]byte, 2*segment.FrameBytes), forged...)
		if _, err := l.Append([]Frame{{Shard: 1, Payload: payload}}); err != nil {
			t.Fatal(err)
		}
		fs.Files[segmentFormat.Name(1)].Data[segment.HeaderBytes+segment.FrameBytes] ^= 1
		l, _ = mustOpen(t, fs, 0)
		n := 0
		if err := l.Replay(func(Position, Frame) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		if n != c.want {
			t.Errorf("mark %x: replayed %d frames, want %d", c.mark, n, c.want)
		}
	}
}

// A whole frame that the journal cannot have written counts as damage: its shard or its section
// type is unknown, or the last byte of its tag is not 0.
func TestForeignFrames(t *testing.T) {
	for what, tag := range map[string]uint32{"shard": tag(series.Shards, sectionFrame), "type": tag(1, 9),
		"byte 15": 1<<24 | tag(1, sectionFrame)} {
		fs, want := sample(t)
		foreign := func(format *segment.Format, pos Position) []byte {
			return format.AppendFrame(nil, testMark, &segment.Frame{Pos: pos, Tag: tag, Payload: []byte("foreign")})
		}
		last := fs.Files[segmentFormat.Name(25)]
		last.Data = append(last.Data, foreign(&segmentFormat, 28)...)
		newest := fs.Files[checkpointFormat.Name(15)]
		newest.Data = slices.Insert(newest.Data, segment.HeaderBytes, foreign(&checkpointFormat, 15)...)
		l, report := mustOpen(t, fs, 250)
		damage := 2
		if what == "type" {
			damage = 1 // a segment's frame may have any type, so only the section counts as damage
		}
		if len(report.Damage) != damage || report.Last != Position(29-damage) {
			t.Errorf("%s: report %+v", what, report)
		}
		if damage == 2 && !maps.EqualFunc(recovered(t, l), want, slices.Equal) {
			t.Errorf("%s: not all frames are recovered", what)
		}
	}
}

// A section with a position from before its checkpoint began is damage: the segments with the frames
// after that position are gone.
func TestSectionBeforeItsCheckpoint(t *testing.T) {
	fs, _ := sample(t)
	newest := fs.Files[checkpointFormat.Name(15)]
	old := checkpointFormat.AppendFrame(nil, testMark, &segment.Frame{Pos: 14, Tag: tag(2, sectionFrame)})
	newest.Data = slices.Insert(newest.Data, segment.HeaderBytes, old...)
	if _, report := mustOpen(t, fs, 250); len(report.Damage) != 1 || report.Sections != 4 {
		t.Errorf("report %+v", report)
	}
}

// An unreadable sector costs the frames after it in its segment. It is not taken for a torn tail
// and not cut off, since it may become readable again.
func TestUnreadableSector(t *testing.T) {
	fs := memfs.New()
	l, _ := mustOpen(t, fs, 8<<20)
	for i := range 4 {
		if _, err := l.Append([]Frame{{Shard: uint16(i), Payload: make([]byte, 1<<20)}}); err != nil {
			t.Fatal(err)
		}
	}
	name := segmentFormat.Name(1)
	size := len(fs.Files[name].Data)
	broken := fs.Crash()
	read := 0
	broken.Fail = func(op, _ string) error {
		if read++; op == "read" && read > 4 {
			return errors.New("input/output error")
		}
		return nil
	}
	l, report := mustOpen(t, broken, 8<<20)
	if len(report.Damage) != 1 || !strings.HasSuffix(report.Damage[0].Reason, "input/output error") {
		t.Fatalf("report %+v", report)
	}
	broken.Fail = nil
	if len(broken.Files[name].Data) != size {
		t.Fatal("the unreadable end was cut off")
	}
	if _, err := l.Append([]Frame{{Shard: 9}}); err != nil {
		t.Fatal(err)
	}
	// The disk works again. All frames are there, from before and after the fault.
	l, report = mustOpen(t, broken, 8<<20)
	var shards []uint16
	if err := l.Replay(func(_ Position, r Frame) error { shards = append(shards, r.Shard); return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(shards, []uint16{0, 1, 2, 3, 9}) {
		t.Fatalf("replayed %v\n%+v", shards, report)
	}
}

// A start fails and overwrites nothing if an operator can fix the fault, or if a newer program
// wrote a file.
func TestOpenRefuses(t *testing.T) {
	newer := func(magic string, pos Position) *memfs.File {
		b := segment.AppendHeader(nil, magic, testMark, pos)
		order.PutUint32(b[8:], 2)
		order.PutUint32(b[24:], crc32.Checksum(b[:24], crc32.MakeTable(crc32.Castagnoli)))
		return &memfs.File{Data: b}
	}
	cases := []struct {
		name   string
		change func(fs *memfs.FS)
		want   string
	}{
		{"a segment of a newer version", func(fs *memfs.FS) {
			fs.Files[segmentFormat.Name(28)] = newer(segmentFormat.Magic, 28)
		},
			"read journal segment 00000000000000000028.segment: unknown format version 2, but this program knows only 1: " +
				"start the program that wrote the file"},
		{"a checkpoint of a newer version", func(fs *memfs.FS) {
			fs.Files[checkpointFormat.Name(27)] = newer(checkpointFormat.Magic, 27)
		},
			"read checkpoint 00000000000000000027.checkpoint: unknown format version 2, but this program knows only 1: " +
				"start the program that wrote the file"},
		{"a directory that cannot be listed", failing("list"), "list the journal: injected fault"},
		{"a file that cannot be opened", func(fs *memfs.FS) {
			fs.Fail = func(op, name string) error {
				if op == "open" && name != "unsynced" {
					return memfs.ErrInjected
				}
				return nil
			}
		}, "open checkpoint 00000000000000000015.checkpoint: injected fault"},
		{"not known which stores are not synced", failing("open"), "read which stores are not synced: injected fault"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fs, _ := sample(t)
			c.change(fs)
			_, _, err := Open(fs, Options{Mark: testMark})
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func failing(op string) func(*memfs.FS) {
	return func(fs *memfs.FS) {
		fs.Fail = func(o, _ string) error {
			if o == op {
				return memfs.ErrInjected
			}
			return nil
		}
	}
}

// The report on a file that is damaged all over stays small.
func TestReportIsBounded(t *testing.T) {
	fs := memfs.New()
	l, _ := mustOpen(t, fs, 0)
	for id := range uint64(1000) {
		if _, err := l.Append([]Frame{entry(id)}); err != nil {
			t.Fatal(err)
		}
	}
	data := fs.Files[segmentFormat.Name(1)].Data
	at := segment.HeaderBytes
	for i := range 1000 {
		if i%2 == 0 {
			data[at] ^= 1
		}
		at += segment.FrameBytes + int(order.Uint32(data[at+8:]))
	}
	_, report := mustOpen(t, fs, 0)
	if got := fmt.Sprint(len(report.Damage), report.MoreDamage, report.LostFrames, report.Frames); got !=
		"100 400 500 500" {
		t.Errorf("damage, more damage, lost frames and frames in the report: got %s, want 100 400 500 500", got)
	}
}
