package tsdb

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// BenchmarkDisk reports how many bytes a sample in a block takes on disk, index included, after two
// hours of 10 s tiles. docs/operations.md uses the figures.
//
// Bounds on the bytes of each sample: 4 for a busy counter, 1 for a series that does not change, 150 for
// a timer with 40 busy buckets. There is no bound on time.
func BenchmarkDisk(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		name string
		most float64
		next func(*float64, *histogram.FloatHistogram) (float64, *histogram.FloatHistogram)
	}{
		{"counter", 4, func(v *float64, _ *histogram.FloatHistogram) (float64, *histogram.FloatHistogram) {
			*v += float64(rnd.IntN(1000))
			return *v, nil
		}},
		{"still", 1, func(v *float64, _ *histogram.FloatHistogram) (float64, *histogram.FloatHistogram) { return 1, nil }},
		{"timer", 150, func(_ *float64, h *histogram.FloatHistogram) (float64, *histogram.FloatHistogram) {
			for i := range h.PositiveBuckets {
				n := float64(rnd.IntN(20))
				h.PositiveBuckets[i] += n
				h.Count += n
				h.Sum += n * float64(i) * 1.37
			}
			return 0, h.Copy()
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				block, wal := twoHours(b, c.next)
				b.ReportMetric(block, "bytes/sample")
				b.ReportMetric(wal, "WAL-bytes/sample")
				if block > c.most {
					b.Errorf("a sample takes %.2f bytes, want at most %.2f", block, c.most)
				}
			}
		})
	}
}

// BenchmarkTilesOnDisk reports how many bytes a sample takes in the index and in the chunks of all blocks, some
// days after the first tile. Blocks are merged meanwhile. The bound is for the index. The lab shows the figures.
func BenchmarkTilesOnDisk(b *testing.B) {
	for _, c := range []struct {
		width tile.Width
		days  int
		most  float64
	}{{tile.Width10s, 2, .4}, {tile.Width1m, 1, .5}, {tile.Width1m, 7, .3}} {
		b.Run(fmt.Sprintf("%v after %d h", c.width, 24*c.days), func(b *testing.B) {
			for b.Loop() {
				stores := tiledDays(b, c.width, c.days)
				blocks, err := stores.Blocks(tenant.Default, c.width.String())
				if err != nil || len(blocks) == 0 {
					b.Fatalf("%d blocks, %v", len(blocks), err)
				}
				var samples uint64
				var index, chunks int64
				for _, block := range blocks {
					dir := filepath.Join(stores.dir, tenant.Default, c.width.String(), block.ULID.String())
					samples += block.Stats.NumSamples
					index += bytesBelow(b, filepath.Join(dir, "index"))
					chunks += bytesBelow(b, filepath.Join(dir, "chunks"))
				}
				perSample := float64(index) / float64(samples)
				b.ReportMetric(perSample, "index-bytes/sample")
				b.ReportMetric(float64(chunks)/float64(samples), "chunk-bytes/sample")
				if perSample > c.most {
					b.Errorf("the index takes %.3f bytes a sample, want at most %.1f", perSample, c.most)
				}
			}
		})
	}
}

// tiledDays stores tiles of 500 counters, of which half grow in a tile.
func tiledDays(b *testing.B, width tile.Width, days int) *Stores {
	b.Helper()
	stores, samples := benchmarkStores(b, 500)
	rnd := rand.New(rand.NewPCG(1, 1))
	tiles := int(time.Duration(days) * day / width.Duration())
	perHour := int(time.Hour / width.Duration())
	for n := range tiles {
		for i := range samples {
			samples[i].T = base + int64(n+1)*width.Millis()
			if rnd.IntN(2) == 0 {
				samples[i].V += float64(rnd.IntN(1000))
			}
		}
		written, err := stores.WriteTiles(b.Context(), tenant.Default, width, samples)
		if err != nil || written.Stored.Samples != len(samples) {
			b.Fatalf("stored %d of %d samples; error %v", written.Stored.Samples, len(samples), err)
		}
		if n%perHour == 0 { // a database compacts soon after that is due
			if err := stores.Compact(b.Context(), false); err != nil {
				b.Fatal(err)
			}
		}
	}
	return stores
}

// twoHours writes two hours of tiles of 500 series. It returns the bytes per sample in a block and in
// the WAL.
func twoHours(
	b *testing.B, next func(*float64, *histogram.FloatHistogram) (float64, *histogram.FloatHistogram),
) (block, wal float64) {
	b.Helper()
	stores, samples := benchmarkStores(b, 500)
	values := make([]float64, len(samples))
	histograms := make([]histogram.FloatHistogram, len(samples))
	for i := range histograms {
		histograms[i].PositiveSpans = []histogram.Span{{Length: 40}}
		histograms[i].PositiveBuckets = make([]float64, 40)
	}
	for range 2 * time.Hour / (10 * time.Second) {
		nextTile(samples)
		for i := range samples {
			samples[i].V, samples[i].H = next(&values[i], &histograms[i])
		}
		mustStore(b, stores, samples)
	}
	dir := b.TempDir()
	if err := stores.Snapshot(context.Background(), filepath.Join(dir, "tsdb"), func(Content) {}); err != nil {
		b.Fatal(err)
	}
	var count uint64
	if err := Verify(context.Background(), dir, func(c Content) { count = c.Samples }); err != nil || count == 0 {
		b.Fatal(count, err)
	}
	store := filepath.Join(tenant.Default, "10s")
	return float64(bytesBelow(b, filepath.Join(dir, "tsdb", store))) / float64(count),
		float64(bytesBelow(b, filepath.Join(stores.dir, store, "wal"))) / float64(count)
}

func bytesBelow(b *testing.B, dir string) (n int64) {
	b.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return n
}
