package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// techniqueSteps run lab/dogstatsd6, lab/cortex and lab/m3pool.
func (l *lab) techniqueSteps() []step {
	return []step{
		l.benchmarkStep("techniques", "./lab/dogstatsd6", 13, 100*time.Millisecond, &l.results.Techniques),
		l.benchmarkStep("decoders of remote write", "./lab/cortex", 8, 200*time.Millisecond, &l.results.Decoders),
		l.benchmarkStep("worker pools", "./lab/m3pool", 8, 200*time.Millisecond, &l.results.Pools),
	}
}

// benchmarkStep runs the Go benchmarks of a package, of which there are so many and
// each takes so long, or twice that with what is around it.
func (l *lab) benchmarkStep(what, pkg string, benchmarks int, each time.Duration, results *[]report.Technique) step {
	count := l.runs
	return step{
		what:  what + ", as Go benchmarks",
		takes: time.Duration(count*benchmarks)*2*each + 15*time.Second, // and to compile them
		do: func(ctx context.Context) error {
			cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", ".", "-benchmem",
				"-benchtime", each.String(), "-count", strconv.Itoa(count), "-timeout", "30m", pkg)
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s: %w\n%s", cmd, err, out)
			}
			*results = parseBenchmarks(string(out))
			return nil
		},
	}
}

// BenchmarkKey/string-2   1234   56.7 ns/op   8 B/op   1 allocs/op
var (
	benchmarkLine = regexp.MustCompile(`^Benchmark([^/\s]+)/(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)
	benchmarkUnit = regexp.MustCompile(`([\d.e+]+) (\S+)`)
)

// parseBenchmarks reads what `go test -bench -benchmem` prints, where the name of a
// benchmark is its group and the technique; repetitions belong together.
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
			value, _ := strconv.ParseFloat(figure[1], 64) // 0 for what the expression lets through
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

// words are those of a benchmark's name, where they cannot have spaces.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }
