// Logging measures what logging costs an HTTP service, by logger and by output. It repeats, on your
// machine and in one run, a measurement that users reported.
//
//	go run -C lab/logging .            about nine minutes
//	go run -C lab/logging . --quick    about a minute, for a rough result
//	go run -C lab/logging . --goals    only slogring and no log
//
// The service looks up routes in memory and logs three lines a request. For each logger it runs in another
// process of this program, with GOMAXPROCS=2. The first process sends requests over loopback, so that the
// measured garbage and scheduling are the service's alone. The two processes share the processors, in the
// same way for all loggers.
//
// Throughput comes from a closed loop. Latencies come from an open loop at half of the throughput without a
// log: each request is sent when it is due, even if earlier requests have no answer yet, and its latency
// counts from that time. In each round every logger has one turn, in random order, and is compared with
// the service that logs nothing in the same round. For the goals, the services with slogring and without
// a log then take turns of a fraction of a second, so that other work on the machine affects both. A
// second process without a log shows how large a difference can be by chance.
//
// Only the lab depends on these loggers; Freshet needs none of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		fail(serve(os.Args[2], os.NewFile(3, "output")))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := plan{rounds: 4, slice: time.Second, closed: 2, pairs: 36, turn: 400 * time.Millisecond}
	quick := flag.Bool("quick", false, "few and short rounds, about a minute")
	flag.BoolVar(&p.goals, "goals", false, "measure only slogring and no log")
	flag.Parse()
	if *quick {
		p.rounds, p.slice, p.closed, p.pairs, p.turn = 1, 500*time.Millisecond, 1, 9, 250*time.Millisecond
	}
	fail(run(ctx, p))
}

func fail(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "logging:", err)
		os.Exit(1)
	}
}
