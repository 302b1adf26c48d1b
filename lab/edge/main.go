// Edge measures the cost of counting a request in nginx, for several techniques. It repeats, on your
// machine and in one run, the measurement that Kong reported about its logger at the edge.
//
//	go run -C lab ./edge             takes about seven minutes
//	go run -C lab ./edge --quick     takes about two minutes, for a rough result
//
// Each log handler has an nginx with one worker, and all of them run at the same time. wrk sends
// requests to them in turns of a second, in a new random order each round, so that other work on
// the machine affects all of them equally. Each handler is compared with the empty handler in the
// same round. Processor time is the worker's user and system time, from the scheduler.
//
// The cost of a request in nginx and the kernel varies between rounds by more than the cost of a
// handler. So the second table shows user-mode instructions counted by callgrind. These counts differ by
// less than ten between runs.
//
// nginx, its Lua module, valgrind and wrk are packages of Debian. lua/bench/conf.sh has the handlers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/freshet-io/freshet/lab/repository"
)

// handler is a log handler, and a row of the tables.
type handler struct {
	name string // its name in lua/bench/conf.sh
	what string
}

// empty is the handler with which the others are compared.
const empty = "empty"

var handlers = []handler{
	{"none", "no Lua"},
	{empty, "empty log_by_lua_block"},
	{"ipairs", "counter and histogram, ipairs with a return inside"},
	{"loop", "counter and histogram, a loop over integers"},
	{"api", "resty.freshet: inc and observe"},
	{"http", `resty.freshet.http: http:log("home")`},
	{"route", `resty.freshet.http: http:route("home")`},
	{"handle", "resty.freshet: two handles"},
}

// plan says how much to measure.
type plan struct {
	rounds int
	turn   time.Duration // whole seconds, as wrk needs
	warm   time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := plan{rounds: 31, turn: time.Second, warm: time.Second}
	quick := flag.Bool("quick", false, "few rounds, about two minutes")
	flag.Parse()
	if *quick {
		p.rounds = 7
	}
	if err := run(ctx, p); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "edge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, p plan) error {
	if err := repository.Enter(); err != nil {
		return err
	}
	install := exec.CommandContext(ctx, "bash", "lua/install")
	install.Stdout, install.Stderr = os.Stderr, os.Stderr
	if err := install.Run(); err != nil {
		return fmt.Errorf("lua/install: %w", err)
	}
	if _, err := exec.LookPath("wrk"); err != nil {
		return fmt.Errorf("%w; run: sudo apt-get install -y wrk", err)
	}
	dir, err := os.MkdirTemp("", "freshet-edge-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	loads, err := load(ctx, p, dir)
	if err != nil {
		return err
	}
	printLoads(os.Stdout, p, loads)
	counts, err := instructions(ctx)
	if err != nil {
		return err
	}
	printInstructions(os.Stdout, counts)
	return nil
}
