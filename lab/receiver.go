package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/internal/core/load"
	"github.com/freshet-io/freshet/lab/report"
)

// The networks on which the lab sends.
const (
	udp      = "udp"
	unixgram = "unixgram"
)

// receiver is a program that the lab measures.
type receiver struct {
	name      string
	group     report.Group
	flush     time.Duration // the period of its flushes; the measured time is a multiple of it
	segmented bool          // the sender passes many datagrams to the kernel as one
	unixgram  bool          // it also listens on a Unix datagram socket
	aside     bool          // it is measured only for information, not for a goal
	stores    bool          // it creates series in a store when it stores the first tile
	around    time.Duration // the approximate time to start, to finish counting, and to stop
	start     func(ctx context.Context, dir string, on cpus) (*running, error)
}

// interval returns how long to measure a receiver: at least `atLeast`, and a whole number of flushes.
func (r receiver) interval(atLeast time.Duration) time.Duration { return max(atLeast, r.flush) }

// warmUp returns how long the load runs before the measurement. By then every context has been sent, the
// first flush of a window has given each context its name, and the tables have grown to their final
// size. A bare receiver has nothing that grows.
func (r receiver) warmUp() time.Duration {
	if r.stores {
		return firstTile
	}
	return time.Second + min(r.flush, time.Second)
}

// firstTile is the time from the start until the first tiles of 10 s are stored. Tiles close 2 s
// after their end.
const firstTile = 13 * time.Second

// with is a helper: it runs a receiver, in a directory of its own, until `do` returns.
func (r receiver) with(ctx context.Context, on cpus, do func(p *running) error) error {
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := r.start(ctx, dir, on)
	if err != nil {
		return fmt.Errorf("start %s: %w", r.name, err)
	}
	if err := errors.Join(do(p), p.stop()); err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return nil
}

// running is a running receiver.
type running struct {
	pid       int
	addresses map[string]string // the addresses at which it receives, by network
	received  func(context.Context) (counted, error)
	stop      func() error
	allocated func(context.Context) (objects uint64, err error) // nil if the receiver does not report objects
}

// counted is how much a receiver has received since its start, by its own counters: metrics, or
// datagrams if it does not parse them.
type counted struct{ metrics, datagrams uint64 }

// metricsOf returns how many of the sent metrics a receiver has counted since the counts in `before`.
func (c counted) metricsOf(sent load.Totals, before counted) uint64 {
	datagrams := c.datagrams - before.datagrams
	switch {
	case c.metrics > 0 || datagrams == 0:
		return c.metrics - before.metrics
	case datagrams == sent.Packets:
		return sent.Metrics
	}
	return uint64(float64(sent.Metrics) * float64(datagrams) / float64(sent.Packets))
}

// settle waits until a receiver has counted all metrics sent since the counts in `before`, or has
// counted nothing more for the time `patience`. It returns the number of counted metrics.
func (p *running) settle(ctx context.Context, before counted, sent load.Totals,
	patience time.Duration) (metrics uint64, err error) {
	const pause = 50 * time.Millisecond
	changed := time.Now()
	for {
		now, err := p.received(ctx)
		if err != nil {
			return 0, err
		}
		if n := now.metricsOf(sent, before); n != metrics {
			metrics, changed = n, time.Now()
		}
		if metrics == sent.Metrics || time.Since(changed) > patience {
			return metrics, nil
		}
		if err := wait(ctx, pause); err != nil {
			return 0, err
		}
	}
}

// wait waits for d. If ctx ends first, it returns early with an error.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cpus lists the cores that a process may use; nil means all.
type cpus []int

// start starts a command on the cores `on`. A child inherits the cores of the thread that starts
// it, so a Go program sees only these cores from its start.
func (on cpus) start(cmd *exec.Cmd) error {
	cmd.Env = on.environment()
	restore, err := on.pin()
	if err != nil {
		return err
	}
	return errors.Join(cmd.Start(), restore())
}

// pin keeps the calling goroutine on a thread that may use only these cores, until the caller calls
// `restore`.
func (on cpus) pin() (restore func() error, err error) {
	if on == nil {
		return func() error { return nil }, nil
	}
	var all, some unix.CPUSet
	for _, cpu := range on {
		some.Set(cpu)
	}
	runtime.LockOSThread()
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		runtime.UnlockOSThread()
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	if err := unix.SchedSetaffinity(0, &some); err != nil {
		runtime.UnlockOSThread()
		return nil, os.NewSyscallError(fmt.Sprintf("sched_setaffinity to cores %v", on), err)
	}
	return func() error {
		defer runtime.UnlockOSThread()
		return os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &all))
	}, nil
}

// environment returns the setting that tells Go programs the number of cores.
func (on cpus) environment() []string {
	environment := os.Environ()
	if on != nil {
		environment = append(environment, fmt.Sprintf("GOMAXPROCS=%d", len(on)))
	}
	return environment
}
