// Package recorder is the role that keeps what can be known of a moment in which a stage
// broke its budget, or when somebody asks: profiles, an execution trace of the seconds
// before, metrics. What they mean is core/diagnose's business.
package recorder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/trace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/core/querycost"
	"github.com/freshet-io/freshet/internal/core/record"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/settings"
)

// Options is what a Recorder is made of. All fields are needed.
type Options struct {
	Config   settings.Recorder
	Dir      string // of the records; made when there is one
	Gatherer prometheus.Gatherer
	Top      func(context.Context) (any, error) // who sends most since it was first asked, as JSON will have it
	Broken   func() []record.BrokenStore        // stores that cannot be opened; may wait for the disk
	Growing  func() record.Growing              // series that are new
	Queries  func() []querycost.Row             // what they cost
	Sent     func() []record.Sent               // who sends remote write and OTLP
	Build    string
	Registry prometheus.Registerer
	Logger   *slog.Logger
}

const (
	// flightAge and flightBytes bound the execution trace that is kept. Events of five seconds
	// are some megabytes.
	flightAge   = 5 * time.Second
	flightBytes = 8 << 20

	// Contention is sampled: one event in mutexFraction of locks, and one for each
	// blockNanoseconds of waiting.
	mutexFraction    = 100
	blockNanoseconds = 1_000_000
)

// Recorder is made by New and works between the begin and the end of Run.
type Recorder struct {
	Options
	duration time.Duration // Duration, but for tests
	root     fs.FS         // of the file system, where cgroups are
	flight   flight
	over     chan overBudget
	asks     chan ask
	ended    chan struct{}

	made, skipped, failed, notKept prometheus.Counter

	writing   chan struct{}                                          // of 1: held by the goroutine that writes a record
	looking   chan struct{}                                          // of 1: held by the one that looks at the stores
	patience  time.Duration                                          // patience, but for tests
	writeFile func(name string, text []byte, mode os.FileMode) error // os.WriteFile, but for tests
	unkept    atomic.Pointer[unkept]
}

// overBudget is why a record is made by itself.
type overBudget struct {
	stage         stage.Stage
	spent, budget time.Duration
}

// ask is somebody who waits for a record.
type ask struct {
	reason string
	done   chan answer
}

type answer struct {
	record record.Listed
	err    error
}

// New makes a recorder.
func New(o Options) *Recorder {
	f := promauto.With(o.Registry)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "freshet_recorder_" + name, Help: help})
	}
	r := &Recorder{
		Options: o, duration: record.Duration, root: os.DirFS("/"),
		flight: flight{
			tracer:  trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: flightAge, MaxBytes: flightBytes}),
			stirred: make(chan struct{}, 1),
		},
		over: make(chan overBudget, 1), asks: make(chan ask), ended: make(chan struct{}),
		writing: make(chan struct{}, 1), looking: make(chan struct{}, 1), patience: patience, writeFile: os.WriteFile,
		made:    counter("records_total", "Records that were made: a stage was over its budget, or somebody asked. Rising: freshet diagnose reads them; the page shows them under Records."),
		skipped: counter("skipped_total", "Times when a stage was over its budget and no record was made, since another was made shortly before."),
		failed:  counter("failed_total", "Records that could not be made. Rising: the log says why."),
		notKept: counter("not_kept_total", "Records that were made and that the disk did not take: only the last one can be read, until another is made. Rising: the log says why, mostly a disk that is full or hangs."),
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_recorder_flight",
		Help: "1 while an execution trace of the last seconds is kept, for records to have the time before. It is not after a minute in which nobody sent anything, since it would be most of what an idle server does, and never with self.recorder.flight off."}, func() float64 {
		if r.flight.running.Load() {
			return 1
		}
		return 0
	})
	return r
}

// Over asks for a record, since a batch was over its budget in a stage. It waits for
// nothing.
func (r *Recorder) Over(s stage.Stage, spent, budget time.Duration) {
	if !r.Config.Budgets {
		return
	}
	select {
	case r.over <- overBudget{s, spent, budget}:
	default:
		r.skipped.Inc()
	}
}

var errEnded = errors.New("the process is stopping")

// Record makes a record now, which takes record.Duration and some time more, and says what it is
// of. One that is under way is waited for first. A disk that takes no record is no error: the
// record says so in NotKept, and Open has it until another is made.
func (r *Recorder) Record(ctx context.Context, reason string) (record.Listed, error) {
	a := ask{reason, make(chan answer, 1)}
	select {
	case r.asks <- a:
	case <-r.ended:
		return record.Listed{}, errEnded
	case <-ctx.Done():
		return record.Listed{}, context.Cause(ctx)
	}
	select {
	case made := <-a.done:
		return made.record, made.err
	case <-ctx.Done():
		return record.Listed{}, context.Cause(ctx)
	}
}

