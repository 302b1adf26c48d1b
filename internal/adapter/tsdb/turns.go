package tsdb

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
)

// turns bounds how many stores compact at a time. The heads of all tenants become due at the same second, since blocks
// begin at the same times.
type turns struct {
	// Heads and merges have turns of their own. A merge of old blocks may take minutes, and the memory of the heads
	// that wait would grow meanwhile.
	heads, merges turn
}

// turn has room for the compactions of one kind. If it is nil, there is no bound.
type turn chan struct{}

// newTurns leaves half of the processors to requests, unless there are heads and merges at the same time.
func newTurns() turns {
	n := max(1, runtime.GOMAXPROCS(0)/2)
	return turns{heads: make(turn, n), merges: make(turn, n)}
}

// take waits for a turn, which the caller must give back.
func (t turn) take(ctx context.Context) (giveBack func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// closings is the log of a database. If a database closes while it compacts or waits for its turn, tsdb counts no
// failed compaction, but logs an error.
type closings struct{ slog.Handler }

// Handle implements slog.Handler.
func (h closings) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "compaction failed" {
		r.Attrs(func(a slog.Attr) bool {
			if err, is := a.Value.Any().(error); is && errors.Is(err, context.Canceled) {
				r.Level = slog.LevelDebug
			}
			return true
		})
		if !h.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h closings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return closings{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h closings) WithGroup(name string) slog.Handler { return closings{h.Handler.WithGroup(name)} }
