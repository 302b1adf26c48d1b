//go:build linux

package loadgen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/internal/core/remoteload"
)

// WriterConfig says where to requests of remote write go, and how.
type WriterConfig struct {
	URL         string // http://HOST:PORT/api/v1/write
	Header      http.Header
	TLS         *tls.Config // of an https URL; nil for what is usual
	Connections int         // requests under way, 1 if 0
	Tenants     []string    // X-Scope-OrgID of the requests of a round, in turns; empty for none

	// GoOn has a request that is answered with 503 not sent again: the next one comes
	// when it is due, whatever the receiver asks for.
	GoOn bool
}

// WriterPace says how fast, and for how long.
type WriterPace struct {
	Rate     float64       // samples a second; 0 for as fast as it goes
	Rounds   int           // 0 for any number
	Duration time.Duration // 0 for any; a request that is under way ends
	WarmUp   time.Duration // with a Rate: the latency of what is due in it is not counted
}

// WriterResult is what became of the requests of a run. Each was answered.
type WriterResult struct {
	Sent    remoteload.Totals
	Written uint64 // samples that are stored, as the receiver says of each request
	Refused string // what it said of the first of which it did not store all
	Retries uint64 // answers that asked for the request once more, and connections that broke
	GoneOn  uint64 // requests that were answered with 503 and not sent again

	Latency Latencies // from the beginning of a request to its answer, retries included
	FromDue Latencies // with a Rate: from when it was due, so that who waits behind a slow one counts
	Elapsed time.Duration
	CPU     time.Duration // of this process meanwhile
}

// Writer sends the requests of a load over some connections, as a sender of remote write
// does: it sends a request again that was answered with 5xx, no earlier than the answer
// says, and one of a series never before that before it was answered. Run belongs to one
// goroutine; Progress is for any.
type Writer struct {
	config WriterConfig
	target *url.URL
	load   *remoteload.Load

	mu       sync.Mutex
	answered *sync.Cond // some request was
	turns    int        // that were given out: requests of all rounds
	busy     []bool     // by request of a round: it is under way
	failed   bool       // nothing more is sent in this run
	progress WriterResult
}

// NewWriter makes a Writer, which sends the load from its beginning.
func NewWriter(c WriterConfig, l *remoteload.Load) (*Writer, error) {
	target, err := url.Parse(c.URL)
	if err != nil || target.Host == "" || target.Scheme != "http" && target.Scheme != "https" {
		return nil, fmt.Errorf("%q is no URL to write to; one is http://127.0.0.1:7125/api/v1/write", c.URL)
	}
	c.Connections = max(1, c.Connections)
	w := &Writer{config: c, target: target, load: l, busy: make([]bool, l.Requests())}
	w.answered = sync.NewCond(&w.mu)
	return w, nil
}

// Rounds is how many rounds have been begun.
func (w *Writer) Rounds() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return (w.turns + len(w.busy) - 1) / len(w.busy)
}

// Progress is what the run has sent so far.
func (w *Writer) Progress() remoteload.Totals {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progress.Sent
}

// Run goes on with the load until the pace's rounds or its duration are over, and returns
// when all requests are answered. It is an error if the receiver refuses a request as it
// is, or answers none for a minute.
func (w *Writer) Run(ctx context.Context, pace WriterPace) (WriterResult, error) {
	before, err := processTime()
	if err != nil {
		return WriterResult{}, err
	}
	w.progress, w.failed = WriterResult{}, false
	begun := time.Now()
	r := writerRun{Writer: w, pace: pace, begun: begun, first: w.turns}
	group, ctx := errgroup.WithContext(ctx)
	for range w.config.Connections {
		group.Go(func() error { return r.connection(ctx) })
	}
	err = group.Wait()
	after, errTime := processTime()
	w.progress.Elapsed, w.progress.CPU = time.Since(begun), after-before
	return w.progress, errors.Join(err, errTime)
}

func processTime() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// writerRun is one Run.
type writerRun struct {
	*Writer
	pace  WriterPace
	begun time.Time
	first int // turn
}

// connection sends request after request.
func (r *writerRun) connection(ctx context.Context) error {
	alarm, err := newAlarm()
	if err != nil {
		return err
	}
	defer alarm.close()
	c := connection{Writer: r.Writer}
	defer c.close()
	// Who waits for a request that somebody else has under way waits no more.
	defer context.AfterFunc(ctx, r.fail)()
	for {
		k, due, ok := r.turn()
		if !ok {
			return ctx.Err()
		}
		if err := alarm.sleepUntil(ctx, due); err != nil {
			return err
		}
		request := r.load.Next(k)
		begun := time.Now()
		a, err := c.write(ctx, k, request)
		if err != nil {
			r.fail()
			return err
		}
		r.done(k, request, a, due, begun)
	}
}

// turn is the next request and when to send it. Requests have their turn one after the
// other: the same of two rounds are never under way at once.
func (r *writerRun) turn() (k int, due time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.turns - r.first
	due = r.begun
	if r.pace.Rate > 0 {
		due = due.Add(time.Duration(float64(sent) * r.perRequest() / r.pace.Rate * 1e9))
	}
	switch {
	case r.failed, r.pace.Rounds > 0 && sent >= r.pace.Rounds*len(r.busy):
		return 0, due, false
	case r.pace.Duration > 0 && (time.Since(r.begun) >= r.pace.Duration || due.Sub(r.begun) >= r.pace.Duration):
		return 0, due, false
	}
	k = r.turns % len(r.busy)
	r.turns++
	for r.busy[k] && !r.failed {
		r.answered.Wait()
	}
	r.busy[k] = true
	return k, due, !r.failed
}

// perRequest is how many samples a request has on average.
func (r *writerRun) perRequest() float64 {
	return float64(r.load.Series) / float64(len(r.busy))
}

func (r *writerRun) done(k int, request remoteload.Request, a answer, due, begun time.Time) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy[k] = false
	r.progress.Sent.Add(request)
	r.progress.Written += uint64(a.written)
	r.progress.Retries += uint64(a.retries)
	if r.progress.Refused == "" && a.written < request.Samples {
		r.progress.Refused = a.said
	}
	if a.goneOn {
		r.progress.GoneOn++
	}
	if r.pace.Rate == 0 || due.Sub(r.begun) >= r.pace.WarmUp {
		r.progress.Latency.add(now.Sub(begun))
	}
	if r.pace.Rate > 0 && due.Sub(r.begun) >= r.pace.WarmUp {
		r.progress.FromDue.add(now.Sub(due))
	}
	r.answered.Broadcast()
}

func (w *Writer) fail() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = true
	w.answered.Broadcast()
}

// sleep returns early, with an error, if ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
