package aggregator

import (
	"bytes"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/series"
)

// memory is another implementation of Journal. It keeps frames in memory, like a log on other
// machines.
type memory struct {
	mu       sync.Mutex
	frames   []journal.Frame
	sections map[uint16]memorySection
	notes    [][]byte
}

type memorySection struct {
	pos     journal.Position
	payload []byte
}

func (m *memory) Load(fn func(shard uint16, pos journal.Position, payload []byte) error) error {
	for _, shard := range slices.Sorted(maps.Keys(m.sections)) {
		if err := fn(shard, m.sections[shard].pos, m.sections[shard].payload); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) Replay(fn func(pos journal.Position, r journal.Frame) error) error {
	for i, r := range m.frames {
		if pos := journal.Position(i + 1); pos > m.sections[r.Shard].pos {
			if err := fn(pos, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *memory) Append(frames []journal.Frame) (journal.Position, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range frames {
		r.Payload = bytes.Clone(r.Payload)
		m.frames = append(m.frames, r)
	}
	return journal.Position(len(m.frames)), nil
}

func (m *memory) Sync() error  { return nil }
func (m *memory) Close() error { return nil }

func (m *memory) Doubtful() (journal.Position, bool) { return 0, false }

func (m *memory) Unsynced() (uint64, int64) { return 0, 0 }

func (m *memory) Notes() ([][]byte, error) { return m.notes, nil }

func (m *memory) BeginNotes(all [][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes = all
	return nil
}

func (m *memory) Note(note []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes = append(m.notes, note)
	return nil
}

func (m *memory) Size() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.frames))
}

func (m *memory) BeginCheckpoint() (journal.Checkpoint, error) {
	return &memoryCheckpoint{m, journal.Position(m.Size()), map[uint16]memorySection{}}, nil
}

// kill returns the journal that the next process finds after the death of this process.
func (m *memory) kill() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{frames: slices.Clone(m.frames), sections: maps.Clone(m.sections), notes: slices.Clone(m.notes)}
}

type memoryCheckpoint struct {
	m        *memory
	base     journal.Position
	sections map[uint16]memorySection
}

func (c *memoryCheckpoint) Base() journal.Position { return c.base }

func (c *memoryCheckpoint) Section(shard uint16, pos journal.Position, payload []byte) error {
	c.sections[shard] = memorySection{pos, bytes.Clone(payload)}
	return nil
}

func (c *memoryCheckpoint) Commit() error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.m.sections = c.sections
	return nil
}

func (c *memoryCheckpoint) CommitUnsynced() error { return c.Commit() }

func (c *memoryCheckpoint) Abort() {}

// The aggregator needs only what Journal promises: with a journal that is not a file, it keeps every
// total through regular restarts and kills.
func TestAnotherJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newStore(t), &memory{}
		unchanged := func(*Options) {}
		for life := range 6 {
			p := startFrom(t, log, s, time.Now, unchanged)
			for range 7 {
				p.mustCount("a", 1)
				time.Sleep(time.Second)
			}
			if life%2 == 0 {
				p.terminate()
				continue
			}
			synctest.Wait()
			log = log.kill()
			p.writer.(*mortal).dead.Store(true)
			p.terminate()
		}
		p := startFrom(t, log, s, time.Now, unchanged)
		time.Sleep(20 * time.Second)
		checkCounter(t, s, "a", 42)
		p.terminate()
		if len(log.sections) == 0 || len(log.frames) < 42 {
			t.Errorf("the journal has %d sections and %d frames, want at least 1 section and 42 frames",
				len(log.sections), len(log.frames))
		}
	})
}

// A group takes over the content of a journal: the shards that have had frames, with the tiles that wait
// for a store. A tile that is noted as stored does not wait. The journal stays as it was, so a second
// try finds the same.
func TestRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newStore(t), &memory{}
		p := startFrom(t, log, s, time.Now, func(*Options) {})
		p.mustCount("a", 1)
		time.Sleep(time.Minute) // the first tiles are stored
		s.setBroken(true)
		p.mustCount("a", 2)
		time.Sleep(30 * time.Second) // tiles wait
		p.mustCount("a", 4)
		synctest.Wait()
		log = log.kill()
		p.terminate()
		frames := log.Size()
		for try := range 2 {
			o := Options{Config: p.config, Log: log, Boot: "boot", Now: time.Now, Logger: discard}
			shards, err := Restore(o)
			if err != nil {
				t.Fatal(err)
			}
			begun, waiting := 0, 0
			for number := range uint16(series.Shards) {
				if one := shards.Of(number); one != nil {
					begun++
					waiting += len(one.Waiting())
				}
			}
			if raw := shards.Raw()["default"]; begun != 1 || waiting < 2 || waiting > 4 || raw != 2 {
				t.Errorf("try %d: %d shards have begun, %d tiles wait, %d values are in tiles, want 1 shard, 2 to 4 "+
					"tiles and 2 values",
					try, begun, waiting, raw)
			}
			if n := log.Size(); n != frames {
				t.Errorf("try %d: the journal has %d frames, want %d as before", try, n, frames)
			}
		}
	})
}
