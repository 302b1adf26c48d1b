package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// standAlone reports whether all wanted parts stand alone: the page does not compare them with other
// parts. Such parts may be measured on another day than the rest of the page.
func standAlone(parts []string) bool {
	alone := []string{techniquesPart, remoteWritePart, fairnessPart, dashboardsPart, clusterPart, queryPart, rulesPart,
		packedPart, memoryPart, startPart, diskPart}
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(p string) bool { return !slices.Contains(alone, p) })
}

// receivers returns the receivers for a load: bare receivers, of which the first is the base of
// comparison, and then ours.
func (l *lab) receivers(w *workload) (all []receiver) {
	for i, method := range w.bare {
		r := bareReceiver(l.bare, method)
		r.aside = i > 0
		all = append(all, r)
	}
	all = append(all, collectorReceiver(l.freshet))
	if slices.Contains(w.bare, gro) {
		all = append(all, joinedReceiver(l.freshet))
	}
	if w.WholeGoal > 0 {
		all = append(all, allInOneReceiver(l.freshet))
	}
	if l.brief {
		all = slices.DeleteFunc(all, func(r receiver) bool { return r.aside || r.name == allInOneName })
	}
	return all
}

// peers returns the peers to which a load is sent.
func (l *lab) peers(w *workload) (all []receiver) {
	for _, r := range l.others {
		if w.peers && (w.network == udp || r.unixgram) {
			all = append(all, r)
		}
	}
	return all
}

// parts are the parts that can be measured alone.
var parts = []string{
	"udp-1-40k", "udp-1-200k", "udp-14-1k", "udp-14-10k", "unixgram-81", "idle", "rates", "scale", techniquesPart,
	remoteWritePart, fairnessPart, dashboardsPart, clusterPart, queryPart, rulesPart, packedPart, memoryPart,
	startPart, diskPart,
}

// newLab builds the programs and returns a lab that measures them.
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
	if l.packed, err = packedLoads(); err != nil {
		return l, err
	}
	beside := slices.ContainsFunc([]string{remoteWritePart, dashboardsPart, queryPart, rulesPart, startPart, diskPart},
		l.wants)
	if beside && !l.noDatabases {
		if err := l.buildDatabases(ctx, l.onlyPrometheus()); err != nil {
			return l, err
		}
	}
	if l.peerRuns > 0 && !standAlone(l.only) {
		return l, l.buildPeers(ctx)
	}
	if l.peerRuns == 0 {
		l.leaveOut("other servers, which were not asked for")
	}
	return l, nil
}

// onlyPrometheus reports whether all wanted parts have Prometheus as their only peer.
func (l *lab) onlyPrometheus() bool {
	return len(l.only) > 0 && !slices.ContainsFunc(l.only, func(p string) bool { return p != rulesPart && p != startPart })
}

func (l *lab) close() error { return os.RemoveAll(l.dir) }

// versions records all versions except those of the peers. Freshet's version includes the version of Go.
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

// measure measures all wanted parts, beginning with the parts that have goals. The rates for a
// million contexts and for the storm depend on the highest rate.
func (l *lab) measure(ctx context.Context) error {
	steps := l.costSteps(l.receivers)
	if l.wants("rates") || l.wants("scale") {
		steps = append(steps, l.rateSteps()...)
	}
	if l.wants("scale") {
		steps = append(steps, l.scaleSteps()...)
	}
	if l.wants("idle") {
		steps = append(steps, l.idleSteps()...)
	}
	if l.wants(remoteWritePart) {
		steps = append(steps, l.remoteWriteSteps()...)
	}
	if l.wants(fairnessPart) && (!l.brief || len(l.only) > 0) {
		steps = append(steps, l.fairnessSteps()...)
	}
	if l.wants(rulesPart) && (!l.brief || len(l.only) > 0) {
		steps = append(steps, l.rulesSteps()...)
	}
	if l.wants(dashboardsPart) && (!l.brief || len(l.only) > 0) {
		steps = append(steps, l.dashboardSteps()...)
	}
	if l.wants(clusterPart) && (!l.brief || len(l.only) > 0) {
		steps = append(steps, l.clusterSteps()...)
	}
	if l.wants(queryPart) && (!l.brief || len(l.only) > 0) {
		steps = append(steps, l.querySteps()...)
	}
	if l.wants(packedPart) && (!l.brief || len(l.only) > 0) {
		steps = append(steps, l.packedSteps()...)
	}
	if l.wants(memoryPart) && (!l.brief || len(l.only) > 0) {
		steps = append(steps, l.memorySteps()...)
	}
	if l.wants(startPart) && (!l.brief || len(l.only) > 0) {
		steps = append(steps, l.startSteps()...)
	}
	if l.wants(diskPart) && (!l.brief || len(l.only) > 0) {
		steps = append(steps, l.diskSteps()...)
	}
	steps = append(steps, l.costSteps(l.peers)...)
	if l.wants(techniquesPart) {
		steps = append(steps, l.techniqueSteps()...)
	}
	l.progress.note(fmt.Sprintf("%d steps, about %s on a quiet machine", len(steps), minutes(total(steps))))
	before, err := readStat()
	if err != nil {
		return err
	}
	err = l.progress.run(ctx, steps)
	after, statErr := readStat()
	if statErr == nil {
		stolen := after.stolenBy(before)
		l.results.Machine.Stolen = &stolen
	}
	return errors.Join(err, statErr)
}

// dashboardsPart is the name of this part in -only.
const dashboardsPart = "dashboards"
