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

// WriterConfig configures a Writer.
type WriterConfig struct {
	URL         string // http://HOST:PORT/api/v1/write
	Header      http.Header
	TLS         *tls.Config // for an https URL; nil means the defaults
	Connections int         // concurrent requests; 0 means 1
	Tenants     []string    // X-Scope-OrgID of the requests of a round, in rotation; empty for none

	// GoOn makes the Writer drop a request that is answered with 503, without a retry. The Writer sends
	// the next request when it is due, whatever Retry-After says.
	GoOn bool
}

// WriterPace is the speed and the length of a run.
type WriterPace struct {
	Rate     float64       // samples a second; 0: as fast as possible
	Rounds   int           // 0: no limit
	Duration time.Duration // 0: no limit; requests under way are completed
	WarmUp   time.Duration // with a Rate: requests due in this time do not count in the latencies
}

// WriterResult is the outcome of a run, in which each request was answered.
type WriterResult struct {
	Sent    remoteload.Totals
	Written uint64 // samples stored, by the receiver's answers
	Refused string // the first answer that says that samples were not stored
	Retries uint64 // answers that asked for a retry, and broken connections
	GoneOn  uint64 // requests answered with 503 and not retried

	Latency Latencies // from the first attempt of a request to its final answer
	FromDue Latencies // with a Rate: since the request was due, including the wait behind a slow request
	Elapsed time.Duration
	CPU     time.Duration // of this process during the run
}

// Writer sends the requests of a load over some connections, as a sender of remote write does. It
// retries a request that is answered with 5xx, no earlier than the answer's Retry-After. It sends a
// request of a series only after the previous request of that series was answered. Only one
// goroutine may call Run; any goroutine may call Progress.
type Writer struct {
	config WriterConfig
	target *url.URL
	load   *remoteload.Load

	mu       sync.Mutex
	answered *sync.Cond // signals that a request was answered
	turns    int        // requests begun, in all rounds
	busy     []bool     // whether each request of a round is under way
	failed   bool       // this run sends nothing more
	progress WriterResult
}

// NewWriter makes a Writer that sends the load from its beginning.
func NewWriter(c WriterConfig, l *remoteload.Load) (*Writer, error) {
	target, err := url.Parse(c.URL)
	if err != nil || target.Host == "" || target.Scheme != "http" && target.Scheme != "https" {
		return nil, fmt.Errorf("%q is not a URL to write to; use one like http://127.0.0.1:7125/api/v1/write", c.URL)
	}
	c.Connections = max(1, c.Connections)
	w := &Writer{config: c, target: target, load: l, busy: make([]bool, l.Requests())}
	w.answered = sync.NewCond(&w.mu)
	return w, nil
}

// Rounds returns how many rounds have begun.
func (w *Writer) Rounds() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return (w.turns + len(w.busy) - 1) / len(w.busy)
}

// Progress returns what the run has sent so far.
func (w *Writer) Progress() remoteload.Totals {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progress.Sent
}

// Run continues the load until the pace's rounds or duration are over, and returns when all
// requests are answered. It fails if the receiver rejects a request, or answers none for a minute.
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

// writerRun is the state of one call of Run.
type writerRun struct {
	*Writer
	pace  WriterPace
	begun time.Time
	first int // number of the first turn of this run
}

// connection sends requests over one connection, one after another.
func (r *writerRun) connection(ctx context.Context) error {
	alarm, err := newAlarm()
	if err != nil {
		return err
	}
	defer alarm.close()
	c := connection{Writer: r.Writer}
	defer c.close()
	// When ctx ends, connections stop waiting for requests of other connections.
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

// turn returns the next request and when to send it. Requests take turns in order, so a request is
// never under way for two rounds at once.
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

// perRequest returns how many samples a request has on average.
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

// sleep waits for d. If ctx ends first, it returns early, with an error.
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
