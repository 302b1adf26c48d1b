package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/freshet-io/freshet/lab/report"
	"golang.org/x/sys/unix"
)

func median(values []float64) float64 { return report.Median(values) }

// printMachine prints the machine and the versions.
func printMachine(w io.Writer) error {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err
	}
	model := "unknown processor"
	for line := range strings.Lines(string(info)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s, %d cores, %s %s; load average before: %s\n", model, runtime.NumCPU(),
		unix.ByteSliceToString(name.Sysname[:]), unix.ByteSliceToString(name.Release[:]),
		strings.Join(strings.Fields(string(load))[:3], " "))
	fmt.Fprint(w, runtime.Version())
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if slices.Contains([]string{"github.com/sirupsen/logrus", "go.uber.org/zap", "github.com/rs/zerolog"}, module.Path) {
				fmt.Fprintf(w, ", %s %s", module.Path[strings.LastIndex(module.Path, "/")+1:], module.Version)
			}
		}
	}
	fmt.Fprintln(w, "; the server has GOMAXPROCS=2")
	return nil
}

// print prints the tables: medians, with the smallest and the largest values.
func print(out io.Writer, p plan, rate float64, results []*result) {
	fmt.Fprintf(out,
		"\nOpen loop: %.0f requests/s of %d lines each, %d rounds of %v. Medians, and the least and largest.\n", rate,
		linesARequest, p.rounds, p.slice)
	var w *tabwriter.Writer
	for i, r := range results {
		if i == 0 || r.output != results[i-1].output {
			if w != nil {
				w.Flush()
			}
			fmt.Fprintf(out, "\n%s\n", r.output)
			w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w,
				"logger\tclosed loop, requests/s\tp50, ms\tp99, ms\tp99 to no log, 95 % interval\tCPU, µs/request\tin log, "+
					"µs/request\tlock wait, ms/s\tGC\tunanswered")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f %%\t%.1f %%\n", r.name, spread(r.throughput, 0),
			spread(r.p50, 2), spread(r.p99, 2), interval(r.ratio),
			spread(r.cpu, 0), spread(r.inLog, 1), spread(r.waited, 1), 100*r.gc,
			100*float64(r.unanswered)/float64(max(r.sent, 1)))
	}
	w.Flush()

	fmt.Fprintln(out, "\nslogring: what became of the records")
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "output\tlogger\trecords\twritten\tsuppressed\tlost\tfailed\twaiting\texact")
	for _, r := range results {
		if s := r.counts.Stats; s != nil {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", r.output, r.name, s.Handled(), s.Written, s.Suppressed,
				s.Lost.Sum(), s.Failed, s.Waiting, r.exact)
		}
	}
	w.Flush()

	fmt.Fprintf(out,
		"\ngoals: p99 as a multiple of the p99 without a log, in %[2]d pairs of turns of %[1]v; the interval must "+
			"be below the bound, and narrower than bound - 1\n", p.turn, p.pairs)
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "output\tlogger\tbound\tinterval\t")
	var behind []float64
	for _, r := range results {
		behind = append(behind, r.behind...)
		if r.name == again {
			fmt.Fprintf(w, "%s\t%s\t\t%s\tfor comparison\n", r.output, r.name, interval(r.pairs))
		}
		if r.counts.Stats == nil {
			continue
		}
		bound := 1.05
		if strings.HasPrefix(r.output, "blocked") {
			bound = 1.10
		}
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%s\t%s\n", r.output, r.name, bound, interval(r.pairs),
			report.RatioAtMost(r.pairs, bound))
	}
	w.Flush()
	fmt.Fprintf(out, "\nThe client itself was late by %s ms at p99, which all latencies include.\n", spread(behind, 2))
}

func spread(values []float64, digits int) string {
	if len(values) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.*f (%.*f-%.*f)", digits, median(values), digits, slices.Min(values), digits, slices.Max(values))
}

// interval returns the median and its 95 % interval as text.
func interval(values []float64) string {
	low, high := report.MedianInterval(values)
	if math.IsInf(low, 0) {
		return fmt.Sprintf("%.2f", median(values))
	}
	return fmt.Sprintf("%.2f [%.2f, %.2f]", median(values), low, high)
}
