package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/series"
)

func TestRestart(t *testing.T) {
	fs, want := sample(t)
	l, report := mustOpen(t, fs.Crash(), 250)
	got := recovered(t, l)
	for _, shard := range testShards {
		if !slices.Equal(got[shard], want[shard]) {
			t.Errorf("shard %d: %v, want %v", shard, got[shard], want[shard])
		}
	}
	if report.Checkpoint != checkpointFormat.Name(15) || report.Sections != 4 || report.Frames != 12 || report.Last != 27 {
		t.Errorf("report %+v", report)
	}
}

// The bytes on disk never change: docs/format/journal.md draws them.
func TestFormat(t *testing.T) {
	fs := memfs.New()
	l, _ := mustOpen(t, fs, 0)
	if _, err := l.Append([]Frame{{Shard: 517, Type: 3, Payload: []byte("abc")}}); err != nil {
		t.Fatal(err)
	}
	c, err := l.BeginCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Section(517, 1, []byte("state")); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		segmentFormat.Name(1): "465253484a524e4c 01000000 c1a83f9d 0100000000000000 fea7405e " +
			"c1a83f9d 5e3a4dbf 03000000 0502 03 00 0100000000000000 616263 ",
		checkpointFormat.Name(1): "46525348434b5054 01000000 c1a83f9d 0100000000000000 96a7efb0 " +
			"c1a83f9d 9987e347 05000000 0502 01 00 0100000000000000 7374617465 " +
			"c1a83f9d ce5cf025 04000000 0000 02 00 0100000000000000 01000000 ",
	}
	for name, bytes := range want {
		if got := fmt.Sprintf("%x", fs.Files[name].Data); got != strings.ReplaceAll(bytes, " ", "") {
			t.Errorf("%s:\n got %s\nwant %s", name, got, bytes)
		}
	}
}

// Positions continue where the previous process ended. Nothing is appended to the last segment of
// that process, since the process may have given it up.
func TestPositionsGoOn(t *testing.T) {
	fs := memfs.New()
	for process := range 3 {
		l, report := mustOpen(t, fs, 0)
		if report.Last != Position(2*process) {
			t.Fatalf("the last position is %d after %d processes, want %d", report.Last, process, 2*process)
		}
		pos, err := l.Append([]Frame{{Shard: 1}, {Shard: 2}})
		if err != nil || pos != Position(2*process+2) {
			t.Fatalf("position %d after an append, want %d; error %v", pos, 2*process+2, err)
		}
	}
	if len(fs.Files) != 3 {
		t.Errorf("%d segments", len(fs.Files))
	}
}

