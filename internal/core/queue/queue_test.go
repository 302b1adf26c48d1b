package queue

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// testMark begins the frames of tests.
const testMark = 0x9d3fa8c1

// headBytes is the length of a frame before its payload.
var headBytes = segmentFormat.HeadBytes()

// frame returns a whole frame, as a sender may forge it or a disk may misplace it.
func frame(mark uint32, pos segment.Position, r *Frame) []byte {
	f := onDisk(r)
	f.Pos = pos
	return segmentFormat.AppendFrame(nil, mark, &f)
}

// sizeOf returns the size of all segments.
func sizeOf(fs *memfs.FS) (n int64) {
	for name, f := range fs.Files {
		if _, ok := segmentFormat.ParseName(name); ok {
			n += int64(len(f.Data))
		}
	}
	return n
}

// entry returns frame number id: its fields follow from the number, so that an invented or
// garbled frame is noticed at once.
func entry(id uint64) Frame {
	rng := rand.New(rand.NewPCG(id, 7))
	payload := binary.BigEndian.AppendUint64(nil, id)
	for range rng.IntN(60) {
		payload = append(payload, byte(rng.IntN(4))) // four values only, so that bytes often look like a mark
	}
	return Frame{Time: int64(id) * 1000, Samples: uint32(rng.IntN(9)), Payload: payload}
}

func entries(ids ...uint64) (frames []Frame) {
	for _, id := range ids {
		frames = append(frames, entry(id))
	}
	return frames
}

func amountOf(ids []uint64) (sum Amount) {
	for _, id := range ids {
		r := entry(id)
		sum.Add(r.Amount())
	}
	return sum
}

// idOf returns the number from which `entry` made a frame.
func idOf(t testing.TB, r Frame) uint64 {
	t.Helper()
	if len(r.Payload) < 8 {
		t.Fatalf("a frame that has %d bytes was never appended", len(r.Payload))
	}
	id := binary.BigEndian.Uint64(r.Payload)
	if want := entry(id); want.Time != r.Time || want.Samples != r.Samples || string(want.Payload) != string(r.Payload) {
		t.Fatalf("frame %d came back changed: %+v", id, r)
	}
	return id
}

// open opens a queue whose segments have about three frames.
func open(t testing.TB, fs *memfs.FS, opts Options) (*Queue, *[]segment.Damage) {
	t.Helper()
	damage := &[]segment.Damage{}
	opts.Mark = testMark
	opts.Damaged = func(d segment.Damage) { *damage = append(*damage, d) }
	if opts.MaxBytes == 0 {
		opts.MaxBytes = memfs.Plenty
	}
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = 250
	}
	q, err := Open(fs, opts)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return q, damage
}

func appendIDs(t testing.TB, q *Queue, ids ...uint64) {
	t.Helper()
	for _, id := range ids {
		if _, err := q.Append(entry(id)); err != nil {
			t.Fatal(err)
		}
	}
}

// take calls Done for the next frame and returns the frame's number, or 0 if there is no frame.
func take(t testing.TB, q *Queue) uint64 {
	t.Helper()
	r, ok, err := q.Peek()
	if err != nil {
		t.Fatalf("peek: %v", err)
	}
	if !ok {
		return 0
	}
	id := idOf(t, r)
	if counted, err := q.Done(); !counted || err != nil {
		t.Fatalf("Done for frame %d: counted %v, want true; error %v", id, counted, err)
	}
	return id
}

func takeAll(t testing.TB, q *Queue) (ids []uint64) {
	t.Helper()
	for id := take(t, q); id != 0; id = take(t, q) {
		ids = append(ids, id)
	}
	return ids
}

func upTo(n uint64) (ids []uint64) {
	for id := range n {
		ids = append(ids, id+1)
	}
	return ids
}

