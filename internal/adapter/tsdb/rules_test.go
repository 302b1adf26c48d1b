package tsdb

import (
	"math"
	"testing"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/write"
)

// Results of rules are as new as the clock. A sender that is far behind, such as one that sends a backlog
// of hours, must be able to write as if there were no rules.
func TestResultsShutOutNoSamples(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@0=1")
	var results write.State
	r := requestOf(t, true, &plain, parseRaw(t, "sum@36000=1"))
	r.Results = true
	if err := w.stores.WriteRequests(t.Context(), "default", &results, []*write.Request{r}); err != nil {
		t.Fatal(err)
	}
	if r.Outcome.Written != (outcome.Counts{Samples: 1}) {
		t.Fatalf("the result: %+v", r.Outcome)
	}
	for _, o := range w.writeRaw(&plain, "a@10=2 b@5=1") {
		if o.Written != (outcome.Counts{Samples: 2}) {
			t.Errorf("samples ten hours older than a result: %+v, want them written", o)
		}
	}
	// The store has a state of its own, which a restart finds again.
	state, err := w.stores.ResultsState(t.Context(), "default")
	if err != nil || state.Newest != base+36000_000 || state.Recent.Len() != 1 {
		t.Errorf("state of the results: newest %d, %d series, error %v", state.Newest, state.Recent.Len(), err)
	}
	q, err := w.stores.Querier("default", Rules, math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if names, _, err := q.LabelValues(t.Context(), "__name__", nil); err != nil || len(names) != 1 || names[0] != "sum" {
		t.Errorf("store %s has %q, error %v; want the result alone", Rules, names, err)
	}
}
