package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/settings"
)

// In the ten seconds after a start, pages of the program that only these seconds needed are given back, and without
// stores also garbage.
func TestAServerSettles(t *testing.T) {
	collections := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	for role, collects := range map[string]uint32{settings.RoleAll: 0, settings.RoleCollector: 2} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			c := settings.Default()
			c.Role = role
			s := &server{config: c, logger: slog.New(slog.NewTextHandler(&log, nil))}
			before, collected, begun := residentFile(t), collections(), time.Now()
			s.settle(t.Context())
			if after := residentFile(t); after >= before {
				t.Errorf("role %s: %d pages of the program were resident before, and %d after", role, before, after)
			}
			if got := collections() - collected; got != collects {
				t.Errorf("role %s: garbage was collected %d times, want %d", role, got, collects)
			}
			if took := time.Since(begun); took != 10*time.Second || log.Len() > 0 {
				t.Errorf("role %s: it took %v, and the log has %q", role, took, log.String())
			}
		})
	}
}

// residentFile returns how many pages of the files that this process maps are in memory.
func residentFile(t *testing.T) (pages int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%d %d %d", new(int), new(int), &pages)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pages
}
