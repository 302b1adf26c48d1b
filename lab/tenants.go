package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/lab/report"
)

const (
	smallTenants = 1000
	smallSeries  = 100 // of each of them, written once

	// smallQuiet is the time until the stores of these tenants are closed, after 5 to 6 minutes without use, and
	// until the runtime has collected the garbage, after 2 more, and has returned the memory.
	smallQuiet = 9 * time.Minute

	quietTime = time.Minute // how long the cost of the quiet tenants is measured
)

// tenantsStep returns the step that measures many small tenants to which nobody writes.
func (l *lab) tenantsStep(run int) step {
	return step{
		what:  fmt.Sprintf("memory, run %d: %d tenants with %d series each", run+1, smallTenants, smallSeries),
		takes: smallQuiet + quietTime + 15*time.Second,
		do: func(ctx context.Context) error {
			return l.smallTenants(ctx, smallTenants, smallQuiet, quietTime)
		},
	}
}

// smallTenants writes to tenants, waits for `quiet`, and measures what a server spends on them while nobody writes. The
// server keeps its own metrics, as by default, since each tenant has some of them.
func (l *lab) smallTenants(ctx context.Context, tenants int, quiet, measured time.Duration) error {
	settings := filepath.Join(l.dir, "tenants.yaml")
	text := fmt.Sprintf("http: {trust_tenant_header: true, allow_unknown_tenants: true}\nstore: {max_tenants: %d}\n",
		tenants+10) // the default tenant and our own are two more
	if err := os.WriteFile(settings, []byte(text), 0o644); err != nil {
		return err
	}
	return l.withFreshet(ctx, "all", func(f *freshet) error {
		if err := f.writeTenants(ctx, tenants); err != nil {
			return err
		}
		cpu, bytes, err := costAfter(ctx, f.cmd.Process.Pid, quiet, measured)
		if err != nil {
			return err
		}
		add := func(unit string, must, aim, v float64) {
			l.results.Memory.Add(report.Figure{
				What: fmt.Sprintf("%d tenants with %d series each, to which nobody writes", tenants, smallSeries),
				Unit: unit, Must: must, Aim: aim, Runs: []float64{v},
			})
		}
		add("MB of resident memory, of the whole process", 400, 300, float64(bytes)/1e6)
		add("% of a core", 2, 1, 100*cpu.Seconds()/measured.Seconds())
		return nil
	}, "--config", settings, "--self-metrics=true", "--self-probe=true")
}

// writeTenants writes a sample of each series of many tenants.
func (f *freshet) writeTenants(ctx context.Context, tenants int) error {
	load := remoteload.Standard()
	load.Series, load.Batch = tenants*smallSeries, smallSeries
	load.Begin = time.Now().Add(-time.Minute).UnixMilli()
	c := loadgen.WriterConfig{URL: "http://" + f.HTTP + "/api/v1/write", Connections: writeConnections}
	for i := range tenants {
		c.Tenants = append(c.Tenants, fmt.Sprintf("tenant-%d", i))
	}
	traffic, err := remoteload.New(load)
	if err != nil {
		return err
	}
	w, err := loadgen.NewWriter(c, traffic)
	if err != nil {
		return err
	}
	r, err := w.Run(ctx, loadgen.WriterPace{Rounds: 1})
	if err == nil && r.Written != uint64(load.Series) {
		err = fmt.Errorf("wrote %d of %d samples: %s", r.Written, load.Series, r.Refused)
	}
	return err
}

// writeMemory measures the memory of a series of remote write as the part remotewrite does, without peers.
func (l *lab) writeMemory(ctx context.Context, w writeWorkload) error {
	all := l.databases()
	m, err := w.measure(ctx, all[len(all)-1]) // ours is the last
	if err != nil {
		return err
	}
	for _, bytes := range m.resident {
		l.results.Memory.Add(report.Figure{
			What: fmt.Sprintf("a series of remote write 1.0, of %d,000 with %d samples each", w.Series/1000, w.Rounds),
			Unit: "bytes of resident memory", Must: 1050, Aim: 900, Runs: []float64{bytes},
		})
	}
	return nil
}

// costAfter waits for `quiet`. Then it returns the CPU time that a process uses while this is `measured`, and its
// resident memory in bytes at the end.
func costAfter(
	ctx context.Context, pid int, quiet, measured time.Duration,
) (cpu time.Duration, bytes uint64, err error) {
	if err := wait(ctx, quiet); err != nil {
		return 0, 0, err
	}
	before, err := report.CPUTime(pid)
	if err != nil {
		return 0, 0, err
	}
	if err := wait(ctx, measured); err != nil {
		return 0, 0, err
	}
	after, err := report.CPUTime(pid)
	if err != nil {
		return 0, 0, err
	}
	bytes, err = resident(pid)
	return after - before, bytes, err
}
