package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// receiver is a backend that keeps all samples, and knows which came more than once.
type receiver struct {
	address string

	mu      sync.Mutex
	samples map[string]map[int64]float64 // by the name of the series and Unix milliseconds
	again   map[string][]int64           // the times of samples that came again, by the name of the series
	wrong   []string
	sent    int // all samples, also those that came again
}

// startReceiver starts a receiver at the bridge between the machines.
func startReceiver(t *testing.T) *receiver {
	t.Helper()
	listener, err := net.Listen("tcp", testAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{address: listener.Addr().String(), samples: map[string]map[int64]float64{}, again: map[string][]int64{}}
	s := &http.Server{Handler: r}
	go func() { _ = s.Serve(listener) }() // ends by Close
	t.Cleanup(func() { _ = s.Close() })
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender was killed
	}
	var m writev2.Request
	if body, err = snappy.Decode(nil, body); err == nil {
		err = m.Unmarshal(body)
	}
	n := 0
	r.mu.Lock()
	defer r.mu.Unlock()
	builder := labels.NewScratchBuilder(0)
	for i := range m.Timeseries {
		series := &m.Timeseries[i]
		all, failed := series.ToLabels(&builder, m.Symbols)
		if failed != nil {
			err = failed
			continue
		}
		r.keep(all.Get("__name__"), series.Samples)
		n += len(series.Samples)
	}
	if err != nil {
		r.wrong = append(r.wrong, err.Error())
	}
	w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", fmt.Sprint(n))
	w.WriteHeader(http.StatusNoContent)
}

func (r *receiver) keep(name string, samples []writev2.Sample) {
	if r.samples[name] == nil {
		r.samples[name] = map[int64]float64{}
	}
	for _, x := range samples {
		before, has := r.samples[name][x.Timestamp]
		switch {
		case has && before != x.Value:
			r.wrong = append(r.wrong, fmt.Sprintf("%s at %d was %v and is %v", name, x.Timestamp, before, x.Value))
		case has:
			r.again[name] = append(r.again[name], x.Timestamp)
		}
		r.samples[name][x.Timestamp] = x.Value
		r.sent++
	}
}

// A backend gets each acknowledged sample from the leader alone, whichever node acknowledged the sample. When a
// leader is killed, the next leader goes on at the place that the log names, and repeats only samples of the last
// seconds. A node with one more backend disturbs no other node.
func TestTheLeaderForwards(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	c := newTrio(t, "d")
	backend := startReceiver(t)
	for _, n := range nodeNames {
		text := fmt.Sprintf("forward:\n  backends:\n    - {name: test, url: \"http://%s/\", protocol: \"2.0\"}\n",
			backend.address)
		if n == "b" {
			text += "    - {name: away, url: \"http://10.99.0.250:9/\", timeout: 1s}\n"
		}
		file := filepath.Join(t.TempDir(), n+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.dirs[n], c.extra[n] = dataDir(t), []string{"--config", file}
	}
	c.found()
	w := c.startWriter("w", breathe, nodeNames...)
	changes := c.watchLeader()
	p := c.startCollector(c.pushSecret())
	p.waitReady(t)
	hits := c.startIncrements("unixgram", p.Unixgram, "hits", 2)
	for range 2 {
		reach(time.Now().Add(12 * time.Second)) // longer than a tile
		leader := c.leader()
		c.nodes[leader].kill(t)
		reach(time.Now().Add(4 * time.Second))
		c.begin(leader)
		c.caughtUp()
	}
	reach(time.Now().Add(12 * time.Second))
	w.stop()
	c.counted("hits", hits)
	eventually(t, time.Minute, "the backend has everything", func() error { return backend.has(w, hits.sent) })
	backend.check(t, changes())
	for _, n := range nodeNames {
		if unsent, err := c.nodes[n].ownMetric("freshet_forwarder_unsent_samples_total"); err != nil || unsent != 0 {
			t.Errorf("node %s: %v samples are unsent, want none; error %v", n, unsent, err)
		}
	}
}

// has is a check that returns an error unless the backend has all acknowledged samples of a writer, and
// all increments of a counter.
func (r *receiver) has(w *writer, hits float64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	missing := 0
	for at, v := range w.acked {
		if got, has := r.samples["w"][at]; !has || got != v {
			missing++
		}
	}
	total := 0.0
	for _, v := range r.samples["hits"] {
		total = max(total, v)
	}
	if missing > 0 || len(w.acked) == 0 || total != hits {
		return fmt.Errorf(
			"%d of %d samples are missing, and the counter has %v of %v increments", missing, len(w.acked), total, hits)
	}
	return nil
}

// watchLeader notes when the leader changes, until the returned function is called, which returns the times. On a busy
// machine, it changes not only by kills.
func (c *trio) watchLeader() (changes func() []time.Time) {
	var times []time.Time
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for leader := ""; ; {
			for _, n := range nodeNames {
				s, err := c.node(n).clusterState()
				if err == nil && s.Leader != "" && s.Leader != leader {
					leader, times = s.Leader, append(times, time.Now())
				}
			}
			select {
			case <-quit:
				return
			case <-tick.C:
			}
		}
	}()
	return func() []time.Time {
		close(quit)
		<-done
		return times
	}
}

// check fails the test if a sample came again although it was not sent shortly before or after another leader began.
func (r *receiver) check(t *testing.T, changes []time.Time) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, wrong := range r.wrong {
		t.Error(wrong)
	}
	distinct, early := 0, 0
	for _, samples := range r.samples {
		distinct += len(samples)
	}
	for _, at := range r.again["w"] {
		near := false
		for _, change := range changes {
			before := change.Sub(time.UnixMilli(at))
			near = near || before < 12*time.Second && before > -8*time.Second // the election takes some of it
		}
		if !near {
			early++
		}
	}
	t.Logf("%d samples were sent for %d different ones; %d of the writer's came again",
		r.sent, distinct, len(r.again["w"]))
	if early > 0 {
		t.Errorf("%d samples came again although the leader did not change within 8 s of them", early)
	}
	if float64(r.sent) > 1.5*float64(distinct) {
		t.Errorf("%d samples were sent, want at most 1.5 times the %d different samples", r.sent, distinct)
	}
}
