package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	peerstsdb "github.com/freshet-io/freshet/lab/peers-tsdb"
	"github.com/freshet-io/freshet/lab/report"
)

// options say what to measure.
type options struct {
	only     []string // parts; empty for all
	runs     int      // runs of each bare receiver and of each Freshet
	peerRuns int      // runs of each peer; 0 leaves the peers out
	freshet  string   // the program; built if empty
	brief    bool     // only the collector's goals, in shorter runs

	noDatabases bool // leave out peers that take remote write, too
	noisy       bool // do not repeat runs in which other processes took too much processor time
}

// lab measures, and collects the results.
type lab struct {
	options
	dir       string     // for the built programs
	bare      string     // program of lab/limit
	others    []receiver // peers
	tsdbs     []peerstsdb.Peer
	workloads []*workload
	results   *report.Results
	progress  progress

	mu sync.Mutex // guards results.LeftOut, since idle receivers are measured concurrently
}

// wants reports whether a part is to be measured.
func (l *lab) wants(part string) bool {
	return len(l.only) == 0 || slices.Contains(l.only, part)
}

const asideRuns = 3 // the most runs of a receiver that belongs to no goal

func (l *lab) runsOf(r receiver) int {
	switch {
	case r.group == report.Peer:
		return l.peerRuns
	case r.aside:
		return min(l.runs, asideRuns)
	}
	return l.runs
}

// tolerate leaves out a peer that failed. Otherwise a quarter of an hour of results would be lost.
func (l *lab) tolerate(ctx context.Context, r receiver, err error) error {
	if err == nil || r.group != report.Peer || ctx.Err() != nil {
		return err
	}
	l.leaveOut("%v", err)
	return nil
}

// leaveOut records why something was not measured.
func (l *lab) leaveOut(format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.results.LeftOut = append(l.results.LeftOut, why)
	l.progress.note("not measured: " + why)
}

func (l *lab) version(name, version string) {
	l.results.Versions = append(l.results.Versions, report.Version{Name: name, Version: version})
}

// ourVersion returns Freshet's version alone.
func (l *lab) ourVersion() []report.Version {
	return slices.DeleteFunc(slices.Clone(l.results.Versions), func(v report.Version) bool { return v.Name != "Freshet" })
}
