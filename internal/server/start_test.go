package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/settings"
)

// Ten seconds after a start, pages of the program that only these seconds needed are given back.
func TestAServerSettles(t *testing.T) {
	for _, role := range []string{settings.RoleAll, settings.RoleCollector} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			c := settings.Default()
			c.Role = role
			s := &server{config: c, logger: slog.New(slog.NewTextHandler(&log, nil))}
			before, begun := residentFile(t), time.Now()
			s.settle(t.Context())
			if after := residentFile(t); after >= before {
				t.Errorf("role %s: %d pages of the program were resident before, and %d after", role, before, after)
			}
			if took := time.Since(begun); took != settleTime || log.Len() > 0 {
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
