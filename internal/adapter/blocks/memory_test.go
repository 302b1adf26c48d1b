package blocks

import (
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// A block may have more samples than memory has room for. All that the command does with one, it does series by series.
func TestMemoryDoesNotGrowWithTheBlock(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // so that the heap has little garbage
	small, smallHeap := peak(t, 20)
	large, largeHeap := peak(t, 2000)
	const more = 16 << 20
	if large-small < 4*more {
		t.Fatalf("the blocks have %d and %d bytes: the difference shows nothing", small, large)
	}
	if largeHeap > smallHeap+more {
		t.Errorf("the heap grows to %d bytes with a block of %d bytes, and to %d with one of %d; want at most %d more",
			smallHeap, small, largeHeap, large, more)
	}
}

// peak returns the size of a block with some series, and the most heap that the steps of an import of it need.
func peak(t *testing.T, series int) (bytes int64, heap uint64) {
	t.Helper()
	ended, most := make(chan struct{}), make(chan uint64)
	go func() {
		now := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for heap := uint64(0); ; {
			metrics.Read(now)
			heap = max(heap, now[0].Value.Uint64())
			select {
			case <-tick.C:
			case <-ended:
				most <- heap
				return
			}
		}
	}()
	from := random(t, series)
	if _, err := from.Sample(t.Context(), 10, rand.New(rand.NewPCG(1, 2)), labels.EmptyLabels()); err != nil {
		t.Error(err)
	}
	to := from
	to.Dir = filepath.Join(t.TempDir(), from.ID.String())
	// The added label changes the order of the series, so the chunks are copied once more.
	if _, err := from.Label(t.Context(), to.Dir, labels.FromStrings("d", "x")); err != nil {
		t.Error(err)
	}
	if err := Pack(io.Discard, to.Dir); err != nil {
		t.Error(err)
	}
	close(ended)
	heap = <-most
	bytes, err := Bytes(to.Dir)
	if err != nil {
		t.Error(err)
	}
	return bytes, heap
}

// random writes a block of series with 4800 random samples each, which have about 40 KiB.
func random(t *testing.T, series int) Block {
	t.Helper()
	values := rand.New(rand.NewPCG(1, 2))
	var all []chunks.Meta
	for c := range int64(40) {
		chunk := chunkenc.NewXORChunk()
		app, err := chunk.Appender()
		if err != nil {
			t.Fatal(err)
		}
		for n := range int64(120) {
			app.Append(0, c*120+n, values.Float64())
		}
		all = append(all, chunks.Meta{MinTime: c * 120, MaxTime: c*120 + 119, Chunk: chunk})
	}
	b := Block{ID: ulid.ULID{1}}
	b.Dir = filepath.Join(t.TempDir(), b.ID.String())
	w, err := NewWriter(b.Dir, b.ID, 0, 4800)
	if err != nil {
		t.Fatal(err)
	}
	for s := range series {
		ls := labels.FromStrings("__name__", fmt.Sprintf("m%04d", s/2))
		if s%2 == 1 {
			ls = labels.FromStrings("__name__", fmt.Sprintf("m%04d", s/2), "c", "x")
		}
		if err := w.Add(ls, all); err != nil {
			t.Fatal(err)
		}
	}
	if b.Meta, err = w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}
