package run

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// journal records what parts do, in order, with the seconds since the journal's start.
type journal struct {
	start time.Time
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, time.Since(j.start).String()+" "+line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// part waits for `after`, works for `life` or until it is stopped, and then drains for `drains`.
type part struct {
	name        string
	after       time.Duration // how long it waits for the parts that it needs; 0 if it needs none
	life        time.Duration // 0: it works until it is stopped
	err         error         // returned when life ends
	drains      time.Duration
	drainErr    error
	neverStops  bool
	passesOnCtx bool // returns ctx.Err(), as many parts do
}

func (p part) in(j *journal) Part {
	var after chan struct{}
	if p.after > 0 {
		after = make(chan struct{})
		time.AfterFunc(p.after, func() { close(after) }) // on synctest's clock
	}
	return Part{Name: p.name, After: after, Run: func(ctx context.Context) error {
		if p.after > 0 { // parts without `after` start in any order
			j.note("start " + p.name)
		}
		var over <-chan time.Time
		if p.life > 0 {
			over = time.After(p.life)
		}
		if p.neverStops {
			ctx = context.WithoutCancel(ctx)
			over = time.After(time.Hour) // it gives up at last, so that the test's bubble ends
		}
		select {
		case <-over:
			j.note("end " + p.name)
			return p.err
		case <-ctx.Done():
		}
		time.Sleep(p.drains)
		j.note("stop " + p.name)
		if p.passesOnCtx {
			return ctx.Err()
		}
		return p.drainErr
	}}
}

func TestRun(t *testing.T) {
	disk := errors.New("disk full")
	for _, tt := range []struct {
		name  string
		stop  time.Duration // when the context ends; 0 if it does not
		parts []part
		want  string
		err   string
	}{
		{
			"stops in the reverse order, each when the parts that feed it have ended",
			10 * time.Second,
			[]part{{name: "store"}, {name: "aggregator", drains: 3 * time.Second}, {name: "collector", drains: time.Second}},
			"11s stop collector\n14s stop aggregator\n14s stop store",
			"",
		},
		{
			"a part that waits for what it needs delays no other part",
			10 * time.Second,
			[]part{{name: "store", after: 4 * time.Second}, {name: "collector"}},
			"4s start store\n10s stop collector\n10s stop store",
			"",
		},
		{
			"a part that fails stops all parts, and the error names it",
			0,
			[]part{
				{name: "store"}, {name: "aggregator", life: 5 * time.Second, err: disk}, {name: "collector", drains: time.Second},
			},
			"5s end aggregator\n6s stop collector\n6s stop store",
			"aggregator: disk full",
		},
		{
			"a part that ends without an error has broken its promise all the same",
			0,
			[]part{{name: "store"}, {name: "collector", life: 5 * time.Second}},
			"5s end collector\n5s stop store",
			"collector: ended without being asked to",
		},
		{
			"errors of the drain are joined",
			time.Second,
			[]part{{name: "store", drainErr: disk}, {name: "aggregator", drainErr: errors.New("no room for the checkpoint")}},
			"1s stop aggregator\n1s stop store",
			"aggregator: no room for the checkpoint\nstore: disk full",
		},
		{
			"a part that returns the context's error has not failed",
			time.Second,
			[]part{{name: "store", passesOnCtx: true}},
			"1s stop store",
			"",
		},
		{
			"a part that was never started has nothing to stop",
			3 * time.Second,
			[]part{{name: "store", after: time.Hour}, {name: "collector"}},
			"3s stop collector",
			"",
		},
		{
			"a part that fails stops the parts that still wait",
			0,
			[]part{
				{name: "store", life: time.Second, err: disk}, {name: "aggregator", after: 5 * time.Second}, {name: "collector"},
			},
			"1s end store\n1s stop collector",
			"store: disk full",
		},
		{
			"the bound is for the whole drain; then the remaining parts are asked at once",
			10 * time.Second,
			[]part{
				{name: "store", drains: time.Minute}, {name: "aggregator", neverStops: true},
				{name: "collector", drains: 20 * time.Second},
			},
			"30s stop collector",
			"aggregator: still running after the 30s for draining\nstore: still running after the 30s for " +
				"draining",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &journal{start: time.Now()}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.stop > 0 {
					time.AfterFunc(tt.stop, cancel)
				}
				var parts []Part
				for _, p := range tt.parts {
					parts = append(parts, p.in(j))
				}
				err := Run(ctx, 30*time.Second, parts...)
				got := ""
				if err != nil {
					got = err.Error()
				}
				if got != tt.err {
					t.Errorf("got the error\n%s\nwant\n%s", got, tt.err)
				}
				if order := j.String(); order != tt.want {
					t.Errorf("the order was\n%s\nwant\n%s", order, tt.want)
				}
				time.Sleep(2 * time.Hour) // lets the abandoned parts end, as the bubble requires
			})
		})
	}
}

// Parts that need nothing start without waiting for each other.
func TestRunWithoutWaiting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	met := make(chan struct{})
	err := Run(ctx, time.Minute,
		Part{Name: "first", Run: func(ctx context.Context) error { <-met; <-ctx.Done(); return nil }},
		Part{Name: "second", Run: func(ctx context.Context) error { close(met); cancel(); <-ctx.Done(); return nil }},
	)
	if err != nil {
		t.Error(err)
	}
}

// In the error that Run returns, errors.Is must find the error that a part returned.
func TestRunWrapsErrors(t *testing.T) {
	own := errors.New("own")
	err := Run(t.Context(), time.Second, Part{Name: "a", Run: func(context.Context) error { return own }})
	if !errors.Is(err, own) {
		t.Errorf("%v hides its cause", err)
	}
}

// Parts see the values that their caller put into the context.
func TestRunKeepsValues(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "x"))
	err := Run(ctx, time.Minute, Part{Name: "a", Run: func(ctx context.Context) error {
		if ctx.Value(key{}) != "x" {
			t.Error("the part does not see the value")
		}
		cancel()
		<-ctx.Done()
		return nil
	}})
	if err != nil {
		t.Error(err)
	}
}
