package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// trio is a cluster of three nodes, each in a network namespace of its own.
type trio struct {
	t        *testing.T
	machines map[string]*machine
	dirs     map[string]string
	more     []string            // nodes beside nodeNames that the configuration names
	disks    map[string]*disk    // of nodes that have disks of their own
	secret   string              // path of the file with the cluster's secret
	extra    map[string][]string // additional flags, by node
	faults   map[string][]string // by node, the environment of a build with faults

	mu    sync.Mutex
	nodes map[string]*process // each node's latest process that became ready

	parted map[string]bool // nodes that are cut off or restarted, so that they may answer 503

	programs map[string]string // by machine; freshet if there is none
}

var nodeNames = []string{"a", "b", "c"}

const peerPort = "7126"

// startTrio founds a cluster, and waits until all three nodes vote.
func startTrio(t *testing.T, others ...string) *trio {
	t.Helper()
	return startTrioWith(t, nil, others...)
}

// startTrioWith is startTrio with more flags for each node.
func startTrioWith(t *testing.T, flags []string, others ...string) *trio {
	t.Helper()
	c := newTrio(t, others...)
	for _, n := range nodeNames {
		c.dirs[n], c.extra[n] = dataDir(t), flags
	}
	c.found()
	return c
}

// newTrio makes the machines of a cluster, and its secret.
func newTrio(t *testing.T, others ...string) *trio {
	t.Helper()
	c := &trio{t: t, machines: machines(t, append(slices.Clone(nodeNames), others...)...),
		dirs: map[string]string{}, extra: map[string][]string{}, disks: map[string]*disk{},
		faults: map[string][]string{}, nodes: map[string]*process{},
		secret: filepath.Join(t.TempDir(), "secret")}
	secret, err := exec.Command(freshet, "cluster", "secret").Output()
	if err == nil {
		err = os.WriteFile(c.secret, secret, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// found is a helper that founds the cluster in its data directories, and waits until all three nodes
// vote.
func (c *trio) found() {
	c.t.Helper()
	must(c.t, freshet, "cluster", "init", "--data-dir", c.dirs["a"], "--name", "a")
	c.begin(nodeNames...)
}

// node returns the latest process of a node. Goroutines of a test call it, too.
func (c *trio) node(name string) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name]
}

func (c *trio) setParted(node string, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parted == nil {
		c.parted = map[string]bool{}
	}
	c.parted[node] = is
}

func (c *trio) isParted(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parted[node]
}

// names returns the nodes that the configuration names.
func (c *trio) names() []string { return slices.Concat(nodeNames, c.more) }

// program returns the path of the freshet that runs on a machine.
func (c *trio) program(machine string) string { return cmp.Or(c.programs[machine], freshet) }

// flags returns the flags that each process of the cluster needs.
func (c *trio) flags() []string {
	var all []string
	for _, n := range c.names() {
		all = append(all, n+"="+c.machines[n].address+":"+peerPort)
	}
	return []string{"--cluster-nodes", strings.Join(all, ","), "--cluster-secret-file", c.secret}
}

// begin starts the processes of several nodes together, and waits until all are ready.
func (c *trio) begin(nodes ...string) {
	c.t.Helper()
	begun := map[string]*process{}
	for _, node := range nodes {
		begun[node] = c.start(node)
	}
	for node, p := range begun {
		c.becomesReady(node, p)
	}
}

// start starts the process of a node, and does not wait.
func (c *trio) start(node string) *process {
	c.t.Helper()
	m := c.machines[node]
	serve := serveCommand(c.dirs[node], append(c.flags(), "--cluster-node", node, "--cluster-join",
		"--http-listen", m.address+":0", "--distributor-otlp-grpc-listen", m.address+":0",
		"--dogstatsd-udp", m.address+":0", "--self-metrics=false")...)
	serve.Args = append(serve.Args, c.extra[node]...)
	if c.disks[node] != nil {
		serve.Args = append(serve.Args, "--cluster-min-free", "0") // disks are filled up to the end
	}
	if d := c.disks[node]; d != nil && d.frozen != "" {
		c.faults[node] = []string{"FRESHET_FAULT=frost", "FRESHET_FAULT_FROZEN=" + d.frozen}
	}
	cmd := m.command(c.program(node), serve.Args[1:]...)
	if environment := c.faults[node]; environment != nil {
		cmd = m.command(withFaults(c.t), serve.Args[1:]...)
		cmd.Env = append(cmd.Environ(), environment...)
	}
	return begin(c.t, c.dirs[node], cmd)
}

// state is the part of the answer of /api/v1/status/cluster that the tests read.
type state struct {
	Leader         string `json:"leader"`
	SettingsDiffer []struct {
		Section string     `json:"section"`
		Nodes   [][]string `json:"nodes"`
	} `json:"settings_differ"`
	Nodes []struct {
		Name    string   `json:"name"`
		Part    string   `json:"part"`
		Ready   bool     `json:"ready"`
		Applied *uint64  `json:"applied"`
		Lag     *float64 `json:"lag_seconds"`

		Damage *struct {
			What string `json:"what"`
		} `json:"damage"`

		Disk *struct {
			Short bool `json:"short"`
		} `json:"disk"`

		Digest     string   `json:"digest"`
		LogBytes   uint64   `json:"log_bytes"`
		Leaderless *float64 `json:"leaderless_seconds"`
		Ahead      *float64 `json:"ahead_seconds"`
		Version    string   `json:"version"`
	} `json:"nodes"`
}

func (p *process) clusterState() (s state, err error) {
	return s, p.ask("/api/v1/status/cluster", nil, &s)
}

// leader waits until the nodes agree on a leader, and returns it.
func (c *trio) leader() (leader string) {
	c.t.Helper()
	eventually(c.t, 30*time.Second, "the nodes agree on a leader", func() error {
		leader = ""
		for n, p := range c.nodes {
			s, err := p.clusterState()
			if err != nil {
				return err
			}
			if s.Leader == "" || leader != "" && s.Leader != leader {
				return fmt.Errorf("node %s says that %q leads, but another node says %q", n, s.Leader, leader)
			}
			leader = s.Leader
		}
		return nil
	})
	return leader
}

// caughtUp waits until all nodes are ready and each lags by less than a second.
func (c *trio) caughtUp() {
	c.t.Helper()
	eventually(c.t, time.Minute, "all nodes caught up", func() error {
		s, err := c.nodes["a"].clusterState()
		if err != nil {
			return err
		}
		for _, n := range s.Nodes {
			if !n.Ready || n.Lag == nil || *n.Lag > 1 {
				return fmt.Errorf("node %s is not ready, or lags: %+v", n.Name, n)
			}
		}
		return nil
	})
}

// statesAgree waits until a node has compared the states of all nodes, which must agree. The nodes
// compare their states every 64 entries, so statesAgree writes some entries.
func (c *trio) statesAgree(at string) {
	c.t.Helper()
	eventually(c.t, time.Minute, "the states of all nodes agree", func() error {
		for range 10 {
			_, _, _, err := c.nodes[at].write(remoteWriteV2, pack(c.t, requestV2(time.Now().UnixMilli(), 1, "agree")))
			if err != nil {
				return err
			}
		}
		s, err := c.nodes[at].clusterState()
		if err != nil {
			return err
		}
		for _, n := range s.Nodes {
			if n.Digest == "differs" {
				c.t.Fatalf("the state of node %s differs: %+v", n.Name, s)
			}
			if n.Digest != "agrees" || n.LogBytes == 0 || n.Leaderless == nil || *n.Leaderless != 0 || n.Ahead == nil ||
				math.Abs(*n.Ahead) > 1 || n.Version == "" {
				return fmt.Errorf("node %s: %+v", n.Name, n)
			}
		}
		return nil
	})
}

// writer sends samples by remote write, one request after the other, to its nodes in turn, and
// remembers the acknowledged samples. A request that fails is sent again to the next node, as a load
// balancer would do.
type writer struct {
	c       *trio
	name    string // name of the series
	nodes   []string
	after   func(value float64) // called after each acknowledgement
	quit    chan struct{}
	done    chan struct{}
	mu      sync.Mutex
	acked   map[int64]float64 // values by Unix milliseconds
	refused []string          // answers of 4xx

	unavailable []string      // answers of 5xx
	longest     time.Duration // longest time from the first try of a request to its acknowledgement
	tries       int           // largest number of failed tries of one request
	failure     string        // answer to the last of these tries
}

func (c *trio) startWriter(name string, after func(value float64), nodes ...string) *writer {
	w := &writer{c: c, name: name, nodes: nodes, after: after, quit: make(chan struct{}), done: make(chan struct{}),
		acked: map[int64]float64{}}
	go w.run()
	c.t.Cleanup(w.stop)
	return w
}

// breathe makes a writer pause after each acknowledgement. Without a pause, a writer takes the processors from other
// tests, and the times of its samples may run ahead of the clock.
func breathe(float64) { reach(time.Now().Add(10 * time.Millisecond)) }

func (w *writer) run() {
	defer close(w.done)
	at, value, node := time.Now().UnixMilli(), 0.0, 0
	for {
		last := time.Now()
		at, value = max(at+1, time.Now().UnixMilli()), value+1
		body := pack(w.c.t, requestV2(at, value, w.name))
		for tries := 1; ; tries++ {
			select {
			case <-w.quit:
				return
			default:
			}
			name := w.nodes[node%len(w.nodes)]
			status, text, _, err := w.c.node(name).writeWithin(senderWaits, remoteWriteV2, body)
			if err == nil && status/100 == 2 {
				w.note(func() {
					w.acked[at] = value
					w.longest = max(w.longest, time.Since(last))
				})
				w.after(value)
				break
			}
			if status/100 == 4 {
				w.note(func() { w.refused = append(w.refused, text) })
				break
			}
			node++
			w.note(func() {
				if status/100 == 5 && !w.c.isParted(name) {
					w.unavailable = append(w.unavailable, fmt.Sprintf("node %s: %d %s", name, status, text))
				}
				if tries >= w.tries {
					w.tries, w.failure = tries, fmt.Sprintf("%d %s %v", status, text, err)
				}
			})
			reach(time.Now().Add(20 * time.Millisecond))
		}
	}
}

func (w *writer) note(what func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	what()
}

func (w *writer) stop() {
	select {
	case <-w.quit:
	default:
		close(w.quit)
	}
	<-w.done
}

// check compares the acknowledged samples with the answer of a node. On a busy machine, the node may be without a
// leader for a moment, and then it gives no answer.
func (w *writer) check(node string) {
	t := w.c.t
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.refused) > 0 {
		t.Errorf("%d requests were refused, the first with: %s", len(w.refused), w.refused[0])
	}
	got := map[int64]float64{}
	var results []result
	eventually(t, 30*time.Second, "node "+node+" answers", func() (err error) {
		results, err = w.c.nodes[node].query(w.name + "[1h]")
		return err
	})
	for _, r := range results {
		for _, p := range r.Values {
			got[int64(p.T*1000+0.5)] = p.V
		}
	}
	missing := 0
	for at, v := range w.acked {
		if got[at] != v {
			missing++
		}
	}
	if missing > 0 || len(w.acked) == 0 {
		t.Errorf("node %s lacks %d of %d samples that were acknowledged", node, missing, len(w.acked))
	}
}

