package group

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/role/aggregator"
	"github.com/freshet-io/freshet/internal/settings"
)

// nowhere is a set of stores that take everything at no cost.
type nowhere struct{}

func (nowhere) WriteTiles(context.Context, string, tile.Width, []tile.Sample) (w tile.Written, err error) {
	return w, nil
}
func (nowhere) WriteRequests(context.Context, string, *write.State, []*write.Request) error {
	return nil
}
func (nowhere) Sync(context.Context) error        { return nil }
func (nowhere) CutBack(string, map[string]uint64) {}

func (nowhere) WriteEvents(context.Context, []*member.Events) error { return nil }

func (nowhere) LogEnds(uint64) error { return nil }

// BenchmarkWindow measures what a window of 2,000 series costs in a group of one. For comparison it
// measures two machines without a group: one syncs its journal before each acknowledgement, the other
// each second. There is no bound: the difference is the price of using the same path for one machine as
// for three, and no release has a group of one.
func BenchmarkWindow(b *testing.B) {
	type role interface {
		Push(context.Context, []batch.Batch) error
		Run(context.Context) error
	}
	config := settings.DefaultAggregator()
	alone := func(fsync string) func(files.Dir) (role, error) {
		return func(dir files.Dir) (role, error) {
			log, _, err := journal.Open(dir, journal.Options{Mark: 1})
			if err != nil {
				return nil, err
			}
			config.Fsync = fsync
			return aggregator.New(aggregator.Options{Config: config, MaxPending: 1 << 30, Log: log, Writer: nowhere{},
				Ledger: ledger.New(), Now: time.Now, Registry: prometheus.NewRegistry(), Logger: discard})
		}
	}
	for _, c := range []struct {
		name string
		open func(files.Dir) (role, error)
	}{
		{"group", func(dir files.Dir) (role, error) {
			return New(Options{Member: 1, Voters: []uint64{1}, Config: config, MaxPending: 1 << 30, FS: dir, Mark: 1,
				Writer: nowhere{}, Ledger: ledger.New(), Now: time.Now, Registry: prometheus.NewRegistry(), Logger: discard})
		}},
		{"alone/" + settings.FsyncCommit, alone(settings.FsyncCommit)},
		{"alone/" + settings.FsyncInterval, alone(settings.FsyncInterval)},
	} {
		b.Run(c.name, func(b *testing.B) {
			dir, err := files.Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			r, err := c.open(dir)
			if err != nil {
				b.Fatal(err)
			}
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			const n = 2000
			var w batch.Writer
			var all []batch.Increment
			for i := range n {
				all = append(all, batch.Increment{Samples: 1, Value: 1, Key: series.AppendKey(nil, series.Counter,
					labels.FromStrings("__name__", "requests", "path", fmt.Sprint("/some/path/", i), "host", "web-1"))})
			}
			var took []time.Duration
			b.ReportAllocs()
			before := cpu()
			for sequence := uint64(1); b.Loop(); sequence++ {
				now := time.Now()
				w.Begin(batch.Header{Tenant: []byte("default"), Producer: 1, Incarnation: 1, Sequence: sequence,
					Second: now.Unix(), Birth: now.UnixNano()})
				for i := range all {
					w.Add(series.Shard("default", all[i].Key), &all[i])
				}
				if err := r.Push(b.Context(), w.End()); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(now))
			}
			slices.Sort(took)
			b.ReportMetric(float64(cpu()-before)/1e3/float64(len(took)*n), "cpu-us/sample")
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1e3, "p99-ms")
			stop()
			if err := <-ended; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkRequest measures a small request in a group of one, with notes and without. Its stores take
// everything at no cost. Bound: a note costs at most 20 us of a core, so 500 requests a second cost a
// hundredth of a core.
func BenchmarkRequest(b *testing.B) {
	for _, boot := range []string{"boot", ""} {
		b.Run(fmt.Sprintf("boot=%q", boot), func(b *testing.B) {
			dir, err := files.Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			g, err := New(Options{Member: 1, Voters: []uint64{1}, Config: settings.DefaultAggregator(), MaxPending: 1 << 30,
				MaxQueued: 1 << 30, MaxQueuedSum: 1 << 30, MaxBehind: 1 << 30, FS: dir, Mark: 1, Boot: boot, Writer: nowhere{},
				Ledger: ledger.New(), Now: time.Now, Registry: prometheus.NewRegistry(), Logger: discard})
			if err != nil {
				b.Fatal(err)
			}
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- g.Run(ctx) }()
			e := request(b, "a", "r", time.Now(), 1)
			requests := int64(0)
			b.ReportAllocs()
			before := cpu()
			for b.Loop() {
				one := *e
				if _, err := g.Write(b.Context(), &one); err != nil {
					b.Fatal(err)
				}
				requests++
			}
			b.ReportMetric(float64(cpu()-before)/1e3/float64(requests), "cpu-us/request")
			stop()
			if err := <-ended; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// cpu returns the processor time of this process.
func cpu() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
