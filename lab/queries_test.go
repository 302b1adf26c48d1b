package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// A database has an answer with series for each query of the page, and a cost. The test measures Freshet, with a few
// series of each kind. Times do not matter here.
func TestQueries(t *testing.T) {
	l := serverLab(t)
	q := &queried{lab: l, database: l.databases()[0], end: time.Now().Add(-writeEnds).Truncate(time.Minute),
		part: new(report.Queries), dir: filepath.Join(t.TempDir(), "data")}
	for _, s := range queriedData() {
		s.number, s.every, s.since = 20, time.Minute, time.Hour
		q.data = append(q.data, s)
	}
	for _, do := range []func() error{
		func() error { return q.tolerate(q.fill)(t.Context()) }, func() error { return q.tolerate(q.run)(t.Context()) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := len(q.part.Queries), len(comparedQueries()); got != want {
		t.Fatalf("%d queries were measured, want %d", got, want)
	}
	for _, one := range q.part.Queries {
		if len(one.Costs) != 1 || len(one.Costs[0].Millis) != 1 || one.Costs[0].Millis[0] < 0 {
			t.Errorf("%s has the costs %+v, want one", one.Text, one.Costs)
		}
	}
}
