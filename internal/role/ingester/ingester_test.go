package ingester

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/freshet-io/freshet/internal/core/recentseries"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/settings"
)

// store takes a second for each commit and remembers the commits.
type store struct {
	mu      sync.Mutex
	commits []string // the tenant and the number of requests of each commit
	own     int      // number of commits in the goroutine of a push
	busy    map[string]bool
	err     error
	stuck   chan struct{} // commits of tenant "stuck" wait until it is closed
	quick   bool          // if true, a commit takes no time
}

// State is called once for each tenant.
func (s *store) State(_ context.Context, tenant string) (*write.State, error) {
	return &write.State{Newest: int64(len(tenant))}, nil
}

// ResultsState is called once for each tenant with results of rules.
func (s *store) ResultsState(ctx context.Context, tenant string) (*write.State, error) {
	return s.State(ctx, tenant)
}

func (s *store) WriteRequests(ctx context.Context, tenant string, state *write.State, requests []*write.Request) error {
	if state.Newest++; state.Newest <= int64(len(tenant)) {
		panic("a request has the state of another tenant")
	}
	state.Recent.Note(recentseries.Hash(state.Newest) << 32) // each commit adds a recent series
	s.mu.Lock()
	if s.busy[tenant] {
		panic("two commits of " + tenant + " at the same time")
	}
	s.busy[tenant] = true
	s.commits = append(s.commits, fmt.Sprint(tenant, len(requests)))
	if bytes.Contains(debug.Stack(), []byte("(*Ingester).Push(")) {
		s.own++
	}
	s.mu.Unlock()
	switch {
	case s.quick:
	case tenant == "stuck":
		<-s.stuck
	default:
		time.Sleep(time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[tenant] = false
	for _, r := range requests {
		r.Outcome.Written.Samples++
	}
	return s.err
}

func run(t *testing.T, config settings.Ingester, do func(*Ingester, *store)) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{busy: map[string]bool{}, stuck: make(chan struct{})}
		g := New(config, s, prometheus.NewRegistry())
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		do(g, s)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// pushAll starts n pushes of a tenant, one after the other, and returns a channel that gets the error of
// each.
func pushAll(g *Ingester, tenant string, n int) chan error {
	return pushUntil(context.Background(), g, tenant, n)
}

func pushUntil(ctx context.Context, g *Ingester, tenant string, n int) chan error {
	errs := make(chan error, n)
	for range n {
		go func() {
			r := write.Request{Tenant: tenant, Request: new(remotewrite.Request)}
			err := g.Push(ctx, &r)
			if err == nil && r.Outcome.Written.Samples != 1 {
				err = fmt.Errorf("written %d times", r.Outcome.Written.Samples)
			}
			errs <- err
		}()
		synctest.Wait()
	}
	return errs
}

func wait(errs chan error, n int) (all []error) {
	for range n {
		all = append(all, <-errs)
	}
	return all
}

func failed(errs []error) (n int) {
	for _, err := range errs {
		if err != nil {
			n++
		}
	}
	return n
}

// Recent returns how many recent series a tenant has. The page of limits shows this.
func TestRecent(t *testing.T) {
	run(t, settings.Ingester{Queue: 10, Workers: 1}, func(g *Ingester, s *store) {
		for i := range 3 {
			if a, b := g.Recent("a"), g.Recent("b"); a != i || b != 0 {
				t.Errorf("after %d commits of tenant a, tenants a and b have %d and %d series, want %d, 0", i, a, b, i)
			}
			wait(pushAll(g, "a", 1), 1)
		}
	})
}

// Requests of a tenant that wait during a commit are written together after it. Tenants do not wait for
// each other.
func TestWhatWaitsIsWrittenTogether(t *testing.T) {
	run(t, settings.Ingester{Queue: 1000, Workers: 4}, func(g *Ingester, s *store) {
		begun := time.Now()
		a, b := pushAll(g, "a", 1+2*maxGroup), pushAll(g, "b", 3)
		if n := failed(wait(a, 1+2*maxGroup)) + failed(wait(b, 3)); n > 0 {
			t.Errorf("%d failed", n)
		}
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("all commits took %v, want 3 s: the commits of tenant a in turn, and those of b at the same time", took)
		}
		slices.Sort(s.commits)
		if want := []string{"a1", "a64", "a64", "b1", "b2"}; !slices.Equal(s.commits, want) {
			t.Errorf("%v, want %v", s.commits, want)
		}
	})
}

// While a lane is free, a push is written in its own goroutine. So is one that waited for it. Workers write for
// further tenants.
func TestAPushIsWrittenInItsOwnGoroutine(t *testing.T) {
	run(t, settings.Ingester{Queue: 100, Workers: 4}, func(g *Ingester, s *store) { // half of them are lanes
		var all []chan error
		for _, tenant := range []string{"a", "b", "c", "a"} {
			all = append(all, pushAll(g, tenant, 1))
		}
		for _, errs := range all {
			if errs := wait(errs, 1); failed(errs) > 0 {
				t.Error(errs)
			}
		}
		if len(s.commits) != 4 || s.own != 3 || len(g.lanes) != 2 {
			t.Errorf("%d of the commits %v were in the goroutine of a push, want all but that of c; %d lanes are free, want 2",
				s.own, s.commits, len(g.lanes))
		}
	})
}

// A push that found no lane is written in the next lane that is free, even if all workers hang in other stores.
func TestAFreeLaneTakesAPushThatWaitsForAWorker(t *testing.T) {
	run(t, settings.Ingester{Queue: 100, Workers: 2}, func(g *Ingester, s *store) { // half of them are lanes
		led := pushAll(g, "a", 1)
		hangs := pushAll(g, "stuck", 1)
		queued := pushAll(g, "b", 1)
		begun := time.Now()
		wait(led, 1)
		if errs := wait(queued, 1); failed(errs) > 0 || time.Since(begun) != 2*time.Second {
			t.Errorf("the push got %v after %v, want no error after 2s", errs, time.Since(begun))
		}
		close(s.stuck)
		if errs := wait(hangs, 1); failed(errs) > 0 || len(g.lanes) != 1 {
			t.Errorf("%v; %d lanes are free, want 1", errs, len(g.lanes))
		}
	})
}

// A push may be queued at the very moment at which a lane becomes free. Then either side gives it the lane.
func TestAPushIsQueuedWhileALaneBecomesFree(t *testing.T) {
	run(t, settings.Ingester{Queue: 100, Workers: 2}, func(g *Ingester, s *store) {
		<-g.lanes
		hangs := pushAll(g, "stuck", 1) // in the only worker
		queued := pushAll(g, "b", 2)
		begun := time.Now()
		g.lanes <- struct{}{}
		g.useLanes()
		if errs := wait(queued, 2); failed(errs) > 0 || time.Since(begun) > 2*time.Second {
			t.Errorf("the pushes got %v after %v, want no error within 2s", errs, time.Since(begun))
		}
		g.useLanes() // with nothing to lead
		close(s.stuck)
		if errs := wait(hangs, 1); failed(errs) > 0 || len(g.lanes) != 1 {
			t.Errorf("%v; %d lanes are free, want 1", errs, len(g.lanes))
		}
	})
}

// Run returns when all accepted pushes are written, also those that their own goroutines write.
func TestTheEndWaitsForPushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{busy: map[string]bool{}, stuck: make(chan struct{})}
		g := New(settings.Ingester{Queue: 100, Workers: 4}, s, prometheus.NewRegistry())
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		accepted := pushAll(g, "stuck", 2)
		stop()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("Run returned while two pushes were under way")
		}
		close(s.stuck)
		if errs := wait(accepted, 2); failed(errs) > 0 {
			t.Error(errs)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if errs := wait(pushAll(g, "stuck", 1), 1); !errors.Is(errs[0], ErrFull) {
			t.Errorf("a push after the end got %v, want ErrFull", errs[0])
		}
	})
}

