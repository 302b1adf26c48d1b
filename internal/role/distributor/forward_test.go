package distributor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/probe"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/settings"
)

// backend keeps the requests that it got, as text: tenant, series, samples.
type backend struct {
	t        *testing.T
	requests bool
	width    tile.Width
	err      error
	got      []string
	bodies   []string
	parts    outcome.Counts
}

func (b *backend) TakesRequests() bool              { return b.requests }
func (b *backend) TakesTiles(width tile.Width) bool { return !b.requests && width == b.width }

func (b *backend) Push(_ entry.Span, tenant string, version int, parts outcome.Counts, body []byte) error {
	if b.err != nil {
		return b.err
	}
	b.bodies = append(b.bodies, string(body))
	b.parts.Add(parts)
	raw, err := snappy.Decode(nil, body)
	if err != nil {
		b.t.Fatal(err)
	}
	var r remotewrite.Request
	decode := r.DecodeV2
	if version == 1 {
		decode = r.DecodeV1
	}
	if err := decode(raw); err != nil {
		b.t.Fatal(err)
	}
	if parts != r.Counts() {
		b.t.Errorf("the distributor counts %+v, want %+v as in the request", parts, r.Counts())
	}
	b.got = append(b.got, show(b.t, tenant, &r)...)
	return nil
}

// show returns a line of text for each series of a request.
func show(t *testing.T, tenant string, r *remotewrite.Request) (lines []string) {
	t.Helper()
	for i := range r.Series {
		s := &r.Series[i]
		all, err := r.Labels(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		text := tenant
		for _, l := range all {
			text += fmt.Sprintf(" %s=%s", l.Name, l.Value)
		}
		for _, x := range r.Samples(s) {
			text += fmt.Sprintf(" %d:%v/%d", x.Time, x.Value, x.Start)
		}
		for _, h := range r.Histograms(s) {
			text += fmt.Sprintf(" %d:%+v", h.Time, h)
		}
		for _, x := range r.Exemplars(s) {
			ls, err := r.ExemplarLabels(nil, &x)
			text += fmt.Sprintf(" {%s %v}%d:%v %v", ls[0].Name, string(ls[0].Value), x.Time, x.Value, err)
		}
		lines = append(lines, text)
	}
	return lines
}

// tiles is a store that takes all tiles.
type tiles struct{ *world }

func (tiles) Sync(context.Context) error { return nil }

func (w tiles) WriteTiles(_ context.Context, _ string, _ tile.Width, samples []tile.Sample) (tile.Written, error) {
	return tile.Written{Stored: tile.Count{Samples: len(samples)}}, w.err
}

func (w tiles) NewTotal(of string, ls labels.Labels, from sender.Sender, refused bool) {
	w.told = append(w.told, fmt.Sprint(of, " ", ls, " ", from, " ", refused))
	w.stores.NewTotal(of, ls, from, refused)
}

func (w *world) backends(all ...*backend) {
	w.Backends = nil
	for _, b := range all {
		b.t = w.t
		w.Backends = append(w.Backends, b)
	}
	w.Tiles = tiles{w}
}

// Requests are forwarded unchanged to the backends that take requests.
func TestRequestsAreForwarded(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	takes, not := &backend{requests: true}, &backend{width: tile.Width10s}
	w.backends(takes, not)
	r := w.request("up{job=a}", "down")
	anew, err := encodeRequest(&r.Request)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := snappy.Decode(nil, anew.body)
	r.Compressed = snappy.Encode(nil, append(raw, 0xf8, 7, 1)) // adds a field that only the original bytes have
	if _, err := w.Push(t.Context(), "team", r); err != nil {
		t.Fatal(err)
	}
	if len(takes.bodies) != 1 || takes.bodies[0] != string(r.Compressed) || len(not.bodies) != 0 {
		t.Errorf("%q, %q", takes.bodies, not.bodies)
	}
	takes.got = nil
	w.mustPush("team", "up{job=a}", "down") // did not come from the network, so it must be encoded
	if len(takes.got) != 2 || !strings.HasPrefix(takes.got[0], "team __name__=up job=a ") {
		t.Errorf("%q", takes.got)
	}
}

// If the queue for backends refuses a request, the request is not acknowledged, so its sender sends it
// again. It is written here anyway, and both the answer and the books say so.
func TestABackendWithoutDisk(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	b := &backend{requests: true, err: errors.New("no space left on device")}
	w.backends(b)
	var again *RetryError
	o, err := w.push("a", "up")
	if !errors.As(err, &again) || !errors.Is(err, b.err) || o.Written.Samples != 1 ||
		strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("%v, %+v", err, o)
	}
	if books := w.Ledger.Books().Tenants["a"].Samples; books.Stored != 1 || books.Difference != 0 {
		t.Errorf("the books are %+v", books)
	}
	b.err = nil
	if o := w.mustPush("a", "up"); o.Written.Samples != 1 || len(b.got) != 1 {
		t.Errorf("%+v, %q", o, b.got)
	}
}

