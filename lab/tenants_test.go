package main

import (
	"testing"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// A short round with few tenants and series has all figures. Their values do not matter here.
func TestMemoryOfTenantsAndSeries(t *testing.T) {
	l := serverLab(t)
	l.results.Memory = new(report.Figures)
	if err := l.smallTenants(t.Context(), 3, time.Millisecond, time.Second); err != nil {
		t.Fatal(err)
	}
	w := writeWorkloads()[0]
	w.Rounds = 2
	if err := l.writeMemory(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if n := len(l.results.Memory.Figures); n != 3 {
		t.Fatalf("got %d figures, want memory and CPU of the tenants, and memory of a series", n)
	}
	for _, f := range l.results.Memory.Figures {
		if len(f.Runs) != 1 || f.Runs[0] <= 0 {
			t.Errorf("%s, %s: got %v, want a value over 0", f.What, f.Unit, f.Runs)
		}
	}
}
