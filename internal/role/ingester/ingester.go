// Package ingester writes requests into the stores. A request is written at once, by the goroutine that
// pushes it, if no other request of its tenant is being written and a lane is free. Otherwise it waits, in
// a bounded number of requests, and the waiting requests of one tenant are written in one commit. The
// distributor decides which requests come in, and which labels their series have.
package ingester

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/fault"
	"github.com/freshet-io/freshet/internal/lib/pool"
	"github.com/freshet-io/freshet/internal/settings"
)

// ErrFull means that the queue, or the tenant's share of it, is full. Nothing of the request
// was written.
var ErrFull = errors.New("too many requests wait to be written: the disk or the processors do not keep up")

// Store writes samples: see tsdb.Stores.
type Store interface {
	WriteRequests(ctx context.Context, tenant string, state *write.State, requests []*write.Request) error
	// State returns the state of a tenant's store.
	State(ctx context.Context, tenant string) (*write.State, error)
	// ResultsState returns the state of a tenant's store for the results of rules.
	ResultsState(ctx context.Context, tenant string) (*write.State, error)
}

const (
	// maxGroup bounds the number of requests in one commit, so that the first request of a
	// flood does not wait for the last.
	maxGroup = 64

	// One tenant may fill at most 1/share of the queue, so that there is room for other
	// tenants.
	share = 4

	// patience bounds how long a request waits for its turn. Senders wait no longer: Prometheus
	// gives up after 30 s, vmagent after a minute.
	patience = time.Minute
)

// errYours ends the wait of a request whose own goroutine now writes for its tenant: see Ingester.lead.
var errYours = errors.New("BUG: a push that leads was answered")

// errPatience ends the wait of a request.
var errPatience = fmt.Errorf("its turn did not come within %v: %w", patience, context.DeadlineExceeded)

// Ingester is made by New and works while Run runs.
type Ingester struct {
	store   Store
	config  settings.Ingester
	metrics *metrics
	lanes   chan struct{}     // a token for each push that its own goroutine may write; empty unless Run runs
	pool    *pool.Pool[*push] // writes pushes that found no lane
	waiting atomic.Int64      // pushes under way
	tenants sync.Map          // queueOf to *tenant
	pushes  sync.Pool
}

// push is a request on its way to the store.
type push struct {
	tenant  *tenant
	request *write.Request // the caller owns it again after the push is given up
	trip    *stage.Trip    // owned like request; nil if the request is not watched
	begun   time.Time
	fate    atomic.Int32
	done    chan error
	timer   *time.Timer // ends the wait; a context with a deadline would cost each request 2 us
}

// Fates of a push. The first goroutine that changes the fate from waiting decides: the one that writes for
// the tenant, which then writes the request, too, or the caller, which then takes the request back.
const (
	waiting int32 = iota
	taken
	givenUp
)

// queueOf names the pushes of a tenant that wait together. Results of rules wait apart, since they have
// a database of their own.
type queueOf struct {
	tenant  string
	results bool
}

// tenant holds the pushes that wait for one database. At most one goroutine writes for a tenant. Either it is a worker,
// which also writes the pushes that come meanwhile, or it leads: it writes its own push, and one that came meanwhile
// leads next.
type tenant struct {
	queueOf
	waiting atomic.Int64
	recent  atomic.Int64 // number of recent series in the state

	mu      sync.Mutex
	next    []*push
	writing bool

	// These belong to the goroutine that writes.
	state    *write.State // nil before the first write
	group    []*push      // of one commit
	requests []*write.Request
}

// New makes an ingester.
func New(config settings.Ingester, store Store, reg prometheus.Registerer) *Ingester {
	g := &Ingester{store: store, config: config}
	g.pushes.New = func() any { return &push{done: make(chan error, 1), timer: time.NewTimer(patience)} }
	all := workers(config)
	g.lanes = make(chan struct{}, all/2)
	g.pool = pool.New(pool.Options{Workers: all - all/2, Queue: config.Queue}, g.work)
	g.metrics = newMetrics(reg, g)
	return g
}

// Run writes pushed requests until ctx is done and all accepted requests are written.
func (g *Ingester) Run(ctx context.Context) error {
	fault.Run()
	for range cap(g.lanes) {
		g.lanes <- struct{}{}
	}
	err := g.pool.Run(ctx)
	for range cap(g.lanes) {
		<-g.lanes
	}
	return err
}