// A request that did not come by remote write is encoded with all its parts.
func TestRequestsWrittenAnew(t *testing.T) {
	symbols := writev2.NewSymbolTable()
	refs := []uint32{symbols.Symbolize("__name__"), symbols.Symbolize("a")}
	m := writev2.Request{Timeseries: []writev2.TimeSeries{
		{LabelsRefs: refs, Samples: []writev2.Sample{{Timestamp: 5, Value: 1, StartTimestamp: 2}},
			Exemplars: []writev2.Exemplar{{LabelsRefs: refs, Value: 7, Timestamp: 4}}},
		{LabelsRefs: refs, Histograms: []writev2.Histogram{
			writev2.FromFloatHistogram(1, 2, &histogram.FloatHistogram{Count: 1.5, ZeroCount: 0.5, Sum: 3,
				NegativeSpans: []histogram.Span{{Offset: -3, Length: 1}}, NegativeBuckets: []float64{1}}),
			writev2.FromIntHistogram(1, 3, &histogram.Histogram{Schema: -53, Count: 4, ZeroCount: 0, Sum: 3,
				CounterResetHint: histogram.GaugeType, CustomValues: []float64{1, 2},
				PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}}, PositiveBuckets: []int64{1, 2}}),
		}},
	}, Symbols: symbols.Symbols()}
	raw, err := m.Marshal()
	r := new(remotewrite.Request)
	if err == nil {
		err = r.DecodeV2(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := show(t, "x", r)
	f, err := encodeRequest(r)
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{t: t}
	if err := b.Push(entry.Span{}, "x", f.version, f.parts, f.body); err != nil || !slices.Equal(b.got, want) {
		t.Errorf("%v\n got %q\nwant %q", err, b.got, want)
	}
}

func TestTilesAreForwarded(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	ten, minute := &backend{width: tile.Width10s}, &backend{width: tile.Width1m}
	w.backends(ten, minute)
	a := &tile.Series{Labels: labels.FromStrings("__name__", "a")}
	h := &tile.Series{Labels: labels.FromStrings("__name__", "h", "x", "y")}
	fh := &histogram.FloatHistogram{Schema: 3, Count: 2.5, Sum: 7,
		PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}}, PositiveBuckets: []float64{1, 1.5}}
	samples := []tile.Sample{{Series: a, T: 1, V: 1}, {Series: h, T: 1, H: fh}, {Series: a, T: 2, V: 3},
		{Series: h, T: 2, V: 1}}
	stats, err := w.WriteTiles(t.Context(), "team", tile.Width10s, samples)
	if err != nil || stats.Stored.Samples != 4 {
		t.Fatalf("%+v, %v", stats, err)
	}
	if len(ten.got) != 3 || ten.got[0] != "team __name__=a 1:1/0 2:3/0" ||
		!strings.HasPrefix(ten.got[1], "team __name__=h x=y 1:") ||
		!strings.Contains(ten.got[1], "PositiveCounts:[1 1.5]") || ten.got[2] != "team __name__=h x=y 2:1/0" ||
		len(minute.got) != 0 {
		t.Errorf("%q, %q", ten.got, minute.got)
	}
	samples = samples[:0]
	for i := range 2*forwardedSamples + 1 {
		samples = append(samples, tile.Sample{Series: a, T: int64(i), V: 1})
	}
	ten.bodies = nil
	if _, err := w.WriteTiles(t.Context(), "team", tile.Width10s, samples); err != nil || len(ten.bodies) != 3 {
		t.Errorf("the backend got %d requests, error %v, want 3 requests and no error", len(ten.bodies), err)
	}
	w.err = errors.New("our own disk")
	ten.bodies = nil
	if _, err := w.WriteTiles(t.Context(), "team", tile.Width10s, samples); !errors.Is(err, w.err) ||
		len(ten.bodies) != 0 {
		t.Errorf("while no sample can be stored: error %v, %d forwarded requests, want the disk's error and 0",
			err, len(ten.bodies))
	}
}

