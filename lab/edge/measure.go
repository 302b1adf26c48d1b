package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/freshet-io/freshet/lab/report"
)

// load measures all handlers in turns, and returns one measurement of each handler for each round.
func load(ctx context.Context, p plan, dir string) (map[string][]measured, error) {
	var all []*nginx
	defer func() {
		for _, n := range all {
			n.stop()
		}
	}()
	for _, h := range handlers {
		n, err := start(ctx, h, dir)
		if err != nil {
			return nil, fmt.Errorf("nginx with %s: %w", h.what, err)
		}
		all = append(all, n)
		if _, err := n.ask(ctx, p.warm); err != nil {
			return nil, err
		}
	}
	loads := map[string][]measured{}
	for round := range p.rounds {
		fmt.Fprintf(os.Stderr, "\rround %d of %d ", round+1, p.rounds)
		for _, i := range rand.Perm(len(all)) {
			m, err := all[i].ask(ctx, p.turn)
			if err != nil {
				return nil, err
			}
			loads[all[i].name] = append(loads[all[i].name], m)
		}
	}
	fmt.Fprintln(os.Stderr)
	return loads, nil
}

func printLoads(out io.Writer, p plan, loads map[string][]measured) {
	fmt.Fprintf(out,
		"One worker, wrk -t1 -c20, %d rounds of %v for each handler. Figures are medians over the rounds. In brackets: "+
			"the 95 %% interval of the median.\n\n", p.rounds, p.turn)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "log handler\trequests/s\tshare of the empty handler's\tCPU, us/request\tmore than the empty handler")
	for _, h := range handlers {
		var rate, share, cpu, more []float64
		for i, m := range loads[h.name] {
			base := loads[empty][i]
			rate, cpu = append(rate, m.rate), append(cpu, m.cpu)
			share, more = append(share, 100*m.rate/base.rate), append(more, m.cpu-base.cpu)
		}
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%.2f\t%s\n", h.what, report.Median(rate), interval(share, 1, " %"), report.Median(cpu),
			interval(more, 2, ""))
	}
	w.Flush()
}

func interval(values []float64, digits int, unit string) string {
	low, high := report.MedianInterval(values)
	return fmt.Sprintf("%.*f%s [%.*f, %.*f]", digits, report.Median(values), unit, digits, low, digits, high)
}

// instructions counts the instructions of all handlers with Lua code.
func instructions(ctx context.Context) (map[string]int, error) {
	fmt.Fprintln(os.Stderr, "instructions by callgrind, about a minute")
	var names []string
	for _, h := range handlers {
		if h.name != "none" && h.name != empty {
			names = append(names, h.name)
		}
	}
	cmd := exec.CommandContext(ctx, "lua/bench/instructions.sh", names...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("lua/bench/instructions.sh: %w", err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(out)) {
		name, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		if counts[name], err = strconv.Atoi(n); err != nil {
			return nil, fmt.Errorf("lua/bench/instructions.sh printed %q", line)
		}
	}
	return counts, nil
}

func printInstructions(out io.Writer, counts map[string]int) {
	fmt.Fprint(out, "\nUser-mode instructions a request over the empty handler:\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, h := range handlers {
		if n, counted := counts[h.name]; counted {
			fmt.Fprintf(w, "%s\t%d\n", h.what, n)
		}
	}
	w.Flush()
}
