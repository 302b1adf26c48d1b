package main

import (
	"testing"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// A short round with few contexts has both figures of each context.
func TestContextMemory(t *testing.T) {
	l := serverLab(t)
	l.results.Memory = new(report.Figures)
	if err := l.withFreshet(t.Context(), "all", func(f *freshet) error {
		return l.contextMemory(t.Context(), f, 1000, time.Second, time.Second, 0.1) // on a busy machine, a second is short
	}); err != nil {
		t.Fatal(err)
	}
	haveOneRun(t, l.results.Memory, 2)
}

// haveOneRun checks that each of the figures has one run. Values do not matter in a short round: on a busy machine, the
// growth of a process that has hardly begun may be 0, or less.
func haveOneRun(t *testing.T, all *report.Figures, figures int) {
	t.Helper()
	if n := len(all.Figures); n != figures {
		t.Fatalf("got %d figures, want %d: %+v", n, figures, all.Figures)
	}
	for _, f := range all.Figures {
		if len(f.Runs) != 1 {
			t.Errorf("%s, %s: got %v, want one run", f.What, f.Unit, f.Runs)
		}
	}
}

// A server that is too slow for the load must not look thrifty.
func TestContextMemoryNeedsTheContexts(t *testing.T) {
	l := serverLab(t)
	l.results.Memory = new(report.Figures)
	if err := l.withFreshet(t.Context(), "all", func(f *freshet) error {
		f.UDP = f.HTTP // a UDP port where nobody listens
		return l.contextMemory(t.Context(), f, 10_000, time.Second, time.Second, 0.1)
	}); err == nil {
		t.Errorf("no error, though nothing was received; figures: %v", l.results.Memory.Figures)
	}
}