// Append writes all its frames, and the header of a new segment, in one write.
func TestOneWrite(t *testing.T) {
	fs := memfs.New()
	writes := 0
	fs.Fail = func(op, _ string) error {
		if op == "write" {
			writes++
		}
		return nil
	}
	l, _ := mustOpen(t, fs, 1000)
	for range 5 {
		var frames []Frame
		for shard := range uint16(100) {
			frames = append(frames, Frame{Shard: shard, Payload: make([]byte, 100)})
		}
		if _, err := l.Append(frames); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 5 || len(fs.Files) != 5 {
		t.Errorf("%d writes to %d segments, want 5 and 5", writes, len(fs.Files))
	}
}

// The disk is full for a while: no refused frame counts, and no restart is needed once there is
// space.
func TestNoSpaceAndSpaceAgain(t *testing.T) {
	for _, truncateFails := range []bool{false, true} {
		t.Run(fmt.Sprint("truncate fails: ", truncateFails), func(t *testing.T) {
			fs := memfs.New()
			l, _ := mustOpen(t, fs, 0)
			appendOne := func(id uint64) error { _, err := l.Append([]Frame{entry(id), entry(id + 1)}); return err }
			if err := appendOne(1); err != nil {
				t.Fatal(err)
			}
			if truncateFails {
				failing("truncate")(fs)
			}
			for _, space := range []int{segment.FrameBytes + 70, 1, 0} { // the first has room for one whole frame
				fs.Space = space
				if err := appendOne(100); !errors.Is(err, memfs.ErrNoSpace) {
					t.Fatalf("with %d bytes left: %v", space, err)
				}
			}
			fs.Space = memfs.Plenty
			if err := appendOne(3); err != nil {
				t.Fatal(err)
			}
			// A segment that was cut back stays in use. A segment that was not cut back is
			// abandoned.
			if segments := len(fs.Files); (segments == 1) == truncateFails {
				t.Errorf("%d segments", segments)
			}
			l, report := mustOpen(t, fs.Crash(), 0)
			if len(report.Damage) > 0 || report.Last != 4 {
				t.Errorf("report %+v", report)
			}
			got := recovered(t, l)
			want := state{}
			for id := range uint64(4) {
				want.fold(t, entry(id+1))
			}
			for _, shard := range testShards {
				if !slices.Equal(got[shard], want[shard]) {
					t.Errorf("shard %d: %v, want %v", shard, got[shard], want[shard])
				}
			}
		})
	}
}

// A failed checkpoint changes nothing, frees its space, and does not block the next.
func TestCheckpointFails(t *testing.T) {
	for _, op := range []string{"write", "sync", "rename", "syncdir"} {
		t.Run(op, func(t *testing.T) {
			fs, want := sample(t)
			l, _ := mustOpen(t, fs, 250)
			size := l.Size()
			c, err := l.BeginCheckpoint()
			if err != nil {
				t.Fatal(err)
			}
			failing(op)(fs)
			for _, shard := range testShards {
				_ = c.Section(shard, l.tail.Last, want.section(shard)) // Commit returns Section's error
			}
			if err := c.Commit(); !errors.Is(err, memfs.ErrInjected) {
				t.Fatalf("commit: %v", err)
			}
			fs.Fail = nil
			if fs.Files[checkpointTemp] != nil || l.Size() != size {
				t.Errorf("after a failed checkpoint the size is %d, want %d; files %v, want no temporary file",
					l.Size(), size, fs.Files)
			}
			again, report := mustOpen(t, fs.Crash(), 250)
			if len(report.Damage) > 0 || count(recovered(t, again)) != count(want) {
				t.Errorf("report %+v", report)
			}
			checkpointAll(t, l, want)
			if l.Size() != 0 {
				t.Errorf("the size is %d after a checkpoint, want 0", l.Size())
			}
		})
	}
}

// A checkpoint is not lost if the files that it replaces cannot be removed; the next one removes
// them.
func TestRemoveFails(t *testing.T) {
	fs, want := sample(t)
	l, _ := mustOpen(t, fs, 250)
	c, err := l.BeginCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	for _, shard := range testShards {
		if err := c.Section(shard, l.tail.Last, want.section(shard)); err != nil {
			t.Fatal(err)
		}
	}
	before := len(fs.Files)
	failing("remove")(fs)
	if err := c.Commit(); err == nil ||
		!strings.HasPrefix(err.Error(),
			"checkpoint at position 27 is in place, but the files that it replaces could not be removed: remove ") {
		t.Fatalf("commit: %v", err)
	}
	fs.Fail = nil
	if l.Size() != 0 || len(fs.Files) != before {
		t.Errorf("the size is %d, want 0; %d files, want %d", l.Size(), len(fs.Files), before)
	}
	if _, err := l.Append([]Frame{entry(28)}); err != nil {
		t.Fatal(err)
	}
	want.fold(t, entry(28))
	checkpointAll(t, l, want)
	if len(fs.Files) != 3 { // two checkpoints and the segment of frame 28
		t.Errorf("%d files are left", len(fs.Files))
	}
}

// The kernel reports a failed sync only once, and the next one succeeds without saving the bytes. So Sync
// fails until a checkpoint has the frames. A checkpoint that was begun before the failure does not have
// them.
func TestSyncFails(t *testing.T) {
	for _, op := range []string{"sync", "syncdir"} {
		t.Run(op, func(t *testing.T) {
			fs, s := memfs.New(), state{}
			l, _ := mustOpen(t, fs, 0)
			add := func(id uint64) {
				t.Helper()
				if _, err := l.Append([]Frame{entry(id)}); err != nil {
					t.Fatal(err)
				}
				s.fold(t, entry(id))
			}
			add(1)
			early, err := l.BeginCheckpoint()
			if err != nil {
				t.Fatal(err)
			}
			add(2)
			failing(op)(fs)
			if err := l.Sync(); !errors.Is(err, memfs.ErrInjected) {
				t.Fatalf("sync: %v", err)
			}
			fs.Fail = nil
			add(3)
			for _, shard := range testShards {
				if err := early.Section(shard, 1, state{entry(1).Shard: {1}}.section(shard)); err != nil {
					t.Fatal(err)
				}
			}
			if err := early.Commit(); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := l.Sync(); !errors.Is(err, memfs.ErrInjected) || !strings.Contains(err.Error(), "frames up to 2 ") {
					t.Fatalf("sync: %v", err)
				}
			}
			if upTo, failed := l.Doubtful(); upTo != 2 || !failed {
				t.Fatalf("frames are doubtful up to %d, want 2; failed %v, want true", upTo, failed)
			}
			checkpointAll(t, l, s)
			add(4)
			if err := l.Sync(); err != nil {
				t.Fatal(err)
			}
			if _, failed := l.Doubtful(); failed {
				t.Fatal("a checkpoint has all frames, but some are still doubtful")
			}
			for seed := range uint64(20) {
				l, _ := mustOpen(t, fs.PowerLoss(rand.New(rand.NewPCG(seed, 1))), 0)
				if got := recovered(t, l); count(got) != 4 {
					t.Fatalf("seed %d: a power loss left %v, want the 4 frames of %v", seed, got, s)
				}
			}
		})
	}
}

// A sync may fail, and the process may die before the next checkpoint. The next process cannot know
// that, and finds all frames in the page cache. Its first Sync must save these frames all the same, even
// on a full disk.
func TestTheLastProcessFailedToSync(t *testing.T) {
	for _, space := range []int{memfs.Plenty, 0} {
		failedToSync(t, space)
	}
}

func failedToSync(t *testing.T, space int) {
	for seed := range uint64(50) {
		fs := memfs.New()
		l, _ := mustOpen(t, fs, 100)
		for id := range uint64(9) {
			if _, err := l.Append([]Frame{entry(id)}); err != nil {
				t.Fatal(err)
			}
			if id%4 == 3 {
				failing("sync")(fs)
				if err := l.Sync(); err == nil {
					t.Fatal("a failed sync is not reported")
				}
				fs.Fail = nil
			}
		}
		fs = fs.Crash()
		fs.Space = space
		l, report := mustOpen(t, fs, 100)
		if report.Frames != 9 {
			t.Fatalf("%d frames", report.Frames)
		}
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		l, _ = mustOpen(t, fs.PowerLoss(rand.New(rand.NewPCG(seed, 1))), 100)
		if got := recovered(t, l); count(got) != 9 {
			t.Fatalf("seed %d: a power loss left %v, want 9 frames", seed, got)
		}
	}
}

// The last process may leave a segment without a whole frame. The next frame begins a segment of
// the same name, so Sync must not rewrite the old segment over it.
func TestAnEmptyLastSegmentIsLeft(t *testing.T) {
	fs := memfs.New()
	l, _ := mustOpen(t, fs, 0)
	if _, err := l.Append([]Frame{entry(1)}); err != nil {
		t.Fatal(err)
	}
	fs.Files[segmentFormat.Name(2)] = &memfs.File{Data: []byte("FRSH")}
	l, _ = mustOpen(t, fs.Crash(), 0)
	fs = l.fs.(*memfs.FS)
	if _, err := l.Append([]Frame{entry(2)}); err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	l, _ = mustOpen(t, fs, 0)
	if got := recovered(t, l); count(got) != 2 {
		t.Errorf("recovered %v", got)
	}
}