// increments is a sender: until it is stopped, it sends increments of a counter and values of a gauge to
// a socket.
type increments struct {
	quit chan struct{}
	done chan struct{}
	sent float64 // sum of the sent increments
	err  error
}

const (
	incrementsEvery = 2 * time.Millisecond
	fastIncrements  = 40 // increments in a datagram, so 20,000 a second
)

func (c *trio) startIncrements(network, address, name string, inDatagram int) *increments {
	i := &increments{quit: make(chan struct{}), done: make(chan struct{})}
	conn, err := net.Dial(network, address)
	if err != nil {
		c.t.Fatal(err)
	}
	datagram := []byte(strings.Repeat(name+":1|c|#host:\n", inDatagram) + name + "_reading:1|g|#host:")
	go func() {
		defer close(i.done)
		defer conn.Close()
		tick := time.NewTicker(incrementsEvery)
		defer tick.Stop()
		for {
			select {
			case <-i.quit:
				return
			case <-tick.C:
			}
			if _, i.err = conn.Write(datagram); i.err != nil {
				return
			}
			i.sent += float64(inDatagram)
		}
	}()
	c.t.Cleanup(i.stop)
	return i
}

func (i *increments) stop() {
	select {
	case <-i.quit:
	default:
		close(i.quit)
	}
	<-i.done
}

