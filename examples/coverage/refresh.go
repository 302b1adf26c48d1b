package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// refresher keeps an index fresh. It builds a new one beside the old one and puts it into
// current: readers take whichever is there, and wait for nothing.
type refresher struct {
	source   source
	interval time.Duration // 0: only when asked
	most     int           // documents
	mostBad  int           // documents that are refused
	log      *slog.Logger
	metrics  *metrics

	current atomic.Pointer[index]
	loaded  atomic.Int64     // Unix nanoseconds of the last success
	asked   chan chan result // unbuffered: who finds nobody there is told that a refresh runs
}

// result is what came of a refresh.
type result struct {
	documents, refused int
	took               time.Duration
	err                error
}

func newRefresher(from source, log *slog.Logger, m *metrics) *refresher {
	return &refresher{source: from, most: 5_000_000, mostBad: 1000, log: log, metrics: m, asked: make(chan chan result)}
}

// run loads the first index, without which there is no service, and then refreshes it
// until ctx is done.
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
			r.refresh(ctx) // logged and counted; the next one may do better
		case <-ctx.Done():
			return nil
		}
	}
}

// errBusy says that a refresh runs already.
var errBusy = errors.New("a refresh is under way; ask again when it is over")

// ask has the index refreshed now.
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
	case <-ctx.Done(): // it goes on all the same
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
		if ctx.Err() == nil { // or else it was ended on purpose
			r.metrics.refreshed(done, nil)
			r.log.Error("refresh failed, the index stays as it was", "error", done.err, "took", done.took)
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
