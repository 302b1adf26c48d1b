package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/lab/report"
)

// startPart is the name of this part in -only.
const startPart = "start"

// How a database was ended before a start.
const (
	byKill = "after kill -9 while it stores samples"
	byStop = "after an orderly stop"
)

const thenResident = "resident memory then, divided by that before the stop"

const (
	// roundsASave is how many samples a series gets between two saves of a head, at one each 15 s.
	roundsASave = 14

	orderlyRuns = 3

	// quietBefore is how long nothing is written before the memory of a process is read, so that garbage of
	// the writes is not counted.
	quietBefore = time.Minute
)

// startedData is the data with which databases start.
type startedData struct {
	series, labels int
	rounds         int // samples of each series; Freshet gets up to roundsASave more, between the kills
}

// startSteps returns the steps of the part start.
func (l *lab) startSteps() (steps []step) {
	l.results.Start = &report.Figures{Date: l.results.Date, Machine: l.results.Machine, Versions: l.ourVersion()}
	many := startedData{series: 1_000_000, labels: remoteload.MinLabels, rounds: 120}
	wide := startedData{series: 5_000_000, labels: remoteload.MinLabels + 3, rounds: 8}
	kills := l.runs
	if l.brief {
		many.series, many.rounds, wide.series = many.series/10, many.rounds/10, wide.series/10
		kills = 2
	}
	steps = append(l.oursStarts(many, kills), l.peerStarts(many)...)
	return append(steps, l.wideStart(wide)...)
}

// oursStarts returns the steps that kill Freshet at random moments between two saves of its head, and then stop it.
func (l *lab) oursStarts(data startedData, kills int) (steps []step) {
	ours, r := l.ours(), l.restarted("ours", data)
	if !l.brief {
		r.bounds = map[string]report.Figure{byKill: {Must: 15, Worst: 18, Aim: 12}, byStop: {Must: 11, Aim: 8}}
	}
	moments := make([]int, kills) // rounds since the save
	for i := range moments {
		moments[i] = rand.N(roundsASave)
	}
	slices.Sort(moments)
	steps = append(steps, r.turn(ours, "", r.write(data.rounds)), // whose stop saves the head
		r.turn(ours, "", r.write(moments[0]), r.kill))
	for i := range moments[1:] {
		steps = append(steps, r.turn(ours, byKill, r.write(moments[i+1]-moments[i]), r.kill))
	}
	steps = append(steps, r.turn(ours, byKill))
	for range min(l.runs, orderlyRuns) {
		steps = append(steps, r.turn(ours, byStop))
	}
	return steps
}

// peerStarts returns the steps of Prometheus. It saves its head only if it is asked to, and only when it stops.
func (l *lab) peerStarts(data startedData) (steps []step) {
	for _, p := range l.tsdbs {
		if !p.Rules { // a peer of another kind has no head
			continue
		}
		l.results.Start.Versions = append(l.results.Start.Versions, report.Version{Name: p.Name, Version: p.Version})
		plain := peerDatabase(p)
		saving := peerDatabase(p.With(p.Name+" with memory-snapshot-on-shutdown",
			"--enable-feature=memory-snapshot-on-shutdown"))
		r := l.restarted("peer", data)
		steps = append(steps, r.turn(saving, "", r.write(data.rounds)), r.turn(saving, byStop),
			r.turn(plain, byStop, r.kill), r.turn(plain, byKill))
	}
	return steps
}

// wideStart returns the steps for many more series with long labels. They also compare the memory before and after.
func (l *lab) wideStart(data startedData) []step {
	// By default, a tenant may have a million series.
	ours, r := l.ours("--distributor-max-series", "0"), l.restarted("wide", data)
	r.wide, r.quiet = true, quietBefore
	if l.brief {
		r.quiet /= 10
	} else {
		r.bounds = map[string]report.Figure{byStop: {Must: 60, Aim: 40}, thenResident: {Must: 1.1, Aim: 1.05}}
	}
	return []step{r.turn(ours, "", r.write(data.rounds), r.rest), r.turn(ours, byStop)}
}

// restarted is a database that is started again and again with the same data.
type restarted struct {
	*lab
	database // as it runs now
	dir      string
	wide     bool                     // compare the time and the memory, and not the CPU time
	quiet    time.Duration            // how long nothing is written before the memory is read
	bounds   map[string]report.Figure // by the way in which it was ended, and of thenResident; only the bounds are set
	load     remoteload.Config

	rounds       int    // begun so far
	acknowledged uint64 // samples
	resident     uint64 // before the stop, in bytes

	// These are of the present process.
	writer *loadgen.Writer
	killed bool

	failed bool // a peer that failed is left out
}

func (l *lab) restarted(name string, data startedData) *restarted {
	r := &restarted{lab: l, load: remoteload.Standard(), dir: filepath.Join(l.dir, "start-"+name)}
	r.load.Name, r.load.Series, r.load.Labels = "start", data.series, data.labels
	r.load.Begin = time.Now().Add(-writeEnds).UnixMilli() - int64(data.rounds+roundsASave+l.runs)*r.load.Interval
	return r
}

// action is what is done with a running database.
type action func(context.Context, *runningDatabase) error

