package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// order is the input of a client script. The script sends each operation to the address, or to the
// tap if the operation has a sampling rate, and prints what it sent.
type order struct {
	Network    string      `json:"network"` // udp, unixgram or unix
	Address    string      `json:"address"`
	Tap        string      `json:"tap"`
	Operations []operation `json:"operations"`
}

type report struct {
	Client string      `json:"client"` // name and version
	Sent   []operation `json:"sent"`
}

// operation is a call of a client's method. If it has values, there is one call for each value.
type operation struct {
	// One of count, updown, gauge, timing, histogram, distribution, set, event and check. updown is a
	// count that a rule turns into an up/down counter.
	Method  string    `json:"method"`
	Name    string    `json:"name"`
	Tags    []string  `json:"tags"`
	Rate    float64   `json:"rate"`
	Values  []float64 `json:"values"`
	Members []string  `json:"members"` // the members of a set

	// Fields of a check.
	Status  int    `json:"status"`
	Message string `json:"message"`

	// Fields of an event.
	Title    string `json:"title"`
	Text     string `json:"text"`
	Alert    string `json:"alert"`
	Key      string `json:"key"`
	Source   string `json:"source"`
	Priority string `json:"priority"`
	Host     string `json:"host"`
}

// client is a client library in one mode on one kind of socket.
type client struct {
	name    string // prefix of the names that the client sends
	network string
	send    func(t *testing.T, o order) report
}

var clients = []client{
	{"python.udp", "udp", python},
	{"python.unixgram", "unixgram", python},
	{"python.unix-stream", "unix", python},
	{"node.udp", "udp", node},
	{"node.unixgram", "unixgram", node}, // hot-shots does not support framed streams
	{"go.plain.udp", "udp", goClient(plain)},
	{"go.plain.unixgram", "unixgram", goClient(plain)},
	{"go.plain.unix-stream", "unix", goClient(plain)},
	{"go.aggregated.udp", "udp", goClient(aggregated)},
	{"go.aggregated.unixgram", "unixgram", goClient(aggregated)},
	{"go.extended.udp", "udp", goClient(extended)},
	{"go.extended.unixgram", "unixgram", goClient(extended)},
	{"go.extended.unix-stream", "unix", goClient(extended)},
}

func python(t *testing.T, o order) report {
	return script(t, o, "../.cache/venv/bin/python", "clients/python/send.py")
}

func node(t *testing.T, o order) report {
	if _, err := os.Stat("clients/node/node_modules/hot-shots"); err != nil {
		t.Fatalf("hot-shots is not installed; `make test` installs it: %v", err)
	}
	return script(t, o, "node", "clients/node/send.js")
}

func script(t *testing.T, o order, interpreter, name string) (r report) {
	t.Helper()
	if strings.Contains(interpreter, "/") {
		abs, err := filepath.Abs(interpreter)
		if err != nil {
			t.Fatal(err)
		}
		interpreter = abs
	}
	in, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), interpreter, name)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run %s %s: %v; `make test` installs the clients\n%s", interpreter, name, err, &stderr)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%s printed %s: %v", name, out, err)
	}
	return r
}

// TestClients checks that queries return what every client sent, for every kind of metric. The test
// queries three times: at once, from the open tiles; when the tiles are stored; and after a restart.
func TestClients(t *testing.T) {
	t.Parallel() // the test mostly waits for tiles
	dir := dataDir(t)
	file := filepath.Join(dir, "freshet.yaml")
	if err := os.WriteFile(file, []byte(clientRules), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "--config", file)
	var runs []*run
	for _, c := range clients {
		runs = append(runs, sendInOneTile(t, p, c))
	}
	check := func(t *testing.T) {
		for _, r := range runs {
			t.Run(r.client.name, func(t *testing.T) { r.check(t, p) })
		}
	}
	t.Run("live", check)
	reach(runs[len(runs)-1].tileEnd.Add(5 * time.Second)) // allows for lateness, a window, and a busy machine
	t.Run("stored", check)
	p.terminate(t)
	p = start(t, p.dataDir, "--config", file)
	t.Run("after a restart", check)
}

// clientRules turn the counters that clients also decrement into up/down counters.
const clientRules = `mapping: {rules: [{match: '.*\.open', match_type: regex, updown: true}]}
`

// run has the operations that one client sends within one tile.
type run struct {
	client  client
	prefix  string
	sent    []operation
	tap     *tap
	tileEnd time.Time
}

const (
	tileWidth = 10 * time.Second
	sendTime  = 4 * time.Second // more than a client takes even on a busy machine
)

