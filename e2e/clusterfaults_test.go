package e2e

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/peer"
)

// everySeries selects the samples of the hour before a time, but for those of large requests.
const everySeries = `{__name__=~".+",__name__!~".+` + bulkSuffix + `"}[1h]`

// samples returns all samples of the hour before a time, by series.
func (p *process) samples(at time.Time) (map[string][]point, error) {
	var data struct {
		Result []result `json:"result"`
	}
	params := url.Values{"query": {everySeries}, "time": {at.UTC().Format(time.RFC3339Nano)}}
	if err := p.ask("/api/v1/query", params, &data); err != nil {
		return nil, err
	}
	all := map[string][]point{}
	for _, r := range data.Result {
		all[fmt.Sprint(r.Metric)] = r.Values
	}
	return all, nil
}

// equal is a check that waits until all nodes have the same samples, and at least one sample.
func (c *trio) equal() {
	c.t.Helper()
	at := time.Now()
	eventually(c.t, 30*time.Second, "the nodes have the same samples", func() error {
		want, err := c.nodes["a"].samples(at)
		if err == nil && len(want) == 0 {
			err = fmt.Errorf("node a has no samples")
		}
		for _, n := range c.names()[1:] {
			if err != nil {
				return err
			}
			var got map[string][]point
			if got, err = c.nodes[n].samples(at); err == nil {
				err = differ(want, got, n)
			}
		}
		return err
	})
}

// differ is a check that returns an error if a node's samples differ from the samples of node a.
func differ(want, got map[string][]point, node string) error {
	for _, series := range slices.Sorted(maps.Keys(want)) {
		if a, b := want[series], got[series]; !reflect.DeepEqual(a, b) {
			return fmt.Errorf("series %s: node a has %d samples, node %s has %d, or their values differ",
				series, len(a), node, len(b))
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("node a has %d series, but node %s has %d", len(want), node, len(got))
	}
	return nil
}

// otherSettings are limits, rules and times to live that a node has by mistake.
const otherSettings = `
aggregator: {gauge_ttl: 10s, counter_ttl: 10s, lateness: 4s}
distributor: {max_series: 100, max_label_value: 20}
limits: {max_series: 1000}
mapping: {rules: [{match: renamed, name: other}]}
store: {out_of_order: 20m}
`

// A node has other limits, rules and times to live than the two others. All decisions are in the log, so
// all nodes store the same, whichever node leads. The status names the sections that differ.
func TestNodesWithOtherSettings(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	if s, err := c.nodes["a"].clusterState(); err != nil || len(s.SettingsDiffer) != 0 {
		t.Errorf("with the same settings, the status is %+v, want no sections that differ; error %v", s, err)
	}
	c.nodes["b"].terminate(t)
	file := filepath.Join(t.TempDir(), "other.yaml")
	if err := os.WriteFile(file, []byte(otherSettings), 0o600); err != nil {
		t.Fatal(err)
	}
	c.extra = map[string][]string{"b": {"--config", file}}
	c.begin("b")
	w := c.startWriter("w", breathe, nodeNames...)
	var all []*increments
	for _, n := range nodeNames {
		all = append(all, c.startIncrements("unixgram", c.nodes[n].Unixgram, "hits", 2),
			c.startIncrements("unixgram", c.nodes[n].Unixgram, "renamed", 1))
	}
	leaders := map[string]bool{}
	for range 3 { // until node b has led
		reach(time.Now().Add(12 * time.Second)) // longer than a tile
		leader := c.leader()
		leaders[leader] = true
		if leader == "b" {
			break
		}
		c.lead("b", leader)
	}
	if !leaders["b"] {
		t.Errorf("the nodes %v have led, want node b among them", leaders)
	}
	for _, i := range all {
		i.stop()
	}
	w.stop()
	reach(time.Now().Add(13 * time.Second)) // longer than the times to live of node b
	for _, n := range nodeNames {
		w.check(n)
	}
	c.equal()
	c.statesAgree("c")
	for _, n := range nodeNames {
		var sections []string
		s, err := c.nodes[n].clusterState()
		for _, d := range s.SettingsDiffer {
			sections = append(sections, d.Section)
			if want := [][]string{{"a", "c"}, {"b"}}; !reflect.DeepEqual(d.Nodes, want) {
				t.Errorf("node %s: %+v", n, d)
			}
		}
		if want := []string{"aggregator", "distributor", "limits", "mapping", "store"}; !slices.Equal(sections, want) {
			t.Errorf("node %s says that the sections %v differ, want %v; error %v", n, sections, want, err)
		}
	}
	out, err := exec.Command(freshet, "cluster", "status", "--server", c.nodes["a"].HTTP).CombinedOutput()
	if want := "settings differ in the section limits: a, c | b\n"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("freshet cluster status: %v\n%s", err, out)
	}
}