// However long the journal runs, it keeps only two checkpoints and the segments that they need.
func TestDiskIsBounded(t *testing.T) {
	fs, s := memfs.New(), state{}
	l, _ := mustOpen(t, fs, 250)
	for id := range uint64(200) {
		if _, err := l.Append([]Frame{entry(id)}); err != nil {
			t.Fatal(err)
		}
		s.fold(t, entry(id))
		if id%10 == 0 {
			checkpointAll(t, l, s)
			checkpointAll(t, l, s) // no frame came in between, so the older one must stay
		}
		if len(fs.Files) > 16 {
			t.Fatalf("%d files after %d frames, want at most 16", len(fs.Files), id)
		}
	}
	if len(l.sealed) > 8 {
		t.Errorf("%d descriptors are open", len(l.sealed))
	}
}

// Only one checkpoint can be under way. After an Abort the next can begin.
func TestCheckpointBusy(t *testing.T) {
	l, _ := mustOpen(t, memfs.New(), 0)
	c, err := l.BeginCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.BeginCheckpoint(); !errors.Is(err, errBusy) {
		t.Errorf("second: %v", err)
	}
	c.Abort()
	checkpointAll(t, l, state{})
	c.Abort() // has no effect any more
}

// A call that breaks a promise of the aggregator panics, and writes nothing.
func TestBrokenPromises(t *testing.T) {
	fs, want := sample(t)
	l, _ := mustOpen(t, fs, 0)
	c, err := l.BeginCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Section(1, 27, want.section(1)); err != nil {
		t.Fatal(err)
	}
	cases := map[string]func(){
		"a section twice":                     func() { _ = c.Section(1, 27, nil) },
		"a state older than removed frames":   func() { _ = c.Section(2, 26, nil) },
		"a state with frames not yet written": func() { _ = c.Section(2, 28, nil) },
		"a section of an unknown shard":       func() { _ = c.Section(series.Shards, 27, nil) },
		"a frame of an unknown shard":         func() { _, _ = l.Append([]Frame{{Shard: series.Shards}}) },
	}
	for name, broken := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if r := recover(); r == nil || !strings.HasPrefix(fmt.Sprint(r), "BUG: ") {
					t.Errorf("recovered %v", r)
				}
			}()
			broken()
		})
	}
}

// Sizes beyond the limits are refused, since a reader would take them for damage.
func TestLimits(t *testing.T) {
	fs := memfs.New()
	l, _ := mustOpen(t, fs, 0)
	if _, err := l.Append([]Frame{{Shard: 1, Payload: []byte("x")},
		{Shard: 7, Payload: make([]byte, MaxPayload+1)}}); err == nil ||
		err.Error() != "append to the journal of shard 7: frame too large: 16777217 bytes exceed 16777216" {
		t.Errorf("append: %v", err)
	}
	if len(fs.Files) > 0 {
		t.Error("a refused Append wrote data")
	}
	if _, err := l.Append([]Frame{{Shard: 7, Payload: make([]byte, MaxPayload)}}); err != nil {
		t.Error(err)
	}
	if l, _ = mustOpen(t, fs, 0); l.tail.Last != 1 {
		t.Errorf("last position %d", l.tail.Last)
	}
}

// An error from the callback of Load or Replay stops the start, and the message names the place.
func TestCallbackErrors(t *testing.T) {
	fs, _ := sample(t)
	l, _ := mustOpen(t, fs, 0)
	bad := errors.New("kind 9 is unknown")
	if err := l.Load(func(uint16, Position, []byte) error { return bad }); !errors.Is(err, bad) ||
		err.Error() != "load section of shard 0 from checkpoint 00000000000000000015.checkpoint: kind 9 is unknown" {
		t.Errorf("load: %v", err)
	}
	if err := l.Replay(func(Position, Frame) error { return bad }); !errors.Is(err, bad) ||
		!strings.HasPrefix(err.Error(), "replay frame 16 of shard ") {
		t.Errorf("replay: %v", err)
	}
}

// Append, Sync and a checkpoint run on three goroutines, for the race detector.
func TestConcurrently(t *testing.T) {
	fs := memfs.New()
	l, _ := mustOpen(t, fs, 500)
	var done sync.WaitGroup
	stop := make(chan struct{})
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := l.Sync(); err != nil {
					t.Errorf("sync: %v", err)
					return
				}
			}
		}
	})
	done.Go(func() {
		for range 50 {
			c, err := l.BeginCheckpoint()
			if err == nil {
				err = c.Commit()
			}
			if err != nil {
				t.Errorf("checkpoint: %v", err)
				return
			}
		}
	})
	for range 2000 {
		if _, err := l.Append([]Frame{{Shard: 5, Payload: []byte("payload")}}); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	done.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if l, _ := mustOpen(t, fs, 500); l.tail.Last != 2000 {
		t.Errorf("last position %d", l.tail.Last)
	}
}

