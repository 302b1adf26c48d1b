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
	return WithSignalsUnless(parent, func() bool { return false })
}

// WithSignalsUnless is WithSignals for a process that may wait before it drains. `hurry` ends that wait, and reports
// whether there was one: then the signal counts like the first one.
func WithSignalsUnless(parent context.Context, hurry func() bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	watched, end := context.WithCancel(context.Background())
	go func() {
		defer signal.Stop(signals)
		if again, ok := watch(watched, signals, func(s os.Signal) { cancel(SignalError{s}) }, hurry); ok {
			fmt.Fprintf(os.Stderr, "received %s again, %s or more after the first: exit without draining\n", again, SameStop)
			os.Exit(128 + int(again.(syscall.Signal)))
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		end()
	}
}

// watch calls `stop` at the first signal, and `hurry` at the next signal that comes SameStop or more after it. It
// returns a signal for which hurry returns false, or false once ctx is done.
func watch(
	ctx context.Context, signals <-chan os.Signal, stop func(os.Signal), hurry func() bool,
) (again os.Signal, ok bool) {
	var last time.Time // of the signals that counted
	for {
		select {
		case s := <-signals:
			switch {
			case last.IsZero():
				last = time.Now()
				stop(s)
			case time.Since(last) < SameStop:
			case hurry():
				last = time.Now()
			default:
				return s, true
			}
		case <-ctx.Done():
			return nil, false
		}
	}
}