// The bytes on disk never change: docs/format/queue.md draws them.
func TestLayout(t *testing.T) {
	fs := memfs.New()
	q, _ := open(t, fs, Options{})
	if _, err := q.Append(Frame{Time: 1_795_228_020_123, Samples: 3, Payload: []byte("abc")}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := q.Peek(); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Done(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"00000000000000000001.segment": "4652534851554555 01000000 c1a83f9d 0100000000000000 e04511ce" +
			"c1a83f9d edc8426b 03000000 03000000 0100000000000000 9badedfba1010000 616263",
		"done": "46525348444f4e45 01000000 c1a83f9d 0100000000000000 53344bc6",
	} {
		if got := hex.EncodeToString(fs.Files[name].Data); got != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// Frames come out once and in order, even if the process restarts at any point. Segments whose
// frames are done are removed.
func TestFirstInFirstOut(t *testing.T) {
	for stop := range 20 {
		fs := memfs.New()
		q, damage := open(t, fs, Options{})
		appendIDs(t, q, upTo(20)...)
		var got []uint64
		for range stop {
			got = append(got, take(t, q))
		}
		q, damage2 := open(t, fs.Crash(), Options{})
		if sum, oldest := q.Waiting(); sum != amountOf(upTo(20)[stop:]) || oldest != int64(stop+1)*1000 {
			t.Errorf("after %d of 20 frames: %+v waiting, the oldest has the time %d", stop, sum, oldest)
		}
		appendIDs(t, q, 21, 22)
		got = append(got, takeAll(t, q)...)
		if !slices.Equal(got, upTo(22)) || len(*damage)+len(*damage2) > 0 {
			t.Errorf("restart after %d of 20 frames: got %v; damage %v %v", stop, got, *damage, *damage2)
		}
		if n := len(q.segments); n > 1 {
			t.Errorf("%d segments are left of an empty queue", n)
		}
		if sum, oldest := q.Waiting(); sum != (Amount{}) || oldest != 0 {
			t.Errorf("an empty queue has %+v waiting, oldest time %d", sum, oldest)
		}
	}
}

// A frame that is not done is returned again, even after a restart.
func TestAtLeastOnce(t *testing.T) {
	fs := memfs.New()
	q, _ := open(t, fs, Options{})
	appendIDs(t, q, 1, 2)
	for range 3 {
		for range 2 {
			if r, ok, err := q.Peek(); !ok || err != nil || idOf(t, r) != 1 {
				t.Fatalf("Peek does not return frame 1: found %v, error %v", ok, err)
			}
		}
		if _, oldest := q.Waiting(); oldest != 1000 {
			t.Fatalf("the oldest is of %d", oldest)
		}
		fs = fs.Crash()
		q, _ = open(t, fs, Options{})
	}
	take(t, q)
	if _, _, err := q.Peek(); err != nil {
		t.Fatal(err)
	}
	if _, oldest := q.Waiting(); oldest != 2000 {
		t.Errorf("after frame 1 is done, the oldest frame has the time %d, want 2000", oldest)
	}
}

// A queue that is empty most of the time can remove its last segment at once. The next segment continues
// the positions.
func TestTrim(t *testing.T) {
	fs := memfs.New()
	q, _ := open(t, fs, Options{})
	appendIDs(t, q, 1, 2)
	take(t, q)
	if q.Trim(); len(firstsOf(fs)) != 1 {
		t.Error("a segment with a frame that waits was removed")
	}
	take(t, q)
	for range 2 {
		if q.Trim(); len(firstsOf(fs)) != 0 {
			t.Errorf("the segments %v are left", firstsOf(fs))
		}
	}
	appendIDs(t, q, 3)
	q, damage := open(t, fs.Crash(), Options{})
	if ids := takeAll(t, q); !slices.Equal(ids, []uint64{3}) || len(*damage) > 0 {
		t.Errorf("frames %v are left, and the damage is %v", ids, *damage)
	}
}

// Ahead reads the oldest frames and leaves them where they are.
func TestAhead(t *testing.T) {
	fs := memfs.New()
	q, _ := open(t, fs, Options{})
	ahead := func(bytes int) (ids []uint64) {
		frames, err := q.Ahead(bytes)
		if err != nil {
			t.Error(err)
		}
		for _, f := range frames {
			ids = append(ids, idOf(t, f))
		}
		return ids
	}
	if ids := ahead(100); len(ids) > 0 {
		t.Errorf("an empty queue has frames %v", ids)
	}
	appendIDs(t, q, upTo(12)...)
	take(t, q)
	for _, c := range []struct {
		bytes int
		want  []uint64
	}{{1 << 20, upTo(12)[1:]}, {0, []uint64{2}}, {len(entry(2).Payload) + len(entry(3).Payload), []uint64{2, 3}}} {
		if ids := ahead(c.bytes); !slices.Equal(ids, c.want) {
			t.Errorf("Ahead(%d) returned the frames %v, want %v", c.bytes, ids, c.want)
		}
	}
	if id := take(t, q); id != 2 {
		t.Errorf("the next frame is %d", id)
	}
	if fs.Handles > 3 {
		t.Errorf("%d files are open", fs.Handles)
	}
}

// Open reports each frame that waits.
func TestFound(t *testing.T) {
	fs := memfs.New()
	q, _ := open(t, fs, Options{})
	appendIDs(t, q, upTo(9)...)
	take(t, q)
	var found []uint64
	open(t, fs.Crash(), Options{Found: func(f Frame) { found = append(found, idOf(t, f)) }})
	if !slices.Equal(found, upTo(9)[1:]) {
		t.Errorf("frames %v were found", found)
	}
}

// A full queue gives up its oldest segment, reports the amount, and never exceeds its limit.
func TestFullGivesUpTheOldest(t *testing.T) {
	const limit = 1000
	fs := memfs.New()
	q, damage := open(t, fs, Options{MaxBytes: limit})
	appendIDs(t, q, 1)
	take(t, q)
	lost := amountOf(upTo(1)) // entry 1 was taken and not lost, but counts here to keep the sums simple
	for id := range uint64(99) {
		givenUp, err := q.Append(entry(id + 2))
		if err != nil {
			t.Fatal(err)
		}
		lost.Add(givenUp)
		if sizeOf(fs) > limit {
			t.Fatalf("%d bytes on disk after frame %d, want at most %d", sizeOf(fs), id+2, limit)
		}
	}
	waiting, oldest := q.Waiting()
	first := uint64(oldest / 1000)
	if lost != amountOf(upTo(first-1)) || lost.Frames < 50 {
		t.Errorf("the queue gave up %+v, but the first frame left is %d", lost, first)
	}
	lost.Add(waiting)
	if lost != amountOf(upTo(100)) {
		t.Errorf("given-up and waiting frames are %+v together, want %+v", lost, amountOf(upTo(100)))
	}
	if waiting.Bytes < limit/3 {
		t.Errorf("only %d bytes wait in a full queue", waiting.Bytes)
	}
	// A restart does not count given-up frames as lost.
	q, damage2 := open(t, fs.Crash(), Options{MaxBytes: limit})
	if got := takeAll(t, q); !slices.Equal(got, upTo(100)[first-1:]) || len(*damage)+len(*damage2) > 0 {
		t.Errorf("after a restart: got %v; damage %v %v", got, *damage, *damage2)
	}
}

// A frame may be given up while it is being sent. It then does not count as done, and the oldest
// remaining frame follows.
func TestGivenUpWhileSent(t *testing.T) {
	q, _ := open(t, memfs.New(), Options{MaxBytes: 1000})
	appendIDs(t, q, 1)
	if r, _, err := q.Peek(); err != nil || idOf(t, r) != 1 {
		t.Fatal(err)
	}
	lost := Amount{}
	for id := uint64(2); lost.Frames == 0; id++ {
		var err error
		if lost, err = q.Append(entry(id)); err != nil {
			t.Fatal(err)
		}
	}
	if counted, err := q.Done(); counted || err != nil {
		t.Errorf("Done after the frame was given up: counted %v, error %v", counted, err)
	}
	if id := take(t, q); id != lost.Frames+1 {
		t.Errorf("frame %d comes after %d given-up frames, want frame %d", id, lost.Frames, lost.Frames+1)
	}
}

// A frame that needs the whole queue makes the queue give up even the segment in use.
func TestOneLargeFrame(t *testing.T) {
	fs := memfs.New()
	q, _ := open(t, fs, Options{MaxBytes: 1000})
	appendIDs(t, q, 1, 2)
	large := Frame{Payload: make([]byte, 1000-segment.HeaderBytes-headBytes)}
	if givenUp, err := q.Append(large); err != nil || givenUp != amountOf(upTo(2)) {
		t.Errorf("Append gave up %+v, want %+v; error %v", givenUp, amountOf(upTo(2)), err)
	}
	if _, err := q.Append(Frame{Payload: make([]byte, 1001-segment.HeaderBytes-headBytes)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a frame beyond the limit: got error %v", err)
	}
	if r, ok, err := q.Peek(); err != nil || !ok || len(r.Payload) != len(large.Payload) {
		t.Errorf("Peek returned %d bytes, want %d; found %v, error %v", len(r.Payload), len(large.Payload), ok, err)
	}
	q, _ = open(t, fs, Options{})
	if _, err := q.Append(Frame{Payload: make([]byte, MaxPayload+1)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a frame beyond MaxPayload: got error %v", err)
	}
}

// With Sync, acknowledged frames survive a power loss.
func TestPowerLoss(t *testing.T) {
	for seed := range uint64(50) {
		fs := memfs.New()
		q, _ := open(t, fs, Options{Sync: true})
		appendIDs(t, q, upTo(8)...)
		for range 4 {
			take(t, q)
		}
		q, _ = open(t, fs.PowerLoss(rand.New(rand.NewPCG(seed, 3))), Options{Sync: true})
		got := takeAll(t, q)
		if len(got) < 4 || !slices.Equal(got, upTo(8)[8-len(got):]) {
			t.Fatalf("seed %d: got %v after a power loss, want the last 4 or more of 8 frames", seed, got)
		}
	}
}

// With Sync, a frame whose sync failed is not acknowledged, and its sender repeats it. Later syncs of
// the same segment would return nil without saving what the failed sync should have saved. So the
// repeated frame goes into another segment. Acknowledged frames then survive a power loss, whatever
// failed before, even in an earlier process.
func TestPowerLossAfterFailedSyncs(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 4))
		fs := memfs.New()
		opts := Options{Sync: true, MaxBytes: 1 << 20, SegmentBytes: 400}
		q, _ := open(t, fs, opts)
		for id := uint64(1); id <= 40; {
			fs.Fail = func(op, _ string) error {
				if op != "open" && op != "read" && rng.IntN(4) == 0 {
					return memfs.ErrInjected
				}
				return nil
			}
			if _, err := q.Append(entry(id)); err == nil {
				id++
			}
			fs.Fail = nil
			if rng.IntN(10) == 0 {
				fs = fs.Crash()
				q, _ = open(t, fs, opts)
			}
		}
		q, _ = open(t, fs.PowerLoss(rng), opts)
		got := slices.Compact(takeAll(t, q)) // a repeated frame may come twice
		if !slices.Equal(got, upTo(40)) {
			t.Fatalf("seed %d: got %v after a power loss, want all 40 frames", seed, got)
		}
	}
}

// One goroutine appends, one reads and one calls Waiting, while segments are given up.
func TestTogether(t *testing.T) {
	const n = 3000
	fs := memfs.New()
	q, damage := open(t, fs, Options{MaxBytes: 1500})
	var lost Amount
	var wg sync.WaitGroup
	ended := make(chan struct{})
	wg.Go(func() {
		defer close(ended)
		for id := range uint64(n) {
			givenUp, err := q.Append(entry(id + 1))
			if err != nil {
				t.Error(err)
			}
			lost.Add(givenUp)
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				q.Waiting()
			}
		}
	})
	last, taken := uint64(0), uint64(0)
	for last < n {
		r, ok, err := q.Peek()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			continue
		}
		id := idOf(t, r)
		if id <= last {
			t.Fatalf("frame %d follows frame %d", id, last)
		}
		counted, err := q.Done()
		if err != nil {
			t.Fatal(err)
		}
		if counted {
			taken++
		}
		last = id
	}
	wg.Wait()
	if taken+lost.Frames != n || len(*damage) > 0 {
		t.Errorf("%d taken and %d given up of %d; damage %v", taken, lost.Frames, n, *damage)
	}
	if err := q.Close(); err != nil || fs.Handles != 0 {
		t.Fatalf("%d files are open after Close, error %v", fs.Handles, err)
	}
}

