package forwarder

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/settings"
)

// entryRequest returns a request that comes from one entry. By its span, the queue has everything from
// earlier entries.
func entryRequest(index int) Request {
	r := newRequest(index)
	r.Span = entry.Span{First: uint64(index), Last: uint64(index)}
	return r
}

// inGroup returns the forwarder of a member that does not lead yet.
func inGroup(t *testing.T, dir string, config settings.Backend) *fixture {
	t.Helper()
	return newFixture(t, dir, config, true)
}

// begin runs the forwarder until the test or the returned function ends it.
func (x *fixture) begin() (end func()) {
	ctx, cancel := context.WithCancel(x.t.Context())
	done := make(chan error, 1)
	go func() { done <- x.Run(ctx) }()
	ended := false
	end = func() {
		if cancel(); !ended {
			ended = true
			if err := <-done; err != nil {
				x.t.Error(err)
			}
		}
	}
	x.t.Cleanup(end)
	return end
}

// await waits until `so` returns true.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s", what)
		}
	}
}

func (x *fixture) empty() bool { sum, _ := x.waiting(); return sum.Frames == 0 }

// All members of a group have the same requests in their queues, and only the leader sends them. When
// the log notes that requests were sent, the other members drop them from their queues. The next leader
// sends the rest, including the requests that the last leader sent but did not note.
func TestOnlyTheLeaderSends(t *testing.T) {
	b := newBackend(t, nil)
	b.Start()
	first, next := inGroup(t, t.TempDir(), settings.Backend{URL: b.URL}),
		inGroup(t, t.TempDir(), settings.Backend{URL: b.URL})
	end := first.begin()
	next.begin()
	first.Lead(true)
	for i := 1; i <= 10; i++ {
		first.push(entryRequest(i))
		next.push(entryRequest(i))
	}
	await(t, "the leader has sent all", first.empty)
	if n := first.Reached(11); n != 10 {
		t.Errorf("the backend has all up to entry %d, want 10", n)
	}
	const noted = 7 // when the leader dies
	end()
	next.Settle(noted)
	await(t, "the other queue lacks what is noted", func() bool { sum, _ := next.waiting(); return sum.Frames == 3 })
	next.expect("acknowledged", map[string]float64{})
	await(t, "the requests are counted", func() bool { // shortly after they have left the queue
		return maps.Equal(next.counts("elsewhere_requests"), map[string]float64{"elsewhere_requests_total": noted})
	})
	next.push(entryRequest(5)) // a start repeats what may be missing in the queue
	next.Lead(true)
	next.push(entryRequest(11))
	await(t, "the next leader has sent all", next.empty)
	if want := slices.Concat(bodies(1, 10), bodies(noted+1, 11)); !slices.Equal(b.all(), want) {
		t.Errorf("the backend got %q, want %q", b.all(), want)
	}
	if next.Settle(11); next.Reached(12) != 0 {
		t.Error("the log is asked to note what it already has")
	}
}

// After a restart, the forwarder finds its queue, and sends the requests that are not yet sent according
// to the log. Requests from a time before the group are sent by the node that has them, even if another
// node leads.
func TestAQueueFromBeforeTheGroup(t *testing.T) {
	b := newBackend(t, nil)
	b.Start()
	dir := t.TempDir()
	x := newForwarder(t, dir, settings.Backend{URL: b.URL})
	x.push(newRequest(1))
	if err := x.close(); err != nil {
		t.Fatal(err)
	}
	x = inGroup(t, dir, settings.Backend{URL: b.URL})
	x.push(entryRequest(2), entryRequest(3))
	end := x.begin()
	await(t, "the older request is sent, and its answer has come", func() bool {
		sum, _ := x.waiting()
		return sum.Frames == 2
	})
	end()
	x = inGroup(t, dir, settings.Backend{URL: b.URL})
	x.Settle(2)
	x.begin()
	x.Lead(true)
	await(t, "all is sent", x.empty)
	if want := []string{"body 1", "body 3"}; !slices.Equal(b.all(), want) {
		t.Errorf("the backend got %q, want %q", b.all(), want)
	}
}