// turn returns a step that starts the database, does something with it, and stops it, unless it was killed.
// `after` says how the database was ended before; if it is empty, the start is not measured.
func (r *restarted) turn(d database, after string, actions ...action) step {
	s := step{what: fmt.Sprintf("starts: %d series for %s", r.load.Series, d.name), takes: 5 * time.Minute}
	if after != "" {
		s.what, s.takes = fmt.Sprintf("starts: %s with %d series, %s", d.name, r.load.Series, after), 30*time.Second
	}
	s.do = func(ctx context.Context) error {
		if r.failed {
			return nil
		}
		r.database = d
		err := r.run(ctx, after, actions)
		if err != nil && r.group == report.Peer && ctx.Err() == nil {
			r.failed = true
			r.leaveOut("starts, %s: %v", r.name, err)
			return nil
		}
		return err
	}
	return s
}

func (r *restarted) run(ctx context.Context, after string, actions []action) error {
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	r.writer, r.killed = nil, false
	begun := time.Now()
	p, err := r.start(ctx, r.dir)
	if err != nil {
		return err
	}
	if after != "" {
		err = r.measure(ctx, p, after, time.Since(begun))
	}
	for _, do := range actions {
		if err == nil {
			err = do(ctx, p)
		}
	}
	if stopped := p.stop(); !r.killed { // otherwise it says that it was killed
		err = errors.Join(err, stopped)
	}
	return err
}

// measure notes what a start took, and checks that the database is complete.
func (r *restarted) measure(ctx context.Context, p *runningDatabase, after string, took time.Duration) error {
	ready, err := report.CPUTime(p.pid)
	if err != nil {
		return err
	}
	bytes, err := resident(p.pid)
	if err != nil {
		return err
	}
	if err := r.complete(ctx, p); err != nil {
		return err
	}
	answered, err := report.CPUTime(p.pid)
	if err != nil {
		return err
	}
	add := func(unit string, f report.Figure, v float64) {
		f.What = fmt.Sprintf("a start with %s, %s", millions(r.load.Series), after)
		f.Unit, f.Runs = r.name+": "+unit, []float64{v}
		r.results.Start.Add(f)
	}
	if !r.wide {
		add("CPU s until it is ready", r.bounds[after], ready.Seconds())
		add("CPU s until it has also counted all series and samples", report.Figure{}, answered.Seconds())
		return nil
	}
	add("s until it is ready", r.bounds[after], took.Seconds())
	add(thenResident, r.bounds[thenResident], float64(bytes)/float64(r.resident))
	return nil
}

// millions returns a number of series as text.
func millions(series int) string { return fmt.Sprintf("%g million series", float64(series)/1e6) }

// complete is an error unless queries find all series, and all samples that were acknowledged, each once.
func (r *restarted) complete(ctx context.Context, p *runningDatabase) error {
	var series, samples uint64
	at := r.load.Time(r.rounds - 1)
	for _, name := range remoteload.Names() {
		selector := fmt.Sprintf("%s{job=%q}", name, r.load.Job())
		for expr, sum := range map[string]*uint64{
			"count(" + selector + ")": &series,
			fmt.Sprintf("sum(count_over_time(%s[%dms]))", selector, int64(r.rounds)*r.load.Interval): &samples,
		} {
			n, err := p.query(ctx, expr, at)
			if err != nil {
				return err
			}
			*sum += n
		}
	}
	return r.check(series, samples)
}

// check compares what was found with what was sent. A sample that was not acknowledged may be found or not.
func (r *restarted) check(series, samples uint64) error {
	if series != uint64(r.load.Series) || samples < r.acknowledged {
		return fmt.Errorf("%s: found %d of %d series, and %d of %d acknowledged samples", r.name, series, r.load.Series,
			samples, r.acknowledged)
	}
	if sent := uint64(r.rounds * r.load.Series); samples > sent {
		return fmt.Errorf("%s: found %d samples, and %d were sent", r.name, samples, sent)
	}
	return nil
}

// write writes rounds of samples as fast as possible.
func (r *restarted) write(rounds int) action {
	return func(ctx context.Context, p *runningDatabase) error {
		if rounds == 0 {
			return nil
		}
		w, err := r.sender(p)
		if err != nil {
			return err
		}
		sent, err := w.Run(ctx, loadgen.WriterPace{Rounds: rounds})
		if err == nil && sent.Written != uint64(rounds*r.load.Series) {
			err = fmt.Errorf("wrote %d of %d samples: %s", sent.Written, rounds*r.load.Series, sent.Refused)
		}
		r.rounds += rounds
		r.acknowledged += sent.Written
		return err
	}
}

// sender returns a sender for the present process. It continues where the last one ended.
func (r *restarted) sender(p *runningDatabase) (w *loadgen.Writer, err error) {
	if r.writer == nil {
		c := r.load
		c.Begin = c.Time(r.rounds)
		r.writer, err = p.writer(c, writeConnections)
	}
	return r.writer, err
}

// kill kills the database while it stores a round.
func (r *restarted) kill(ctx context.Context, p *runningDatabase) error {
	w, err := r.sender(p)
	if err != nil {
		return err
	}
	writing, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	const longest = 2 * time.Second // a round of a million series takes about a second
	time.AfterFunc(rand.N(longest), func() {
		ended <- syscall.Kill(p.pid, syscall.SIGKILL)
		cancel()
	})
	sent, _ := w.Run(writing, loadgen.WriterPace{Rounds: 1}) // the kill may interrupt it
	r.killed = true
	r.rounds++
	r.acknowledged += sent.Written
	return <-ended
}

// rest waits until the database has finished its work, and notes its memory.
func (r *restarted) rest(ctx context.Context, p *runningDatabase) (err error) {
	if err := wait(ctx, r.quiet); err != nil {
		return err
	}
	r.resident, err = resident(p.pid)
	return err
}
