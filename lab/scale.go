package main

import (
	"context"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/load"
	"github.com/freshet-io/freshet/lab/report"
)

const (
	manyContexts = 1_000_000
	manyRate     = 500e3            // metrics a second, so each of a million contexts comes every two seconds
	manyTime     = 10 * time.Second // how long to send at this rate; then tables no longer grow
	flushTime    = 10 * time.Second

	stormContexts = 100e3 // new contexts a second
	stormTime     = time.Minute
	briefStorm    = 10 * time.Second
)

func (l *lab) stormTime() time.Duration {
	if l.brief {
		return briefStorm
	}
	return stormTime
}

// scaleSteps returns the steps of the part scale. They need the highest rate, from rateSteps.
func (l *lab) scaleSteps() []step {
	return []step{
		{what: "a million contexts", takes: manyTime + flushTime + 8*time.Second, do: l.million},
		{what: "a storm of new contexts", takes: l.stormTime() + 5*time.Second, do: l.storm},
	}
}

// million fills a collector without limits with a million contexts of counters and gauges, and measures
// its memory. Then it sends more load. Under this load, the collector must flush the window of each
// second.
func (l *lab) million(ctx context.Context) error {
	c := load.Standard()
	c.Contexts, c.Kinds = manyContexts, load.Mix{load.Counter: 1, load.Gauge: 1}
	traffic, err := load.New(c)
	if err != nil {
		return err
	}
	m := &report.Million{Contexts: manyContexts}
	return l.withFreshet(ctx, "collector", func(f *freshet) error {
		if m.ResidentBefore, m.HeapBefore, err = f.memory(ctx); err != nil {
			return err
		}
		if _, err := f.withstand(ctx, traffic, manyRate, manyTime); err != nil {
			return err
		}
		if m.ResidentAfter, m.HeapAfter, err = f.memory(ctx); err != nil {
			return err
		}
		l.results.Scale.Million = m
		l.results.Scale.Flush, err = f.withstand(ctx, traffic, l.halfRate(), flushTime)
		return err
	}, "--limits-max-series", "0", "--limits-max-series-per-metric", "0", "--limits-max-new-series-per-minute", "0")
}

// storm sends new contexts to a collector with default limits.
func (l *lab) storm(ctx context.Context) error {
	c, rate := load.Standard(), l.halfRate()
	c.NewShare = min(stormContexts/rate, load.MaxNewShare)
	traffic, err := load.New(c)
	if err != nil {
		return err
	}
	return l.withFreshet(ctx, "collector", func(f *freshet) error {
		l.results.Scale.Storm, err = f.withstand(ctx, traffic, rate, l.stormTime())
		return err
	})
}

// memory returns the server's resident memory, and its heap in use after a garbage collection.
func (f *freshet) memory(ctx context.Context) (residentBytes, heap float64, err error) {
	now, err := resident(f.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	if _, err := f.get(ctx, "/debug/pprof/heap?gc=1", nil); err != nil { // gc=1 runs a collection
		return 0, 0, err
	}
	figures, err := f.process(ctx)
	return float64(now), float64(figures.HeapLiveBytes), err
}

// withstand sends a load, and reads in the ledger what became of its samples.
func (f *freshet) withstand(ctx context.Context, traffic *load.Load, rate float64,
	d time.Duration) (*report.Storm, error) {
	before, err := f.books(ctx)
	if err != nil {
		return nil, err
	}
	result, received, err := sendFor(ctx, f.running(), road{network: udp, segmented: true}, traffic,
		loadgen.Pace{Rate: rate, Duration: d})
	if err != nil {
		return nil, err
	}
	after, err := f.books(ctx)
	if err != nil {
		return nil, err
	}
	sum := func(reasons map[string]uint64) (n uint64) {
		for _, samples := range reasons {
			n += samples
		}
		return n
	}
	return &report.Storm{
		Seconds: result.Elapsed.Seconds(), Asked: rate, Rate: result.Rate(), Sent: result.Sent.Metrics, Received: received,
		NewContexts:   float64(result.Sent.NewContexts) / result.Elapsed.Seconds(),
		Refused:       sum(after.Samples.Refused) - sum(before.Samples.Refused),
		Folded:        after.Samples.OfWhich.Folded - before.Samples.OfWhich.Folded,
		KernelDropped: after.Datagrams.KernelDropped - before.Datagrams.KernelDropped,
		Difference:    after.Samples.Difference,
	}, nil
}
