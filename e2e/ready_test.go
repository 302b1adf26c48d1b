package e2e

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/diagnose"
)

// readiness is the answer of /-/ready.
type readiness struct {
	Ready    bool   `json:"ready"`
	WaitsFor string `json:"waits_for"`
	Stores   *struct {
		Done  int      `json:"done"`
		Total int      `json:"total"`
		Now   []string `json:"now"`
	} `json:"stores"`
	Broken       int `json:"broken"`
	BrokenStores []struct {
		Tenant string `json:"tenant"`
		Store  string `json:"store"`
		Error  string `json:"error"`
		WayOut string `json:"way_out"`
	} `json:"broken_stores"`
}

func (p *process) readiness() (status int, r readiness, err error) {
	answer, err := http.Get("http://" + p.HTTP + "/-/ready")
	if err != nil {
		return 0, r, err
	}
	defer answer.Body.Close()
	return answer.StatusCode, r, json.NewDecoder(answer.Body).Decode(&r)
}

// mustWrite sends a request of remote write, which must be stored.
func (p *process) mustWrite(t *testing.T, m message) {
	t.Helper()
	if status, text, _, err := p.write(remoteWriteV2, pack(t, m)); err != nil || status != http.StatusNoContent {
		t.Fatalf("remote write: got %d %s, want 204; error %v", status, text, err)
	}
}

// TestReadyMeansReady checks that a server opens the stores that were in use before it reports that it
// is ready, after a stop and after a crash. Then the first query and the first write open no store and
// are as fast as later ones. Both once waited for the whole replay: 15 s for a million series.
func TestReadyMeansReady(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t), "--self-metrics=false")
	now := time.Now().UnixMilli()
	const requests, each = 110, 1000
	for r := range requests {
		names := make([]string, each)
		for i := range names {
			names[i] = fmt.Sprintf("ready_%d_%d", r, i)
		}
		p.mustWrite(t, requestV2(now, 1, names...))
	}
	increment(t, p, "ready.counter", 3)
	// The store of 1m opens with its first tile, which is stored at most 66 s from now.
	eventually(t, 2*time.Minute, "all three stores of the tenant are open", func() error {
		return p.expectOwn("freshet_store_open_databases", 3)
	})
	for _, stop := range []func(*process, *testing.T){(*process).kill, (*process).terminate} {
		stop(p, t)
		p = start(t, p.dataDir, "--self-metrics=false")
		if err := p.expectOwn("freshet_store_open_databases", 3); err != nil {
			t.Errorf("not all stores are open before the first query and write: %v", err)
		}
		if n, err := p.ownMetric("prometheus_tsdb_head_series"); err != nil || n < requests*each {
			t.Errorf("%v series are in memory, want at least %d; error %v", n, requests*each, err)
		}
		if err := p.expect("ready_7_7", 1, 0); err != nil {
			t.Errorf("the first query failed: %v", err)
		}
		p.mustWrite(t, requestV2(now+1, 2, "ready_0_0"))
		if err := p.expectOwn("freshet_store_open_databases", 3); err != nil {
			t.Errorf("the first query or write opened a store: %v", err)
		}
		p.says(t, "stores in use are open", "stores=3")
	}
}

func (p *process) expectOwn(name string, want float64) error {
	got, err := p.ownMetric(name)
	if err == nil && got != want {
		err = fmt.Errorf("%s is %v, want %v", name, got, want)
	}
	return err
}

