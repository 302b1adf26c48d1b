package collector

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/settings"
)

// patience is how long a test waits for an event that takes a second or two on an idle
// machine.
const patience = 30 * time.Second

// pushed is one window of one tenant, as the aggregator got it.
type pushed struct {
	tenant                string
	producer, incarnation uint64
	sequence              uint64
	second, birth         int64
	at                    time.Time
	series                map[string]float64 // values by kind and labels; for timers the count, for sets the size
}

// aggregator takes the place of the role aggregator in tests. It decodes the windows that it accepts.
type aggregator struct {
	mu      sync.Mutex
	refusal error // the answer to every window, nil to accept them
	refused []uint64
	windows []pushed
	through int64
	before  func() // called before the aggregator takes a window
}

func (a *aggregator) Push(ctx context.Context, batches []batch.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.before != nil {
		a.before()
	}
	w, err := decode(batches)
	if err != nil {
		panic(fmt.Sprintf("BUG: the collector pushed %x: %v", batches, err))
	}
	if a.refusal != nil {
		a.refused = append(a.refused, w.sequence)
		return a.refusal
	}
	a.windows = append(a.windows, w)
	return nil
}

func (a *aggregator) Through(t int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.through = t
}

// told returns the time with which Through was last called, in Unix seconds.
func (a *aggregator) told() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.through / 1000
}

func decode(batches []batch.Batch) (w pushed, err error) {
	w = pushed{series: map[string]float64{}, at: time.Now()}
	var r batch.Reader
	for i, b := range batches {
		if err := r.Reset(b.Bytes); err != nil {
			return w, err
		}
		h := r.Header
		h.Sequence >>= 16 // the lower 16 bits count the batches of a shard in this window
		if i > 0 && (h.Sequence != w.sequence || string(h.Tenant) != w.tenant || h.Second != w.second) {
			return w, errors.New("a push has batches of several windows")
		}
		w.tenant, w.producer, w.incarnation, w.sequence = string(h.Tenant), h.Producer, h.Incarnation, h.Sequence
		w.second, w.birth = h.Second, h.Birth
		for inc := r.Next(); inc != nil; inc = r.Next() {
			kind, ls, err := series.ParseKey(inc.Key)
			if err != nil {
				return w, err
			}
			if b.Shard != series.Shard(w.tenant, inc.Key) || h.Shard != b.Shard {
				return w, fmt.Errorf("series %v is in the wrong shard %d", ls, b.Shard)
			}
			name := kind.String() + " " + ls.String()
			switch kind {
			case series.Timer:
				w.series[name] += inc.Timer.Count
			case series.Set:
				w.series[name] += float64(inc.Set.Len())
			default:
				w.series[name] += inc.Value
			}
		}
		if err := r.Err(); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (a *aggregator) taken() []pushed {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.windows)
}

// refuse sets the answer to all windows from now on.
func (a *aggregator) refuse(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refusal = err
}

func (a *aggregator) refusals() []uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.refused)
}

// totals adds up the values of all windows. For a gauge or a check, it returns the last value.
func (a *aggregator) totals() map[string]float64 {
	all := map[string]float64{}
	for _, w := range a.taken() {
		for name, v := range w.series {
			if strings.HasPrefix(name, "gauge") || strings.HasPrefix(name, "check") {
				all[name] = v
			} else {
				all[name] += v
			}
		}
	}
	return all
}

// eventSink replaces the event log in tests.
type eventSink struct {
	mu     sync.Mutex
	err    error
	events []event.Event
}

func (s *eventSink) Append(_ context.Context, events []event.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.events = append(s.events, events...)
	}
	return s.err
}

func (s *eventSink) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = nil
}

func (s *eventSink) all() []event.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// nameStore replaces the catalogue's file in tests.
type nameStore struct {
	mu    sync.Mutex
	err   error
	saved map[string]series.Kind
}

func (n *nameStore) Save(metrics []catalogue.Metric) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return n.err
	}
	for _, m := range metrics {
		n.saved[m.Name] = m.Kind
	}
	return nil
}

func (n *nameStore) Forget(metrics []catalogue.Metric) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return n.err
	}
	for _, m := range metrics {
		delete(n.saved, m.Name)
	}
	return nil
}

func (n *nameStore) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.saved[name] != 0
}

// logs holds the lines that were logged.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// fixture is a collector with sockets of every network. Test doubles take the place of the parts around
// it.
type fixture struct {
	*Collector
	aggregator    *aggregator
	events        *eventSink
	catalogueFile *nameStore
	logs          *logs
	registry      *prometheus.Registry
	stop          func() // ends Run and waits for it
}

// newFixture makes a collector that does not run yet.
func newFixture(t testing.TB, change func(*Options)) *fixture {
	t.Helper()
	f := &fixture{
		aggregator: &aggregator{}, events: &eventSink{}, catalogueFile: &nameStore{saved: map[string]series.Kind{}},
		logs: &logs{}, registry: prometheus.NewRegistry(),
	}
	mapper, err := mapping.New(mapping.Config{}, labels.EmptyLabels())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := settings.DefaultDogStatsD()
	config.UDP, config.Unixgram, config.Unix = "127.0.0.1:0", filepath.Join(dir, "d"), filepath.Join(dir, "s")
	o := Options{
		Config: config, Mapper: mapper, Catalogue: catalogue.New(1000),
		Limiter: limit.New(limit.Config{}, time.Minute, time.Hour), CatalogueFile: f.catalogueFile, Ledger: ledger.New(),
		Aggregator: f.aggregator,
		Events:     f.events, Producer: 7, Now: time.Now, Registry: f.registry,
		Logger: slog.New(slog.NewTextHandler(f.logs, nil)),
	}
	if change != nil {
		change(&o)
	}
	if f.Collector, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// start runs the collector until stop is called or the test ends.
func (f *fixture) start(t *testing.T) *fixture {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Errorf("the collector still runs %v after it was stopped", patience)
		}
	})
	t.Cleanup(f.stop)
	return f
}

// address returns the first address of a network.
func (f *fixture) address(network string) string {
	for _, l := range f.Listening() {
		if l.Network == network {
			return l.Address
		}
	}
	return ""
}

// dial connects to an address. On a stream, each write becomes one frame.
func dial(t *testing.T, network, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if network == "unix" {
		return framer{conn}
	}
	return conn
}

type framer struct{ net.Conn }

func (f framer) Write(p []byte) (int, error) {
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(p)))
	if _, err := f.Conn.Write(append(frame, p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func send(t *testing.T, conn net.Conn, packets ...string) {
	t.Helper()
	if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for _, p := range packets {
		if _, err := conn.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
}

// await waits until `cond` returns true, and fails the test if that takes too long.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// metric returns the value of one of the collector's own metrics, summed over its
// labels, or NaN if there is no such metric.
func (f *fixture) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "freshet_dogstatsd_"+name {
			sum := 0.0
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			return sum
		}
	}
	return math.NaN()
}