// sendInOneTile lets a client send everything within one tile of 10 s, since each tile counts a
// set's members anew. If the machine is too slow for that, the client starts again under another
// name.
func sendInOneTile(t *testing.T, p *process, c client) *run {
	t.Helper()
	addresses := map[string]string{"udp": p.UDP, "unixgram": p.Unixgram, "unix": p.Unix}
	for try := range 5 {
		r := &run{
			client: c, prefix: fmt.Sprintf("e2e.%s.%d", c.name, try), tap: listenTap(t, c.network, addresses[c.network]),
		}
		now := time.Now()
		if end := now.Truncate(tileWidth).Add(tileWidth); end.Sub(now) < sendTime {
			reach(end)
		}
		before := time.Now().Truncate(tileWidth)
		got := c.send(t, order{c.network, addresses[c.network], r.tap.address, operations(r.prefix)})
		after := time.Now().Add(time.Second).Truncate(tileWidth) // a window may close late
		if before.Equal(after) {
			t.Logf("%s sent as %s", got.Client, r.prefix)
			r.sent, r.tileEnd = got.Sent, before.Add(tileWidth)
			return r
		}
	}
	t.Fatalf("%s: sending took longer than %v in each of five tries", c.name, sendTime)
	return nil
}

// operations returns the operations that every client sends.
func operations(prefix string) []operation {
	rnd := rand.New(rand.NewPCG(7, 7)) // the same for all clients
	metric := func(method, name string, values []float64, tags ...string) operation {
		return operation{Method: method, Name: prefix + "." + name, Tags: tags, Rate: 1, Values: values}
	}
	sampled := metric("count", "sampled", slices.Repeat([]float64{1}, 400), "code:200")
	sampled.Rate = 0.25 // a power of two, so that the sum of 1/rate is exact
	set := metric("set", "users", nil, "env:prod")
	for i := range 1500 {
		set.Members = append(set.Members, fmt.Sprintf("ü:%d", i%1000))
	}
	return []operation{
		metric("count", "http-requests.total", upTo(60), "route:/a b/ü", "code:200"),
		metric("count", "http-requests.total", upTo(30), "code:200", "route:/a b/ü"), // the same series as above
		metric("count", "http-requests.total", upTo(7), "code:500", "url:http://x:80/?a=b;c"),
		metric("count", "no-tags", upTo(3)),
		sampled,
		metric("updown", "open", append(upTo(40), -1000, 70), "env:prod"),
		metric("gauge", "queue.depth", []float64{10, 700, 2.5}, "data-center.name:eu west", "canary"),
		metric("gauge", "below-zero", []float64{5, -40}, "env:prod"),
		metric("timing", "db.query", logNormal(rnd, 400), "table:orders"),
		metric("histogram", "body.size", append(logNormal(rnd, 200), 0, 0, 0), "env:prod"),
		metric("distribution", "latency", logNormal(rnd, 300), "env:prod"),
		set,
		{Method: "check", Name: prefix + ".app-ok", Tags: []string{"env:prod"}, Rate: 1, Status: 2,
			Message: "disk full: 99 %"},
		{Method: "event", Tags: []string{"run:" + prefix, "city:Zürich"}, Rate: 1, Title: "deploy of " + prefix,
			Text: "first line\nsecond | line: ü", Alert: "warning", Key: "k-" + prefix, Source: "e2e",
			Priority: "low", Host: "web-1"},
	}
}

// upTo returns 1 to n.
func upTo(n int) (v []float64) {
	for i := range n {
		v = append(v, float64(i+1))
	}
	return v
}

// logNormal returns n durations with a realistic distribution: many short, few long. They are
// whole numbers, which every client sends exactly.
func logNormal(rnd *rand.Rand, n int) (v []float64) {
	for range n {
		v = append(v, math.Ceil(math.Exp(4+1.2*rnd.NormFloat64())))
	}
	return v
}

// check compares the answers with the sent values.
func (r *run) check(t *testing.T, p *process) {
	type seriesKey struct{ method, selector string }
	sent := map[seriesKey]*operation{} // everything that was sent to one series
	labelSets := map[string]bool{}
	for _, op := range r.sent {
		if op.Method == "event" {
			r.checkEvent(t, p, op)
			continue
		}
		labels := labelsOf(t, op)
		labelSets[fmt.Sprint(labels)] = true
		key := seriesKey{op.Method, selector(labels)}
		if before := sent[key]; before != nil {
			before.Values = append(slices.Clone(before.Values), op.Values...)
		} else {
			sent[key] = &op
		}
	}
	for key, op := range sent {
		eventually(t, 20*time.Second, key.selector, func() error { return r.checkMetric(t, p, key.selector, op) })
	}
	r.checkLabels(t, p, labelSets)
}

func (r *run) checkMetric(t *testing.T, p *process, sel string, op *operation) error {
	switch op.Method {
	case "count":
		want := sum(op.Values)
		if op.Rate != 1 {
			var n int
			if want, n = r.tap.count(t, op.Name); n == 0 || n == len(op.Values) {
				return fmt.Errorf("the client sent %d of %d values: it does not sample, or datagrams are still on the way",
					n, len(op.Values))
			}
		}
		return p.expect("increase("+sel+"[10m] anchored)", want, 0)
	case "updown":
		return p.expect(sel, sum(op.Values), 0)
	case "gauge":
		return p.expect(sel, op.Values[len(op.Values)-1], 0)
	case "check":
		return p.expect(sel, float64(op.Status), 0)
	case "set":
		distinct := map[string]bool{}
		for _, m := range op.Members {
			distinct[m] = true
		}
		// 0.025 is three times the standard error of HyperLogLog with 2^14 registers, which is 0.8 %.
		return p.expect("max_over_time("+sel+"[10m])", float64(len(distinct)), 0.025)
	default: // timing, histogram, distribution
		return p.checkTimer(sel, op.Values)
	}
}

