// Package e2e tests the real binary from outside. Clients of other authors send to its sockets, and
// PromQL queries check the result.
package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// freshet is the path of the binary that TestMain built.
var freshet string

// soak is true for the long versions of tests: `make soak`.
var soak = os.Getenv("FRESHET_SOAK") != ""

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	if freshet = os.Getenv(insideVariable); freshet != "" { // see inNamespace
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "freshet-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	freshet = filepath.Join(dir, "freshet")
	// The binary is stripped and without C, like a release: roots of pods have no library. With the tag
	// poison, it overwrites released buffers, so that a use after release becomes visible.
	build := exec.Command("go", "build", "-C", "..", "-tags", "poison", "-ldflags", "-s -w", "-o", freshet,
		"./cmd/freshet")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build freshet: %v\n%s", err, out)
		return 1
	}
	// Most tests wait for tiles or processes, so more of them run at once than there are processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

const (
	startLimit = time.Minute      // a start replays the journal, perhaps on a busy machine
	stopLimit  = 30 * time.Second // about as long as init systems wait
)

// listening is the content of <data-dir>/listening.json.
type listening struct {
	HTTP     string `json:"http"`
	OTLPGRPC string `json:"otlp_grpc"`
	UDP      string `json:"dogstatsd_udp"`
	Unixgram string `json:"dogstatsd_unixgram"`
	Unix     string `json:"dogstatsd_unix"`
}

// groupVariable is an environment variable that makes a server a group of one. The servers inherit the
// environment of the tests.
const groupVariable = "FRESHET_GROUP_OF_ONE"

// withoutGroup returns an environment without groupVariable, for a server that is in no group.
func withoutGroup(environment []string) []string {
	return slices.DeleteFunc(environment, func(v string) bool { return strings.HasPrefix(v, groupVariable+"=") })
}

// These are the paths of a server's journal, below its data directory. A group of one has its log and
// its checkpoints in the place of a journal.
const (
	journalPath = "journal"
	groupPath   = "groups/0"
)

// logPath returns the path of the journal for the servers of this run.
func logPath() string {
	if os.Getenv(groupVariable) != "" {
		return groupPath
	}
	return journalPath
}

func journalDir(dataDir string) string { return filepath.Join(dataDir, logPath()) }

// process is a running freshet.
type process struct {
	listening
	dataDir string
	cmd     *exec.Cmd
	output  *output
	exited  chan struct{} // closed when the process has ended and err is set
	err     error
}

// output collects the output of a process.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// dataDir returns a new directory whose path is short enough for a Unix socket. The path of
// t.TempDir has the test's name in it and may be too long.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fe2e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// start runs freshet in a data directory, on ports that the kernel chooses, and waits until it is
// ready. The process is killed when the test ends; if the test failed, its output is logged.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return launch(t, dir, serveCommand(dir, args...))
}

func serveCommand(dir string, args ...string) *exec.Cmd {
	return exec.Command(freshet, append([]string{"serve", "--data-dir", dir,
		"--http-listen", "127.0.0.1:0", "--distributor-otlp-grpc-listen", "127.0.0.1:0", "--dogstatsd-udp", "127.0.0.1:0",
		"--dogstatsd-unixgram", filepath.Join(dir, "dgram.sock"),
		"--dogstatsd-unix", filepath.Join(dir, "stream.sock")}, args...)...)
}

// launch runs a command that is or becomes freshet, and waits until it is ready. Probes are off.
func launch(t *testing.T, dir string, cmd *exec.Cmd) *process {
	t.Helper()
	p := begin(t, dir, cmd)
	p.waitReady(t)
	return p
}

// begin runs a command as launch does, but does not wait.
func begin(t *testing.T, dir string, cmd *exec.Cmd) *process {
	t.Helper()
	chosen := filepath.Join(dir, "listening.json")
	if err := os.Remove(chosen); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	p := &process{dataDir: dir, cmd: cmd, output: &output{}, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	// Probes would disturb tests that count samples. A flag can turn them on.
	cmd.Env = append(cmd.Env, "FRESHET_SELF_PROBE=false")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // ends the process even if the test times out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("process %d printed:\n%s", p.cmd.Process.Pid, p.output)
		}
	})
	return p
}

