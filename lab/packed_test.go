package main

import (
	"testing"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// In a short round, each load reaches both receivers over its network, and only ours has bounds.
func TestPackedCost(t *testing.T) {
	l := serverLab(t)
	bare, err := buildLimit(t.Context(), "limit/limit.c", l.dir)
	if err != nil {
		t.Fatal(err)
	}
	loads, err := packedLoads()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range loads {
		l.results.Packed = new(report.Figures)
		p.Rate = 5000
		for _, r := range []receiver{bareReceiver(bare, p.bare[0]), collectorReceiver(l.freshet)} {
			if err := l.packedCost(t.Context(), r, &p, 300*time.Millisecond); err != nil {
				t.Error(err)
			}
		}
		haveOneRun(t, l.results.Packed, 2)
		for i, f := range l.results.Packed.Figures {
			if ours := i == 1; (f.Must > 0) != ours || (f.Aim > 0) != ours {
				t.Errorf("%s, %s: must be %g, better %g", f.What, f.Unit, f.Must, f.Aim)
			}
		}
	}
}