// lead makes a node the leader: it stops the present leader, and pauses the third node meanwhile.
func (c *trio) lead(node, leader string) {
	c.t.Helper()
	for _, third := range nodeNames {
		if third == node || third == leader {
			continue
		}
		pid := c.nodes[third].cmd.Process.Pid
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			c.t.Fatal(err)
		}
		reach(time.Now().Add(4 * time.Second)) // until the leader treats the paused node as gone
		c.nodes[leader].terminate(c.t)
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			c.t.Fatal(err)
		}
	}
	c.begin(leader)
	c.caughtUp()
}

// If two of three nodes are down, the third one refuses writes. Its answers to queries name the time
// after which samples may be missing. When a second node is back, both continue without help.
func TestTwoOfThreeGone(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	w := c.startWriter("w", breathe, nodeNames...)
	reach(time.Now().Add(time.Second))
	w.stop()
	leader := c.leader()
	left := nodeNames[(slices.Index(nodeNames, leader)+1)%3]
	other := nodeNames[(slices.Index(nodeNames, leader)+2)%3]
	c.nodes[leader].kill(t)
	c.nodes[other].kill(t)
	p := c.nodes[left]

	begun := time.Now()
	body := pack(t, requestV2(time.Now().UnixMilli(), 1, "late"))
	status, text, header, err := p.writeWithin(time.Minute, remoteWriteV2, body)
	if took := time.Since(begun); err != nil || status != http.StatusServiceUnavailable || took > 12*time.Second {
		t.Errorf("after %[4]v, the answer to a write is %[1]d %[2]s, error %[3]v; want 503 within 12s",
			status, text, err, took)
	}
	if header.Get("X-Prometheus-Remote-Write-Samples-Written") != "0" {
		t.Errorf("the headers of the answer are %v, want no sample written", header)
	}
	_, err = p.query("w")
	if err == nil || !regexp.MustCompile(`samples after \d{4}-\d\d-\d\dT`).MatchString(err.Error()) ||
		!strings.Contains(err.Error(), "the group has no leader") {
		t.Errorf("the error of a query is %v, want the time of the missing samples, and that the group has no leader", err)
	}
	partial, err := p.get("/api/v1/query", url.Values{"query": {"w"}, "partial_response": {"true"}})
	if said := string(partial); err != nil || !strings.Contains(said, `"warnings":["`) ||
		!strings.Contains(said, "samples after ") || !strings.Contains(said, `"__name__":"w"`) {
		t.Errorf("the answer with partial_response=true is %s, error %v; want the samples, with a warning", partial, err)
	}
	if s, err := p.clusterState(); err != nil || s.Leader != "" {
		t.Errorf("the status is %+v, error %v; want no leader", s, err)
	}

	c.begin(other)
	eventually(t, 20*time.Second, "a write succeeds", func() error {
		status, text, _, err := p.write(remoteWriteV2, body)
		if err == nil && status/100 != 2 {
			err = fmt.Errorf("%d %s", status, text)
		}
		return err
	})
	if v, err := p.value("late"); err != nil || v != 1 {
		t.Errorf("the series named late has the value %v, want 1; error %v", v, err)
	}
	c.begin(leader)
	c.caughtUp()
	w.check(leader)
	c.equal()
}

