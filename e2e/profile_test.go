package e2e

import (
	"debug/elf"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

// Profiles of the stripped binary name functions, files and lines, although it has neither symbols
// nor debug information.
func TestProfilesOfAStrippedBinary(t *testing.T) {
	t.Parallel()
	binary, err := elf.Open(freshet)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	if _, err := binary.Symbols(); !errors.Is(err, elf.ErrNoSymbols) || binary.Section(".debug_info") != nil {
		t.Fatalf("the binary is not stripped: %v", err)
	}
	p := start(t, dataDir(t))
	conn, err := net.Dial("udp", p.UDP)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	packet := []byte(strings.Repeat("profile.requests:1|c|#route:/\n", 40))
	// On a busy machine a profile of two seconds has few samples, so several are taken.
	var taken *profile.Profile
	parses := false
	during(t, func(int) {
		for range 100 {
			_, _ = conn.Write(packet) // if nobody listens, the test fails elsewhere
		}
	}, func() {
		for end := time.Now().Add(time.Minute); !parses && !t.Failed() && time.Now().Before(end); {
			taken = p.profile(t)
			parses = taken != nil && namesTheParser(t, taken)
		}
	})
	if !parses {
		t.Errorf("no profile of a server under load names the parser; the last profile is:\n%v", taken)
	}
}

// profile takes a CPU profile of two seconds, and returns nil if that fails.
func (p *process) profile(t *testing.T) *profile.Profile {
	t.Helper()
	answer, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=2", p.HTTP))
	if err != nil {
		t.Error(err)
		return nil
	}
	defer answer.Body.Close()
	taken, err := profile.Parse(answer.Body)
	if err != nil {
		t.Errorf("status %d: %v", answer.StatusCode, err)
	}
	return taken
}

// namesTheParser reports whether the parser is in a profile. Each line of the profile must have a
// function, a file and a line number.
func namesTheParser(t *testing.T, taken *profile.Profile) (named bool) {
	t.Helper()
	for _, at := range taken.Location {
		for _, line := range at.Line {
			if line.Function == nil || line.Function.Name == "" || line.Function.Filename == "" || line.Line == 0 {
				t.Errorf("a line of the profile has no function name or no line number: %+v", line)
				continue
			}
			named = named || strings.HasPrefix(line.Function.Name, "github.com/freshet-io/freshet/internal/core/dogstatsd.")
		}
	}
	return named
}