// The file "done" does not grow without bound.
func TestDoneIsReplaced(t *testing.T) {
	fs := memfs.New()
	q, _ := open(t, fs, Options{SegmentBytes: 1 << 20})
	for id := range uint64(3 * maxEntries) {
		appendIDs(t, q, id+1)
		take(t, q)
		if n := len(fs.Files[doneName].Data); n > maxEntries*segment.HeaderBytes {
			t.Fatalf("the file has %d bytes after %d frames", n, id+1)
		}
	}
	q, _ = open(t, fs.Crash(), Options{})
	if sum, _ := q.Waiting(); sum.Frames != 0 {
		t.Errorf("%d frames wait after a restart", sum.Frames)
	}
}

// model takes a queue through random steps, and keeps plain lists of the frames that the queue
// must return.
type model struct {
	t   *testing.T
	rng *rand.Rand
	fs  *memfs.FS
	q   *Queue

	waiting []uint64 // frames that are acknowledged and not done
	again   []uint64 // frames that are done or given up, but not saved as such: a restart may return them
	maybe   []uint64 // frames of failed Appends since the last success
	next    uint64
}

// In any order of appends, reads, faults and crashes, acknowledged frames come out in order, and
// none is invented.
func TestModel(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 1)), fs: memfs.New(), next: 1}
			m.open()
			for range 200 {
				m.step()
			}
			m.restart()
		})
	}
}

