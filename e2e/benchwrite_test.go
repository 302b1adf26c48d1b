package e2e

import (
	"encoding/json"
	"errors"
	"os/exec"
	"testing"
)

// A server has everything that bench wrote to it: samples of old and new series, by both versions of
// the protocol. No figure is missing. This holds both for a server that bench starts and for a server
// that already runs.
func TestBenchRemoteWriteFindsWhatItWrote(t *testing.T) {
	p := start(t, dataDir(t))
	for name, args := range map[string][]string{
		"a receiver of its own": {"--version", "1", "--rounds", "5"},
		"pods that come and go": {"--version", "2", "--rounds", "5", "--new-share", "0.25"},
		"a running server":      {"--server", "http://" + p.HTTP, "--duration", "500ms", "--rate", "20000"},
		"a running server, live": {"--server", "http://" + p.HTTP, "--live", "--interval", "100ms", "--rounds", "5",
			"--seed", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command(freshet,
				append([]string{"bench", "remote-write", "--json", "--series", "1000", "--batch", "300"}, args...)...).Output()
			if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
				t.Fatalf("bench: %v, %s", err, failed.Stderr)
			}
			var a struct {
				Run struct {
					Sent         uint64             `json:"sent_samples"`
					SentSeries   uint64             `json:"sent_series"`
					Acknowledged uint64             `json:"acknowledged_samples"`
					Found        uint64             `json:"found_samples"`
					FoundSeries  uint64             `json:"found_series"`
					Measured     map[string]float64 `json:"measured"`
				}
			}
			if err := json.Unmarshal(out, &a); err != nil {
				t.Fatalf("bench printed no JSON: %v in %s", err, out)
			}
			r := a.Run
			if r.Sent <= 1000 || // more than the first round
				r.Acknowledged != r.Sent || r.Found != r.Sent || r.FoundSeries != r.SentSeries ||
				r.SentSeries < 1000 {
				t.Errorf("queries did not find everything that bench sent: %+v", r)
			}
			for _, figure := range []string{"cpu_seconds_per_million_samples",
				"acknowledged_samples_per_second", "acknowledged_p99_ms", "resident_bytes",
				"sender_cpu_seconds_per_million_samples"} {
				if r.Measured[figure] <= 0 {
					t.Errorf("%s is %v", figure, r.Measured[figure])
				}
			}
		})
	}
}
