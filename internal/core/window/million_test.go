//go:build !race

package window

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/limit"
)

// A million live contexts of counters and gauges with 4 tags take at most 400 bytes each, including
// the memory of the limits. The garbage collector scans none of it.
func TestAMillionContexts(t *testing.T) {
	const contexts = 1_000_006 // a multiple of 14
	scanned := []metrics.Sample{{Name: "/gc/scan/heap:bytes"}}
	before := heapInUse()
	metrics.Read(scanned)
	scanBefore := scanned[0].Value.Uint64()
	tenant := limit.New(limit.Config{}, time.Minute, time.Hour).Tenant("default")
	table := New(&plain{}, Options{IdleWindows: 300, Limits: tenant})
	table.Start(at(0))
	var out batch.Writer
	for window := range 2 {
		count(table, contexts, at(float64(window)))
		w, _ := table.Close(at(float64(window) + 1))
		increments := 0
		for done := false; !done; {
			out.Begin(batch.Header{Tenant: []byte("default"), Second: w.Second})
			done = w.Flush(&out, 8<<20)
			for _, b := range out.End() {
				increments += int(b.Samples)
			}
		}
		if increments != contexts {
			t.Fatalf("%d increments, want %d, one for each context", increments, contexts)
		}
	}
	if s := table.Stats(); s.Contexts != contexts || s.Series != contexts || s.Resolved != contexts {
		t.Fatalf("%+v", s)
	}
	out = batch.Writer{}
	bytes := float64(heapInUse()-before) / contexts
	metrics.Read(scanned)
	scan := int64(scanned[0].Value.Uint64()) - int64(scanBefore)
	t.Logf("%.0f bytes a context, %d kB to scan", bytes, scan>>10)
	if bytes > 400 {
		t.Errorf("%.0f bytes a context, want at most 400", bytes)
	}
	if scan > 5<<20 {
		t.Errorf("the garbage collector scans %d bytes, want at most 5 MiB", scan)
	}
	runtime.KeepAlive(table)
}