// Run makes records, one at a time, until ctx is done.
func (r *Recorder) Run(ctx context.Context) error {
	defer close(r.ended)
	r.removeUnfinished()
	runtime.SetMutexProfileFraction(mutexFraction)
	runtime.SetBlockProfileRate(blockNanoseconds)
	r.flight.look = time.NewTimer(flightRest)
	defer r.flight.look.Stop()
	defer r.land()
	var last time.Time
	for {
		select {
		case <-r.flight.stirred:
			r.fly()
		case <-r.flight.look.C:
			r.rest()
		case o := <-r.over:
			if !last.IsZero() && time.Since(last) < r.Config.Every {
				r.skipped.Inc()
				continue
			}
			last = time.Now()
			made, err := r.make(ctx, record.Record{
				Reason: fmt.Sprintf("stage %s took %v, its budget is %v", o.stage, o.spent.Round(time.Millisecond), o.budget),
				Stage:  o.stage.String(), Spent: o.spent.Seconds(), Budget: o.budget.Seconds(),
			})
			if err != nil {
				r.Logger.Error("no record was made of a stage over its budget", "error", err)
				continue
			}
			r.Logger.Warn("a stage was over its budget; freshet diagnose says why", "stage", made.Stage, "spent", o.spent, "budget", o.budget, "record", made.ID)
		case a := <-r.asks:
			made, err := r.make(ctx, record.Record{Reason: a.reason})
			a.done <- answer{made, err}
		case <-ctx.Done():
			return nil
		}
	}
}

// removeUnfinished removes what a process left that died while it wrote a record.
func (r *Recorder) removeUnfinished() {
	left, _ := filepath.Glob(r.path("*") + ".tmp") // the pattern is ours
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			r.Logger.Warn("an unfinished record stays", "error", err)
		}
	}
}

// make makes a record, and keeps it if the disk takes it.
func (r *Recorder) make(ctx context.Context, of record.Record) (record.Listed, error) {
	made, text, err := r.take(ctx, of)
	if err != nil {
		r.failed.Inc()
		return record.Listed{Record: made}, fmt.Errorf("record: %w", err)
	}
	r.made.Inc()
	l := record.Listed{Record: made, Bytes: int64(len(text))}
	if err := r.keep(made.ID, text); err != nil {
		l.NotKept = err.Error()
		r.unkept.Store(&unkept{made, text, l.NotKept})
		r.notKept.Inc()
		r.Logger.Warn("a record is not kept; it can be read until another is made", "record", made.ID, "error", err)
		return l, nil
	}
	r.unkept.Store(nil)
	return l, nil
}

const suffix = ".zip"

// idForm is what the name of a record looks like.
var idForm = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}\.[0-9]{3}-[a-z]+$`)

// newID names a record by its time and why it was made, so that names are in the order of
// time.
func newID(r *record.Record) string {
	why := r.Stage
	if why == "" {
		why = "asked"
	}
	return r.Began.UTC().Format("20060102T150405.000-") + why
}

// trim removes the oldest records beyond the bounds, but never the one that was just made:
// by its name it is an old one if the clock was set back.
func (r *Recorder) trim(made string) error {
	all, err := r.files()
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b file) int {
		switch made {
		case a.id:
			return -1
		case b.id:
			return 1
		}
		return 0
	})
	var bytes int64
	for i, f := range all {
		bytes += f.bytes
		if i > 0 && (i >= r.Config.Records || bytes > int64(r.Config.Bytes)) {
			err = errors.Join(err, os.Remove(r.path(f.id)))
		}
	}
	return err
}

type file struct {
	id    string
	bytes int64
}

// files are the records that there are, newest first.
func (r *Recorder) files() (all []file, err error) {
	entries, err := os.ReadDir(r.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		id, is := strings.CutSuffix(e.Name(), suffix)
		info, err := e.Info()
		if is && idForm.MatchString(id) && err == nil {
			all = append(all, file{id, info.Size()})
		}
	}
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(b.id, a.id) })
	return all, nil
}

// List are the records that can be read, newest first. It waits for no record that is being
// written.
func (r *Recorder) List() ([]record.Listed, error) {
	files, err := r.files()
	if err != nil {
		return nil, err
	}
	all := []record.Listed{}
	if u := r.unkept.Load(); u != nil { // it was made after all others
		all = append(all, record.Listed{Record: u.Record, Bytes: int64(len(u.text)), NotKept: u.why})
	}
	for _, f := range files {
		if len(all) > 0 && all[0].ID == f.id { // the disk took it after all
			all[0].NotKept = ""
			continue
		}
		l := record.Listed{Record: record.Record{ID: f.id}, Bytes: f.bytes}
		l.Record, err = r.summary(f.id)
		if errors.Is(err, ErrUnknown) { // it has just made room
			continue
		}
		if err != nil {
			l.ID, l.Error = f.id, err.Error()
		}
		all = append(all, l)
	}
	for i := range all {
		all[i].Runtime, all[i].Spreads, all[i].CPUQuotas = nil, nil, nil // they are in the record
	}
	return all, nil
}

func (r *Recorder) summary(id string) (s record.Record, err error) {
	content, err := r.Open(id)
	if err != nil {
		return s, err
	}
	defer content.Close()
	opened, err := record.Open(content, content.Size())
	if err != nil {
		return s, err
	}
	return opened.Record, nil
}
