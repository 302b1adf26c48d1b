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
	only     []string // the parts to measure; empty: all
	runs     int      // runs of each bare receiver and of each Freshet
	peerRuns int      // runs of each peer; 0 leaves the peers out
	freshet  string   // path of the program; empty: build it
	brief    bool     // only the collector's goals, in shorter runs

	noDatabases bool // also leave out peers that accept remote write
	noisy       bool // do not repeat runs in which other processes took too much processor time
}

// lab measures, and collects the results.
type lab struct {
	options
	dir       string     // directory for the built programs
	bare      string     // the bare receiver, built from lab/limit
	others    []receiver // the peers
	tsdbs     []peerstsdb.Peer
	workloads []*workload
	packed    []packedLoad
	results   *report.Results
	progress  progress

	mu sync.Mutex // guards results.LeftOut, since idle receivers are measured concurrently
}

// wants reports whether a part is among those to measure.
func (l *lab) wants(part string) bool {
	return len(l.only) == 0 || slices.Contains(l.only, part)
}

const asideRuns = 3 // a receiver without a goal is run at most this often

func (l *lab) runsOf(r receiver) int {
	switch {
	case r.group == report.Peer:
		return l.peerRuns
	case r.aside:
		return min(l.runs, asideRuns)
	}
	return l.runs
}

// tolerate leaves out a peer that failed. Otherwise one failure would cost a quarter of an hour of results.
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

// ourVersion returns the version of Freshet, without the versions of peers.
func (l *lab) ourVersion() []report.Version {
	return slices.DeleteFunc(slices.Clone(l.results.Versions), func(v report.Version) bool { return v.Name != "Freshet" })
}
