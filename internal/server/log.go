package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/slogring"
)

// logTime is how long an output that hangs may hold up the end of the process.
const logTime = 2 * time.Second

// serverLog is the log of a server: what it says is written by another goroutine, so
// that an output which hangs holds up nobody.
type serverLog struct {
	*slog.Logger
	ring  *slogring.Handler
	level *slog.LevelVar
}

// newLog logs to out. It must be closed.
func newLog(out io.Writer, level slog.Level) *serverLog {
	l := &serverLog{level: new(slog.LevelVar)}
	l.level.Set(level)
	l.ring = slogring.New(out, slogring.Options{Level: l.level, Unsampled: slog.LevelError})
	l.Logger = slog.New(l.ring)
	return l
}

// flush returns when everything is written that was said before, or the output hangs.
func (l *serverLog) flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), logTime)
	defer cancel()
	return l.ring.Flush(ctx)
}

// close is the last flush.
func (l *serverLog) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), logTime)
	defer cancel()
	err := l.ring.Close(ctx)
	if lost := l.ring.Stats().Lost.Sum(); errors.Is(err, context.DeadlineExceeded) && lost > 0 {
		return fmt.Errorf("%w; %d found no room before", err, lost)
	}
	return err
}

var logDesc = prometheus.NewDesc("freshet_log_records_total",
	"Records of the log, by what became of them: written; cut, written without their end; suppressed, repeats of a message beyond the tenth in a second, which a line has the number of; lost, since the output was slow or blocked; failed, since it refused the line. Any lost or failed: nobody reads the pipe, or the disk of the log is full.",
	[]string{"outcome"}, nil)

// Describe is part of prometheus.Collector.
func (l *serverLog) Describe(to chan<- *prometheus.Desc) { to <- logDesc }

// Collect is part of prometheus.Collector.
func (l *serverLog) Collect(to chan<- prometheus.Metric) {
	s := l.ring.Stats()
	for _, of := range []struct {
		outcome string
		records uint64
	}{{"written", s.Written}, {"cut", s.Cut}, {"suppressed", s.Suppressed}, {"lost", s.Lost.Sum()}, {"failed", s.Failed}} {
		to <- prometheus.MustNewConstMetric(logDesc, prometheus.CounterValue, float64(of.records), of.outcome)
	}
}
