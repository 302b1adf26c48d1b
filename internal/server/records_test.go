package server

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/top"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// A record names each of many senders of requests, even if each sends little.
func TestARecordHasEachSenderOfRequests(t *testing.T) {
	s := running(t, `
data_dir: `+filepath.Join(t.TempDir(), "data")+`
http: {listen: "127.0.0.1:0"}
self: {probe: false, metrics: false}
dogstatsd: {udp: "127.0.0.1:0", unixgram: "", unix: ""}
`)
	const tills = 3 * top.DefaultRows
	body := flood(t, 1)
	eventually(t, "each sender of the last seconds", func() bool {
		for i := range tills {
			if status := s.sendAs(t, fmt.Sprint("till/", i), "/api/v1/write", body); status != http.StatusNoContent {
				t.Fatalf("the server answered %d, want 204", status)
			}
		}
		agents := map[string]bool{}
		for _, of := range s.sent() {
			if of.Tenant == "default" && of.Input == "remote_write" && of.From == "127.0.0.1 ("+of.Agent+")" {
				agents[of.Agent] = true
			}
		}
		return len(agents) == tills
	})
}

// If the disk accepts no record, the server is still diagnosed, and the command says that the
// record was not kept.
func TestDiagnoseWithADiskThatTakesNothing(t *testing.T) {
	data := t.TempDir()
	s := running(t, "data_dir: "+data+`
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "", unixgram: "", unix: ""}
`)
	if err := os.WriteFile(filepath.Join(data, "records"), nil, 0o600); err != nil { // a file in place of the directory
		t.Fatal(err)
	}
	ask := func(args ...string) {
		code, stdout, stderr := freshet(t, append([]string{"diagnose", "--server", s.http[0].addr()}, args...)...)
		if code != command.OK || !strings.HasPrefix(stdout, "record 2") || !strings.Contains(stdout, "Found fine:") ||
			!strings.Contains(stderr, "the server has not kept record 2") ||
			!strings.Contains(stderr, "not a directory; --save FILE keeps one here") {
			t.Errorf("diagnose %s: exit code %d: %s%s", args, code, stdout, stderr)
		}
	}
	ask()
	if err := os.Remove(filepath.Join(data, "records")); err != nil { // listing fails if records is a file
		t.Fatal(err)
	}
	ask("--last")
}