// ledgersClose checks that no node's own ledger has a difference, and that each node got as many samples
// as all nodes together handed over.
func (c *trio) ledgersClose() {
	c.t.Helper()
	// A sample counts as handed over once the acknowledgement has come, which may be later than it counts as collected.
	eventually(c.t, 30*time.Second, "the ledgers agree", func() error {
		of, handedOver := map[string]sumOfBooks{}, 0.0
		for _, n := range nodeNames {
			books, err := c.nodes[n].sumOfBooks(true)
			if err != nil {
				return err
			}
			of[n] = books
			handedOver += books.Samples.HandedOver
		}
		for n, b := range of {
			if s := b.Samples; s.Difference != 0 || s.Collected != handedOver || handedOver == 0 {
				return fmt.Errorf("the ledger of node %s has %+v, but all nodes together handed over %v samples", n, s,
					handedOver)
			}
		}
		return nil
	})
}

// Three nodes act as one Freshet: all return the same data, whichever node received it.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t)
	if s, err := c.nodes["b"].clusterState(); err != nil || s.Leader == "" || len(s.Nodes) != 3 {
		t.Errorf("the status is %+v, error %v, want three nodes with a leader", s, err)
	}
	for i, n := range nodeNames {
		status, text, header, err := c.nodes[n].write(remoteWriteV2,
			pack(t, requestV2(time.Now().UnixMilli()+int64(i), float64(i), "written_at_"+n)))
		if err != nil || status != 204 || header.Get("X-Prometheus-Remote-Write-Samples-Written") != "1" {
			t.Errorf("node %s answers a write with %d, %q, %v, error %v; want 204 and one sample written",
				n, status, text, header, err)
		}
		for _, reader := range nodeNames { // no wait is needed: a query itself waits for acknowledged samples
			if v, err := c.nodes[reader].value("written_at_" + n); err != nil || v != float64(i) {
				t.Errorf("a sample written at node %s and read at node %s has the value %v, want %d; error %v",
					n, reader, v, i, err)
			}
		}
	}
	var all []*increments
	for _, n := range nodeNames {
		all = append(all, c.startIncrements("unixgram", c.nodes[n].Unixgram, "hits", 2))
	}
	reach(time.Now().Add(3 * time.Second))
	c.counted("hits", all...)
	c.ledgersClose()
	c.statesAgree("b")
	hasMetricsOfAlerts(t, c.nodes["b"], "freshet_group_")
	hasMetricsOfAlerts(t, c.nodes["b"], "freshet_cluster_")
	hasMetricsOfAlerts(t, c.nodes["b"], "freshet_history_")
}

