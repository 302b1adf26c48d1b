package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// loaded is a cluster under load, for the tests of faults. In each of two tenants:
//   - a collector gets 10,000 increments a second of a counter, and values of a gauge;
//   - a sender of remote write (1.0 in one tenant, 2.0 in the other) sends samples in order, samples up to
//     28 minutes late, and new series, in 2.0 with start times.
//
// In addition, both senders of a pair send the same samples. For a writer, there is a reader at each
// node, which queries the node right after each acknowledgement. Senders use nodes that are ready, as
// behind a load balancer, and repeat a request until it is acknowledged. So at the end each node must
// have exactly what was sent.
type loaded struct {
	*trio
	collectors map[string]*process // by tenant
	slowed     bool                // a node had a slow link
	stops      int                 // orderly stops of leaders
	kept       []string            // output of leaders that could not hand over the lead at such a stop

	// The other fields belong to the present run: see start.
	name     string
	counters map[string]*increments // by tenant
	remotes  []*remote
	writer   *writer
	readers  *readers
	quit     chan struct{}
	running  sync.WaitGroup

	mu       sync.Mutex
	acked    int
	last     time.Time       // of an acknowledgement
	gap      time.Duration   // longest time without an acknowledgement since longestGap's call
	took     []time.Duration // from requests to their acknowledgements, since the last call of `times`
	failures []string        // answers of 5xx, except by nodes that are cut off
	refusals []string        // answers of 4xx
	ready    map[string]bool
	late     float64 // gauges that were too late before the run
	tries    int     // largest number of failed tries of one request
	failure  string  // failure of the last such try
}

// The tenants of the load. Each node has an address for the second tenant.
const (
	firstTenant  = "default"
	secondTenant = "blue"
	secondPort   = "7127"
)

// startCluster starts a cluster for a load: three nodes, each on a disk of its own, and a collector for each
// tenant on a machine of its own.
func startCluster(t *testing.T) *loaded {
	t.Helper()
	return startClusterOf(t, freshet)
}

// startClusterOf is startCluster with another program.
func startClusterOf(t *testing.T, program string) *loaded {
	t.Helper()
	l := newLoaded(t, program)
	l.foundLoaded()
	return l
}

// newLoaded returns a cluster that is not founded yet, with more nodes, which are spares.
func newLoaded(t *testing.T, program string, spares ...string) *loaded {
	t.Helper()
	l := &loaded{trio: newTrio(t, append([]string{"d", "e"}, spares...)...), collectors: map[string]*process{}}
	l.more, l.programs = spares, map[string]string{}
	for machine := range l.machines {
		l.programs[machine] = program
	}
	for _, n := range l.names() {
		l.disks[n] = newDisk(t)
		l.dirs[n] = l.disks[n].dir
		config := filepath.Join(t.TempDir(), n+".yaml")
		text := fmt.Sprintf("http: {listeners: [{listen: '%s:%s', tenant: %s}]}\n"+
			"distributor: {ha: {replica: __replica__, cluster: cluster}}\n", l.machines[n].address, secondPort, secondTenant)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l.extra[n] = []string{"--config", config}
	}
	return l
}

// foundLoaded founds the cluster, and starts a collector for each tenant.
func (l *loaded) foundLoaded() {
	l.t.Helper()
	l.found()
	l.begin(l.more...)
	secret := l.pushSecret()
	l.collectors[firstTenant] = l.startCollectorAt("d", dataDir(l.t), secret)
	l.collectors[secondTenant] = l.startCollectorAt("e", dataDir(l.t), secret, "--dogstatsd-tenant", secondTenant)
	for _, p := range l.collectors {
		p.waitReady(l.t)
	}
}

// at returns a copy of a node's process, with the node's address for a tenant.
func (l *loaded) at(node, tenant string) *process {
	p := *l.node(node)
	if tenant == secondTenant {
		p.HTTP = l.machines[node].address + ":" + secondPort
	}
	return &p
}

