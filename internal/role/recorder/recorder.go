// Package recorder is the role that makes a record if a stage exceeds its budget, or on request. A
// record has profiles, an execution trace of the seconds before it, and metrics; core/diagnose
// interprets them.
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

// Options are the parts of a Recorder. All fields are required.
type Options struct {
	Config   settings.Recorder
	Dir      string // directory of the records; made for the first record
	Gatherer prometheus.Gatherer
	// Top returns the busiest senders since the first call, to be marshalled as JSON. They are counted for the time
	// of the lease.
	Top      func(_ context.Context, lease time.Duration) (any, error)
	Broken   func() []record.BrokenStore // stores that cannot be opened; may wait for the disk
	Growing  func() record.Growing       // new series
	Queries  func() []querycost.Row      // costs of queries
	Sent     func() []record.Sent        // senders of remote write and OTLP
	Cluster  func(context.Context) any   // the answer of /api/v1/status/cluster
	Node     string                      // this process's node; empty if it is in no cluster
	Build    string
	Registry prometheus.Registerer
	Logger   *slog.Logger
}

const (
	// flightAge and flightBytes bound the execution trace. The events of five seconds take some
	// megabytes.
	flightAge   = 5 * time.Second
	flightBytes = 8 << 20

	// Contention is sampled: one in mutexFraction lock events, and one event per blockNanoseconds
	// of waiting.
	mutexFraction    = 100
	blockNanoseconds = 1_000_000
)

// Recorder is made by New and works while Run runs.
type Recorder struct {
	Options
	duration time.Duration // record.Duration, except in tests
	root     fs.FS         // the machine's root directory, to find cgroups
	flight   flight
	over     chan overBudget
	asks     chan ask
	ended    chan struct{}

	made, skipped, failed, notKept prometheus.Counter

	// Capacity 1: held by the goroutine that writes a record.
	writing chan struct{}
	// Capacity 1: held by the goroutine that looks at the stores.
	looking   chan struct{}
	patience  time.Duration                                          // the constant patience, except in tests
	writeFile func(name string, text []byte, mode os.FileMode) error // os.WriteFile, except in tests
	unkept    atomic.Pointer[unkept]
}

// overBudget is the reason for an automatic record.
type overBudget struct {
	stage         stage.Stage
	spent, budget time.Duration
}

// ask is a request of a caller that waits for a record.
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
		made: counter("records_total",
			"Records that were made: a stage was over its budget, or somebody asked. Rising: freshet diagnose reads them; "+
				"the page shows them under Records."),
		skipped: counter("skipped_total",
			"Times when a stage was over its budget and no record was made, because another was made shortly before."),
		failed: counter("failed_total", "Records that could not be made. Rising: the log says why."),
		notKept: counter("not_kept_total",
			"Records that the disk did not take: only the last one can be read, until the next one is made. Rising: "+
				"the log says why, mostly a disk that is full or hangs."),
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_recorder_flight",
		Help: "1 while an execution trace of the last seconds is kept, so that a record shows the time before it. " +
			"0 with self.recorder.flight off; after a minute without input, because tracing would be most of " +
			"an idle server's work; and in a collector alone, but for a minute after a record."}, func() float64 {
		if r.flight.running.Load() {
			return 1
		}
		return 0
	})
	return r
}

// Over asks for a record because a batch exceeded its budget in a stage. It never blocks.
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

// Record makes a record now, and returns its entry in the list. If another record is being made,
// Record first waits for it. Then Record takes a little more than record.Duration. If the disk
// does not take the record, Record returns no error: NotKept gives the reason, and Open returns
// the record until another is made.
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
				r.Logger.Error("a stage was over its budget, and no record could be made", "error", err)
				continue
			}
			r.Logger.Warn("a stage was over its budget; freshet diagnose says why",
				"stage", made.Stage, "spent", o.spent, "budget", o.budget, "record", made.ID)
		case a := <-r.asks:
			made, err := r.make(ctx, record.Record{Reason: a.reason})
			a.done <- answer{made, err}
		case <-ctx.Done():
			return nil
		}
	}
}

// removeUnfinished removes the partial record of a process that died while writing it.
func (r *Recorder) removeUnfinished() {
	left, _ := filepath.Glob(r.path("*") + ".tmp") // the pattern is valid
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			r.Logger.Warn("an unfinished record could not be removed", "error", err)
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
		r.Logger.Warn("a record could not be saved; it can be read only until the next record is "+
			"made", "record", made.ID, "error", err)
		return l, nil
	}
	r.unkept.Store(nil)
	return l, nil
}

const suffix = ".zip"

// idForm is the form of a record's name.
var idForm = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}\.[0-9]{3}-[a-z]+$`)

// newID names a record by its time and reason, so that names sort by time.
func newID(r *record.Record) string {
	why := r.Stage
	if why == "" {
		why = "asked"
	}
	return r.Began.UTC().Format("20060102T150405.000-") + why
}

// trim removes the oldest records beyond the bounds, but never the record that was just made: its name
// looks old if the clock was set back.
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

// files returns the files of the records, newest first.
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

// List returns the readable records, newest first. It does not wait for a record that is being
// written.
func (r *Recorder) List() ([]record.Listed, error) {
	files, err := r.files()
	if err != nil {
		return nil, err
	}
	all := []record.Listed{}
	if u := r.unkept.Load(); u != nil { // this record is newer than all records on disk
		all = append(all, record.Listed{Record: u.Record, Bytes: int64(len(u.text)), NotKept: u.why})
	}
	for _, f := range files {
		if len(all) > 0 && all[0].ID == f.id { // the disk took the record after all
			all[0].NotKept = ""
			continue
		}
		l := record.Listed{Record: record.Record{ID: f.id}, Bytes: f.bytes}
		l.Record, err = r.summary(f.id)
		if errors.Is(err, ErrUnknown) { // the file was just removed
			continue
		}
		if err != nil {
			l.ID, l.Error = f.id, err.Error()
		}
		all = append(all, l)
	}
	for i := range all {
		all[i].Runtime, all[i].Spreads, all[i].CPUQuotas = nil, nil, nil // only the record itself has these
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
