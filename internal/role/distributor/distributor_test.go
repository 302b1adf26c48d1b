package distributor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	prom "github.com/prometheus/prometheus/model/metadata"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/metadata"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/tenants"
	"github.com/freshet-io/freshet/internal/core/usage"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

// world is a distributor in front of real stores, on a clock that the test moves.
type world struct {
	*Distributor
	t      *testing.T
	now    time.Time
	stores *tsdb.Stores
	err    error    // returned by the ingester
	told   []string // new series of deltas, with their senders
}

func newWorld(t *testing.T, change func(*settings.Distributor)) *world {
	t.Helper()
	w := &world{t: t, now: time.UnixMilli(1_700_000_000_000)}
	config := settings.DefaultDistributor()
	change(&config)
	if problems := config.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	clock := func() time.Time { return w.now }
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	var err error
	if w.stores, err = tsdb.Open(tsdb.DefaultConfig(), t.TempDir(), clock, prometheus.NewRegistry(), logger); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.stores.Close(context.Background()) })
	w.Distributor = New(Options{Config: config, Ingester: direct{w}, Metadata: metadata.New(), Ledger: ledger.New(),
		Now: clock, Registry: prometheus.NewRegistry(), Logger: logger})
	return w
}

// direct is an ingester without a queue.
type direct struct{ *world }

func (d direct) Push(ctx context.Context, r *write.Request) error {
	if d.err != nil {
		return d.err
	}
	r.Begun = true
	return d.stores.WriteRequests(ctx, r.Tenant, new(write.State), []*write.Request{r})
}

// fullHouse is an ingester in which no request ever gets its turn, because the queue is always full.
type fullHouse struct{ came chan struct{} }

func (f fullHouse) Push(ctx context.Context, _ *write.Request) error {
	f.came <- struct{}{}
	<-ctx.Done()
	return context.Cause(ctx)
}

// If the sender of a request disconnects, the request stops waiting. The books count its samples as not
// written. The same holds for a request of deltas.
func TestASenderThatLeavesGivesUpItsPlace(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	house := fullHouse{make(chan struct{})}
	w.Ingester = house
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-house.came
		leave()
	}()
	begun := time.Now()
	var again *RetryError
	if _, err := w.Push(ctx, "a", w.request("up")); !errors.As(err, &again) || !errors.Is(err, context.Canceled) ||
		time.Since(begun) > patience/2 {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
	if _, err := w.PushDeltas(ctx, "a", w.request("up", "down")); !errors.As(err, &again) ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("deltas: %v", err)
	}
	if n := testutil.ToFloat64(w.metrics.retries.WithLabelValues(unavailable)); n != 2 {
		t.Errorf("%v retries, want 2", n)
	}
}

// request has one sample for each series, written as "name{a=b,c=d}".
func (w *world) request(series ...string) *write.Incoming {
	w.t.Helper()
	symbols := writev2.NewSymbolTable()
	var m writev2.Request
	for _, text := range series {
		name, rest, _ := strings.Cut(strings.TrimSuffix(text, "}"), "{")
		refs := []uint32{symbols.Symbolize("__name__"), symbols.Symbolize(name)}
		for pair := range strings.SplitSeq(rest, ",") {
			if l, v, ok := strings.Cut(pair, "="); ok {
				refs = append(refs, symbols.Symbolize(l), symbols.Symbolize(v))
			}
		}
		m.Timeseries = append(m.Timeseries, writev2.TimeSeries{
			LabelsRefs: refs, Samples: []writev2.Sample{{Timestamp: w.now.UnixMilli(), Value: 1}},
			Metadata: writev2.Metadata{
				Type: writev2.Metadata_METRIC_TYPE_GAUGE, HelpRef: symbols.Symbolize("help of " + name),
			},
		})
	}
	m.Symbols = symbols.Symbols()
	body, err := m.Marshal()
	if err != nil {
		w.t.Fatal(err)
	}
	r := new(write.Incoming)
	if err := r.DecodeV2(body); err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) push(tenant string, series ...string) (outcome.Outcome, error) {
	w.t.Helper()
	return w.Push(w.t.Context(), tenant, w.request(series...))
}

