package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// In a short run with either version of remote write, queries find all acknowledged samples. The
// test measures Freshet, Freshet again as the peer that is the base of comparison, a database that
// does not understand version 2, and a database that does not start.
func TestRemoteWriteRun(t *testing.T) {
	l := serverLab(t)
	ours := l.databases()[0]
	peer, old, broken := ours, ours, ours
	peer.name, peer.group = "a peer", report.Peer
	old.name, old.group, old.version2 = "an old peer", report.Peer, false
	broken.name, broken.group = "a broken peer", report.Peer
	broken.start = func(context.Context, string) (*runningDatabase, error) { return nil, errors.New("no such library") }

	part := new(report.RemoteWrite)
	for id, version := range map[string]int{"one": 1, "two": 2, "late": 1} {
		load := report.WriteLoad{ID: id, Series: 500, Batch: 150, Rounds: 4, Late: id == "late"}
		if load.Late {
			load.Rounds = 2
		}
		w := writeWorkload{version: version, WriteLoad: load}
		if err := l.progress.run(t.Context(), l.writeSteps(part, 0, w, []database{peer, old, broken, ours})); err != nil {
			t.Fatal(err)
		}
	}
	if len(part.Loads) != 3 {
		t.Fatalf("the results have %d loads, want 3", len(part.Loads))
	}
	for _, load := range part.Loads {
		var names []string
		for _, c := range load.Costs {
			names = append(names, c.Name)
			if c.Not != "" {
				names = append(names, c.Not)
				continue
			}
			if c.Acknowledged != 2000 || c.Found != 2000 || c.Lost() != 0 {
				t.Errorf("%s, %s: %d samples were acknowledged, but queries find %d", load.ID, c.Name, c.Acknowledged, c.Found)
			}
			if len(c.Seconds) != 1 || c.Seconds[0] <= 0 || len(c.Ratio) != 1 || c.P50[0] <= 0 || c.P99[0] < c.P50[0] ||
				c.PerSecond[0] <= 0 {
				t.Errorf("%s, %s: figures are missing: %+v", load.ID, c.Name, c)
			}
		}
		want := map[string]string{"one": "a peer, an old peer, Freshet", "late": "a peer, an old peer, Freshet",
			"two": "a peer, an old peer, does not understand version 2.0, Freshet"}[load.ID]
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("%s has %s, want %s", load.ID, got, want)
		}
		if peer := load.Costs[0]; peer.Ratio[0] != 1 {
			t.Errorf("the cost of the first peer is %v times the base, want 1, since this peer is the base",
				peer.Ratio[0])
		}
	}
	if left := strings.Join(l.results.LeftOut, "\n"); len(l.results.LeftOut) != 3 ||
		!strings.Contains(left, "start a broken peer: no such library") {
		t.Errorf("left out %q", left)
	}
}

// The write loads whose results are on the published page are valid.
func TestWriteWorkloads(t *testing.T) {
	for _, w := range writeWorkloads() {
		c := w.config()
		if err := c.Check(); err != nil || w.Series%w.Batch != 0 || w.Rounds < 2 {
			t.Errorf("%s: %v", w.ID, err)
		}
		if ago := time.Since(time.UnixMilli(c.Time(w.Rounds - 1))); ago < writeEnds || ago > 2*writeEnds {
			t.Errorf("the last samples of the load %s are %v old, want %v to %v", w.ID, ago, writeEnds, 2*writeEnds)
		}
	}
}
