package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/lab/report"
	"github.com/freshet-io/freshet/lab/repository"
)

// techniquesPart is the name of this part in -only.
const techniquesPart = "techniques"

// techniqueRounds is the number of rounds from which the page's medians and intervals are computed.
const techniqueRounds = 11

// techniqueSteps runs the benchmarks of lab/dogstatsd6, lab/cortex, lab/m3pool and lab/clients.
func (l *lab) techniqueSteps() []step {
	t := &report.Techniques{Date: l.results.Date, Machine: l.results.Machine, Versions: l.ourVersion(),
		OthersAtMost: othersAtMost, RepeatsAtMost: repeatsAtMost}
	if l.noisy {
		t.RepeatsAtMost = 0
	}
	l.results.Techniques = t
	rounds := techniqueRounds
	if l.brief {
		rounds = l.runs
	}
	return []step{
		l.benchmarkStep(t, "techniques", "./dogstatsd6", ".", 13, 100*time.Millisecond, rounds, &t.Parsing),
		l.benchmarkStep(t, "decoders of remote write", "./cortex", ".", 8, 200*time.Millisecond, rounds, &t.Decoders),
		l.benchmarkStep(t, "worker pools", "./m3pool", ".", 8, 200*time.Millisecond, rounds, &t.Pools),
		l.benchmarkStep(t, "clients", "./clients", "^Benchmark(Counter|Gauge|Distribution|Set|Service)", 26,
			100*time.Millisecond, rounds, &t.Clients),
	}
}

// benchmarkStep runs the matching Go benchmarks of a package below lab. `each` is the time of one
// benchmark; the work around it takes about as long again. In each round every benchmark has one turn,
// so that other work on the machine affects all of them equally.
func (l *lab) benchmarkStep(t *report.Techniques, what, pkg, pattern string, benchmarks int, each time.Duration,
	rounds int, results *report.Benchmarks) step {
	return step{
		what:  what + ", as Go benchmarks",
		takes: time.Duration(rounds*benchmarks)*2*each + 15*time.Second, // 15 s to compile them
		do: func(ctx context.Context) error {
			root, err := repository.Dir()
			if err != nil {
				return err
			}
			program := filepath.Join(l.dir, filepath.Base(pkg)+".test")
			cmd := exec.CommandContext(ctx, "go", "test", "-C", filepath.Join(root, "lab"), "-c", "-o", program, pkg)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("go test -c %s: %w\n%s", pkg, err, out)
			}
			for range rounds {
				round, others, repeated, err := undisturbed(ctx, t.RepeatsAtMost,
					func(ctx context.Context) ([]report.Technique, float64, error) {
						return benchmarkRound(ctx, program, pattern, each)
					})
				if err != nil {
					return err
				}
				results.Add(round, others, repeated)
			}
			return nil
		},
	}
}

// benchmarkRound runs each benchmark once. It also returns the share of the processor time that
// other processes took meanwhile.
func benchmarkRound(ctx context.Context, program, pattern string,
	each time.Duration) (round []report.Technique, others float64, err error) {
	cmd := exec.CommandContext(ctx, program, "-test.run", "^$", "-test.bench", pattern, "-test.benchmem",
		"-test.benchtime", each.String(), "-test.timeout", "30m")
	before, err := usedUntilNow()
	if err != nil {
		return nil, 0, err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	after, err := usedUntilNow()
	if err != nil {
		return nil, 0, err
	}
	after.ours += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return parseBenchmarks(string(out)), after.othersSince(before), nil
}

// These expressions match a benchmark's line and its figures:
//
//	BenchmarkKey/string-2   1234   56.7 ns/op   8 B/op   1 allocs/op
var (
	benchmarkLine = regexp.MustCompile(`^Benchmark([^/\s]+)/(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)
	benchmarkUnit = regexp.MustCompile(`([\d.e+]+) (\S+)`)
)

// parseBenchmarks reads the output of `go test -bench -benchmem`. The name of a benchmark has its
// group and its technique. The figures of repeated runs are collected.
func parseBenchmarks(out string) (all []report.Technique) {
	for line := range strings.Lines(out) {
		found := benchmarkLine.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			continue
		}
		group, name := words(found[1]), words(found[2])
		at := slices.IndexFunc(all, func(t report.Technique) bool { return t.Group == group && t.Name == name })
		if at < 0 {
			at = len(all)
			all = append(all, report.Technique{Group: group, Name: name})
		}
		t := &all[at]
		for _, figure := range benchmarkUnit.FindAllStringSubmatch(found[3], -1) {
			value, _ := strconv.ParseFloat(figure[1], 64) // 0 for text that matches the expression by mistake
			switch figure[2] {
			case "ns/op":
				t.Nanoseconds = append(t.Nanoseconds, value)
			case "B/op":
				t.Bytes = value
			case "allocs/op":
				t.Allocations = value
			case "growths/op":
				t.Growths = append(t.Growths, value)
			case "gc-%":
				t.GCPercent = append(t.GCPercent, value)
			case "growth-%":
				t.GrowthPercent = append(t.GrowthPercent, value)
			}
		}
	}
	return all
}

// words returns a benchmark's name with spaces instead of underscores. Go has replaced the spaces of the
// name by underscores.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }
