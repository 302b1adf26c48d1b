// Package forwarder sends accepted requests to a backend: any endpoint of remote write, 2.0 or 1.0.
// Requests wait in a queue on disk (core/queue), so they outlive restarts of Freshet and outages of
// the backend. The backend may get a request twice, which remote write allows.
//
// The callers of Push decide what is forwarded, and to which backends.
//
// In a group, each member puts the same requests into its queue, and only the leader sends them. The log
// says up to which entry the backend has everything: see entry.KindForwarded. The other members then
// drop these requests from their queues.
package forwarder

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"
	promconfig "github.com/prometheus/common/config"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/queue"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/lib/retry"
	"github.com/freshet-io/freshet/internal/settings"
)

// Options of a Forwarder.
type Options struct {
	Backend settings.Backend

	// Dirs has a directory for the queue of each connection, always in the same order. Directories
	// beyond Backend.Connections hold requests from a time with more connections. The forwarder
	// sends these requests, but puts no new requests into those directories.
	Dirs []segment.FS

	// Group says that Push gets requests from the log of a group: see Lead and Settle. Requests without
	// a span are sent even if this member does not lead: they are from a time before the group, and no
	// other node has them.
	Group bool

	UserAgent string // such as freshet/1.2.3
	Registry  prometheus.Registerer
	Logger    *slog.Logger
}

// Forwarder sends to one backend. Push is safe for concurrent use.
type Forwarder struct {
	config    settings.Backend
	userAgent string
	client    *http.Client
	logger    *slog.Logger
	metrics   *metrics
	lanes     []*lane
	onlyV1    atomic.Bool // the backend knows only version 1.0 of remote write

	leads   atomic.Bool   // this member sends
	settled atomic.Uint64 // the log says that the backend has everything up to this entry
}

// lane is a queue and the connection that empties it, one request at a time, so that the
// samples of a series arrive in order.
type lane struct {
	*Forwarder
	queue *queue.Queue
	wake  chan struct{} // signals a push

	backoff retry.Backoff
	away    bool // whether the last attempt failed and will be repeated

	turned  chan struct{} // signals that another member leads
	reached atomic.Uint64 // everything up to this entry has left the queue
	ended   atomic.Uint64 // the last entry of the requests that left the queue
	gaveUp  atomic.Bool   // the queue gave something up while this member led
	missed  missed
}

// New opens the queues, and finds the requests of an earlier process in them.
func New(o Options) (*Forwarder, error) {
	f := &Forwarder{
		config:    o.Backend.WithDefaults(),
		userAgent: o.UserAgent,
		logger:    o.Logger.With("backend", o.Backend.Name),
	}
	f.leads.Store(!o.Group)
	if len(o.Dirs) < f.config.Connections {
		panic(fmt.Sprintf("BUG: forwarder: %d directories for %d connections", len(o.Dirs), f.config.Connections))
	}
	if _, err := http.NewRequest(http.MethodPost, f.config.URL, nil); err != nil {
		return nil, fmt.Errorf("backend %s: its url: %w", f.config.Name, withoutURL(err))
	}
	var err error
	if f.client, err = promconfig.NewClientFromConfig(f.config.HTTPClient(), "forwarder"); err != nil {
		return nil, fmt.Errorf("backend %s: %w", f.config.Name, err)
	}
	var mark [4]byte
	if _, err := rand.Read(mark[:]); err != nil {
		return nil, err
	}
	registry := prometheus.WrapRegistererWith(prometheus.Labels{"backend": f.config.Name}, o.Registry)
	f.metrics = newMetrics(registry)
	for i, dir := range o.Dirs {
		q, err := queue.Open(dir, queue.Options{
			MaxBytes: int64(f.config.Queue) / int64(f.config.Connections),
			Mark:     binary.LittleEndian.Uint32(mark[:]),
			Sync:     f.config.Fsync,
			Damaged:  f.damaged,
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("backend %s: queue %d: %w", f.config.Name, i, err), f.close())
		}
		f.lanes = append(f.lanes,
			&lane{
				Forwarder: f, queue: q, wake: make(chan struct{}, 1), turned: make(chan struct{}, 1),
				backoff: retry.Backoff{Min: f.config.RetryMin, Max: f.config.RetryMax},
			})
	}
	watch(registry, f.waiting)
	if sum, oldest := f.waiting(); sum.Frames > 0 {
		f.logger.Info("requests of an earlier process wait for the backend", "requests", sum.Frames, "samples", sum.Samples,
			"bytes", sum.Bytes, "oldest", time.UnixMilli(oldest).UTC())
	}
	return f, nil
}

func (f *Forwarder) damaged(d segment.Damage) {
	f.metrics.unsent.add(queue.Amount{Frames: d.Frames, Bytes: d.Bytes}, unsentDamaged)
	f.logger.Warn("the queue is damaged; its undamaged part is sent", "place", d.String())
}

