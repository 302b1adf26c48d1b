package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// One machine founds a cluster with its data, after a stop or a kill. The group then has everything that was
// acknowledged: queries answer as before, counters go on, repeats stay known, and the ledger closes.
func TestOneMachineFoundsACluster(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	f := &founder{t: t, machines: machines(t, "a", "b"), secret: filepath.Join(t.TempDir(), "secret")}
	secret, err := exec.Command(freshet, "cluster", "secret").Output()
	if err == nil {
		err = os.WriteFile(f.secret, secret, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []func(*process, *testing.T){(*process).terminate, (*process).kill} {
		f.dir = dataDir(t)
		p := f.begin()
		f.first(p)
		before := f.answers(p)
		end(p, t)
		said, err := exec.Command(freshet, "cluster", "init", "--data-dir", f.dir, "--name", "a").CombinedOutput()
		if err != nil || !strings.Contains(string(said), "Other nodes may join it then") {
			t.Fatalf("freshet cluster init: %v\n%s", err, said)
		}
		p = f.begin(f.node("a")...)
		if after := f.answers(p); !reflect.DeepEqual(after, before) {
			t.Errorf("in the cluster, the answers are\n%v\nwant the answers before\n%v", after, before)
		}
		f.hasNoJournal()
		f.more(p)
		if s, err := p.clusterState(); err != nil || s.Leader != "a" {
			f.t.Errorf("the state of the cluster is %+v, error %v; want leader a", s, err)
		}
		p.kill(t)
		f.leavesJournal()
		p = f.begin(f.node("a")...)
		f.total(p, "hits", 11)
		f.hasNoJournal()
		p.terminate(t)
	}
}

// founder is a machine that founds a cluster with its data.
type founder struct {
	t        *testing.T
	machines map[string]*machine
	dir      string
	secret   string
	at       time.Time // time of the first samples
	deltas   string    // a request of OTLP
}

// begin starts the server of machine a. Without flags the server is in no group, even if the tests run
// with groupVariable.
func (f *founder) begin(flags ...string) *process {
	f.t.Helper()
	m := f.machines["a"]
	serve := serveCommand(f.dir, append(flags, "--http-listen", m.address+":0",
		"--distributor-otlp-grpc-listen", m.address+":0", "--dogstatsd-udp", "", "--self-metrics=false")...)
	cmd := m.command(serve.Path, serve.Args[1:]...)
	cmd.Env = withoutGroup(cmd.Environ())
	return launch(f.t, f.dir, cmd)
}

// node returns the flags of a node.
func (f *founder) node(name string) []string {
	return []string{"--cluster-node", name, "--cluster-join", "--cluster-secret-file", f.secret, "--cluster-nodes",
		"a=" + f.machines["a"].address + ":" + peerPort + ",b=" + f.machines["b"].address + ":" + peerPort}
}

// first is a helper that writes samples of all kinds. When it returns, some of them are stored, and
// others are not.
func (f *founder) first(p *process) {
	f.t.Helper()
	f.at = time.Now()
	sendOne(f.t, p, "hits:4|c", "level:3|g")
	f.writes(p, f.at, 7, http.StatusNoContent)
	f.deltas = fmt.Sprintf(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"orders","sum":{
		"aggregationTemporality":1,"isMonotonic":true,
		"dataPoints":[{"asInt":"5","timeUnixNano":"%d"}]}}]}]}]}`, f.at.UnixNano())
	f.posts(p)
	eventually(f.t, time.Minute, "tiles are stored", func() error {
		b, _, err := p.ledger()
		if err == nil && b.Samples.Stored < 3 {
			err = fmt.Errorf("%d samples are stored, want at least 3", b.Samples.Stored)
		}
		return err
	})
	sendOne(f.t, p, "hits:6|c", "level:2|g")
	f.total(p, "hits", 10)
}

// writes sends one sample by remote write, and expects the status `want`.
func (f *founder) writes(p *process, at time.Time, v float64, want int) {
	f.t.Helper()
	status, text, _, err := p.write(remoteWriteV2, pack(f.t, requestV2(at.UnixMilli(), v, "written")))
	if err != nil || status != want {
		f.t.Errorf("a sample of %v is answered with %d %s, error %v; want %d", at, status, text, err, want)
	}
}

// posts sends the deltas.
func (f *founder) posts(p *process) {
	f.t.Helper()
	answer, err := http.Post("http://"+p.HTTP+"/v1/metrics", "application/json", strings.NewReader(f.deltas))
	if err != nil {
		f.t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		f.t.Errorf("deltas are answered with %s %s, error %v; want 200", answer.Status, text, err)
	}
}

// total waits until a counter has the total `want`.
func (f *founder) total(p *process, name string, want float64) {
	f.t.Helper()
	eventually(f.t, 30*time.Second, "the total is right", func() error {
		return errors.Join(p.expect(name, want, 0), p.expect("increase("+name+"[10m] anchored)", want, 0))
	})
}

// answers returns what the server answers to some queries.
func (f *founder) answers(p *process) map[string]any {
	f.t.Helper()
	all := map[string]any{}
	for _, expr := range []string{"hits", "level", "orders_total", "increase(hits[10m] anchored)"} {
		v, err := p.value(expr)
		if err != nil {
			f.t.Errorf("%s: %v", expr, err)
		}
		all[expr] = v
	}
	written, err := p.query("written[1h]")
	if err != nil {
		f.t.Error(err)
	}
	all["written"] = written
	return all
}

// more is a helper that writes further samples, and repeats the first ones.
func (f *founder) more(p *process) {
	f.t.Helper()
	f.writes(p, f.at.Add(-2*time.Hour), 1, http.StatusBadRequest) // too old: the group knows the newest sample
	sendOne(f.t, p, "hits:1|c")
	f.posts(p)
	f.writes(p, f.at, 7, http.StatusNoContent)  // a repeat
	f.writes(p, f.at, 8, http.StatusBadRequest) // another value for the same time
	f.writes(p, f.at.Add(time.Second), 9, http.StatusNoContent)
	f.total(p, "hits", 11)
	f.total(p, "orders_total", 5)
	if v, err := p.value("count_over_time(written[1h])"); err != nil || v != 2 {
		f.t.Errorf("%v samples are stored by remote write, error %v; want 2", v, err)
	}
	eventually(f.t, time.Minute, "the ledger closes", func() error {
		b, _, err := p.ledger()
		if err == nil && (b.Samples.Difference != 0 || b.Samples.Restored == 0 || b.Samples.Tile > 0) {
			err = fmt.Errorf("the ledger is %+v, want restored samples, none in tiles, no difference", b)
		}
		return err
	})
}

// leavesJournal leaves a part of a journal, as if its removal had been interrupted.
func (f *founder) leavesJournal() {
	f.t.Helper()
	dir := filepath.Join(f.dir, journalPath)
	err := os.Mkdir(dir, 0o750)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "00000000000000000001.segment"), []byte("FRSHJRNL"), 0o640)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *founder) hasNoJournal() {
	f.t.Helper()
	if _, err := os.Stat(filepath.Join(f.dir, journalPath)); !errors.Is(err, os.ErrNotExist) {
		f.t.Errorf("the journal is still there: %v", err)
	}
}