func (m *model) open() { m.q, _ = open(m.t, m.fs, Options{MaxBytes: 1500}) }

func (m *model) step() {
	m.fs.Fail, m.fs.Space, m.fs.Short = nil, memfs.Plenty, false
	switch m.rng.IntN(8) { // most steps work
	case 0:
		m.fs.Space = m.rng.IntN(100)
	case 1:
		m.fs.Short = true
	case 2:
		m.fs.Fail = func(op, name string) error {
			// The operations remove and read do not fail here. A file that is not removed comes back at the
			// next start, and an unreadable one is damage: other tests cover both.
			if op != "remove" && op != "read" && m.rng.IntN(2) == 0 {
				return fmt.Errorf("%s %s: %w", op, name, memfs.ErrInjected)
			}
			return nil
		}
	}
	switch n := m.rng.IntN(16); {
	case n == 0:
		m.restart()
	case n < 8:
		m.append()
	default:
		m.take()
	}
}

func (m *model) append() {
	var ids []uint64
	for range 1 + m.rng.IntN(4) {
		ids = append(ids, m.next)
		m.next++
	}
	givenUp, err := m.q.Append(entries(ids...)...)
	lost := m.waiting[:givenUp.Frames]
	if givenUp != amountOf(lost) {
		m.t.Fatalf("Append gave up %+v, want %v", givenUp, lost)
	}
	m.waiting = m.waiting[givenUp.Frames:]
	if err != nil {
		m.maybe = append(m.maybe, ids...)
		return
	}
	m.waiting, m.maybe = append(m.waiting, ids...), nil
}