// A collector that is killed while two of three nodes are down may lose only what it received in the
// last 1.5 s. A collector that is stopped normally loses nothing. The next process hands over the rest
// once the nodes are back, and nothing counts twice. If that process stops later, the status of the
// cluster no longer lists it.
func TestACollectorEndsWithoutALeader(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t, "d")
	dir, secret := dataDir(t), c.pushSecret()
	p := c.startCollectorIn(dir, secret)
	p.waitReady(t)
	early := c.startIncrements("unixgram", p.Unixgram, "early", fastIncrements)
	reach(time.Now().Add(2 * time.Second))
	gone := nodeNames[:2]
	for _, n := range gone {
		c.nodes[n].kill(t)
	}
	eventually(t, 30*time.Second, "the waiting windows are coalesced", func() error {
		n, err := p.ownMetric("freshet_outbox_coalesced_windows_total")
		if err == nil && n == 0 {
			err = errors.New("no window is coalesced")
		}
		return err
	})
	early.stop()
	last := c.startIncrements("unixgram", p.Unixgram, "last", fastIncrements)
	reach(time.Now().Add(1500 * time.Millisecond))
	p.kill(t)
	<-last.done // ends because the socket is removed

	p = c.startCollectorIn(dir, secret)
	p.waitReady(t)
	stopped := c.startIncrements("unixgram", p.Unixgram, "stopped", fastIncrements)
	reach(time.Now().Add(2 * time.Second))
	stopped.stop()
	p.terminate(t)

	p = c.startCollectorIn(dir, secret)
	p.waitReady(t)
	after := c.startIncrements("unixgram", p.Unixgram, "after", fastIncrements)
	reach(time.Now().Add(2 * time.Second))
	c.begin(gone...)
	c.counted("early", early)
	c.counted("stopped", stopped)
	c.counted("after", after)
	for _, n := range nodeNames {
		if v, err := c.nodes[n].value("sum(last) or vector(0)"); err != nil || v > last.sent {
			t.Errorf("node %s counted %v increments, want at most the %v that were sent; error %v", n, v, last.sent, err)
		}
	}
	c.equal()
	var ledger struct {
		Samples struct {
			Difference, Restored, Window float64
			HandedOver                   float64 `json:"handed_over"`
		}
	}
	eventually(t, 10*time.Second, "the collector's outbox is empty", func() error {
		if err := p.ask("/api/v1/status/ledger", nil, &ledger); err != nil {
			return err
		}
		if s := ledger.Samples; s.Difference != 0 || s.Window != 0 || s.Restored == 0 || s.HandedOver <= s.Restored {
			return fmt.Errorf(
				"the collector's ledger has %+v, want more samples handed over than restored, and no difference", s)
		}
		return nil
	})
	for _, running := range []bool{true, false} { // a stopped collector is no longer listed
		if !running {
			p.terminate(t)
		}
		for _, n := range nodeNames {
			eventually(t, 10*time.Second, fmt.Sprintf("node %s knows that the collector runs: %v", n, running), func() error {
				var status struct{ Collectors []struct{ Name string } }
				err := c.nodes[n].ask("/api/v1/status/cluster", nil, &status)
				if err == nil && (len(status.Collectors) == 1) != running {
					err = fmt.Errorf("the status lists the collectors %+v", status.Collectors)
				}
				return err
			})
		}
	}
}