// Push writes a request and sets its Outcome: see package write. If ctx is done before the
// request's turn, or if the turn does not come within a minute, nothing of it is written.
func (g *Ingester) Push(ctx context.Context, request *write.Request) error {
	fault.Push(len(request.Series))
	all := g.waiting.Add(1)
	defer g.waiting.Add(-1)
	if all > int64(g.config.Queue) { // checked first, since a refused request must add no tenant
		g.metrics.full.Inc()
		return ErrFull
	}
	t := g.tenant(queueOf{request.Tenant, request.Results})
	own := t.waiting.Add(1)
	defer t.waiting.Add(-1)
	if own > max(1, int64(g.config.Queue)/share) {
		g.metrics.full.Inc()
		return ErrFull
	}
	p := g.pushes.Get().(*push)
	p.tenant, p.request, p.trip, p.begun = t, request, stage.FromContext(ctx), time.Now()
	p.fate.Store(waiting)
	p.trip.Pass(stage.Distribute, stage.Queue, p.begun)
	switch g.enter(p) {
	case leads:
		return g.lead(p)
	case refused:
		g.metrics.full.Inc()
		g.free(p)
		return ErrFull
	case queued:
		g.useLanes() // a lane may have become free just before the push was queued
	}
	return g.wait(ctx, p)
}

// Places that a push gets when it enters.
const (
	waits  = iota // for the goroutine that writes for its tenant
	queued        // for a worker
	leads
	refused
)

// enter finds who writes a push: the goroutine that writes for its tenant now, the goroutine of the push itself if
// there is a lane for it, or a worker.
func (g *Ingester) enter(p *push) (place int) {
	t := p.tenant
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writing {
		t.next = append(t.next, p)
		return waits
	}
	select {
	case <-g.lanes:
		t.writing = true
		p.fate.Store(taken)
		return leads
	default:
	}
	if g.pool.Push(p) {
		return queued
	}
	return refused
}

// wait waits until a push is written, or leads if no other goroutine writes it.
func (g *Ingester) wait(ctx context.Context, p *push) error {
	p.timer.Reset(patience)
	var late error
	select {
	case err := <-p.done:
		return g.written(p, err)
	case <-ctx.Done():
		late = context.Cause(ctx)
	case <-p.timer.C:
		late = errPatience
	}
	t := p.tenant // p may be of another request as soon as it is given up
	if p.fate.CompareAndSwap(waiting, givenUp) {
		g.forget(t)
		return fmt.Errorf("wait until earlier requests are written: %w", late)
	}
	return g.written(p, <-p.done) // the request's memory is in use, so Push must wait
}

// written ends a push whose wait has ended.
func (g *Ingester) written(p *push, err error) error {
	if err == errYours {
		return g.lead(p)
	}
	g.free(p)
	return err
}

// lead writes a push in the goroutine of its caller. That saves two switches of goroutines, which take 1 us of CPU
// time, and more if a processor must wake. It also writes pushes that already wait.
func (g *Ingester) lead(p *push) error {
	defer endProcess()
	t := p.tenant
	t.mu.Lock()
	t.begin(p)
	g.gather(t)
	t.mu.Unlock()
	g.write(t)
	g.passOn(t)
	err := <-p.done
	g.free(p)
	return err
}

// passOn ends the lead of a push. The lane goes to the next push of the tenant, or to a push that waits for a worker,
// or else it is free.
func (g *Ingester) passOn(t *tenant) {
	if t.leadNext(g) || g.leadAnyQueued() {
		return
	}
	g.lanes <- struct{}{}
	g.useLanes() // a push may have been queued just before the lane was free
}

// useLanes gives free lanes to pushes that wait for a worker. It must follow each step after which there may be both: a
// lane that became free, and a push that was queued.
func (g *Ingester) useLanes() {
	for g.pool.Len() > 0 {
		select {
		case <-g.lanes:
		default:
			return
		}
		if !g.leadAnyQueued() {
			g.lanes <- struct{}{}
		}
	}
}

// leadAnyQueued makes one push out of the pool's queue lead. It reports false if none can.
func (g *Ingester) leadAnyQueued() bool {
	for p, ok := g.pool.Take(); ok; p, ok = g.pool.Take() {
		if g.leadQueued(p) {
			return true
		}
	}
	return false
}

// leadNext makes the next push of the tenant lead. If none waits, no goroutine writes for the tenant any more.
func (t *tenant) leadNext(g *Ingester) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.next) > 0 {
		p := t.next[0]
		t.next = slices.Delete(t.next, 0, 1)
		if p.fate.CompareAndSwap(waiting, taken) {
			p.done <- errYours
			return true
		}
		g.free(p)
	}
	t.writing = false
	return false
}

// leadQueued makes a push out of the pool's queue lead, unless another goroutine already writes for its tenant.
func (g *Ingester) leadQueued(p *push) bool {
	t := p.tenant
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writing && p.fate.Load() != givenUp {
		t.next = append(t.next, p)
		return false
	}
	if t.writing || !p.fate.CompareAndSwap(waiting, taken) {
		g.free(p)
		return false
	}
	t.writing = true
	p.done <- errYours
	return true
}