func (m *model) take() {
	r, ok, err := m.q.Peek()
	if err != nil {
		return // the segment cannot be opened at this moment
	}
	if ok != (len(m.waiting) > 0) {
		m.t.Fatalf("Peek found a frame: %v, but the frames %v wait", ok, m.waiting)
	}
	if !ok {
		return
	}
	if id := idOf(m.t, r); id != m.waiting[0] {
		m.t.Fatalf("frame %d came out, but %v wait", id, m.waiting)
	}
	counted, err := m.q.Done()
	if !counted {
		m.t.Fatal("done does not count")
	}
	if m.again = append(m.again, m.waiting[0]); err == nil {
		m.again = nil
	}
	m.waiting = m.waiting[1:]
}

// restart continues with the files that a crash left, and checks them.
func (m *model) restart() {
	before := m.fs.Crash()
	sum, _ := m.q.Waiting()
	if sum != amountOf(m.waiting) {
		m.t.Fatalf("%+v wait, want %v", sum, m.waiting)
	}
	m.fs = m.fs.Crash()
	m.open()
	got := takeAll(m.t, m.q)
	rest := got
	for len(rest) > 0 && slices.Contains(m.again, rest[0]) {
		rest = rest[1:]
	}
	if len(rest) < len(m.waiting) || !slices.Equal(rest[:len(m.waiting)], m.waiting) {
		m.t.Fatalf("%v waited, but %v came back", m.waiting, got)
	}
	for _, id := range rest[len(m.waiting):] {
		if !slices.Contains(m.maybe, id) {
			m.t.Fatalf("frame %d was refused, but came back", id)
		}
	}
	if !slices.IsSorted(got) {
		m.t.Fatalf("out of order: %v", got)
	}
	m.fs, m.waiting, m.again, m.maybe = before, got, nil, nil
	m.open()
}

// On a full disk, new positions replace old ones in the file "done". After a torn write, the previous
// position is still there.
func TestAFullDiskKeepsPositions(t *testing.T) {
	fs := memfs.New()
	q, err := Open(fs, Options{MaxBytes: 1 << 20})
	if err == nil {
		err = q.Prepare()
	}
	for i := range int64(9) {
		if err == nil {
			_, err = q.Append(Frame{Time: i, Payload: []byte("payload")})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	fs.Space = 0
	for i := range int64(8) {
		if _, found, err := q.Peek(); !found || err != nil {
			t.Fatal(found, err)
		}
		torn := i%3 == 2
		fs.Fail = func(op, name string) error {
			if torn && op == "write" && name == doneName {
				return memfs.ErrInjected
			}
			return nil
		}
		if _, err := q.Done(); (err != nil) != torn {
			t.Errorf("frame %d: %v", i, err)
		}
		next, err := Open(fs.Crash(), Options{MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		want := i + 1
		if torn {
			want = i
		}
		if f, found, err := next.Peek(); err != nil || !found || f.Time != want {
			t.Errorf("after frame %d (torn: %v), the next process begins at frame %d, want %d; found %v, %v",
				i, torn, f.Time, want, found, err)
		}
		fs.Fail = nil
		if err := q.Save(); err != nil {
			t.Error(err)
		}
	}
}
