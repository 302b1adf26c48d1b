package main

import (
	"testing"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// A short round with few contexts has both figures of each context. Their values do not matter here.
func TestContextMemory(t *testing.T) {
	l := serverLab(t)
	l.results.Memory = new(report.Figures)
	if err := l.withFreshet(t.Context(), "all", func(f *freshet) error {
		return l.contextMemory(t.Context(), f, 10_000, time.Second, time.Second)
	}); err != nil {
		t.Fatal(err)
	}
	if n := len(l.results.Memory.Figures); n != 2 {
		t.Fatalf("got %d figures, want memory and CPU", n)
	}
	for _, f := range l.results.Memory.Figures {
		if len(f.Runs) != 1 || f.Runs[0] <= 0 {
			t.Errorf("%s, %s: got %v, want a value over 0", f.What, f.Unit, f.Runs)
		}
	}
}

// A server that is too slow for the load must not look thrifty.
func TestContextMemoryNeedsTheContexts(t *testing.T) {
	l := serverLab(t)
	l.results.Memory = new(report.Figures)
	if err := l.withFreshet(t.Context(), "all", func(f *freshet) error {
		f.UDP = f.HTTP // a UDP port where nobody listens
		return l.contextMemory(t.Context(), f, 10_000, time.Second, time.Second)
	}); err == nil {
		t.Errorf("no error, though nothing was received; figures: %v", l.results.Memory.Figures)
	}
}
