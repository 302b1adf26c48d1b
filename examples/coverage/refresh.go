package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// refresher keeps an index fresh. It builds a new index while the old index is in use, and then stores
// the new index in the field `current`. Readers load `current` and never wait.
type refresher struct {
	source   source
	interval time.Duration // 0: refreshes only on request
	most     int           // how many documents there may be
	mostBad  int           // how many documents may be refused
	log      *slog.Logger
	metrics  *metrics

	current atomic.Pointer[index]
	loaded  atomic.Int64     // Unix nanoseconds of the last success
	asked   chan chan result // unbuffered: while `run` does not receive, it is in a refresh
}

// result is the result of a refresh.
type result struct {
	documents, refused int
	took               time.Duration
	err                error
}

func newRefresher(from source, log *slog.Logger, m *metrics) *refresher {
	return &refresher{source: from, most: 5_000_000, mostBad: 1000, log: log, metrics: m, asked: make(chan chan result)}
}

// run loads the first index, and then refreshes it until ctx is done. It returns an error only if
// the first load fails, since there is no service without an index.
func (r *refresher) run(ctx context.Context) error {
	if first := r.refresh(ctx); first.err != nil {
		return first.err
	}
	var due <-chan time.Time
	if r.interval > 0 {
		ticker := time.NewTicker(r.interval)
		defer ticker.Stop()
		due = ticker.C
	}
	for {
		select {
		case answer := <-r.asked:
			answer <- r.refresh(ctx)
		case <-due:
			r.refresh(ctx) // errors are logged and counted; the next refresh may succeed
		case <-ctx.Done():
			return nil
		}
	}
}

// errBusy means that a refresh is already running.
var errBusy = errors.New("a refresh is running; try again later")

// ask refreshes the index now, and waits for the result.
func (r *refresher) ask(ctx context.Context) result {
	answer := make(chan result, 1)
	select {
	case r.asked <- answer:
	default:
		return result{err: errBusy}
	}
	select {
	case done := <-answer:
		return done
	case <-ctx.Done(): // the refresh continues
		return result{err: ctx.Err()}
	}
}

func (r *refresher) refresh(ctx context.Context) result {
	begun := time.Now()
	expected := 0
	if old := r.current.Load(); old != nil {
		expected = len(old.rows)
	}
	into := &sink{builder: newBuilder(expected, r.most), mostBad: r.mostBad, log: r.log, lastReport: begun}
	err := r.source.load(ctx, into)
	if err == nil && len(into.builder.rows) == 0 {
		err = errors.New("there is no valid document")
		if into.firstBad != nil {
			err = fmt.Errorf("%w; the first is %w", err, into.firstBad)
		}
	}
	done := result{refused: into.bad, err: err}
	if err != nil {
		done.err = fmt.Errorf("load coverage from %s: %w", r.source, err)
		done.took = time.Since(begun)
		if ctx.Err() == nil { // otherwise the service is stopping
			r.metrics.refreshed(done, nil)
			r.log.Error("refresh failed, keeping the old index", "error", done.err, "took", done.took)
		}
		return done
	}
	built := into.builder.build()
	r.current.Store(built)
	r.loaded.Store(time.Now().UnixNano())
	done.documents, done.took = len(built.rows), time.Since(begun)
	r.metrics.refreshed(done, built)
	r.log.Info("index refreshed", "documents", done.documents, "bytes", built.bytes(), "refused", into.bad, "took",
		done.took)
	if into.firstBad != nil {
		r.log.Warn("documents refused", "count", into.bad, "first", into.firstBad)
	}
	return done
}
