package run

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// SignalError is why a context of WithSignals ended.
type SignalError struct{ Signal os.Signal }

func (e SignalError) Error() string { return "received " + e.Signal.String() }

// WithSignals returns a context that the first SIGINT or SIGTERM ends, with a
// SignalError as its cause. The second makes the process exit at once, with the
// status that shells give to a process killed by it: whoever asks twice does not
// want to wait for the drain. The function that it returns ends the watch.
func WithSignals(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	watch, end := context.WithCancel(context.Background())
	go func() {
		defer signal.Stop(signals)
		for told := false; ; told = true {
			select {
			case s := <-signals:
				if told {
					fmt.Fprintf(os.Stderr, "received %s again: exit without draining\n", s)
					os.Exit(128 + int(s.(syscall.Signal)))
				}
				cancel(SignalError{s})
			case <-watch.Done():
				return
			}
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		end()
	}
}