func (w *world) mustPush(tenant string, series ...string) outcome.Outcome {
	w.t.Helper()
	o, err := w.push(tenant, series...)
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

func (w *world) series(tenant string) uint64 {
	w.t.Helper()
	stats, err := w.stores.Stats(tenant, tsdb.Raw, "__name__", 10)
	if err != nil {
		w.t.Fatal(err)
	}
	if stats == nil {
		return 0
	}
	return stats.NumSeries
}

// The books have the fate of each sample, and the sums of all states agree.
func TestTheBooksClose(t *testing.T) {
	w := newWorld(t, func(c *settings.Distributor) {
		c.MaxLabels = 2
		c.Relabel = []mapping.Relabel{{SourceLabels: []string{"__name__"},
			Regex: mapping.Optional{Text: "secret", Given: true}, Action: "drop"}}
	})
	w.mustPush("a", "up", "up", "down{x=1}", "many{x=1,y=2}", "secret")
	w.mustPush("a", "up", "{x=1}")
	w.Malformed("a", "malformed")
	w.err = errors.New("no space left on device")
	if _, err := w.push("a", "up"); err == nil {
		t.Error("a push to a full disk returned no error")
	}
	w.err = nil
	books := w.Ledger.Books().Tenants["a"].Samples
	want := `4 stored, 9 received, refused map[bad_labels:1 rule:1 too_many_labels:1 unavailable:1], ` +
		`malformed map[malformed:1], difference 0`
	if got := fmt.Sprintf("%d stored, %d received, refused %v, malformed %v, difference %d", books.Stored, books.Received,
		books.Refused, books.Malformed, books.Difference); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if n := testutil.ToFloat64(w.metrics.refused.WithLabelValues("too_many_labels")); n != 1 {
		t.Errorf("the metric counts %v refusals, want 1", n)
	}
}

// By default vmagent does not sort labels. Some clients of remote write in other languages do not
// either. Their requests used to get 400.
func TestLabelsInAnyOrder(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	o := w.mustPush("a", "up{z=1,b=2}", "up{b=2,z=1}", "up{B=3,a=4}", "twice{b=1,a=1,b=1}")
	o2 := w.mustPush("a", "up{b=2,z=1}", "up{a=4,B=3}")
	if w.series("a") != 2 || o.Written.Samples != 3 || o2.Written.Samples != 2 ||
		o.Refused[outcome.BadLabels].Samples != 1 {
		t.Errorf("got %d series and the outcomes %+v and %+v, want 2 series, 3 and 2 samples written, 1 sample refused",
			w.series("a"), o, o2)
	}
	if text := o.Text(); !strings.Contains(text, "the label b occurs twice") {
		t.Error(text)
	}
}

// A request of a new tenant beyond store.max_tenants used to get status 503, so its sender repeated it
// for ever.
func TestTooManyTenants(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	w.Tenants = tenants.NewGate(2)
	w.mustPush("first", "up")
	w.mustPush("second", "up")
	r := w.request("up", "down{a=b}")
	r.Families = []remotewrite.Family{{Name: []byte("up"), Help: []byte("help")}}
	o, err := w.Push(t.Context(), "one-more", r)
	if err != nil {
		t.Fatal(err)
	}
	status, text := o.RemoteWrite()
	if status != 429 || !strings.Contains(text, "store.max_tenants") || o.Refused[outcome.TooManyTenants].Samples != 2 {
		t.Errorf("%d %s", status, text)
	}
	if books := w.Ledger.Books().Tenants["one-more"].Samples; books.Refused["too_many_tenants"] != 2 ||
		books.Difference != 0 {
		t.Errorf("%+v", books)
	}
	kept := false
	w.Metadata.All("one-more", func(string, prom.Metadata) bool { kept = true; return false })
	if kept {
		t.Error("the metadata of the refused tenant was kept")
	}
	// Deltas used to be acknowledged, and their tiles were refused later.
	if o, err = w.PushDeltas(t.Context(), "one-more", w.request("up")); err != nil {
		t.Fatal(err)
	}
	if status, text := o.RemoteWrite(); status != 429 || !strings.Contains(text, "store.max_tenants (2)") {
		t.Errorf("%d %s", status, text)
	}
	if got := w.stores.Tenants(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("the stores have the tenants %v, want first and second", got)
	}
	w.mustPush("second", "up", "down")
}

// A request that stores nothing takes no place of store.max_tenants, and leaves no state for the name
// of its tenant. The test sends a request without series, a request that is given up before its turn,
// and refused deltas.
func TestARequestThatStoresNothingTakesNoPlace(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	w.Aggregator, w.Tenants = &aggregator{ledger: w.Ledger}, tenants.NewGate(1)
	families := []remotewrite.Family{{Name: []byte("up"), Help: []byte("help")}}
	empty := w.request()
	empty.Families = families
	if o, err := w.Push(t.Context(), "empty", empty); err != nil || o != (outcome.Outcome{}) {
		t.Fatal(o, err)
	}
	w.err = errors.New("too many requests wait")
	if _, err := w.push("waiting", "up"); !errors.Is(err, w.err) {
		t.Fatal(err)
	}
	w.err = nil
	refused := w.request("up{a=1,a=2}")
	refused.Families = families
	if o, err := w.PushDeltas(t.Context(), "refused", refused); err != nil || !o.AnyRefused() {
		t.Fatalf("deltas with a label twice: outcome %+v, error %v, want a refusal", o, err)
	}
	for _, name := range []string{"empty", "waiting", "refused"} {
		w.Metadata.All(name, func(string, prom.Metadata) bool { t.Errorf("%s has metadata", name); return false })
	}
	w.deltas.Range(func(name, _ any) bool { t.Errorf("the deltas of %v were kept", name); return true })
	if got := w.stores.Tenants(); len(got) > 0 {
		t.Errorf("the stores have the tenants %v, want none", got)
	}
	w.mustPush("first", "up")
	if o, err := w.push("second", "up"); err != nil || !o.NoTenant() {
		t.Errorf("a tenant beyond the limit: %+v, %v, want NoTenant", o, err)
	}
	if o, err := w.Push(t.Context(), "first", empty); err != nil || o != (outcome.Outcome{}) {
		t.Fatal(o, err)
	}
	kept := false
	w.Metadata.All("first", func(name string, _ prom.Metadata) bool { kept = kept || name == "up"; return true })
	if !kept {
		t.Error("metadata of an admitted tenant was not kept")
	}
}

// fullDisk is an ingester that makes the store, and then fails.
type fullDisk struct{}

func (fullDisk) Push(_ context.Context, r *write.Request) error {
	r.Begun = true
	return errors.New("no space left on device")
}

// A write to a store may make the store's directory even if the write fails. So the tenant keeps its
// place: otherwise requests with more and more names could make more and more directories.
func TestAWriteThatFailsKeepsItsPlace(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	w.Tenants = tenants.NewGate(1)
	w.Ingester = fullDisk{}
	if _, err := w.push("first", "up"); err == nil {
		t.Fatal("a request was written on a full disk")
	}
	if o, err := w.push("second", "up"); err != nil || !o.NoTenant() {
		t.Errorf("a tenant beyond the limit: %+v, %v, want NoTenant", o, err)
	}
}

func TestTenantsAreApart(t *testing.T) {
	w := newWorld(t, func(c *settings.Distributor) {
		c.MaxSeries = 2
		c.Tenants = map[string]settings.Override{"big": {MaxSeries: conf.Some(3)}}
	})
	if o := w.mustPush("a", "s1", "s2", "s3", "s4"); o.Refused[outcome.TooManySeries].Samples != 2 ||
		!strings.Contains(o.Text(), `__name__="s3"`) || !strings.Contains(o.Text(), "distributor.max_series allows 2") {
		t.Errorf("%s", o.Text())
	}
	if o := w.mustPush("big", "s1", "s2", "s3", "s4"); o.Refused[outcome.TooManySeries].Samples != 1 {
		t.Errorf("%s", o.Text())
	}
	if a, big, none := w.series("a"), w.series("big"), w.series("none"); a != 2 || big != 3 || none != 0 {
		t.Errorf("the tenants have %d, %d and %d series, want 2, 3, 0", a, big, none)
	}
}

// If a tenant is over its rate, its requests are refused before they are read, until its bucket fills
// again. Requests of other tenants are admitted.
func TestRate(t *testing.T) {
	w := newWorld(t, func(c *settings.Distributor) {
		c.Rate = 10
		c.Tenants = map[string]settings.Override{"any": {Rate: conf.Some(0)}}
	})
	var many []string
	for i := range 130 { // 100 may come at once
		many = append(many, fmt.Sprint("s", i))
	}
	for _, tenant := range []string{"a", "any"} {
		if err := w.Admit(tenant); err != nil {
			t.Fatal(err)
		}
		w.mustPush(tenant, many...)
	}
	if w.Admit("any") != nil || w.Admit("b") != nil {
		t.Error("a tenant within its rate was refused")
	}
	var again *RetryError
	if err := w.Admit("a"); !errors.As(err, &again) ||
		!strings.Contains(err.Error(), "more than the 10 samples a second that distributor.rate allows") {
		t.Fatalf("%v", err)
	}
	// The bucket lacks 31 samples. At 10 a second that takes 3.1 s, plus a jitter of at most 3.1 s.
	if again.After < 3*time.Second || again.After > 7*time.Second {
		t.Errorf("the request is to be sent again in %v, want 3 to 7 s", again.After)
	}
	w.now = w.now.Add(3 * time.Second)
	if w.Admit("a") == nil {
		t.Error("a request was admitted with an empty bucket")
	}
	if a, any, none := w.Delayed("a"), w.Delayed("any"), w.Delayed("none"); a != 2 || any != 0 || none != 0 {
		t.Errorf("%d, %d and %d requests were told to wait, want 2, 0 and 0", a, any, none)
	}
	w.now = w.now.Add(200 * time.Millisecond)
	if err := w.Admit("a"); err != nil {
		t.Error(err)
	}
	w.now = w.now.Add(-time.Hour) // a clock that is set back fills nothing and takes nothing
	if err := w.Admit("a"); err != nil {
		t.Error(err)
	}
}

// What a tenant sends to other processes of the cluster counts against its rate here, and counts once.
func TestTheRateOfACluster(t *testing.T) {
	rate := func(c *settings.Distributor) { c.Rate = 10 } // 100 may come at once
	one, other := newWorld(t, rate), newWorld(t, rate)
	var table usage.Table
	send := func(w *world, samples int) {
		t.Helper()
		if err := w.Admit("a"); err != nil {
			t.Fatal(err)
		}
		names := make([]string, samples)
		for i := range names {
			names[i] = fmt.Sprint("s", i)
		}
		w.mustPush("a", names...)
		for i, w := range []*world{one, other, one} { // the first one learns what the other one took
			process := uint64(i % 2)
			report := map[string]usage.Use{}
			w.Use(report)
			answer, err := table.Exchange(1, w.now, process, report)
			if err != nil {
				t.Fatal(err)
			}
			w.Share(answer)
		}
	}
	send(one, 1)
	send(other, 1)
	send(one, 60)
	send(other, 30)
	for range 3 { // they have 92 samples so far
		send(one, 1)
	}
	send(other, 10)
	for i, w := range []*world{one, other} {
		if err := w.Admit("a"); err == nil {
			t.Errorf("process %d admits a request, although the two took 105 samples of 100", i)
		}
	}
}

// The times of retries are spread, so that senders do not retry at the same time.
func TestRetriesAreSpread(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	w.err = errors.New("no space left on device")
	seen := map[time.Duration]bool{}
	for range 20 {
		_, err := w.push("a", "up")
		var again *RetryError
		if !errors.As(err, &again) || !errors.Is(err, w.err) || again.After < time.Second || again.After > 2*time.Second {
			t.Fatalf("%v", err)
		}
		seen[again.After] = true
	}
	if len(seen) < 10 {
		t.Errorf("20 requests got %d different waits, want at least 10", len(seen))
	}
}

func TestOneOfAPair(t *testing.T) {
	w := newWorld(t, func(c *settings.Distributor) { c.HA.Replica = "replica" })
	w.mustPush("a", "up{cluster=c,replica=1}", "s{cluster=c,replica=1}")
	w.now = w.now.Add(time.Second)
	if o := w.mustPush("a", "up{cluster=c,replica=2}", "s{cluster=c,replica=2}"); o.Dropped.Samples != 2 ||
		o.Written.Samples != 0 {
		t.Errorf("%+v", o)
	}
	if o := w.mustPush("a", "up{cluster=c}"); o.Written.Samples != 1 {
		t.Errorf("a sender without a pair: %+v, want 1 written", o)
	}
	w.now = w.now.Add(time.Minute)
	if o := w.mustPush("a", "up{cluster=c,replica=2}", "s{cluster=c,replica=2}"); o.Written.Samples != 2 {
		t.Errorf("after the elected server is gone: %+v, want 2 written", o)
	}
	if n := w.series("a"); n != 2 {
		t.Errorf("of the series that both replicas send, %d are stored, want 2", n)
	}
	if books := w.Ledger.Books().Tenants["a"].Samples; books.Refused["replica"] != 2 || books.Refused["rule"] != 0 ||
		books.Difference != 0 {
		t.Errorf("the books are %+v", books)
	}
	if n := testutil.ToFloat64(w.metrics.elections); n != 2 {
		t.Errorf("the metric counts %v elections, want 2", n)
	}
}

// After a reload, the new rules also apply to known series.
func TestReload(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	w.mustPush("a", "up", "down")
	c := w.Config
	c.Relabel = []mapping.Relabel{{SourceLabels: []string{"__name__"}, Regex: mapping.Optional{Text: "up", Given: true},
		Action: "drop"}}
	w.Reload(c)
	w.now = w.now.Add(time.Second)
	if o := w.mustPush("a", "up", "down"); o.Dropped.Samples != 1 || o.Written.Samples != 1 {
		t.Errorf("%+v", o)
	}
}

func TestWhatIsSaidOfMetrics(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	w.mustPush("a", "up")
	var got string
	w.Metadata.All("a", func(name string, m prom.Metadata) bool {
		got += fmt.Sprintf("%s %s %s", name, m.Type, m.Help)
		return true
	})
	if got != "up gauge help of up" {
		t.Error(got)
	}
}
