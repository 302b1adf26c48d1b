// Package scraper is the role that keeps the process' own metrics in its own store, as a
// Prometheus that scrapes /metrics would, so that Freshet can be watched without another
// server.
package scraper

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/buf"
)

// Distributor accepts samples: see distributor.Push.
type Distributor interface {
	Push(ctx context.Context, tenant string, r *write.Incoming) (outcome.Outcome, error)
}

// Options are the parts of a Scraper. All fields are required.
type Options struct {
	Gatherer    prometheus.Gatherer
	Distributor Distributor
	Tenant      string
	Labels      map[string]string // added to every series that has no label of that name
	Interval    time.Duration
	Now         func() time.Time
	Logger      *slog.Logger
}

// Scraper is the role's state. It belongs to Run.
type Scraper struct {
	Options
	known   map[string]*known // by name and labels
	scrapes uint64            // number of scrapes so far
	key     []byte            // buffer that `series` uses again
}

// New makes a scraper. It starts nothing.
func New(o Options) *Scraper {
	return &Scraper{Options: o, known: map[string]*known{}}
}

// Run stores the metrics at each multiple of the interval, until ctx is done. A scrape that cannot
// be stored is logged, and its samples are missing. Counters lose nothing: the next scrape has
// their totals.
func (s *Scraper) Run(ctx context.Context) error {
	for {
		now := s.Now()
		timer := time.NewTimer(now.Truncate(s.Interval).Add(s.Interval).Sub(now))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		if err := s.scrape(context.WithoutCancel(ctx), s.Now()); err != nil {
			s.Logger.Warn("Freshet's own metrics of this moment are not stored", "error", err)
		}
	}
}

// scrape stores the present values of the metrics with the time `now`. Run does not interrupt a scrape that has begun.
func (s *Scraper) scrape(ctx context.Context, now time.Time) error {
	families, err := s.Gatherer.Gather()
	if err != nil {
		return err
	}
	body, request := buf.Get(), new(write.Incoming)
	defer body.Release()
	var b remotewrite.Builder
	b.Begin(&request.Request, body.B)
	s.add(families, now.UnixMilli(), &b)
	b.Finish()
	body.B = b.Body
	o, err := s.Distributor.Push(ctx, s.Tenant, request)
	if err != nil {
		return err // the next scrape writes the stale markers of series that are gone
	}
	s.stored()
	if o.AnyRefused() {
		return errors.New(o.Text())
	}
	return nil
}
