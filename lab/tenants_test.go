package main

import (
	"testing"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// A short round with few tenants and series has all figures.
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
	haveOneRun(t, l.results.Memory, 3) // memory and CPU of the tenants, and memory of a series
}