// pushSecret makes the push secret, and returns the path of its file.
func (c *trio) pushSecret() (file string) {
	c.t.Helper()
	push, err := exec.Command(freshet, "cluster", "secret", "--push", "--cluster-secret-file", c.secret).Output()
	file = filepath.Join(c.t.TempDir(), "push")
	if err == nil {
		err = os.WriteFile(file, push, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return file
}

// startCollector starts a collector on machine d.
func (c *trio) startCollector(secretFile string) *process {
	c.t.Helper()
	return c.startCollectorIn(dataDir(c.t), secretFile)
}

func (c *trio) startCollectorIn(dir, secretFile string) *process {
	c.t.Helper()
	return c.startCollectorAt("d", dir, secretFile)
}

func (c *trio) startCollectorAt(machine, dir, secretFile string, more ...string) *process {
	c.t.Helper()
	m := c.machines[machine]
	serve := serveCommand(dir, append(c.flags(), "--role", "collector", "--cluster-secret-file", secretFile,
		"--http-listen", m.address+":0", "--dogstatsd-udp", m.address+":0", "--self-metrics=false")...)
	serve.Args = append(serve.Args, more...)
	return begin(c.t, dir, m.command(c.program(machine), serve.Args[1:]...))
}

// refusals returns how many calls and messages node a has refused for a reason.
func (c *trio) refusals(reason string) float64 {
	c.t.Helper()
	n, err := c.nodes["a"].ownMetric(`freshet_peer_refused_total{reason="` + reason + `"}`)
	if err != nil {
		c.t.Error(err)
	}
	return n
}

// refusesAnotherCluster checks that the cluster refuses the messages of a second cluster, and goes on. The
// second cluster is on machine d. It has the same secret, and two of its nodes have addresses of the first
// cluster. Its node does not start while it reaches the first cluster; so its start comes while it is cut off.
func (c *trio) refusesAnotherCluster() {
	t := c.t
	t.Helper()
	dir, m := dataDir(t), c.machines["d"]
	must(t, freshet, "cluster", "init", "--data-dir", dir, "--name", "c")
	address := func(machine string) string { return c.machines[machine].address + ":" + peerPort }
	nodes := "a=" + address("a") + ",b=" + address("b") + ",c=" + address("d")
	serve := serveCommand(dir, "--cluster-nodes", nodes, "--cluster-secret-file", c.secret, "--cluster-node", "c",
		"--http-listen", m.address+":0", "--distributor-otlp-grpc-listen", m.address+":0", "--dogstatsd-udp", "")
	out, err := m.command("timeout", append([]string{"60", serve.Path}, serve.Args[1:]...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Only one machine runs freshet cluster init") {
		t.Errorf("the node of a second cluster ended with %v, want an error that names the way out\n%s", err, out)
	}
	restore := m.cut()
	p := begin(t, dir, m.command(serve.Path, serve.Args[1:]...))
	eventually(t, 30*time.Second, "the node of a second cluster leads while it is cut off", func() error {
		out, err := exec.Command(freshet, "cluster", "status", "--json", "--server",
			"unix:"+filepath.Join(dir, "operator.sock")).Output()
		if err == nil && !strings.Contains(string(out), `"leader":"c"`) {
			err = fmt.Errorf("its status is %s", out)
		}
		return err
	})
	restore()
	eventually(t, 30*time.Second, "node a refuses a node of another cluster", func() error {
		if c.refusals("cluster") == 0 {
			return errors.New("no refusal is counted")
		}
		return nil
	})
	c.nodes["a"].says(t, "belongs to cluster")
	p.terminate(t)
	c.caughtUp()
}

// refusesStrangers checks that the nodes refuse and count a process with another secret, and a
// collector that calls a method which only nodes may call.
func (c *trio) refusesStrangers() {
	t := c.t
	t.Helper()
	refused := c.refusals
	push, err := peer.ReadSecret(c.pushSecret())
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := push.Collector("x")
	if err != nil {
		t.Fatal(err)
	}
	collector, err := peer.NewPeers(peer.Options{Name: "x", Collector: true, Credentials: credentials,
		Self: func() peer.Self { return peer.Self{} }, Registry: prometheus.NewRegistry(),
		Nodes:  map[string]string{"a": c.machines["a"].address + ":" + peerPort},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := collector.Leader(t.Context(), "a"); err != nil {
		t.Errorf("a collector's call for the leader failed: %v", err)
	}
	before := refused("permission")
	if _, err := collector.Status(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "push secret") {
		t.Errorf("a collector's call of a node's method returned %v, want an error about the push secret", err)
	}
	if after := refused("permission"); after != before+1 {
		t.Errorf("%v calls were refused, want 1", after-before)
	}

	other, err := exec.Command(freshet, "cluster", "secret").Output()
	file := filepath.Join(t.TempDir(), "other")
	if err == nil {
		err = os.WriteFile(file, other, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	stranger := c.startCollector(file)
	eventually(t, 30*time.Second, "a call without the secret is refused and counted", func() error {
		if n := refused("handshake") + refused("certificate"); n == 0 {
			return fmt.Errorf("no call was refused")
		}
		return nil
	})
	if err := stranger.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}
