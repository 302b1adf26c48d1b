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

// logTime is how long a hung output may delay the end of the process.
const logTime = 2 * time.Second

// serverLog is the log of a server. One goroutine writes it, so that a blocked output delays nothing
// else.
type serverLog struct {
	*slog.Logger
	ring  *slogring.Handler
	level *slog.LevelVar
}

// newLog makes a log that writes to `out`. The caller must close the log.
func newLog(out io.Writer, level slog.Level) *serverLog {
	l := &serverLog{level: new(slog.LevelVar)}
	l.level.Set(level)
	l.ring = slogring.New(out, slogring.Options{Level: l.level, Unsampled: slog.LevelError})
	l.Logger = slog.New(l.ring)
	return l
}

// flush returns when all earlier records are written, or after logTime if the output hangs.
func (l *serverLog) flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), logTime)
	defer cancel()
	return l.ring.Flush(ctx)
}

// close writes the remaining records.
func (l *serverLog) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), logTime)
	defer cancel()
	err := l.ring.Close(ctx)
	if lost := l.ring.Stats().Lost.Sum(); errors.Is(err, context.DeadlineExceeded) && lost > 0 {
		return fmt.Errorf("%w; %d more records were lost earlier", err, lost)
	}
	return err
}

var logDesc = prometheus.NewDesc("freshet_log_records_total",
	"Log records, by outcome. written; cut: written without their end; suppressed: repeats of a message beyond the "+
		"tenth in a second, replaced by one line with their number; lost: the output was slow or blocked; failed: the "+
		"output refused the line. Any lost or failed: the pipe is not read, or the disk of the log is full.",
	[]string{"outcome"}, nil)

// Describe implements prometheus.Collector.
func (l *serverLog) Describe(to chan<- *prometheus.Desc) { to <- logDesc }

// Collect implements prometheus.Collector.
func (l *serverLog) Collect(to chan<- prometheus.Metric) {
	s := l.ring.Stats()
	for _, of := range []struct {
		outcome string
		records uint64
	}{{"written", s.Written}, {"cut", s.Cut}, {"suppressed", s.Suppressed}, {"lost", s.Lost.Sum()}, {"failed", s.Failed}} {
		to <- prometheus.MustNewConstMetric(logDesc, prometheus.CounterValue, float64(of.records), of.outcome)
	}
}