// counted is a check that stops the senders, and waits until each node has counted all that they sent.
func (c *trio) counted(name string, all ...*increments) {
	c.t.Helper()
	sent := 0.0
	for _, i := range all {
		i.stop()
		if i.err != nil {
			c.t.Error(i.err)
		}
		sent += i.sent
	}
	for _, n := range nodeNames {
		eventually(c.t, 30*time.Second, "node "+n+" has all increments", func() error {
			v, err := c.nodes[n].value(name)
			if err == nil && v != sent {
				err = fmt.Errorf("%v of %v increments are counted", v, sent)
			}
			return err
		})
	}
}

// If an operator confuses a node's directory, name or secret, the process ends with an error that
// names the fix.
func TestClusterMistakes(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := startTrio(t, "d")
	c.refusesStrangers()
	refused := func(name string, want string, dir string, args ...string) {
		t.Helper()
		serve := serveCommand(dir, args...)
		cmd := c.machines["d"].command(serve.Path, serve.Args[1:]...)
		timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		out, err := cmd.CombinedOutput()
		timer.Stop()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s\nwant %q", name, err, out, want)
		}
	}
	node := func(name string, more ...string) []string {
		return append(append(c.flags(), "--cluster-node", name), more...)
	}
	c.refusesAnotherCluster()
	refused("an emptied directory of a known name", "has another data directory already", dataDir(t),
		node("b", "--cluster-listen", "10.99.0.4:7126", "--cluster-join")...)
	refused("no cluster, and no join", "freshet cluster init", dataDir(t),
		node("a", "--cluster-listen", "10.99.0.4:7126")...)
	c.nodes["c"].terminate(t)
	stores := filepath.Join(c.dirs["c"], "tsdb")
	must(t, "mount", "--bind", stores, stores)
	refused("a mount of its own for the stores", stores+" is on another mount", c.dirs["c"],
		node("c", "--cluster-listen", "10.99.0.4:7126")...)
	must(t, "umount", stores)
	refused("a cluster's directory without --cluster flags", "--cluster-node", c.dirs["c"])
	refused("another node's directory", "is node c", c.dirs["c"], node("b", "--cluster-listen", "10.99.0.4:7126")...)
	flags := node("c", "--cluster-listen", "10.99.0.4:7126")
	refused("a collector's secret used by a node", "push secret", c.dirs["c"],
		append(flags, "--cluster-secret-file", c.pushSecret())...)
}