// The time of a request is its own wait plus the commit of its group.
func TestPushSeconds(t *testing.T) {
	run(t, settings.Ingester{Queue: 1000, Workers: 4}, func(g *Ingester, s *store) {
		wait(pushAll(g, "a", 1+maxGroup+3), 1+maxGroup+3)
		var m dto.Metric
		if err := g.metrics.pushed.Write(&m); err != nil {
			t.Fatal(err)
		}
		// The first request takes 1 s, the next 64 take 2 s each, and the last three 3 s each.
		if n, sum := m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum(); n != 68 || sum != 1+2*maxGroup+3*3 ||
			len(m.Histogram.GetPositiveDelta()) == 0 {
			t.Errorf("%d requests took %v s together, want 68 and 138, in native buckets", n, sum)
		}
	})
}

// The context of a push holds the trip of its request. The trip gets the time that the request
// waited and the time of its commit.
func TestATripHasTheStagesOfAPush(t *testing.T) {
	run(t, settings.Ingester{Queue: 1000, Workers: 4}, func(g *Ingester, s *store) {
		trips := []*stage.Trip{{Born: time.Now()}, {Born: time.Now()}}
		for i, trip := range trips { // the second request waits for the first
			wait := pushUntil(stage.NewContext(context.Background(), trip), g, "a", 1)
			if i == len(trips)-1 {
				<-wait
			}
		}
		for i, trip := range trips {
			stage.NewWatch().End(trip)
			queued, left, ok := trip.Passed(stage.Queue)
			entered, written, stored := trip.Passed(stage.Append)
			if waited := time.Duration(i) * time.Second; !ok || !stored || left-queued != waited ||
				written-entered != time.Second {
				t.Errorf("request %d waited %v (known: %v), its commit took %v (known: %v), want a wait of its "+
					"number in s, and a commit of 1 s",
					i, left-queued, ok, written-entered, stored)
			}
		}
	})
}