// waitReady waits until the process is ready, and reads its addresses.
func (p *process) waitReady(t *testing.T) {
	t.Helper()
	eventually(t, startLimit, "freshet is ready", func() error {
		select {
		case <-p.exited:
			t.Fatalf("freshet ended before it was ready: %v\n%s", p.err, p.output)
		default:
		}
		b, err := os.ReadFile(filepath.Join(p.dataDir, "listening.json"))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(b, &p.listening); err != nil {
			return err
		}
		_, err = p.get("/-/ready", nil)
		return err
	})
}

// says is a check that waits until the process has printed each of the texts. A log line may come some
// milliseconds after its event.
func (p *process) says(t *testing.T, texts ...string) {
	t.Helper()
	eventually(t, 30*time.Second, "the process has printed the expected text", func() error {
		said := p.output.String()
		for _, text := range texts {
			if !strings.Contains(said, text) {
				return fmt.Errorf("no %q in the output:\n%s", text, said)
			}
		}
		return nil
	})
}

// terminate sends SIGTERM, waits until the process has ended, and checks its exit code.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.exited:
	case <-time.After(stopLimit):
		t.Fatalf("freshet still runs %v after SIGTERM", stopLimit)
	}
	if p.err != nil {
		t.Fatalf("after SIGTERM: %v", p.err)
	}
}

// kill ends the process by SIGKILL, as a crash would.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.exited
}

// get returns the body of an answer, whose status must be 200.
func (p *process) get(path string, params url.Values) ([]byte, error) {
	u := url.URL{Scheme: "http", Host: p.HTTP, Path: path, RawQuery: params.Encode()}
	client := http.Client{Timeout: 10 * time.Second}
	r, err := client.Get(u.String())
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %s", &u, r.Status, body)
	}
	return body, nil
}

// ask decodes the data of an answer in Prometheus' envelope.
func (p *process) ask(path string, params url.Values, data any) error {
	body, err := p.get(path, params)
	if err != nil {
		return err
	}
	envelope := struct {
		Status string          `json:"status"`
		Data   json.RawMessage `json:"data"`
	}{}
	if err := json.Unmarshal(body, &envelope); err != nil {
		return fmt.Errorf("%s: %w in %s", path, err, body)
	}
	if envelope.Status != "success" {
		return fmt.Errorf("%s: %s", path, body)
	}
	return json.Unmarshal(envelope.Data, data)
}

// point is a time in Unix seconds and a value.
type point struct {
	T, V float64
}

func (p *point) UnmarshalJSON(b []byte) error {
	var v string
	if err := json.Unmarshal(b, &[]any{&p.T, &v}); err != nil {
		return err
	}
	var err error
	p.V, err = strconv.ParseFloat(v, 64)
	return err
}

// result is one series of an answer. An instant vector has Value, a matrix has Values.
type result struct {
	Metric map[string]string `json:"metric"`
	Value  point             `json:"value"`
	Values []point           `json:"values"`
}

// query evaluates `expr` now.
func (p *process) query(expr string) ([]result, error) {
	var data struct {
		Result []result `json:"result"`
	}
	if err := p.ask("/api/v1/query", url.Values{"query": {expr}}, &data); err != nil {
		return nil, err
	}
	return data.Result, nil
}

// value evaluates `expr` now. The result must be one series.
func (p *process) value(expr string) (float64, error) {
	results, err := p.query(expr)
	if err != nil {
		return 0, err
	}
	if len(results) != 1 {
		return 0, fmt.Errorf("%s: %d series, want one: %v", expr, len(results), results)
	}
	return results[0].Value.V, nil
}

// ownMetric returns the sum of all series of one of the process's own metrics, from /metrics.
func (p *process) ownMetric(name string) (sum float64, err error) {
	body, err := p.get("/metrics", nil)
	if err != nil {
		return 0, err
	}
	found := false
	for line := range strings.Lines(string(body)) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || rest == "" || (rest[0] != ' ' && rest[0] != '{') {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("/metrics has no %s", name)
	}
	return sum, nil
}

// eventually calls `cond` until it returns nil. After the time `limit` it fails the test with the
// last error.
func eventually(t *testing.T, limit time.Duration, what string, cond func() error) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for {
		err := cond()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not true after %v: %s: %v", limit, what, err)
		}
	}
}

// reach waits until the time `at`.
func reach(at time.Time) { <-time.After(time.Until(at)) }