// start begins a run of the load. The names of its series begin with `name`.
func (l *loaded) start(name string) {
	l.t.Helper()
	l.name, l.quit, l.counters, l.remotes = name, make(chan struct{}), map[string]*increments{}, nil
	l.acked, l.last, l.gap, l.failures, l.refusals, l.tries, l.failure = 0, time.Now(), 0, nil, nil, 0, ""
	l.ready, l.late = map[string]bool{}, l.lateGauges()
	for _, n := range nodeNames {
		l.running.Go(func() { l.watch(n) })
	}
	for tenant, p := range l.collectors {
		l.counters[tenant] = l.startIncrements("unixgram", p.Unixgram, name+"_hits", fastIncrements/2)
	}
	for i, r := range []*remote{
		{name: "v1", kind: remoteWriteV1, tenant: firstTenant},
		{name: "v2", kind: remoteWriteV2, tenant: secondTenant},
		{name: "pair", kind: remoteWriteV1, tenant: firstTenant, replicas: []string{"one", "other"}},
	} {
		r.l, r.name, r.prefers, r.sent = l, name+"_"+r.name, i, map[string]map[int64]float64{}
		l.remotes = append(l.remotes, r)
		l.running.Go(r.run)
	}
	l.readers = &readers{l: l, name: name + "_read"}
	l.writer = l.startWriter(l.readers.name, func(value float64) {
		l.readers.ask(value)
		reach(time.Now().Add(50 * time.Millisecond))
	}, nodeNames...)
}

// longestGap returns the longest time without an acknowledgement of a sender since the last call.
func (l *loaded) longestGap() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	gap := max(l.gap, time.Since(l.last))
	l.gap, l.last = 0, time.Now()
	return gap
}

// times returns how long acknowledgements of remote write took since the last call.
func (l *loaded) times() (took []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	took, l.took = l.took, nil
	return took
}

// finish ends the run. Each node must then have exactly what was sent, and all nodes must have the same.
// If at least two nodes were in order at any time of the run, no sender may have got an answer of 5xx
// from a node that was not cut off, and no query may have failed twice.
func (l *loaded) finish(twoInOrder bool) {
	t := l.t
	t.Helper()
	close(l.quit)
	l.writer.stop()
	l.running.Wait()
	for _, i := range l.counters {
		i.stop()
		if i.err != nil {
			t.Error(i.err)
		}
	}
	for _, n := range l.names() {
		for tenant, i := range l.counters {
			eventually(t, time.Minute, "node "+n+" has all increments of tenant "+tenant, func() error {
				v, err := l.at(n, tenant).value(l.name + "_hits")
				if err == nil && v != i.sent {
					err = fmt.Errorf("%v of %v increments are counted", v, i.sent)
				}
				return err
			})
		}
		for _, r := range l.remotes {
			eventually(t, time.Minute, "node "+n+" has what was sent to "+r.name, func() error { return r.check(n) })
		}
		l.writer.check(n)
	}
	// In CI, a collector may get no processor for 2 s, and its gauges are too late after that time. Without two nodes
	// in order, no leader takes them in time.
	if late := l.lateGauges() - l.late; late > 0 && soak && twoInOrder {
		t.Errorf("%v values of gauges were too late, want none", late)
	} else if late > 0 {
		t.Logf("%v values of gauges were too late; while two nodes are in order, `make soak` allows none", late)
	}
	l.equal()
	l.statesAgree("a")
	report := func(what string, all []string) {
		if len(all) > 0 {
			t.Errorf("%s: %s: %d, the first one: %s", l.name, what, len(all), all[0])
		}
	}
	report("refused requests", l.refusals)
	report("queries that missed an acknowledged sample", l.readers.missed)
	if twoInOrder {
		if all := append(l.failures, l.writer.unavailable...); soak || len(all) > fewUnavailable {
			report("answers of 5xx", all)
		}
		if all := l.failedQueries(); soak || len(all) > fewFailed {
			report("queries that failed twice", all)
		}
	}
	if l.acked == 0 || l.readers.asked == 0 {
		t.Errorf("%s: %d requests were acknowledged and %d queries were sent, want some of both",
			l.name, l.acked, l.readers.asked)
	}
	t.Logf("%s: %d requests and %.0f + %.0f increments are on all nodes once; %d queries missed nothing, %d had to wait; "+
		"%d answers of 5xx", l.name, l.acked+len(l.writer.acked), l.counters[firstTenant].sent, l.counters[secondTenant].sent,
		l.readers.asked, len(l.readers.failed), len(l.failures)+len(l.writer.unavailable))
}

