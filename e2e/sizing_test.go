package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSizing measures the numbers by which docs/operations.md sizes a server: the memory of a
// series, the processor time of a million samples, and the journal bytes of a sample. It bounds
// only what does not depend on the machine, and logs all numbers:
//
//	go test -C e2e -count=1 -run TestSizing -v .
//
// 20,000 series in CI, 200,000 in `make soak`.
func TestSizing(t *testing.T) {
	series := 20_000
	if soak {
		series = 200_000
	}
	// There are no checkpoints, so that the whole journal can be measured.
	p := start(t, dataDir(t), "--aggregator-checkpoint", "1GiB")
	metric := func(name string) float64 {
		t.Helper()
		v, err := p.ownMetric(name)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	empty := metric("process_resident_memory_bytes")
	sent := 0
	send := func(series int) {
		t.Helper()
		sendEach(t, p, series)
		sent += series
	}
	journalled := func() {
		t.Helper()
		eventually(t, time.Minute, "all samples are journalled", func() error {
			if n, err := p.ownMetric("freshet_aggregator_journalled_samples_total"); err != nil || int(n) != sent {
				return fmt.Errorf("%v of %d samples are journalled; error %v", n, sent, err)
			}
			return nil
		})
	}
	// Hundreds of samples per series and window show the cost of reading and counting.
	busy := metric("process_cpu_seconds_total")
	const fewSeries, bursts = 100, 5000
	for range bursts {
		send(fewSeries)
	}
	journalled()
	busy = (metric("process_cpu_seconds_total") - busy) / (fewSeries * bursts) * 1e6

	// One sample per series and window adds the cost of windows, journal and tiles.
	send(series) // creates the series
	journalled()
	cpu, journal := metric("process_cpu_seconds_total"), metric("freshet_aggregator_journal_bytes")
	const rounds = 5
	for range rounds {
		send(series)
		journalled()
	}
	samples := float64(rounds * series)
	cpu, journal = metric("process_cpu_seconds_total")-cpu, metric("freshet_aggregator_journal_bytes")-journal
	reach(time.Now().Truncate(tileWidth).Add(tileWidth + 7*time.Second)) // so that the series are in a store, too
	memory := (metric("process_resident_memory_bytes") - empty) / float64(series)
	t.Logf("%d series take %.0f bytes of memory each, beside the %.0f MB of an empty server", series, memory, empty/1e6)
	t.Logf("CPU seconds for a million samples: %.2f at one sample per series and window, %.2f at hundreds",
		cpu/samples*1e6, busy)
	t.Logf("%.0f bytes of journal per sample, at one sample per series and window", journal/samples)
	if memory > 12_000 {
		t.Errorf("a series takes %.0f bytes, want at most 12,000; docs/operations.md says 6 kB", memory)
	}
	if b := journal / samples; b > 250 {
		t.Errorf("a sample takes %.0f bytes of journal, want at most 250; docs/operations.md says 130", b)
	}
	wal := dirBytes(t, filepath.Join(p.dataDir, "tsdb", "default", "10s", "wal"))
	t.Logf("%.0f bytes of WAL per series in the store of 10 s, with its first tiles", float64(wal)/float64(series))
	p.terminate(t)
	checkpoints, err := filepath.Glob(filepath.Join(journalDir(p.dataDir), "*.checkpoint"))
	if err != nil || len(checkpoints) == 0 {
		t.Fatal(checkpoints, err)
	}
	info, err := os.Stat(checkpoints[len(checkpoints)-1])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f bytes of checkpoint per series", float64(info.Size())/float64(series))
}

// sendEach adds 1 to each of n series with labels of the usual length.
func sendEach(t *testing.T, p *process, n int) {
	t.Helper()
	conn := dialTap(t, "unixgram", p.Unixgram)
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines,
			"http_requests:1|c|#service:checkout,method:GET,status:200,path:/api/v1/orders/%d,pod:checkout-7d9f8b6c5-%05d\n",
			i%100, i)
		if lines.Len() > 4000 || i == n-1 {
			if _, err := conn.Write([]byte(lines.String())); err != nil {
				t.Fatal(err)
			}
			lines.Reset()
		}
	}
}

func dirBytes(t *testing.T, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !e.IsDir() {
			n += info.Size()
		}
	}
	return n
}
