package server

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

// In a container every process has the same pid. So the pid does not distinguish the image that started
// the present image from an earlier image that died during its start.
func TestWhoWasRestarted(t *testing.T) {
	dir := t.TempDir()
	text, err := json.Marshal(answer.Restart{PID: os.Getpid(), State: answer.RestartOpening})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, answer.RestartFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		if again {
			t.Setenv("LISTEN_FRESHET", "[]")
		}
		s := &server{config: settings.Config{DataDir: dir}}
		s.restarter = newRestarter()
		if err := s.openInherited(); err != nil {
			t.Fatal(err)
		}
		if err := s.openRestarted(); err != nil {
			t.Fatal(err)
		}
		if got := s.restarter.last.State != ""; got != again {
			t.Errorf("with sockets of an earlier image: %t; the server reports a restart: %t, want %[1]t", again, got)
		}
	}
}

// A restart cannot repair a wrong socket unit, so the error counts as a mistake of the user.
func TestAWrongSocketUnitIsAMistakeInTheConfiguration(t *testing.T) {
	t.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	t.Setenv("LISTEN_FDS", "many")
	err := new(server).openInherited()
	if !errors.As(err, new(conf.MistakeError)) || !strings.Contains(err.Error(), "LISTEN_FDS=many") {
		t.Errorf("got %v", err)
	}
}
