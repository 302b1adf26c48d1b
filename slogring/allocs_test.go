//go:build !race

package slogring

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// Logging a record with common attributes allocates nothing in the caller, whatever happens to the
// record. The test does not run under the race detector, with which sync.Pool drops items on purpose.
func TestNoAllocations(t *testing.T) {
	ctx := context.Background()
	at := time.Unix(1795228020, 0)
	for name, new := range map[string]func() (*Handler, *output){
		"written":    func() (*Handler, *output) { o := newOutput(); return New(o, Options{Unsampled: EveryLevel}), o },
		"suppressed": func() (*Handler, *output) { o := newOutput(); return New(o, Options{First: 1}), o },
		"lost": func() (*Handler, *output) {
			o := newOutput()
			o.block()
			return New(o, Options{Unsampled: EveryLevel, Bytes: 1 << 12, Line: 1 << 10}), o
		},
	} {
		h, out := new()
		plain := slog.New(h)
		with := plain.With("role", "ingester", "shard", 7, "error", errRefused).WithGroup("request").With("tenant", "a")
		for _, c := range []struct {
			name string
			call func()
		}{
			{"a message", func() { plain.Info("message") }},
			{"LogAttrs", func() { call(plain) }},
			{"all kinds", func() {
				plain.LogAttrs(ctx, slog.LevelWarn, "two words", slog.Float64("f", 1.5), slog.Uint64("u", 1), slog.Time("t", at),
					slog.String("q", `a "quote"`), slog.Any("error", errRefused))
			}},
			{"arguments", func() { // small numbers, since Go allocates for larger ones in an interface
				plain.Info("message", "string", "value", "int", 3, "bool", true, "duration", time.Duration(5), "error", errRefused)
			}},
			{"With and WithGroup", func() { call(with) }},
			{"a group", func() {
				plain.LogAttrs(ctx, slog.LevelInfo, "message", slog.Attr{Key: "group", Value: grouped})
			}},
			{"an error", func() { plain.LogAttrs(ctx, slog.LevelError, "message", slog.Any("error", errRefused)) }},
		} {
			if n := testing.AllocsPerRun(200, c.call); n != 0 {
				t.Errorf("%s, %s: %v allocations, want 0", name, c.name, n)
			}
		}
		out.unblock()
		if err := h.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

var grouped = slog.GroupValue(slog.Int("a", 1), slog.String("b", "c"))
