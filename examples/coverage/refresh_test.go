package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeSource has as many documents as the test says. If wait is set, a load waits for the test.
type fakeSource struct {
	mu        sync.Mutex
	documents int
	err       error

	took        time.Duration
	wait, began chan struct{}
}

func (f *fakeSource) set(documents int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.documents, f.err = documents, err
}

func (f *fakeSource) String() string { return "the test" }

func (f *fakeSource) load(ctx context.Context, into *sink) error {
	if f.wait != nil {
		f.began <- struct{}{}
		<-f.wait
		f.set(1, nil)
	}
	select {
	case <-time.After(f.took):
	case <-ctx.Done():
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for range f.documents {
		if err := into.add([]byte(good), func() string { return "a document" }); err != nil {
			return err
		}
	}
	return f.err
}

func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &fakeSource{documents: 1, took: time.Minute}
		r := newServer(t, nil).refresher
		r.source, r.interval = from, 10*time.Minute
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.run(ctx) }()
		// at is a helper: it waits until `d` has passed since the start, and checks how many documents
		// the index has.
		start := time.Now()
		at := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(time.Until(start.Add(d))) // by the clock of the synctest bubble
			synctest.Wait()
			got := 0
			if x := r.current.Load(); x != nil {
				got = len(x.rows)
			}
			if got != want {
				t.Errorf("%v after the start there are %d documents, want %d", d, got, want)
			}
		}
		at(59*time.Second, 0)
		at(time.Minute, 1)
		from.set(2, nil)
		at(11*time.Minute+59*time.Second, 1) // the old index, until the new one is complete
		at(12*time.Minute, 2)
		from.set(3, errors.New("the cluster burns"))
		at(23*time.Minute, 2) // the refresh failed, so the old index stays
		from.set(3, nil)
		at(32*time.Minute, 3)
		from.set(4, nil)
		if done := r.ask(ctx); done.err != nil || done.documents != 4 { // at once, without waiting for the interval
			t.Errorf("a refresh on request returned %+v, want 4 documents", done)
		}
		go r.ask(ctx)
		synctest.Wait()
		if done := r.ask(ctx); !errors.Is(done.err, errBusy) {
			t.Errorf("a second request for a refresh returned %v, want %v", done.err, errBusy)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A failed refresh keeps the old index, since an index with missing documents is worse than an old
// index. If the first load fails, the service ends.
func TestFailedLoads(t *testing.T) {
	for _, c := range []struct {
		name string
		from *fakeSource
		want string
	}{
		{"nothing there", &fakeSource{}, "load coverage from the test: there is no valid document"},
		{"too many", &fakeSource{documents: 11}, "10 documents: more documents than --max-documents"},
		{"fails at the end", &fakeSource{documents: 1, err: errors.New("cut off")}, "load coverage from the test: cut off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newServer(t, nil).refresher
			r.source, r.most = c.from, 10
			if err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			old := indexOf(t, document{carrier: "acme", service: "express"})
			r.current.Store(old)
			if done := r.refresh(t.Context()); done.err == nil || r.current.Load() != old {
				t.Errorf("the failed refresh returned %v, want an error; it replaced the index: %t, want false",
					done.err, r.current.Load() != old)
			}
		})
	}
}

// While indexes are replaced, each reader sees one complete index.
func TestReadersSeeOneIndex(t *testing.T) {
	r := newServer(t, nil).refresher
	made := func(price uint32) *index {
		var documents []document
		for i := range 10 {
			documents = append(documents,
				document{
					carrier: fmt.Sprint(i), service: "express", origin: codeRange{0, 9}, destination: codeRange{0, 9},
					priceCents: price,
				})
		}
		return indexOf(t, documents...)
	}
	r.current.Store(made(0))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for price := range uint32(200) {
			r.current.Store(made(price))
		}
	}()
	for {
		offers := r.current.Load().lookup(nil, 5, 5, anyCarrier)
		for _, o := range offers {
			if len(offers) != 10 || o.priceCents != offers[0].priceCents {
				t.Fatalf("%+v", offers)
			}
		}
		select {
		case <-done:
			return
		default:
		}
	}
}