func (p *process) checkTimer(sel string, values []float64) error {
	for _, e := range []struct {
		expr string
		want float64
	}{
		{"histogram_count(%s)", float64(len(values))},
		{"histogram_sum(%s)", sum(values)},
		{"histogram_count(increase(%s[10m] anchored))", float64(len(values))},
	} {
		if err := p.expect(fmt.Sprintf(e.expr, sel), e.want, 1e-12); err != nil {
			return err
		}
	}
	sorted := slices.Sorted(slices.Values(values))
	width := math.Pow(2, 1.0/8) // width of a bucket of schema 3
	for _, q := range []float64{0.1, 0.5, 0.9, 0.99} {
		got, err := p.value(fmt.Sprintf("histogram_quantile(%g, %s)", q, sel))
		if err != nil {
			return err
		}
		// Prometheus interpolates between the values around the rank, and knows each of these values
		// with the accuracy of its bucket's width.
		rank := q * float64(len(sorted))
		low := sorted[max(0, int(math.Floor(rank))-1)] / width
		high := sorted[min(len(sorted)-1, int(math.Ceil(rank)))] * width
		if got < low || got > high {
			return fmt.Errorf("quantile %g of %s is %g, want a value from %g to %g", q, sel, got, low, high)
		}
	}
	return nil
}

// expect evaluates `expr`. The value may differ from `want` by at most the share `relative`.
func (p *process) expect(expr string, want, relative float64) error {
	got, err := p.value(expr)
	if err != nil {
		return err
	}
	if math.Abs(got-want) > relative*math.Abs(want) {
		return fmt.Errorf("%s = %v, want %v", expr, got, want)
	}
	return nil
}

// checkLabels checks that the client's series have exactly the labels that the documented rule
// gives, and that there are no other series.
func (r *run) checkLabels(t *testing.T, p *process, want map[string]bool) {
	t.Helper()
	var series []map[string]string
	match := fmt.Sprintf(`{__name__=~%q}`, promName(r.prefix)+"_.*")
	if err := p.ask("/api/v1/series", url.Values{"match[]": {match}}, &series); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, ls := range series {
		got[fmt.Sprint(ls)] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("series:\n got %s\nwant %s",
			strings.Join(slices.Sorted(maps.Keys(got)), "\n     "), strings.Join(slices.Sorted(maps.Keys(want)), "\n     "))
	}
}

func (r *run) checkEvent(t *testing.T, p *process, op operation) {
	t.Helper()
	type event struct {
		ID       string   `json:"id"`
		Time     float64  `json:"time"`
		Title    string   `json:"title"`
		Text     string   `json:"text"`
		Tags     []string `json:"tags"`
		Host     string   `json:"host"`
		Alert    string   `json:"alert_type"`
		Priority string   `json:"priority"`
		Source   string   `json:"source"`
		Key      string   `json:"aggregation_key"`
	}
	var events []event
	eventually(t, 20*time.Second, "the client has sent one event", func() error {
		err := p.ask("/api/v1/events", url.Values{"tag": {op.Tags[0]}, "text": {"SECOND"}}, &events)
		if err == nil && len(events) != 1 {
			err = fmt.Errorf("there are %d events, want one", len(events))
		}
		return err
	})
	got := events[0]
	if got.ID == "" || math.Abs(got.Time-float64(r.tileEnd.Unix())) > 30 {
		t.Errorf("event %q has the time %v, but the tile ended at %v", got.ID, got.Time, r.tileEnd)
	}
	got.ID, got.Time = "", 0
	want := event{
		"", 0, op.Title, op.Text, slices.Sorted(slices.Values(op.Tags)), op.Host, op.Alert, op.Priority, op.Source, op.Key,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("event:\n got %+v\nwant %+v", got, want)
	}
}

// labelsOf turns DogStatsD's names and tags into labels by the documented rule, as far as these
// operations need it.
func labelsOf(t *testing.T, op operation) map[string]string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"__name__": promName(op.Name), "host": host}
	for _, tag := range op.Tags {
		name, value, ok := strings.Cut(tag, ":")
		if !ok {
			value = "true"
		}
		labels[promName(name)] = value
	}
	return labels
}

// promName turns dots and dashes into underscores.
func promName(s string) string { return strings.NewReplacer(".", "_", "-", "_").Replace(s) }

func selector(labels map[string]string) string {
	var matchers []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		matchers = append(matchers, fmt.Sprintf("%s=%q", name, labels[name]))
	}
	return "{" + strings.Join(matchers, ",") + "}"
}

func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}
