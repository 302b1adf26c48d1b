// Diagnose injects each fault that `freshet diagnose` knows into a Freshet, one after the other, and
// checks that the command names the right cause first, within a minute.
//
//	go run -C lab ./diagnose                      each fault three times, about ten minutes
//	go run -C lab ./diagnose --only lock,disk     some of them
//	go run -C lab ./diagnose --runs 1             each fault once, for a quick look
//	go run -C lab ./diagnose --keep DIR           keep the records
//
// The binary is built from this tree with the build tag faults, which releases do not have. The variable
// FRESHET_FAULT then tells internal/lib/fault what to do to requests, datagrams and writes. The server
// receives DogStatsD and remote write all the time. Two rows of the table need no help from the binary:
// a client that invents tags, and the row without a fault, in which no cause may be clear. Other faults
// come from outside (outside.go): a CPU quota, files instead of directories, a disk that is full or
// frozen (disk.go), a setting, or a client (clients.go). Beside each of these rows, another row looks
// similar and does no harm. A fault that the machine does not allow is reported as not tried.
//
// The time is measured from the beginning of the fault until `freshet diagnose` has printed its
// result. The exit status is 1 if a wrong cause was named, or if it took longer than a minute.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/freshet-io/freshet/internal/core/diagnose"
	"github.com/freshet-io/freshet/lab/repository"
)

// The constant none names the row of the table that has no fault.
const none = "none"

// faults are the first rows of the table.
var faults = []string{
	diagnose.StackGrowth, diagnose.Garbage, diagnose.Lock, diagnose.Goroutines, diagnose.Starvation,
	diagnose.Disk, diagnose.KernelDrops, diagnose.Cardinality, none,
}

// rows are all rows of the table.
func rows() []string { return slices.Concat(faults, outsideNames) }

// causesOf returns the causes that are correct for a row.
func causesOf(row string) []string {
	from, is := outsides[row]
	switch {
	case !is:
		return []string{row}
	case from.also != "":
		return []string{from.cause, from.also}
	}
	return []string{from.cause}
}

// limit is the time within which a fault must be named.
const limit = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	only := flag.String("only", "", "`faults` to inject, of "+strings.Join(rows(), ","))
	runs := flag.Int("runs", 3, "how often each fault is injected")
	keep := flag.String("keep", "", "keep the records in this `directory`")
	flag.Parse()
	right, err := false, repository.Enter()
	if err == nil {
		right, err = measure(ctx, *only, *runs, *keep)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "diagnose:", err)
		os.Exit(1)
	case !right:
		os.Exit(1)
	}
}

// measure injects the faults and prints the table. `right` reports whether the right cause was
// named for all faults.
func measure(ctx context.Context, only string, runs int, keep string) (right bool, err error) {
	wanted := rows()
	if only != "" {
		wanted = strings.Split(only, ",")
	}
	for _, name := range wanted {
		if !slices.Contains(rows(), name) {
			return false, fmt.Errorf("--only %s: there is no such fault; choose from %s", name, strings.Join(rows(), ", "))
		}
	}
	if keep != "" {
		if err := os.MkdirAll(keep, 0o755); err != nil {
			return false, err
		}
	}
	dir, err := os.MkdirTemp("", "diagnose")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	program, err := build(ctx, dir)
	if err != nil {
		return false, err
	}
	fmt.Printf("%-24s %-14s %6s  %-20s %s\n", "fault", "named first", "score", "second", "seconds until named")
	right = true
	for run := range runs {
		for _, name := range wanted {
			t := trial{program: program, dir: filepath.Join(dir, fmt.Sprint(run, name)), fault: name}
			if keep != "" {
				t.keep = filepath.Join(keep, fmt.Sprintf("%s-%d.zip", name, run+1))
			}
			found, took, err := t.run(ctx)
			if untried, is := errors.AsType[untriedError](err); is {
				fmt.Printf("%-24s not tried: %v\n", name, untried)
				continue
			}
			if err != nil {
				return false, fmt.Errorf("%s: %w", name, err)
			}
			right = row(name, found, took) && right
			from := outsides[name]
			for _, text := range from.unsaid(t.dir, found) {
				fmt.Printf("%-24s does not say %q  !\n", name, text)
				right = false
			}
		}
	}
	if right {
		fmt.Printf("\nEach was named first within %v, and without a fault no score reached %.1f.\n", limit, diagnose.Clear)
	} else {
		fmt.Println("\nNot every fault was named correctly. Wrong rows have a !.")
	}
	return right, nil
}

// row prints a row of the table, and reports whether the row is right.
func row(name string, found *diagnose.Diagnosis, took time.Duration) (right bool) {
	first, second := diagnose.Cause{Name: "-"}, diagnose.Cause{Name: "-"}
	if len(found.Causes) > 0 {
		first = found.Causes[0]
	}
	if len(found.Causes) > 1 {
		second = found.Causes[1]
	}
	causes := causesOf(name)
	right = slices.Contains(causes, first.Name) && first.Score >= diagnose.Clear && took <= limit
	if causes[0] == none {
		right = first.Score < diagnose.Clear
	}
	mark := ""
	if !right {
		mark = "  !"
	}
	fmt.Printf("%-24s %-14s %6.2f  %-20s %.1f%s\n", name, first.Name, first.Score,
		fmt.Sprintf("%s %.2f", second.Name, second.Score), took.Seconds(), mark)
	return right
}

// build compiles the server with the faults in it.
func build(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "freshet")
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "faults", "-o", program, "./cmd/freshet")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build freshet: %w\n%s", err, out)
	}
	return program, nil
}
