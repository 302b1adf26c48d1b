package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var forcedCollections = regexp.MustCompile(`(?m)^# NumForcedGC = (\d+)$`)

// A collector without an aggregator reads and counts like any other collector. Its output, log and
// answers say that it keeps nothing. Its books close: every well-formed sample is discarded. It
// restarts in place and stops like other collectors, and leaves no store.
func TestACollectorAloneDiscards(t *testing.T) {
	// Without budgets: while a record is made, and up to a minute after it, the flight recorder runs.
	p := start(t, dataDir(t), "--role", "collector", "--self-recorder-budgets=false")
	pid := p.cmd.Process.Pid
	conn, err := net.Dial("udp", p.UDP)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := map[string]uint64{} // samples sent to this process, by their state in the books
	send := func() {
		t.Helper()
		for _, packet := range []string{"a:1|c\nb:2:3|ms|#x:y\nc:4|g", "d:5|h\nno type", "_e{5,4}:title|text"} {
			if _, err := conn.Write([]byte(packet)); err != nil {
				t.Fatal(err)
			}
		}
		sent["discarded"] += 5
		sent["malformed"]++
	}
	closed := func() {
		t.Helper()
		eventually(t, startLimit, "the books have all samples", func() error {
			now, _, err := p.ledger()
			if err != nil {
				return err
			}
			s := now.Samples
			if s.Discarded["no_aggregator"] != sent["discarded"] || s.Malformed["no_type"] != sent["malformed"] ||
				s.Received != sent["discarded"]+sent["malformed"] || s.Window+s.Tile+s.Stored != 0 || s.Difference != 0 {
				return fmt.Errorf("sent %v, the books have %+v", sent, s)
			}
			return nil
		})
	}
	send()
	send()
	closed()
	eventually(t, startLimit, "the events are counted", func() error {
		if n, err := p.ownMetric("freshet_discarded_events_total"); err != nil || n != 2 {
			return fmt.Errorf("%v events are counted, want 2; error %w", n, err)
		}
		return nil
	})
	if running, err := p.ownMetric("freshet_recorder_flight"); err != nil || running != 0 {
		t.Errorf("the flight recorder runs, with a tenth of a collector's memory: %v, error %v", running, err)
	}
	eventually(t, startLimit, "memory is freed at the start, and again when the first seconds are over", func() error {
		text, err := p.get("/debug/pprof/heap", url.Values{"debug": {"1"}})
		found := forcedCollections.FindSubmatch(text)
		if err != nil || found == nil {
			return fmt.Errorf("the profile has no number of forced collections; error %v", err)
		}
		if n, err := strconv.Atoi(string(found[1])); err != nil || n < 2 {
			return fmt.Errorf("garbage was collected %d times, error %v", n, err)
		}
		return nil
	})
	p.says(t, "Nothing is stored: ", `msg="nothing is stored: `)
	p.refusesQueries(t)

	if r, said, err := p.restart(t); err != nil || r.State != "ready" {
		t.Fatalf("restart: %v: %+v\n%s", err, r, said)
	}
	p.expectPID(t, pid)
	_, before, err := p.ledger()
	if err != nil || before == nil || before.Samples.Discarded["no_aggregator"] != sent["discarded"] ||
		before.Samples.Difference != 0 {
		t.Errorf("the books of the previous process are %+v, want all samples discarded; error %v", before, err)
	}
	clear(sent)
	send()
	closed()
	if status, body := p.post(t, "/-/reload"); status != http.StatusOK {
		t.Errorf("reload: %d %s", status, body)
	}
	p.terminate(t)
	for _, name := range []string{"tsdb", logPath(), "events.db"} {
		if _, err := os.Stat(filepath.Join(p.dataDir, name)); !os.IsNotExist(err) {
			t.Errorf("%s should not exist: %v", name, err)
		}
	}
}

// refusesQueries checks the endpoints and commands that read stores. They must say that nothing is
// stored here, in the form of errors that their clients expect.
func (p *process) refusesQueries(t *testing.T) {
	t.Helper()
	for _, path := range []string{"/api/v1/query?query=a", "/api/v1/labels", "/api/v1/events", "/api/v1/status/tsdb"} {
		r, err := http.Get("http://" + p.HTTP + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		var answer struct{ Status, ErrorType, Error string }
		if jsonErr := json.Unmarshal(body, &answer); err != nil || jsonErr != nil ||
			r.StatusCode != http.StatusNotImplemented ||
			answer.Status != "error" || !strings.Contains(answer.Error, "nothing is stored here") {
			t.Errorf("%s: %s %s (%v, %v)", path, r.Status, body, err, jsonErr)
		}
	}
	if status, body := p.post(t, "/api/v1/admin/snapshot"); status != http.StatusNotImplemented {
		t.Errorf("snapshot: %d %s", status, body)
	}
	for _, args := range [][]string{{"backup", filepath.Join(t.TempDir(), "backup")}, {"query", "a"}, {"events"}} {
		out, err := exec.Command(freshet, append(args, "--server", p.HTTP)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "not_stored: nothing is stored here") ||
			strings.Contains(string(out), "{") {
			t.Errorf("freshet %s: %v: %s", args[0], err, out)
		}
	}
}
