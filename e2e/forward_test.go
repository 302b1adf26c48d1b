package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestForward checks that samples of DogStatsD and of remote write reach a backend, although the
// backend is down at first and the forwarding server is killed meanwhile. The backend is another
// Freshet.
func TestForward(t *testing.T) {
	t.Parallel()
	other := start(t, dataDir(t))
	address := other.HTTP
	other.terminate(t)

	dir := dataDir(t)
	config := filepath.Join(dir, "freshet.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
forward:
  backends:
    - {name: new, url: "http://%s/api/v1/write", protocol: "2.0"}
`, address), 0o600); err != nil {
		t.Fatal(err)
	}
	// The server's own metrics would be forwarded, too, and hide whether the tile waits.
	p := start(t, dir, "--config", config, "--self-metrics=false")
	base := time.Now().Add(-time.Minute).UnixMilli()
	var sent []string
	send := func(n int) {
		t.Helper()
		for range n {
			at := base + int64(1000*len(sent))
			kind, m := remoteWriteV2, message(requestV2(at, float64(len(sent)), "forwarded"))
			if len(sent)%2 == 0 {
				kind, m = remoteWriteV1, v1Of(requestV2(at, float64(len(sent)), "forwarded"))
			}
			if status, text, _, err := p.write(kind, pack(t, m)); err != nil || status != http.StatusNoContent {
				t.Fatalf("a write: %d %s %v", status, text, err)
			}
			sent = append(sent, fmt.Sprint(float64(at)/1000, len(sent)))
		}
	}
	send(10)
	increment(t, p, "tiled", 7)
	eventually(t, 30*time.Second, "its tile waits for the backend", func() error {
		n, err := p.ownMetric("freshet_forwarder_waiting_samples")
		if err == nil && n < 12 { // ten samples, the tile of the counter, and the zero before it
			err = fmt.Errorf("%v samples wait", n)
		}
		return err
	})
	p.kill(t)
	p = start(t, dir, "--config", config, "--self-metrics=false")
	send(5)
	other = start(t, other.dataDir, "--http-listen", address)
	send(5)
	eventually(t, 30*time.Second, "the backend has all samples", func() error {
		results, err := other.query("forwarded[10m]")
		if err != nil || len(results) != 1 {
			return fmt.Errorf("the results are %v, want one series; error %v", results, err)
		}
		var got []string
		for _, v := range results[0].Values {
			got = append(got, fmt.Sprint(v.T, v.V))
		}
		if !slices.Equal(got, sent) {
			return fmt.Errorf(
				"the backend has %d samples, want the %d sent: %s", len(got), len(sent), strings.Join(got, ", "))
		}
		v, err := other.value("increase(tiled[10m] anchored)")
		if err == nil && v != 7 {
			err = fmt.Errorf("the counter named tiled grew by %v, want 7", v)
		}
		return err
	})
}
