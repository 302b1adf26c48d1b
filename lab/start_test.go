package main

import (
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/lab/report"
)

// A small database that is killed twice and then stopped is complete after each start, and each start is measured.
// Times do not matter here.
func TestStarts(t *testing.T) {
	l := serverLab(t)
	l.results.Start = new(report.Figures)
	r := l.restarted("test", startedData{series: 2000, labels: 7, rounds: 3})
	ours := l.ours()
	if err := l.progress.run(t.Context(), []step{
		r.turn(ours, "", r.write(3), r.kill), r.turn(ours, byKill, r.write(1), r.kill), r.turn(ours, byKill),
		r.turn(ours, byStop),
	}); err != nil {
		t.Fatal(err)
	}
	if n := len(l.results.Start.Figures); n != 4 {
		t.Fatalf("got %d figures, want two after a kill and two after a stop", n)
	}
	for i, f := range l.results.Start.Figures {
		runs := 2 - i/2 // two kills, one stop
		if len(f.Runs) != runs || f.Runs[0] <= 0 {
			t.Errorf("%s, %s: got %v, want %d values over 0", f.What, f.Unit, f.Runs, runs)
		}
	}
}

// A database that has lost samples must not look fast.
func TestAStartThatLosesSamples(t *testing.T) {
	l := serverLab(t)
	l.results.Start = new(report.Figures)
	r := l.restarted("test", startedData{series: 2000, labels: 7, rounds: 3})
	ours := l.ours()
	steps := []step{r.turn(ours, "", r.write(3)), r.turn(ours, byStop)}
	if err := l.progress.run(t.Context(), steps[:1]); err != nil {
		t.Fatal(err)
	}
	r.acknowledged++
	if err := l.progress.run(t.Context(), steps[1:]); err == nil || !strings.Contains(err.Error(), "6000 of 6001") {
		t.Errorf("got %v, want an error with the number of samples", err)
	}
	if len(l.results.Start.Figures) > 0 {
		t.Errorf("the start was measured: %v", l.results.Start.Figures)
	}
}

// All acknowledged samples must be found, and no more than were sent: a doubled one would hide a lost one.
func TestSamplesOfAStart(t *testing.T) {
	r := &restarted{rounds: 3, acknowledged: 250, load: remoteload.Config{Series: 100}}
	for _, c := range []struct {
		series, samples uint64
		want            bool
	}{{100, 250, true}, {100, 300, true}, {100, 249, false}, {100, 301, false}, {99, 250, false}, {101, 250, false}} {
		if err := r.check(c.series, c.samples); (err == nil) != c.want {
			t.Errorf("%d series and %d samples: %v", c.series, c.samples, err)
		}
	}
}

// The memory of a server with many series is compared with that before the stop.
func TestMemoryOfAStart(t *testing.T) {
	l := serverLab(t)
	l.results.Start = new(report.Figures)
	r := l.restarted("test", startedData{series: 2000, labels: 10, rounds: 1})
	r.wide = true
	ours := l.ours()
	if err := l.progress.run(t.Context(), []step{r.turn(ours, "", r.write(1), r.rest), r.turn(ours, byStop)}); err != nil {
		t.Fatal(err)
	}
	if f := l.results.Start.Figures; len(f) != 2 || f[0].Runs[0] <= 0 || f[1].Runs[0] <= 0 {
		t.Errorf("got %v, want the time and the memory", f)
	}
}
