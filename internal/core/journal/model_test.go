package journal

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// testMark begins the frames of tests. Zero would work too, but a mark that occurs in zeroed
// memory would hide mistakes.
const testMark = 0x9d3fa8c1

func mustOpen(t testing.TB, fs segment.FS, segmentBytes int64) (*Log, Report) {
	t.Helper()
	l, report, err := Open(fs, Options{Mark: testMark, SegmentBytes: segmentBytes})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l, report
}

// frame returns a whole frame, as a sender may forge it or a disk may misplace it.
func frame(mark uint32, shard uint16, typ uint8, pos Position, payload []byte) []byte {
	return segmentFormat.AppendFrame(nil, mark, &segment.Frame{Pos: pos, Tag: tag(shard, typ), Payload: payload})
}

// The shards of tests: both ends, neighbours, and one in the middle.
var testShards = []uint16{0, 1, 517, 1023}

// entry returns the frame with the number id. Its shard, type and payload follow from the number, so
// that an invented or garbled frame is noticed at once.
func entry(id uint64) Frame {
	rng := rand.New(rand.NewPCG(id, 7))
	payload := binary.BigEndian.AppendUint64(nil, id)
	for range rng.IntN(60) {
		payload = append(payload, byte(rng.IntN(4))) // few values, so that many places look like the start of a frame
	}
	return Frame{Shard: testShards[rng.IntN(len(testShards))], Type: uint8(rng.IntN(256)), Payload: payload}
}

// state is the aggregator's state of its shards: here the numbers of all frames that it folded.
type state map[uint16][]uint64

func (s state) fold(t testing.TB, r Frame) {
	t.Helper()
	if len(r.Payload) < 8 {
		t.Fatalf("a frame that has %d bytes was never appended", len(r.Payload))
	}
	id := binary.BigEndian.Uint64(r.Payload)
	if want := entry(id); want.Shard != r.Shard || want.Type != r.Type || string(want.Payload) != string(r.Payload) {
		t.Fatalf("frame %d came back changed: %+v", id, r)
	}
	s[r.Shard] = append(s[r.Shard], id)
}

func (s state) section(shard uint16) []byte {
	var b []byte
	for _, id := range s[shard] {
		b = binary.BigEndian.AppendUint64(b, id)
	}
	return b
}

// recovered returns the state after Load and Replay.
func recovered(t testing.TB, l *Log) state {
	t.Helper()
	s := state{}
	err := l.Load(func(shard uint16, pos Position, payload []byte) error {
		for b := payload; len(b) >= 8; b = b[8:] {
			s[shard] = append(s[shard], binary.BigEndian.Uint64(b))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	var last Position
	err = l.Replay(func(pos Position, r Frame) error {
		if pos <= last {
			t.Fatalf("position %d follows position %d", pos, last)
		}
		last = pos
		s.fold(t, r)
		return nil
	})
	if err != nil {
		t.Fatalf("replay: %v", err)
	}
	return s
}

func checkpointAll(t testing.TB, l *Log, s state) {
	t.Helper()
	c, err := l.BeginCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	for _, shard := range testShards {
		if err := c.Section(shard, l.tail.Last, s.section(shard)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
}

// model runs a journal through one random story, and computes in the simplest way which frames must
// be recovered.
type model struct {
	t   *testing.T
	rng *rand.Rand
	fs  *memfs.FS
	log *Log
	cp  Checkpoint
	due []uint16 // shards whose section is not yet in cp
	in  state    // the state that cp has so far

	state  state           // acknowledged
	maybe  []uint64        // frames of failed Appends since the last success: may come back after a crash
	maybe2 []uint64        // frames of failed Appends since the last successful Sync: may come back after a power loss
	safe   map[uint64]bool // frames that must survive a power loss
	lossy  bool            // there was a power loss, so the report may list gaps
	nextID uint64
}

// In any order of appends, checkpoints, faults, crashes and power losses, acknowledged frames are
// recovered in order, and none is invented.
func TestModel(t *testing.T) {
	for seed := range uint64(400) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 1)), fs: memfs.New(), state: state{},
				safe: map[uint64]bool{}, nextID: 1}
			m.open()
			for range 150 {
				m.step()
			}
			m.restart(m.fs.Crash(), false)
		})
	}
}

func (m *model) open() {
	m.log, _ = mustOpen(m.t, m.fs, 400)
}