// failedQueries returns the queries that failed twice. Until a leader with a slow link has yielded, both followers may
// lag, and say so after 3 s: in a run with such a link, that may happen to one query of a thousand.
func (l *loaded) failedQueries() (failed []string) {
	var lagged []string
	for _, text := range l.readers.failed {
		if l.slowed && strings.Contains(text, "since this node lags behind") {
			lagged = append(lagged, text)
		} else {
			failed = append(failed, text)
		}
	}
	if len(lagged) > l.readers.asked/1000 {
		return append(failed, lagged...)
	}
	return failed
}

// equal is a check that waits until all nodes have the same samples in both tenants.
func (l *loaded) equal() {
	l.t.Helper()
	l.trio.equal()
	at := time.Now()
	eventually(l.t, 30*time.Second, "the nodes have the same samples of tenant "+secondTenant, func() error {
		want, err := l.at("a", secondTenant).samples(at)
		for _, n := range l.names()[1:] {
			if err != nil {
				return err
			}
			var got map[string][]point
			if got, err = l.at(n, secondTenant).samples(at); err == nil {
				err = differ(want, got, n)
			}
		}
		return err
	})
}

// readers query all nodes at once, right after each acknowledgement. A query that fails is sent once more, to
// another node that is ready, as a load balancer does.
type readers struct {
	l      *loaded
	name   string
	mu     sync.Mutex
	asked  int
	missed []string
	failed []string // queries that failed twice
}