// Freshet's probes measure the time until a sample is in Freshet's own store, so backends do not get
// them. An application's gauge is forwarded, whatever its name is.
func TestProbesAreNotForwarded(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	ten := &backend{t: t, width: tile.Width10s}
	w.backends(ten)
	named := func(name string) tile.Sample {
		return tile.Sample{Series: &tile.Series{Labels: labels.FromStrings("__name__", name)}, T: 1, V: 1}
	}
	for _, of := range []string{tenant.Own, "team"} {
		samples := []tile.Sample{named(probe.Metric), named("a")}
		if stats, err := w.WriteTiles(t.Context(), of, tile.Width10s, samples); err != nil || stats.Stored.Samples != 2 {
			t.Errorf("%s: %+v, %v", of, stats, err)
		}
	}
	want := []string{"freshet __name__=a 1:1/0", "team __name__=freshet_probe 1:1/0", "team __name__=a 1:1/0"}
	if !slices.Equal(ten.got, want) {
		t.Errorf("%q, want %q", ten.got, want)
	}
}

// If the queue of one backend cannot be written, our own store and the other backends still get the
// tiles, and the caller does not write them again. A broken queue used to delay all tiles of all
// tenants.
func TestABackendWhoseQueueIsBrokenHoldsUpNobody(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	broken := &backend{t: t, width: tile.Width10s, err: errors.New("no space left on device")}
	other := &backend{t: t, width: tile.Width10s}
	w.backends(broken, other)
	samples := []tile.Sample{{Series: &tile.Series{Labels: labels.FromStrings("__name__", "a")}, T: 1, V: 1}}
	stats, err := w.WriteTiles(t.Context(), "team", tile.Width10s, samples)
	if err != nil || stats.Stored.Samples != 1 {
		t.Errorf("%+v, %v", stats, err)
	}
	if len(other.got) != 1 {
		t.Errorf("the other backend got %q", other.got)
	}
}

// Each series of a metric is forwarded with the metric's OTLP metadata. This includes the series of
// histograms.
func TestWhatIsSaidOfAMetricIsForwarded(t *testing.T) {
	var r remotewrite.Request
	var b remotewrite.Builder
	b.Begin(&r, nil)
	b.Family("latency_seconds", "How long.", "seconds", remotewrite.HistogramType)
	for _, name := range []string{"latency_seconds_bucket", "latency_seconds_count", "other"} {
		b.Series()
		b.Label("__name__", name)
		b.Sample(remotewrite.Sample{Time: 1})
	}
	b.Finish()
	f, err := encodeRequest(&r)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := snappy.Decode(nil, f.body)
	var m writev2.Request
	if err == nil {
		err = m.Unmarshal(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range m.Timeseries {
		got = append(got, fmt.Sprintf("%v %s %s", s.Metadata.Type, m.Symbols[s.Metadata.HelpRef],
			m.Symbols[s.Metadata.UnitRef]))
	}
	want := []string{"METRIC_TYPE_HISTOGRAM How long. seconds", "METRIC_TYPE_HISTOGRAM How long. seconds",
		"METRIC_TYPE_UNSPECIFIED  "}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Backends get a type for each series of tiles. An up/down counter has the type gauge.
func TestTheKindOfTilesIsForwarded(t *testing.T) {
	var samples []tile.Sample
	for kind := series.Kind(0); kind <= series.LastKind; kind++ {
		s := &tile.Series{Kind: kind, Labels: labels.FromStrings("__name__", fmt.Sprint("m", kind))}
		samples = append(samples, tile.Sample{Series: s, T: 1, V: -1})
	}
	f, err := encodeTiles(samples)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := snappy.Decode(nil, f.body)
	var r remotewrite.Request
	if err == nil {
		err = r.DecodeV2(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := map[series.Kind]remotewrite.MetricType{
		series.Counter: remotewrite.CounterType, series.Timer: remotewrite.HistogramType,
		series.Gauge: remotewrite.GaugeType, series.Set: remotewrite.GaugeType, series.Check: remotewrite.GaugeType,
		series.UpDown: remotewrite.GaugeType,
	}
	for i := range r.Series {
		if kind := series.Kind(i); r.Series[i].Metadata.Type != want[kind] {
			t.Errorf("%v is forwarded as type %v, want %v", kind, r.Series[i].Metadata.Type, want[kind])
		}
	}
}