// A tenant whose database hangs fills only its share of the queue. Requests of other tenants are
// written.
func TestATenantFillsItsShareOnly(t *testing.T) {
	run(t, settings.Ingester{Queue: 40, Workers: 2}, func(g *Ingester, s *store) {
		stuck := pushAll(g, "stuck", 15)
		if errs := wait(stuck, 5); failed(errs) != 5 || !errors.Is(errs[0], ErrFull) {
			t.Errorf("15 requests came to a share of 10: got the errors %v, want 5 times ErrFull", errs)
		}
		if errs := wait(pushAll(g, "other", 10), 10); failed(errs) > 0 {
			t.Errorf("another tenant: %v", errs)
		}
		close(s.stuck)
		if errs := wait(stuck, 10); failed(errs) > 0 {
			t.Errorf("errors of accepted requests: %v", errs)
		}
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	run(t, settings.Ingester{Queue: 8, Workers: 1}, func(g *Ingester, s *store) {
		var all []chan error
		for i := range 10 { // each tenant stays within its share
			all = append(all, pushAll(g, fmt.Sprint("tenant", i), 1))
		}
		n := 0
		for _, errs := range all {
			n += failed(wait(errs, 1))
		}
		if n != 2 {
			t.Errorf("%d of 10 requests found no room, want 2", n)
		}
		known := 0
		g.tenants.Range(func(any, any) bool { known++; return true })
		if known != 8 {
			t.Errorf("%d tenants are remembered, want 8, one for each request that found room", known)
		}
	})
}

// A request reports whether its write has reached the store. From then on, the tenant may have a store.
func TestBegun(t *testing.T) {
	run(t, settings.Ingester{Queue: 40, Workers: 2}, func(g *Ingester, s *store) {
		s.err = errors.New("no space left on device")
		failed := &write.Request{Request: new(remotewrite.Request), Tenant: "a"}
		if err := g.Push(context.Background(), failed); !errors.Is(err, s.err) || !failed.Begun {
			t.Errorf("after a failure of the store: push error %v, begun %v, want the store's error, true",
				err, failed.Begun)
		}
		s.err = nil
		first := pushAll(g, "stuck", 1)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		waits := &write.Request{Request: new(remotewrite.Request), Tenant: "stuck"}
		if err := g.Push(ctx, waits); !errors.Is(err, context.DeadlineExceeded) || waits.Begun {
			t.Errorf("after a request was given up while it waited: push error %v, begun %v, want DeadlineExceeded, "+
				"false", err, waits.Begun)
		}
		close(s.stuck)
		wait(first, 1)
	})
}

// A failed commit fails its own requests, and no later ones.
func TestAFailedCommit(t *testing.T) {
	run(t, settings.Ingester{Queue: 100, Workers: 2}, func(g *Ingester, s *store) {
		s.err = errors.New("no space left on device")
		if errs := wait(pushAll(g, "a", 3), 3); failed(errs) != 3 || !errors.Is(errs[0], s.err) {
			t.Errorf("%v", errs)
		}
		s.err = nil
		if errs := wait(pushAll(g, "a", 1), 1); failed(errs) > 0 {
			t.Errorf("%v", errs)
		}
	})
}

// A request that waits until its deadline is not written, and its room is free again. If the
// request is already being written then, Push waits, since the store uses its memory.
func TestARequestDoesNotWaitBeyondItsDeadline(t *testing.T) {
	run(t, settings.Ingester{Queue: 40, Workers: 2}, func(g *Ingester, s *store) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		begun := time.Now()
		first := pushUntil(ctx, g, "stuck", 1)
		behind := wait(pushUntil(ctx, g, "stuck", 9), 9)
		if failed(behind) != 9 || !errors.Is(behind[0], context.DeadlineExceeded) || time.Since(begun) != time.Minute {
			t.Errorf("after %v %v", time.Since(begun), behind)
		}
		if again := wait(pushUntil(ctx, g, "stuck", 1), 1); !errors.Is(again[0], context.DeadlineExceeded) {
			t.Errorf("another request got %v, want DeadlineExceeded, since room is free again", again)
		}
		close(s.stuck)
		if errs := wait(first, 1); failed(errs) > 0 {
			t.Errorf("the request under way got %v, want no error", errs)
		}
		if errs := wait(pushAll(g, "stuck", 3), 3); failed(errs) > 0 {
			t.Errorf("later requests: %v", errs)
		}
		if got := strings.Join(s.commits, " "); strings.Count(got, "stuck") > 4 || strings.Contains(got, "stuck1 stuck9") {
			t.Errorf("the commits are %s, want none with a request that was given up", got)
		}
	})
}

// A sender leaves while its request waits, for its tenant or for a worker. The request gives up its
// place: it is not written, and leaves nothing in memory.
func TestASenderThatLeavesGivesUpItsPlace(t *testing.T) {
	run(t, settings.Ingester{Queue: 40, Workers: 2}, func(g *Ingester, s *store) {
		first := pushAll(g, "stuck", 1)
		ctx, leave := context.WithCancel(context.Background())
		behind := pushUntil(ctx, g, "stuck", 9)
		leave()
		if errs := wait(behind, 9); failed(errs) != 9 || !errors.Is(errs[0], context.Canceled) {
			t.Errorf("%v", errs)
		}
		of := g.tenant(queueOf{tenant: "stuck"})
		of.mu.Lock()
		if n := len(of.next); n > 0 || g.waiting.Load() != 1 {
			t.Errorf("%d requests are left, and %d count as waiting, want 0 left and 1 waiting", n,
				g.waiting.Load())
		}
		of.mu.Unlock()
		close(s.stuck)
		if errs := wait(first, 1); failed(errs) > 0 {
			t.Error(errs)
		}
		if !slices.Equal(s.commits, []string{"stuck1"}) {
			t.Errorf("commits %v", s.commits)
		}
	})
}

// A request waits at most a minute for a store that hangs, even if its sender would wait longer.
func TestARequestWaitsAMinute(t *testing.T) {
	run(t, settings.Ingester{Queue: 40, Workers: 2}, func(g *Ingester, s *store) {
		first := pushAll(g, "stuck", 1)
		begun := time.Now()
		behind := pushUntil(context.Background(), g, "stuck", 9)
		if errs := wait(behind, 9); failed(errs) != 9 || !errors.Is(errs[0], context.DeadlineExceeded) {
			t.Errorf("%v", errs)
		}
		if waited := time.Since(begun); waited != patience {
			t.Errorf("the requests waited %v; want %v", waited, patience)
		}
		close(s.stuck)
		if errs := wait(first, 1); failed(errs) > 0 {
			t.Error(errs)
		}
		if !slices.Equal(s.commits, []string{"stuck1"}) {
			t.Errorf("commits %v", s.commits)
		}
	})
}

// Callers give up while workers take pushes. Each request goes either back to its caller or to a worker,
// never to both.
func TestGivingUpWhileItIsTaken(t *testing.T) {
	s := &store{busy: map[string]bool{}, quick: true}
	g := New(settings.Ingester{Queue: 10_000, Workers: 4}, s, prometheus.NewRegistry()) // room for given-up pushes, too
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- g.Run(ctx) }()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				r := write.Request{Tenant: "a", Request: new(remotewrite.Request)}
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				if err := g.Push(ctx, &r); (err == nil) != (r.Outcome.Written.Samples == 1) || err != nil &&
					!errors.Is(err, context.Canceled) {
					t.Errorf("push error %v, and the request was written %d times, want an error or one write",
						err, r.Outcome.Written.Samples)
				}
				r.Outcome.Written.Samples = 7 // after an error, the caller owns the request again
			}
		})
	}
	wg.Wait()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