func (r *readers) ask(value float64) {
	var wg sync.WaitGroup
	for i, n := range nodeNames {
		wg.Go(func() {
			at := n
			found, err := r.l.node(at).query(r.name)
			if first := err; first != nil {
				at = r.l.choose(i+1, n)
				if found, err = r.l.node(at).query(r.name); err != nil {
					err = fmt.Errorf("%w; before: %w", err, first)
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.asked++
			if err != nil && r.l.isParted(at) {
				return // as with answers of 5xx: the balancer does not know yet that the node is cut off
			}
			if err != nil {
				r.failed = append(r.failed, fmt.Sprintf("%v: node %s, then node %s: %v", value, n, at, err))
			} else if len(found) != 1 || found[0].Value.V != value {
				r.missed = append(r.missed, fmt.Sprintf("node %s returned %+v after %v was acknowledged", at, found, value))
			}
		})
	}
	wg.Wait()
}

// remote sends ten requests of remote write a second, one after the other. It repeats a request until it is
// acknowledged.
type remote struct {
	l        *loaded
	name     string
	kind     string // of the requests
	tenant   string
	replicas []string // names of a pair's senders; each sends every request
	prefers  int      // index of the node that gets the requests while that node is ready
	sent     map[string]map[int64]float64
}

const (
	latest    = 28 * time.Minute // near store.out_of_order
	startedAt = time.Second      // age of a new series
)

// single is a sample of a series with one or two labels.
type single struct {
	name, n   string
	at, start int64 // Unix milliseconds
	value     float64
}

func (r *remote) run() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := int64(1); ; i++ {
		select {
		case <-r.l.quit:
			return
		case <-tick.C:
		}
		now, value := time.Now().UnixMilli(), float64(i)
		samples := []single{{name: r.name, at: now, value: value}}
		late := now - 1000 - i*97_003%latest.Milliseconds()
		if _, twice := r.sent[r.name+"_late/"][late]; !twice {
			samples = append(samples, single{name: r.name + "_late", at: late, value: value})
		}
		if i%10 == 1 {
			samples = append(samples, single{name: r.name + "_new", n: strconv.FormatInt(i, 10), at: now, value: value,
				start: now - startedAt.Milliseconds()})
		}
		for _, s := range samples {
			r.note(s, s.at, s.value)
			if s.start != 0 && r.kind == remoteWriteV2 {
				r.note(s, s.start, 0)
			}
		}
		if len(r.replicas) == 0 {
			r.send(samples)
		}
		for _, replica := range r.replicas {
			r.send(samples, "cluster", "pair", "__replica__", replica)
		}
	}
}

func (r *remote) note(s single, at int64, value float64) {
	key := s.name + "/" + s.n
	if r.sent[key] == nil {
		r.sent[key] = map[int64]float64{}
	}
	r.sent[key][at] = value
}

// senderWaits is longer than a node waits for a leader, so that a sender sees the 503.
const senderWaits = 12 * time.Second

// send sends a request until it is acknowledged. After a failure it sends the request to another node.
func (r *remote) send(samples []single, more ...string) {
	symbols, m := writev2.NewSymbolTable(), &writev2.Request{}
	for _, s := range samples {
		all := append([]string{"__name__", s.name}, more...)
		if s.n != "" {
			all = append(all, "n", s.n)
		}
		m.Timeseries = append(m.Timeseries, writev2.TimeSeries{
			LabelsRefs: symbols.SymbolizeLabels(labels.FromStrings(all...), nil),
			Samples:    []writev2.Sample{{Timestamp: s.at, Value: s.value, StartTimestamp: s.start}},
		})
	}
	m.Symbols = symbols.Symbols()
	var of message = m
	if r.kind == remoteWriteV1 {
		of = v1Of(m)
	}
	body, node := pack(r.l.t, of), ""
	for tries := 1; ; tries++ {
		node = r.l.choose(r.prefers+tries-1, node)
		begun := time.Now()
		status, text, _, err := r.l.at(node, r.tenant).writeWithin(senderWaits, r.kind, body)
		if err == nil && r.l.answered(node, status, text, time.Since(begun)) {
			return
		}
		r.l.failed(tries, fmt.Sprintf("node %s: %d %s %v", node, status, text, err))
		select {
		case <-r.l.t.Context().Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// choose returns the first ready node from an index on, as a load balancer does.
func (l *loaded) choose(from int, failed string) (node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range nodeNames {
		if node = nodeNames[(from+i)%len(nodeNames)]; node != failed && l.ready[node] {
			return node
		}
	}
	if node = nodeNames[from%len(nodeNames)]; node == failed {
		node = next(node)
	}
	return node
}

// watch notes from time to time whether a node is ready.
func (l *loaded) watch(node string) {
	client := http.Client{Timeout: time.Second}
	for {
		answer, err := client.Get("http://" + l.node(node).HTTP + "/-/ready")
		if err == nil {
			_ = answer.Body.Close()
		}
		l.mu.Lock()
		l.ready[node] = err == nil && answer.StatusCode == http.StatusOK
		l.mu.Unlock()
		select {
		case <-l.quit:
			return
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// answered notes a node's answer to a request, and reports whether the request is done.
func (l *loaded) answered(node string, status int, text string, took time.Duration) bool {
	parted := l.isParted(node)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch status / 100 {
	case 2:
		l.gap = max(l.gap, time.Since(l.last))
		l.last = time.Now()
		l.acked++
		l.took = append(l.took, took)
	case 5:
		if !parted {
			l.failures = append(l.failures, fmt.Sprintf("node %s: %d %s", node, status, text))
		}
		return false
	default:
		l.refusals = append(l.refusals, fmt.Sprintf("node %s: %d %s", node, status, text))
	}
	return true
}

// fewUnavailable is how many answers of 5xx CI allows of several hundred requests. A node waits 5 s until another one
// leads in its place, and 10 s for any leader; on the busy machine of CI that may take longer: see shortGap.
const fewUnavailable = 10

// fewFailed is how many queries may fail at two nodes in a row in CI. A query waits 3 s until a node knows that it has
// everything. On a busy machine, a change of the leader took 6 s.
const fewFailed = 2

func (l *loaded) failed(tries int, failure string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if tries >= l.tries {
		l.tries, l.failure = tries, failure
	}
}

// check compares what a node has with what was sent.
func (r *remote) check(node string) error {
	results, err := r.l.at(node, r.tenant).query(fmt.Sprintf(`{__name__=~"%s(_late|_new)?"}[2h]`, r.name))
	if err != nil {
		return err
	}
	got := map[string]map[int64]float64{}
	for _, s := range results {
		values := map[int64]float64{}
		for _, p := range s.Values {
			values[int64(p.T*1000+0.5)] = p.V
		}
		got[s.Metric["__name__"]+"/"+s.Metric["n"]] = values
	}
	for _, series := range slices.Sorted(maps.Keys(r.sent)) {
		for at, v := range r.sent[series] {
			if stored, is := got[series][at]; !is || stored != v {
				return fmt.Errorf("%s: the value at %d is %v (sample found: %t), want %v", series, at, stored, is, v)
			}
		}
	}
	if !reflect.DeepEqual(got, r.sent) {
		return fmt.Errorf("%s: the node has more than was sent: %d series, want %d", r.name, len(got), len(r.sent))
	}
	return nil
}
