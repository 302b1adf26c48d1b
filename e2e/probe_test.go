package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestUsersDoNotMeetTheProbe checks that users see nothing of the probe by which a server measures its
// freshness. The probe once appeared as a metric name, as a new series after each start, as samples
// and datagrams in the books, and as a sender with a new port each second.
func TestUsersDoNotMeetTheProbe(t *testing.T) {
	t.Parallel()
	other := start(t, dataDir(t)) // the backend, which gets the tiles
	dir := dataDir(t)
	config := filepath.Join(dir, "freshet.yaml")
	if err := os.WriteFile(config,
		fmt.Appendf(nil, "forward:\n  backends:\n    - {name: other, url: \"http://%s/api/v1/write\", requests: none}\n",
			other.HTTP), 0o600); err != nil {
		t.Fatal(err)
	}
	begin := func() *process {
		p := start(t, dir, "--config", config, "--self-interval", "1s", "--self-probe")
		eventually(t, time.Minute, "probes arrive by both inputs", func() error {
			for _, of := range []string{`tenant="default",path="dogstatsd"`, `tenant="freshet",path="remote_write"`} {
				probes, err := p.self(fmt.Sprintf(`histogram_count(freshet_freshness_seconds{%s})`, of))
				if err != nil || len(probes) != 1 || probes[0].Value.V < 3 {
					return fmt.Errorf("probes of %s: %v %v", of, probes, err)
				}
			}
			return nil
		})
		return p
	}
	p := begin()
	if running, err := p.ownMetric("freshet_recorder_flight"); err != nil || running != 0 {
		t.Errorf("the flight recorder runs although nothing was sent: %v, error %v", running, err)
	}
	increment(t, p, "mine", 1)
	eventually(t, time.Minute, "the backend has the tile of what was sent", func() error {
		_, err := other.value("mine")
		return err
	})
	if running, err := p.ownMetric("freshet_recorder_flight"); err != nil || running != 1 {
		t.Errorf("the flight recorder does not run although something was sent: %v, error %v", running, err)
	}

	for _, server := range []*process{p, other} {
		var names []string
		if err := server.ask("/api/v1/label/__name__/values", nil, &names); err != nil || len(names) != 1 ||
			names[0] != "mine" {
			t.Errorf("names: %v %v", names, err)
		}
	}
	var metadata map[string]any
	if err := p.ask("/api/v1/metadata", nil, &metadata); err != nil || len(metadata) != 1 {
		t.Errorf("metadata: %v %v", metadata, err)
	}
	if books, _, err := p.ledger(); err != nil || books.Samples.Received != 1 || books.Datagrams.Read != 1 {
		t.Errorf("ledger: %+v %v", books, err)
	}
	var busy json.RawMessage
	var top struct {
		Series  int
		Metrics []struct{ Metric string }
		Senders []struct{ Address string }
	}
	eventually(t, time.Minute, "top has seen some seconds", func() error {
		var seconds struct{ Seconds int }
		if err := p.ask("/api/v1/status/top", url.Values{"limit": {"10"}}, &busy); err != nil {
			return err
		}
		if err := json.Unmarshal(busy, &seconds); err != nil || seconds.Seconds < 5 {
			return fmt.Errorf("status/top has too few seconds: %s %v", busy, err)
		}
		return json.Unmarshal(busy, &top)
	})
	if top.Series != 1 || len(top.Metrics) != 0 || len(top.Senders) != 0 {
		t.Errorf("top: %s", busy)
	}

	p.terminate(t)
	p = begin()
	p.kill(t)
	p = begin()
	if n, err := p.self(`count(count_over_time(freshet_probe[10m])) by (path)`); err != nil || len(n) != 2 ||
		n[0].Value.V != 1 || n[1].Value.V != 1 {
		t.Errorf("after two restarts, the counts of the probe's series by input are %v, want 1 for each of two "+
			"inputs; error %v",
			n, err)
	}
}
