package run

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// SignalError is the cause with which a signal ends the context that WithSignals returns.
type SignalError struct{ Signal os.Signal }

func (e SignalError) Error() string { return "received " + e.Signal.String() }

// SameStop is the time after the first signal in which further signals count as the same stop. GNU
// timeout, supervisord and terminals signal a process and its group, so one stop arrives twice
// within milliseconds. A person who signals again after this time wants the process to end at
// once.
const SameStop = 2 * time.Second

// WithSignals returns a context that the first SIGINT or SIGTERM ends, with a SignalError as its
// cause. Further signals within SameStop are ignored. A later signal makes the process exit at
// once, without the drain, with the status that shells give to a process killed by that signal. The
// returned function ends the watch.
func WithSignals(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	watched, end := context.WithCancel(context.Background())
	go func() {
		defer signal.Stop(signals)
		if again, ok := watch(watched, signals, func(s os.Signal) { cancel(SignalError{s}) }); ok {
			fmt.Fprintf(os.Stderr, "received %s again, %s or more after the first: exit without draining\n", again, SameStop)
			os.Exit(128 + int(again.(syscall.Signal)))
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		end()
	}
}

// watch calls `stop` at the first signal. It returns the next signal that comes SameStop or more
// after the first, or false once ctx is done.
func watch(ctx context.Context, signals <-chan os.Signal, stop func(os.Signal)) (again os.Signal, ok bool) {
	var first time.Time
	for {
		select {
		case s := <-signals:
			switch {
			case first.IsZero():
				first = time.Now()
				stop(s)
			case time.Since(first) >= SameStop:
				return s, true
			}
		case <-ctx.Done():
			return nil, false
		}
	}
}
