// Logging measures what logging costs an HTTP service, by the logger and by where its
// output goes: the story of FIELD-NOTES.md 5, on your machine and in one run.
//
//	go run -C lab/logging .            about nine minutes
//	go run -C lab/logging . --quick    about a minute, to look at
//	go run -C lab/logging . --goals    slogring and no log alone
//
// The service looks up routes in memory and logs three lines a request. It is this program
// once more, with GOMAXPROCS=2, one process for each logger. Requests come over loopback
// from this one, so that the garbage and the scheduler that are measured are the service's
// alone; the processors are shared, as they are for all loggers alike.
//
// Throughput is of a closed loop. Latencies are of an open loop at half of what the service
// does without a log: a request is sent when it is due, whatever became of those before,
// and its latency is from when it was due. In each round all loggers come once, in random
// order, and each is compared with no log in the same round. For the goals, slogring and no
// log then take turns of a fraction of a second, so that what else the machine does meets
// both. A second process without a log says how much of a difference is none.
//
// The loggers are dependencies of the lab alone, since Freshet needs none of them.
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
	flag.BoolVar(&p.goals, "goals", false, "only slogring and no log")
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
