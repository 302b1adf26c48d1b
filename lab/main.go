// Lab measures the cost of receiving metrics, on this machine and in one run. It compares Freshet
// with other servers, and with bare receivers. A bare receiver only counts, and so shows the cost
// of the kernel. docs/performance.md has the method and the results.
//
// The files, from top to bottom. Each file uses only names that are declared in files below it:
//
//	main.go         flags, and the output of the results
//	measure.go      which parts are measured, one after the other
//	dashboards.go   writes while dashboards are refreshed
//	packed.go       what packed datagrams cost, evenly and in bursts
//	cost.go         the cost of a load to each receiver
//	scale.go        large numbers of contexts
//	memory.go       what a context of a whole server takes
//	tenants.go      what series of remote write and small tenants take
//	start.go        what databases spend until they answer after a stop or a kill
//	disk.go         what samples take on disk
//	rate.go         the highest rate without loss
//	idle.go         what an idle receiver spends
//	queries.go      what databases spend on queries
//	cluster.go      what three nodes cost beside one machine
//	fresh.go        how fresh answers are
//	techniques.go   Go benchmarks of the ways to do one thing
//	remotewrite.go  what databases spend on remote write
//	acknowledge.go  how long writes wait for their acknowledgement
//	fairness.go     how long other tenants wait while one sends far too much
//	rules.go        what databases spend on rules
//	sending.go      a load that is being sent
//	panels.go       the queries of dashboards
//	databases.go    databases, and the requests under which they are compared
//	peer.go         other servers, built once
//	metrics.go      Freshet's own metrics
//	freshet.go      our receivers
//	lab.go          what to measure, and the results so far
//	workload.go     the loads that receivers are compared under
//	limit.go        bare receivers
//	disturbed.go    whether other processes disturbed a measurement
//	machine.go      the machine
//	clock.go        the memory of a process
//	steps.go        steps and their progress
//	receiver.go     what a receiver is
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/lab/report"
	"github.com/freshet-io/freshet/lab/repository"
)

// These paths are relative to the directory of the repository, where the lab runs.
const (
	pageFile    = "docs/performance.md"
	resultsFile = "docs/performance/results.json"
)

const usage = `Measures what receiving metrics costs, on this machine and in one run.

  go run -C lab .                            measure everything and print the tables
  go run -C lab . -write                     and write docs/performance.md, which is what make lab does
  go run -C lab . -quick                     the most important parts in about five minutes, for a rough result
  go run -C lab . -only udp-1-40k,idle       parts
  go run -C lab . -write -only remotewrite   measure remote write alone, or another part of a section of its own, and write that on the page
  go run -C lab . -render                    write the page again from its results

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the lab at once
	err := repository.Enter()
	if err == nil {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

// pageRuns is the least number of runs from which the page's medians are computed.
const pageRuns = 5

// errUsage is returned for a mistake on the command line that has already been reported.
var errUsage = errors.New("usage")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	var only string
	var quick, write, render, noPeers bool
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&only, "only", "", "measure these `parts` of "+strings.Join(parts, ","))
	flags.IntVar(&o.runs, "runs", 5, "how often each receiver of a goal is measured")
	flags.IntVar(&o.peerRuns, "peer-runs", 1, "how often each other server is measured, for 10 s each")
	flags.BoolVar(&noPeers, "no-peers", false, "leave out other servers")
	flags.BoolVar(&quick, "quick", false, "3 runs of the most important parts, about five minutes")
	flags.BoolVar(&o.noisy, "noisy", false, "do not repeat runs that other processes disturbed; report the disturbance")
	flags.StringVar(&o.freshet, "freshet", "", "measure this `program`; default: built from this tree")
	flags.BoolVar(&write, "write", false, "write "+pageFile+", its plots and its results")
	flags.BoolVar(&render, "render", false, "measure nothing, and write the page from "+resultsFile)
	if err := flags.Parse(args); err != nil {
		return errors.Join(errUsage, err)
	}
	mistake := func(format string, args ...any) error {
		fmt.Fprintf(stderr, "lab: "+format+"; see go run -C lab . -help\n", args...)
		return errUsage
	}
	switch {
	case flags.NArg() > 0:
		return mistake("%s: is no flag", flags.Arg(0))
	case o.runs < 1 || o.peerRuns < 0:
		return mistake("-runs must be 1 or more, and -peer-runs 0 or more")
	case write && o.noisy:
		return mistake("-write: %s accepts no runs that other processes disturbed: leave out -noisy", pageFile)
	case write && (quick || only != "" && !standAlone(strings.Split(only, ",")) || o.runs < pageRuns):
		return mistake("-write: %s needs all parts and %d runs: leave out -quick, -only and -runs", pageFile, pageRuns)
	}
	o.noDatabases = noPeers
	if quick {
		o.runs, o.brief, noPeers = 3, true, true
	}
	if noPeers {
		o.peerRuns = 0
	}
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	for _, part := range o.only {
		if !slices.Contains(parts, part) {
			return mistake("-only %s: no such part; there are %s", part, strings.Join(parts, ", "))
		}
	}
	if render {
		return renderPage()
	}

	l, err := newLab(ctx, o, progress{out: stderr, line: terminal.NewLine(stderr)})
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted before anything was measured"), l.close())
	}
	if err != nil {
		return err
	}
	err = errors.Join(l.measure(ctx), l.close())
	fmt.Fprint(stdout, l.results) // after an interrupt, these are the results so far
	if err != nil || !write {
		return err
	}
	return l.write()
}

// write writes the results and the page. If only some parts were measured, the others keep their earlier results.
func (l *lab) write() error {
	if standAlone(l.only) {
		all, err := report.Read(resultsFile)
		if err != nil {
			return err
		}
		if l.wants(techniquesPart) {
			all.Techniques = l.results.Techniques
		}
		if l.wants(remoteWritePart) {
			all.RemoteWrite = l.results.RemoteWrite
		}
		if l.wants(fairnessPart) {
			all.Fairness = l.results.Fairness
		}
		if l.wants(dashboardsPart) {
			all.Dashboards = l.results.Dashboards
		}
		if l.wants(clusterPart) {
			all.Cluster = l.results.Cluster
		}
		if l.wants(rulesPart) {
			all.Rules = l.results.Rules
		}
		if l.wants(queryPart) {
			all.Queries = l.results.Queries
		}
		if l.wants(packedPart) {
			all.Packed = l.results.Packed
		}
		if l.wants(memoryPart) {
			all.Memory = l.results.Memory
		}
		if l.wants(startPart) {
			all.Start = l.results.Start
		}
		if l.wants(diskPart) {
			all.Disk = l.results.Disk
		}
		l.results = all
	}
	if err := l.results.Write(resultsFile); err != nil {
		return err
	}
	return renderPage()
}

// renderPage writes the page and its plots from the results in resultsFile.
func renderPage() error {
	results, err := report.Read(resultsFile)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(pageFile)
	if err != nil {
		return err
	}
	page, err := results.Page(string(old))
	if err != nil {
		return fmt.Errorf("%s: %w", pageFile, err)
	}
	for name, plot := range results.Plots() {
		if err := os.WriteFile(filepath.Join(filepath.Dir(resultsFile), name), []byte(plot), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(pageFile, []byte(page), 0o644)
}