// TestNotReadyWhileAStoreOpens checks what a server does while it opens a store: /-/ready says what
// the server waits for, requests that need a store are told to retry, datagrams are read, and the log
// shows the progress. A named pipe in the place of the store's WAL delays the opening.
func TestNotReadyWhileAStoreOpens(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	now := time.Now().UnixMilli()
	p.mustWrite(t, requestV2(now, 7, "held"))
	p.terminate(t)
	segment := filepath.Join(p.dataDir, "tsdb/default/raw/wal/00000000")
	content, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(segment); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(segment, 0o600); err != nil {
		t.Fatal(err)
	}

	address := freeAddress(t)
	p = begin(t, p.dataDir, serveCommand(p.dataDir, "--http-listen", address))
	p.HTTP = address
	eventually(t, startLimit, "/-/ready names the store that opens", func() error {
		status, r, err := p.readiness()
		if err == nil &&
			(status != http.StatusServiceUnavailable || r.Ready || r.Stores == nil ||
				!slices.Equal(r.Stores.Now, []string{"default/raw"})) {
			err = fmt.Errorf("/-/ready: %d %+v", status, r)
		}
		return err
	})
	if _, r, _ := p.readiness(); r.WaitsFor != "the stores that were in use are opened" || r.Stores.Total < 1 ||
		r.Stores.Done >= r.Stores.Total {
		t.Errorf("/-/ready: %+v", r)
	}
	status, text, header, err := p.write(remoteWriteV2, pack(t, requestV2(now+1, 8, "held")))
	if err != nil || status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" ||
		!strings.Contains(text, "/-/ready says what it waits for") {
		t.Errorf("a write: got %d %s, headers %v, error %v; want 503", status, text, header, err)
	}
	if _, err := p.get("/api/v1/query", url.Values{"query": {"held"}}); err == nil ||
		!strings.Contains(err.Error(), "503") {
		t.Errorf("a query: %v", err)
	}
	for _, path := range []string{"/-/healthy", "/metrics", "/api/v1/status/ledger"} {
		if _, err := p.get(path, nil); err != nil {
			t.Errorf("a request that needs no store failed: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(p.dataDir, "listening.json")); err == nil {
		t.Error("listening.json exists although the server is not ready")
	}
	p.Unixgram = filepath.Join(p.dataDir, "dgram.sock")
	increment(t, p, "meanwhile", 5)
	p.says(t, "not ready yet: stores in use are being opened", "default/raw")

	pipe, err := os.OpenFile(segment, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	// When the store opens, it reads the segment twice: first the pipe, and then the file that replaces
	// the pipe.
	if err := cmp.Or(os.Remove(segment), os.WriteFile(segment, content, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	p.waitReady(t)
	if status, r, err := p.readiness(); err != nil || status != http.StatusOK || !r.Ready || r.WaitsFor != "" ||
		r.Stores != nil {
		t.Errorf("after the start, /-/ready answers %d %+v, error %v; want 200 and ready", status, r, err)
	}
	if err := p.expect("held", 7, 0); err != nil {
		t.Error(err)
	}
	expectSoon(t, p, "meanwhile", 5)
	_ = os.Remove(segment) // so that neither a backup nor a stop waits for the pipe
}

// TestABrokenStore checks that a store with a missing WAL segment does little harm. The server starts
// and says what to do. Queries of the tenant's other stores are answered, with a warning. After the
// repair, the store opens without a restart, with all samples that the advice promised.
func TestABrokenStore(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	now := time.Now().UnixMilli()
	for i := range int64(3) { // each sample in a segment of its own
		p.mustWrite(t, requestV2(now+i, float64(i), fmt.Sprintf("broken_%d", i)))
		p.terminate(t)
		if i == 2 {
			break
		}
		p = start(t, p.dataDir)
	}
	segment := filepath.Join(p.dataDir, "tsdb/default/raw/wal/00000001")
	if err := os.Remove(segment); err != nil {
		t.Fatal(err)
	}
	p = start(t, p.dataDir)
	status, r, err := p.readiness()
	if err != nil || status != http.StatusOK || r.Broken != 1 || len(r.BrokenStores) != 1 {
		t.Fatalf("/-/ready: %d %+v %v", status, r, err)
	}
	b := r.BrokenStores[0]
	if b.Tenant != "default" || b.Store != "raw" || !strings.Contains(b.Error, "segments are not sequential") ||
		!strings.Contains(b.WayOut, "restore "+segment+" from a copy") {
		t.Errorf("/-/ready: %+v", b)
	}
	p.says(t, "a store cannot be opened", segment)
	if err := p.expectOwn("freshet_store_broken", 1); err != nil {
		t.Error(err)
	}
	status, text, header, err := p.write(remoteWriteV2, pack(t, requestV2(now+10, 1, "broken_0")))
	if err != nil || status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" ||
		!strings.Contains(text, "segments are not sequential") {
		t.Errorf("a write: %d %s %v", status, text, err)
	}
	increment(t, p, "whole", 4)
	expectSoon(t, p, "whole", 4)
	if w := p.warnings(t, "whole"); len(w) != 1 ||
		!strings.HasPrefix(w[0],
			"store raw of tenant default cannot be opened, so samples from remote write and OTLP are missing: ") {
		t.Errorf("unexpected warnings: %v", w)
	}
	found := diagnosis(t, "--server", p.HTTP)
	i := slices.IndexFunc(found.Causes, func(c diagnose.Cause) bool { return c.Name == diagnose.Stores })
	if i < 0 || found.Causes[i].Score != 1 || len(found.Causes[i].Evidence) != 1 ||
		!strings.Contains(fmt.Sprint(found.Causes[i].Evidence), segment) {
		t.Errorf("the causes are %+v, want the broken store", found.Causes)
	}

	if err := os.WriteFile(segment, nil, 0o600); err != nil { // as the error advises
		t.Fatal(err)
	}
	expectSoon(t, p, "broken_0", 0)
	expectSoon(t, p, "broken_2", 2)
	if results, err := p.query("broken_1"); err != nil || len(results) > 0 {
		t.Errorf("a query finds a sample of the missing segment: %v, error %v", results, err)
	}
	p.mustWrite(t, requestV2(now+11, 1, "broken_0"))
	if w := p.warnings(t, "whole"); len(w) > 0 {
		t.Errorf("after the repair, got warnings %v", w)
	}
	if status, r, err := p.readiness(); err != nil || status != http.StatusOK || r.Broken != 0 {
		t.Errorf("/-/ready: %d %+v %v", status, r, err)
	}
	if err := p.expectOwn("freshet_store_broken", 0); err != nil {
		t.Error(err)
	}

	// An operator moves the directory of an open store away. Writes still succeed, but would be
	// lost, so diagnose must report it.
	raw := filepath.Join(p.dataDir, "tsdb/default/raw")
	if err := os.Rename(raw, raw+"-away"); err != nil {
		t.Fatal(err)
	}
	found = diagnosis(t, "--server", p.HTTP)
	i = slices.IndexFunc(found.Causes, func(c diagnose.Cause) bool { return c.Name == diagnose.Stores })
	if i < 0 || found.Causes[i].Score != 1 ||
		!strings.Contains(fmt.Sprint(found.Causes[i].Evidence), "tenant default, store raw") ||
		!strings.Contains(fmt.Sprint(found.Causes[i].Evidence), "move the directory back to "+raw) {
		t.Errorf("the causes are %+v, want the moved store", found.Causes)
	}
	if err := os.Rename(raw+"-away", raw); err != nil {
		t.Fatal(err)
	}
}

// warnings returns the warnings in the answer to a query.
func (p *process) warnings(t *testing.T, expr string) []string {
	t.Helper()
	body, err := p.get("/api/v1/query", url.Values{"query": {expr}})
	var answer struct {
		Warnings []string `json:"warnings"`
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer.Warnings
}

// TestTheJournalIsGone checks that the server reports a missing journal if there are stores of tiles,
// as after a restore of only some files. It reports nothing at a first start, and after a regular stop
// or a crash.
func TestTheJournalIsGone(t *testing.T) {
	t.Parallel()
	const missing = "freshet_aggregator_journal_missing"
	p := start(t, dataDir(t))
	increment(t, p, "totals", 5)
	eventually(t, time.Minute, "tiles are stored", func() error {
		if n, err := p.metric(`freshet_store_samples_stored_total{store="10s"}`); err != nil || n == 0 {
			return fmt.Errorf("%v samples are stored, want some; error %v", n, err)
		}
		return nil
	})
	for _, stop := range []func(*process, *testing.T){(*process).kill, (*process).terminate} {
		if err := p.expectOwn(missing, 0); err != nil {
			t.Error(err)
		}
		stop(p, t)
		p = start(t, p.dataDir)
	}
	if err := p.expectOwn(missing, 0); err != nil {
		t.Error(err)
	}
	p.terminate(t)
	if err := os.RemoveAll(journalDir(p.dataDir)); err != nil {
		t.Fatal(err)
	}
	p = start(t, p.dataDir)
	p.says(t, "the journal is empty, but tiles were stored", "Totals of counters restart at 0")
	if err := p.expectOwn(missing, 1); err != nil {
		t.Error(err)
	}
	increment(t, p, "totals", 2)
	expectSoon(t, p, "totals", 2)
}

// TestAStopThatIsSignalledTwice checks that the server drains even if it gets two signals, as GNU
// timeout and supervisord send them. The second signal once ended the process at once. A request
// with an incomplete body delays the drain until both signals are sent; then it is answered.
func TestAStopThatIsSignalledTwice(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	conn, err := net.Dial("tcp", p.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	if _, err := fmt.Fprintf(conn,
		"POST /api/v1/write HTTP/1.1\r\nHost: %s\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n", p.HTTP); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} { // the server reads the request
		if got, err := answers.ReadString('\n'); err != nil || got != want {
			t.Fatalf("the answer begins with %q, want %q; error %v", got, want, err)
		}
	}
	p.signal(t, syscall.SIGTERM)
	p.signal(t, syscall.SIGINT) // at once; two equal signals could arrive as one
	eventually(t, stopLimit, "the stop has begun", func() error {
		c, err := net.Dial("tcp", p.HTTP)
		if err == nil {
			_ = c.Close()
			return errors.New("the server still accepts connections")
		}
		return nil
	})
	if _, err := conn.Write([]byte("bad\n")); err != nil {
		t.Fatal(err)
	}
	if got, err := answers.ReadString('\n'); err != nil || got != "HTTP/1.1 400 Bad Request\r\n" {
		t.Errorf("the request was answered with %q, want status 400; error %v", got, err)
	}
	select {
	case <-p.exited:
	case <-time.After(stopLimit):
		t.Fatal("the server still runs")
	}
	if p.err != nil {
		t.Errorf("the stop was not regular: %v", p.err)
	}
}