func (m *model) step() {
	m.fs.Fail, m.fs.Space, m.fs.Short = nil, memfs.Plenty, false
	switch m.rng.IntN(8) { // most steps work
	case 0:
		m.fs.Space = m.rng.IntN(200)
	case 1:
		m.fs.Short = true
	case 2:
		m.fs.Fail = func(op, name string) error {
			if m.rng.IntN(2) == 0 {
				return fmt.Errorf("%s %s: %w", op, name, memfs.ErrInjected)
			}
			return nil
		}
	}
	switch m.rng.IntN(16) {
	case 0:
		m.restart(m.fs.Crash(), false)
	case 1:
		if m.rng.IntN(4) == 0 {
			m.restart(m.fs.PowerLoss(m.rng), true)
		}
	case 2, 3:
		m.sync()
	case 4, 5, 6:
		m.checkpoint()
	default:
		m.append()
	}
}

func (m *model) append() {
	var frames []Frame
	var ids []uint64
	for range m.rng.IntN(6) {
		frames, ids = append(frames, entry(m.nextID)), append(ids, m.nextID)
		m.nextID++
	}
	before := m.log.tail.Last
	pos, err := m.log.Append(frames)
	if err != nil {
		if m.log.tail.Last != before {
			m.t.Fatalf("a failed Append moved the position from %d to %d", before, m.log.tail.Last)
		}
		m.maybe = append(m.maybe, ids...)
		m.maybe2 = append(m.maybe2, ids...)
		return
	}
	if pos != before+Position(len(frames)) {
		m.t.Fatalf("Append of %d frames after position %d returned position %d", len(frames), before, pos)
	}
	for _, r := range frames {
		m.state.fold(m.t, r)
	}
	if len(frames) > 0 {
		m.maybe = nil
	}
}

// sync syncs the journal. If that works, all frames are safe, whatever failed before.
func (m *model) sync() {
	if m.log.Sync() != nil {
		return
	}
	m.maybe2 = slices.Clone(m.maybe)
	for _, ids := range m.state {
		for _, id := range ids {
			m.safe[id] = true
		}
	}
}

// checkpoint does the next step of a checkpoint, so that the sections are written at different
// times.
func (m *model) checkpoint() {
	if m.cp == nil {
		cp, err := m.log.BeginCheckpoint()
		if err != nil {
			return
		}
		m.cp, m.in, m.due = cp, state{}, slices.Clone(testShards)
		m.rng.Shuffle(len(m.due), func(i, j int) { m.due[i], m.due[j] = m.due[j], m.due[i] })
		return
	}
	for n := 1 + m.rng.IntN(3); n > 0 && len(m.due) > 0; n-- {
		shard := m.due[0]
		m.due = m.due[1:]
		if m.cp.Section(shard, m.log.tail.Last, m.state.section(shard)) != nil {
			m.cp.Abort()
			m.cp = nil
			return
		}
		m.in[shard] = slices.Clone(m.state[shard])
	}
	if len(m.due) > 0 {
		return
	}
	err := m.cp.Commit()
	m.cp = nil
	if err == nil || strings.Contains(err.Error(), "is in place") {
		for _, ids := range m.in {
			for _, id := range ids {
				m.safe[id] = true
			}
		}
	}
}

// restart continues with the files that a crash left, and checks them.
func (m *model) restart(fs *memfs.FS, power bool) {
	m.fs, m.cp = fs, nil
	m.lossy = m.lossy || power
	var report Report
	m.log, report = mustOpen(m.t, m.fs, 400)
	got := recovered(m.t, m.log)
	maybe := m.maybe
	if power {
		maybe = m.maybe2
	}
	for _, shard := range testShards {
		want, extra := m.state[shard], got[shard]
		if power {
			// Unsynced frames may be missing anywhere.
			for _, id := range want {
				if i := slices.Index(extra, id); i >= 0 {
					extra = slices.Delete(slices.Clone(extra), i, i+1)
				} else if m.safe[id] {
					m.t.Fatalf("shard %d: synced frame %d is lost: %v", shard, id, got[shard])
				}
			}
		} else {
			if len(extra) < len(want) || !slices.Equal(extra[:len(want)], want) {
				m.t.Fatalf("shard %d: acknowledged %v, recovered %v\n%+v", shard, want, extra, report)
			}
			extra = extra[len(want):]
		}
		for _, id := range extra {
			if !slices.Contains(maybe, id) {
				m.t.Fatalf("shard %d: frame %d was refused, but was recovered", shard, id)
			}
		}
		if !slices.IsSorted(got[shard]) {
			m.t.Fatalf("shard %d: out of order: %v", shard, got[shard])
		}
	}
	if !m.lossy {
		for _, d := range report.Damage {
			if !strings.Contains(d.Reason, "torn tail") {
				m.t.Fatalf("nothing was lost, but the report says: %v", d)
			}
		}
	}
	m.state = got
	// Frames that survived a power loss are on the disk. After a mere crash they may still be
	// unsynced.
	for _, ids := range got {
		for _, id := range ids {
			if power {
				m.safe[id] = true
			}
		}
	}
}
