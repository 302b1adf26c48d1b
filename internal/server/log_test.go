package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// When a start fails, its last log lines are written before its error.
func TestLogIsWholeOnceItIsClosed(t *testing.T) {
	var out bytes.Buffer
	l := newLog(&out, slog.LevelInfo)
	l.Debug("not at this level")
	l.Info("restored", "records", 3)
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=INFO msg=restored records=3") {
		t.Errorf("the log has %q, want one line with the message restored", got)
	}
}

// If nobody reads the pipe of the log, only the end of the server waits for the pipe, for two
// seconds. A server that has logged nothing ends at once.
func TestLogThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		l := newLog(write, slog.LevelInfo)
		reg := prometheus.NewRegistry()
		reg.MustRegister(l)
		long := strings.Repeat("x", 4000)
		for i := range 1000 {
			l.Error(string(rune('a'+i%26))+long, "i", i) // 4 MB in all; the ring holds 1 MB
			if i%100 == 99 {
				time.Sleep(time.Second) // wait, so that the next lines do not count as repeats
			}
		}
		begun := time.Now()
		err := l.close()
		if took := time.Since(begun); took != logTime {
			t.Errorf("the end waited %v, want %v", took, logTime)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "records wait for the output") ||
			!strings.Contains(err.Error(), "more records were lost earlier") {
			t.Errorf("got the error %v, want one that says how many records wait and how many were lost", err)
		}
		if got := sumOf(t, reg); got != 1000-float64(l.ring.Stats().Waiting) {
			t.Errorf("the metric counts %v of 1000 records, want all except those that wait: %+v", got, l.ring.Stats())
		}
		_ = read.CloseWithError(io.ErrClosedPipe) // lets the writer end
		synctest.Wait()
	})
}

func sumOf(t *testing.T, reg *prometheus.Registry) (sum float64) {
	t.Helper()
	if n, err := testutil.GatherAndCount(reg, "freshet_log_records_total"); err != nil || n != 5 {
		t.Fatal(n, err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].Metric {
		sum += m.Counter.GetValue()
	}
	return sum
}
