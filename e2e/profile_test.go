package e2e

import (
	"debug/elf"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// The binary has neither symbols nor debug information, and its profiles name functions, files
// and lines without either.
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
	var found *profile.Profile
	during(t, func(int) {
		for range 100 {
			_, _ = conn.Write(packet) // nobody listens: the test fails elsewhere
		}
	}, func() {
		answer, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=2", p.HTTP))
		if err != nil {
			t.Error(err)
			return
		}
		defer answer.Body.Close()
		if found, err = profile.Parse(answer.Body); err != nil {
			t.Errorf("status %d: %v", answer.StatusCode, err)
		}
	})
	if found == nil || len(found.Sample) == 0 {
		t.Fatal("there is no profile, or nothing in it")
	}
	ours := false
	for _, at := range found.Location {
		for _, line := range at.Line {
			if line.Function == nil || line.Function.Name == "" || line.Function.Filename == "" || line.Line == 0 {
				t.Errorf("without a name or a place: %+v", line)
				continue
			}
			ours = ours || strings.HasPrefix(line.Function.Name, "github.com/freshet-io/freshet/internal/core/dogstatsd.")
		}
	}
	if !ours {
		t.Errorf("the parser is not in the profile of a server that parses:\n%s", found)
	}
}