// The stores of one tenant hang. Later requests of other tenants are sent. But the log does not say so,
// since the queue does not have everything before them.
func TestTheLogNotesOnlyWhatIsWhole(t *testing.T) {
	b := newBackend(t, nil)
	b.Start()
	x := inGroup(t, t.TempDir(), settings.Backend{URL: b.URL, Connections: 3})
	x.Lead(true)
	x.begin()
	for i := 6; i <= 20; i++ {
		r := newRequest(i)
		r.Tenant, r.Span = fmt.Sprintf("tenant-%d", i), entry.Span{First: 5, Last: uint64(i)}
		x.push(r)
	}
	await(t, "all is sent", x.empty)
	if n := x.Reached(5); n != 4 {
		t.Errorf("entry 5 waits for a store, and the backend is said to have everything up to entry %d, want 4", n)
	}
	if n := x.Reached(21); n != 20 {
		t.Errorf("the backend is said to have all up to entry %d, want 20", n)
	}
}

// One connection is slower than another. The log says only what has left the queues of both, whichever comes first: the
// next leader would otherwise drop what the slower one has not sent.
func TestTheLogNotesTheSlowestLane(t *testing.T) {
	for slow := range 2 {
		x := inGroup(t, t.TempDir(), settings.Backend{URL: "http://127.0.0.1:1", Connections: 2})
		r := entryRequest(5)
		for i := 0; xxhash.Sum64String(r.Tenant)%2 != uint64(slow); i++ {
			r.Tenant = fmt.Sprintf("tenant-%d", i)
		}
		x.push(r)
		fast := x.lanes[1-slow]
		x.lanes[slow].reached.Store(4)
		fast.reached.Store(20)
		fast.ended.Store(20)
		if n := x.Reached(21); n != 4 {
			t.Errorf("lane %d is at entry 4, and the other one at 20, but the log would say %d", slow, n)
		}
	}
}

// The backend is away until the queues are full. The leader counts the requests that it gives up, and
// the log notes them. The other member gives up the same requests without counting them. It counts the
// requests that it lacks only if it leads before the log says that the backend has them.
func TestGivenUpCountsOnce(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		http.Error(w, "", http.StatusServiceUnavailable)
	})
	b.Start()
	small := settings.Backend{URL: b.URL, Queue: 4000}
	leader, other, smaller := inGroup(t, t.TempDir(), small), inGroup(t, t.TempDir(), small),
		inGroup(t, t.TempDir(), settings.Backend{URL: b.URL, Queue: 2000})
	leader.Lead(true)
	for _, x := range []*fixture{leader, other, smaller} {
		for i := 1; i <= 200; i++ {
			x.push(entryRequest(i))
		}
		x.begin()
	}
	const unsent = "unsent_requests_total queue_full"
	lost := leader.counts("unsent_requests")[unsent]
	var reached uint64
	await(t, "the leader has noted what it gave up", func() bool {
		reached = leader.Reached(201)
		return reached == uint64(lost)
	})
	if lost < 50 {
		t.Fatalf("%v requests were given up, want at least 50", lost)
	}
	for _, x := range []*fixture{other, smaller} {
		x.expect(unsent, map[string]float64{})
		x.expect("unsent", map[string]float64{})
		x.Settle(reached)
		await(t, "it knows what it lacks", func() bool { return x.lanes[0].reached.Load() >= reached })
		x.Lead(true)
	}
	other.expect("unsent", map[string]float64{})
	if got := smaller.counts("unsent_requests"); got[unsent] <= lost || len(got) != 1 {
		t.Errorf("the member with the smaller queue counts %v, want more unsent requests than the leader", got)
	}
}

// A member that no longer leads stops trying, however long the backend asked it to wait.
func TestAnotherLeads(t *testing.T) {
	arrived := make(chan struct{}, 100)
	b := newBackend(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
		arrived <- struct{}{}
	})
	b.Start()
	x := inGroup(t, t.TempDir(), settings.Backend{URL: b.URL})
	x.Lead(true)
	x.push(entryRequest(1))
	x.begin()
	<-arrived
	x.Lead(false)
	x.Settle(1)
	await(t, "the queue is empty", x.empty)
	await(t, "the samples are counted", func() bool { // shortly after they have left the queue
		return maps.Equal(x.counts("elsewhere_samples"), map[string]float64{"elsewhere_samples_total": 4})
	})
}
