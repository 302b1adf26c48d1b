package tsdb

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/freshet-io/freshet/internal/core/tenant"
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