// waiting sums the amounts in the lanes' queues, and finds the time of the oldest request.
func (f *Forwarder) waiting() (sum queue.Amount, oldest int64) {
	for _, l := range f.lanes {
		amount, t := l.queue.Waiting()
		if amount.Frames > 0 && (oldest == 0 || t < oldest) {
			oldest = t
		}
		sum.Frames += amount.Frames
		sum.Samples += amount.Samples
		sum.Bytes += amount.Bytes
	}
	return sum, oldest
}

// Push puts a request into the queue. When it returns nil, the request survives the death of the
// process, and is sent sooner or later unless the queue runs full. After an error the request is
// counted as unsent. The caller may reuse the body.
func (f *Forwarder) Push(r Request) error {
	if f.has(r.Span) {
		return nil
	}
	frame := queue.Frame{Time: time.Now().UnixMilli(), Samples: uint32(r.Samples + r.Histograms)}
	var err error
	if frame.Payload, err = appendRequest(nil, &r); err != nil {
		return fmt.Errorf("forward to %s: %w", f.config.Name, err)
	}
	l := f.lanes[xxhash.Sum64String(r.Tenant)%uint64(f.config.Connections)]
	givenUp, err := l.queue.Append(frame)
	l.lost(givenUp, unsentFull, 0)
	if err != nil {
		l.lost(frame.Amount(), unsentDisk, r.Span.Last)
		return fmt.Errorf("forward to %s: %w", f.config.Name, err)
	}
	l.signal()
	return nil
}

func (l *lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default: // the lane is already signalled
	}
}

// Run sends until ctx is done, and closes the queues. The next Run sends the requests that are
// left. Callers of Push must stop first.
func (f *Forwarder) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, l := range f.lanes {
		wg.Go(func() { l.run(ctx) })
	}
	wg.Wait()
	f.client.CloseIdleConnections()
	return f.close()
}

func (f *Forwarder) close() error {
	var errs []error
	for _, l := range f.lanes {
		errs = append(errs, l.queue.Close())
	}
	return errors.Join(errs...)
}

// run sends the oldest request until it is accepted, refused or given up, and then the next.
func (l *lane) run(ctx context.Context) {
	for ctx.Err() == nil {
		frame, ok, err := l.queue.Peek()
		if err != nil {
			l.metrics.queueErrors.Inc()
			l.logger.Error("the queue cannot be read; the next attempt follows soon", "error", err)
			l.pause(ctx, 0)
			continue
		}
		var r Request
		if ok {
			r, err = parseRequest(frame.Payload, frame.Samples)
		}
		switch {
		case !ok || !l.turn(r.Span):
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
		case l.has(r.Span):
			l.drop(frame, r.Span)
		default:
			l.try(ctx, frame, r, err)
		}
	}
}

// try makes one attempt with a frame. r is the frame's request, unless err is set. The caller must call
// Peek again before the next attempt, since the queue may give up the frame meanwhile.
func (l *lane) try(ctx context.Context, frame queue.Frame, r Request, err error) {
	a := answer{verdict: refused, reason: reasonFrame}
	if err == nil {
		a = l.send(ctx, r)
	} else {
		a.text = err.Error()
	}
	if ctx.Err() != nil && a.verdict == again {
		return // ctx ended the attempt
	}
	if a.verdict == again {
		l.metrics.retries.WithLabelValues(a.reason).Inc()
		if !l.away {
			l.away = true
			l.logger.Warn("requests wait in the queue until the backend takes them", "answer", a.text)
		}
		l.pause(ctx, a.retryAfter)
		return
	}
	l.backoff.Reset()
	if l.away {
		l.away = false
		l.logger.Info("the backend takes requests again")
	}
	counted := l.done(r.Span)
	switch {
	case a.verdict == refused:
		l.logger.Warn("the backend refused a request; it is not sent again", "reason", a.reason, "answer", a.text,
			"tenant", r.Tenant, "samples", frame.Samples)
		if counted {
			l.metrics.refused.add(frame.Amount(), a.reason)
		}
	case counted: // not if the queue gave up the request meanwhile: it then counted it
		l.metrics.acknowledged.add(frame.Amount())
	}
}

// done removes the oldest frame. It reports whether the caller should count the frame: false if the
// queue gave it up meanwhile.
func (l *lane) done(of entry.Span) (counted bool) {
	counted, err := l.queue.Done()
	if err != nil {
		l.metrics.queueErrors.Inc()
		l.logger.Error("the queue's read position was not saved: a request may be sent again after a restart", "error", err)
	}
	raise(&l.ended, of.Last)
	return counted
}

// pause waits before the next attempt: for the time that the backend asks for, plus the
// backoff. It ends early if another member leads from now on.
func (l *lane) pause(ctx context.Context, asked time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, asked+l.backoff.Next())
	defer cancel()
	select {
	case <-l.turned:
	case <-ctx.Done():
	}
}
