package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// options say what to measure.
type options struct {
	only     []string // parts; empty for all
	runs     int      // of each bare receiver and of ours
	peerRuns int      // of each peer; 0 leaves them out
	freshet  string   // the program; built if empty
	brief    bool     // shorter intervals
}

// lab measures, and collects the results.
type lab struct {
	options
	dir       string     // of what is built
	bare      string     // program of lab/limit
	others    []receiver // peers
	workloads []*workload
	results   *report.Results
	progress  progress

	mu sync.Mutex // of results.LeftOut: idle receivers are measured at the same time
}

// wants reports whether a part was asked for.
func (l *lab) wants(part string) bool {
	return len(l.only) == 0 || slices.Contains(l.only, part)
}

// receivers are those that a load is sent to, the one to compare with first.
func (l *lab) receivers(w *workload) (all []receiver) {
	for _, method := range w.bare {
		all = append(all, bareReceiver(l.bare, method))
	}
	all = append(all, collectorReceiver(l.freshet))
	if slices.Contains(w.bare, gro) {
		all = append(all, joinedReceiver(l.freshet))
	}
	if w.WholeGoal > 0 {
		all = append(all, allInOneReceiver(l.freshet))
	}
	for _, r := range l.others {
		if w.network == udp || r.unixgram {
			all = append(all, r)
		}
	}
	return all
}

func (l *lab) runsOf(r receiver) int {
	if r.group == report.Peer {
		return l.peerRuns
	}
	return l.runs
}

// tolerate leaves out what failed if it is a peer: nobody waits a quarter of an hour
// for nothing because of it.
func (l *lab) tolerate(ctx context.Context, r receiver, err error) error {
	if err == nil || r.group != report.Peer || ctx.Err() != nil {
		return err
	}
	l.leaveOut("%v", err)
	return nil
}

// leaveOut keeps a reason why something was not measured.
func (l *lab) leaveOut(format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.results.LeftOut = append(l.results.LeftOut, why)
	l.progress.note("not measured: " + why)
}

// atLeast is how long each receiver is measured, if its flush takes no longer.
func (l *lab) atLeast() time.Duration {
	if l.brief {
		return time.Second
	}
	return 2 * time.Second
}

// parts are what can be measured alone.
var parts = []string{"udp-1-40k", "udp-1-200k", "udp-14-1k", "udp-14-10k", "unixgram-81", "idle", "rates", "scale", "techniques"}

// newLab builds what is to be measured.
func newLab(ctx context.Context, o options, p progress) (l *lab, err error) {
	l = &lab{options: o, progress: p, results: &report.Results{Date: time.Now().UTC().Format(time.DateOnly)}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.results.Machine, err = thisMachine(); err != nil {
		return l, err
	}
	if l.dir, err = os.MkdirTemp("", "lab"); err != nil {
		return l, err
	}
	l.progress.show("building freshet and lab/limit")
	if l.bare, err = buildLimit(ctx, limitSource, l.dir); err != nil {
		return l, err
	}
	if l.freshet == "" {
		if l.freshet, err = buildFreshet(ctx, l.dir); err != nil {
			return l, err
		}
	}
	if err := l.versions(ctx); err != nil {
		return l, err
	}
	if l.workloads, err = workloads(); err != nil {
		return l, err
	}
	if l.peerRuns > 0 {
		return l, l.buildPeers(ctx)
	}
	return l, nil
}

func (l *lab) close() error { return os.RemoveAll(l.dir) }

// versions notes what is measured besides the peers. Ours names Go's.
func (l *lab) versions(ctx context.Context) error {
	ours, err := firstLine(ctx, l.freshet, "version")
	if err != nil {
		return err
	}
	compiler, err := firstLine(ctx, "cc", "--version")
	if err != nil {
		return err
	}
	l.version("Freshet", ours)
	l.version("bare receivers", compiler)
	return nil
}

func (l *lab) version(name, version string) {
	l.results.Versions = append(l.results.Versions, report.Version{Name: name, Version: version})
}

// measure does all that was asked for. What a million contexts and a storm are sent
// at depends on the highest rate.
func (l *lab) measure(ctx context.Context) error {
	steps := l.costSteps()
	if l.wants("idle") {
		steps = append(steps, l.idleSteps()...)
	}
	if l.wants("rates") || l.wants("scale") {
		steps = append(steps, l.rateSteps()...)
	}
	if l.wants("scale") {
		steps = append(steps, l.scaleSteps()...)
	}
	if l.wants("techniques") {
		steps = append(steps, l.techniqueSteps()...)
	}
	return l.progress.run(ctx, steps)
}