// nullFS accepts writes and keeps nothing.
type nullFS struct{ segment.FS }

func (nullFS) List() ([]string, error)               { return nil, nil }
func (nullFS) Create(string) (segment.Writer, error) { return nullFile{}, nil }

func (nullFS) Open(string) (segment.Reader, int64, error) { return nil, 0, fs.ErrNotExist }

type nullFile struct{ io.Writer }

func (nullFile) Write(b []byte) (int, error) { return len(b), nil }
func (nullFile) Sync() error                 { return nil }
func (nullFile) Close() error                { return nil }

// hangingFS has files whose Write hangs until it is released.
type hangingFS struct {
	nullFS
	hangs, goesOn chan struct{}
}

func (f hangingFS) Create(string) (segment.Writer, error) { return hangingFile{fs: f}, nil }

type hangingFile struct {
	nullFile
	fs hangingFS
}

func (f hangingFile) Write(b []byte) (int, error) {
	f.fs.hangs <- struct{}{}
	<-f.fs.goesOn
	return len(b), nil
}

// The size is a metric of the process. In the past, Size waited for an Append that hung on a frozen
// disk, so neither metrics nor a diagnosis were available.
func TestSizeWaitsForNoDisk(t *testing.T) {
	fs := hangingFS{hangs: make(chan struct{}), goesOn: make(chan struct{})}
	l, _ := mustOpen(t, fs, 1<<40)
	appended, size := make(chan error), make(chan int64, 1)
	go func() {
		_, err := l.Append(window(100))
		appended <- err
	}()
	<-fs.hangs
	go func() { size <- l.Size() }()
	select {
	case n := <-size:
		if n != 0 {
			t.Errorf("Size returned %d, want 0, because no byte is written yet", n)
		}
	case <-time.After(20 * time.Second): // reached only if Size waits
		t.Error("Size waits for the disk")
	}
	close(fs.goesOn)
	if err := <-appended; err != nil || l.Size() == 0 {
		t.Errorf("once the disk works again, Size returns %d, want more than 0; error %v", l.Size(), err)
	}
}

func window(payloadBytes int) []Frame {
	frames := make([]Frame, 1024)
	for i := range frames {
		frames[i] = Frame{Shard: uint16(i), Type: 1, Payload: make([]byte, payloadBytes)}
	}
	return frames
}

func TestAppendDoesNotAllocate(t *testing.T) {
	l, _ := mustOpen(t, nullFS{}, 1<<40)
	frames := window(100)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := l.Append(frames); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for each Append", n)
	}
}

// Bound: 0 allocs/op and at most 100 ns for a frame of 100 bytes, without the disk. One window of
// all shards then takes a tenth of a millisecond.
func BenchmarkEncode(b *testing.B) {
	for _, size := range []int{100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l, _ := mustOpen(b, nullFS{}, 1<<40)
			frames := window(size)
			b.SetBytes(int64(len(frames) * (segment.FrameBytes + size)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Append(frames); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(frames)), "ns/frame")
		})
	}
}

// Bound: 250 ns for a frame of 100 bytes in the page cache, so that a restart reads a minute of
// windows of all shards, 61,440 frames, in 15 ms. Replay holds one read-ahead in memory.
func BenchmarkReplay(b *testing.B) {
	fs := memfs.New()
	l, _ := mustOpen(b, fs, 0)
	frames := window(100)
	for range 60 {
		if _, err := l.Append(frames); err != nil {
			b.Fatal(err)
		}
	}
	l, report := mustOpen(b, fs, 0)
	b.SetBytes(l.Size())
	b.ReportAllocs()
	for b.Loop() {
		n := uint64(0)
		if err := l.Replay(func(Position, Frame) error { n++; return nil }); err != nil || n != report.Frames {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(report.Frames), "ns/frame")
}
