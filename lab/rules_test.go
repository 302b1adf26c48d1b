package main

import (
	"testing"
	"time"
)

// In a short run, Freshet evaluates each rule once in an interval, and its results can be queried. Times do not
// matter here.
func TestRulesAreEvaluated(t *testing.T) {
	l := serverLab(t)
	plan := rulesPlan{pods: 2, every: 2 * time.Second, interval: time.Second, history: 10}
	part := plan.part(l)
	if err := l.runRules(t.Context(), part, plan); err != nil {
		t.Fatal(err)
	}
	c := part.Databases[0]
	if c.Evaluations == 0 || c.Failed > 0 || len(c.Seconds) != 1 || c.Seconds[0] <= 0 || c.Resident[0] <= 0 {
		t.Errorf("the figures are %+v; want evaluations without failures", c)
	}
	if want := uint64(2 * 5 * (3 + 1)); c.Found != want { // of each handler three codes, and a quantile
		t.Errorf("%d series of results, want %d", c.Found, want)
	}
}
