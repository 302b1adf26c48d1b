package slogring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"testing"
	"time"
)

var errRefused = errors.New("connection refused")

// attrs are as many attributes as a record holds without allocating.
var attrs = []slog.Attr{slog.String("carrier", "dhl"), slog.Int("routes", 12),
	slog.Duration("took", 153*time.Microsecond), slog.Bool("cached", true), slog.Any("error", errRefused)}

// call logs one record, as a handler of requests would.
func call(l *slog.Logger) {
	l.LogAttrs(context.Background(), slog.LevelInfo, "lookup done", slog.String("carrier", "dhl"), slog.Int("routes", 12),
		slog.Duration("took", 153*time.Microsecond), slog.Bool("cached", true), slog.Any("error", errRefused))
}

// BenchmarkHandle measures the cost of Handle for its caller. Bounds: no allocation. A repeat, or a
// record while the output is blocked, takes at most a tenth of the time that slog's handler takes to
// format the record. A written record costs no more than slog's handler with an output that discards it.
//
// The benchmark flushes now and then so that nothing is lost: ns/op includes the writer's time.
func BenchmarkHandle(b *testing.B) {
	_, blocked := io.Pipe()
	for _, goroutines := range []int{1, 8} {
		for _, c := range []struct {
			name string
			make func() slog.Handler
		}{
			{"repeats", func() slog.Handler { return New(io.Discard, Options{}) }},
			{"written", func() slog.Handler { return New(io.Discard, Options{Unsampled: EveryLevel}) }},
			{"blocked", func() slog.Handler { return New(blocked, Options{Unsampled: EveryLevel}) }},
			{"slog", func() slog.Handler { return slog.NewTextHandler(io.Discard, nil) }},
		} {
			b.Run(fmt.Sprintf("%d/%s", goroutines, c.name), func(b *testing.B) {
				h := c.make()
				r := slog.NewRecord(time.Now(), slog.LevelInfo, "lookup done", 0)
				r.AddAttrs(attrs...)
				b.ReportAllocs()
				var flush func()
				if c.name == "written" {
					flush = func() { _ = h.(*Handler).Flush(ctx) }
				}
				if goroutines == 1 {
					for i := 1; b.Loop(); i++ {
						_ = h.Handle(ctx, r)
						if flush != nil && i%500 == 0 {
							flush()
						}
					}
				} else {
					b.SetParallelism(max(1, goroutines/runtime.GOMAXPROCS(0)))
					b.RunParallel(func(pb *testing.PB) {
						for i := 1; pb.Next(); i++ {
							_ = h.Handle(ctx, r)
							if flush != nil && i%500 == 0 {
								flush()
							}
						}
					})
				}
				b.StopTimer()
				if h, ours := h.(*Handler); ours {
					if n := h.Stats().Lost.Sum(); n > 0 && c.name != "blocked" {
						b.Errorf("%d records are lost", n)
					}
					c, cancel := within(10 * time.Millisecond)
					defer cancel()
					_ = h.Close(c) // one of the outputs is blocked
				}
			})
		}
	}
}
