package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/freshet-io/freshet/internal/core/top"
)

// A record has each of many senders of requests, so that even a fleet whose members send little is
// named.
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
				t.Fatalf("answered %d", status)
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