// endProcess ends the process after a panic, as a panic of a worker does. net/http would end only the request, and
// no goroutine would write for its tenant any more.
func endProcess() {
	if cause := recover(); cause != nil {
		trace := debug.Stack()
		go func() { panic(fmt.Sprintf("%v\n\n%s", cause, trace)) }()
		select {}
	}
}

// forget removes a tenant's pushes that were given up. Otherwise such pushes would pile up if
// senders come and leave while a store hangs. A push that is still in the pool's queue is freed by
// its worker.
func (g *Ingester) forget(t *tenant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = slices.DeleteFunc(t.next, func(p *push) bool {
		if p.fate.Load() != givenUp {
			return false
		}
		g.free(p)
		return true
	})
}

func (g *Ingester) free(p *push) {
	p.tenant, p.request, p.trip = nil, nil, nil
	p.timer.Stop()
	g.pushes.Put(p)
}

func (g *Ingester) tenant(of queueOf) *tenant {
	if t, ok := g.tenants.Load(of); ok {
		return t.(*tenant)
	}
	t, _ := g.tenants.LoadOrStore(of, &tenant{queueOf: of})
	return t.(*tenant)
}

// work takes one push out of the queue. If another goroutine already writes for the push's tenant, the
// push waits for it. Otherwise this worker writes until no push of the tenant waits.
func (g *Ingester) work(p *push) {
	t := p.tenant
	t.mu.Lock()
	if p.fate.Load() == givenUp {
		t.mu.Unlock()
		g.free(p)
		return
	}
	t.next = append(t.next, p)
	if t.writing {
		t.mu.Unlock()
		return
	}
	t.writing = true
	for len(t.next) > 0 {
		g.gather(t)
		t.mu.Unlock()
		g.write(t)
		t.mu.Lock()
	}
	t.writing = false
	t.mu.Unlock()
}

// begin puts a push into the group of the next commit. The push must be taken.
func (t *tenant) begin(p *push) {
	p.request.Begun = true
	t.group, t.requests = append(t.group, p), append(t.requests, p.request)
}

// gather adds pushes that wait to the group of the next commit, as far as there is room. The caller holds t.mu.
func (g *Ingester) gather(t *tenant) {
	n := min(len(t.next), maxGroup-len(t.group))
	for _, p := range t.next[:n] {
		if p.fate.CompareAndSwap(waiting, taken) {
			t.begin(p)
		} else {
			g.free(p)
		}
	}
	t.next = slices.Delete(t.next, 0, n)
}

// write writes the group in one commit, and empties it.
func (g *Ingester) write(t *tenant) {
	if len(t.group) == 0 { // all were given up
		return
	}
	begun := time.Now()
	for _, p := range t.group {
		p.trip.Pass(stage.Queue, stage.Append, begun)
	}
	// Use a context of its own: a sender that goes away must not fail the requests of other
	// senders.
	err := g.writeStore(context.Background(), t)
	written := time.Now()
	g.metrics.group.Observe(float64(len(t.group)))
	for _, p := range t.group {
		g.metrics.pushed.Observe(written.Sub(p.begun).Seconds())
		if err == nil {
			p.trip.Leave(stage.Append, written)
			p.trip.Seen(written)
		}
		p.done <- err
	}
	clear(t.group)
	clear(t.requests)
	t.group, t.requests = t.group[:0], t.requests[:0]
}

// writeStore writes the requests of a group. Before the first write, it asks the store for the tenant's
// state.
func (g *Ingester) writeStore(ctx context.Context, t *tenant) error {
	if t.state == nil {
		read := g.store.State
		if t.results {
			read = g.store.ResultsState
		}
		state, err := read(ctx, t.queueOf.tenant)
		if err != nil {
			return err
		}
		t.state = state
	}
	err := g.store.WriteRequests(ctx, t.queueOf.tenant, t.state, t.requests)
	t.recent.Store(int64(t.state.Recent.Len()))
	return err
}

// Recent returns how many series of a tenant counted against distributor.max_series at its last
// write, or 0 before the first write. Results of rules count apart.
func (g *Ingester) Recent(name string) int {
	if t, ok := g.tenants.Load(queueOf{tenant: name}); ok {
		return int(t.(*tenant).recent.Load())
	}
	return 0
}

// workers returns the number of goroutines that write, those that lead included.
func workers(c settings.Ingester) int {
	if c.Workers > 0 {
		return c.Workers
	}
	return max(4, 2*runtime.GOMAXPROCS(0))
}
