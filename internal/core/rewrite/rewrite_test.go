package rewrite_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/rewrite"
	"github.com/freshet-io/freshet/internal/core/write"
)

// base is the time of the tests' first sample, in Unix milliseconds.
const base = 1_700_006_400_000

// form is the protocol and version of a request.
type form int

const (
	version1 form = iota
	version2
	built // from OTLP, by a remotewrite.Builder
	forms
)

// series is a series of a request, before it is encoded in a form.
type series struct {
	labels     [][2]string
	samples    []remotewrite.Sample
	histograms []remotewrite.Histogram
	exemplars  []exemplar
	typ        remotewrite.MetricType
	help, unit string // version 2
}

type exemplar struct {
	labels [][2]string
	value  float64
	t      int64
}

// family is the metadata of a metric, in the forms version1 and built.
type family struct {
	name, help string
	typ        remotewrite.MetricType
}

// request returns a request with these series and families in a form, as if it had been received
// and read.
func request(t testing.TB, f form, all []series, families []family) *write.Incoming {
	t.Helper()
	r := new(write.Incoming)
	var body []byte
	var err error
	switch f {
	case version1:
		if body, err = marshalV1(all, families); err == nil {
			err = r.DecodeV1(body)
		}
	case version2:
		if body, err = marshalV2(all); err == nil {
			err = r.DecodeV2(body)
		}
	case built:
		build(&r.Request, all, families)
		return r
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Compressed = snappy.Encode(nil, body)
	return r
}

func marshalV1(all []series, families []family) ([]byte, error) {
	var m prompb.WriteRequest
	pairs := func(ls [][2]string) (out []prompb.Label) {
		for _, l := range ls {
			out = append(out, prompb.Label{Name: l[0], Value: l[1]})
		}
		return out
	}
	for _, s := range all {
		ts := prompb.TimeSeries{Labels: pairs(s.labels)}
		for _, x := range s.samples {
			ts.Samples = append(ts.Samples, prompb.Sample{Timestamp: x.Time, Value: x.Value})
		}
		for _, h := range s.histograms {
			out := prompb.Histogram{
				Sum: h.Sum, Schema: h.Schema, ZeroThreshold: h.ZeroThreshold, ResetHint: prompb.Histogram_ResetHint(h.ResetHint),
				PositiveDeltas: h.PositiveDeltas, PositiveCounts: h.PositiveCounts, CustomValues: h.CustomValues,
				Timestamp: h.Time,
			}
			for _, p := range h.PositiveSpans {
				out.PositiveSpans = append(out.PositiveSpans, prompb.BucketSpan{Offset: p.Offset, Length: p.Length})
			}
			switch h.Count.Form {
			case remotewrite.IntegerCount:
				out.Count = &prompb.Histogram_CountInt{CountInt: h.Count.Integer}
			case remotewrite.FloatCount:
				out.Count = &prompb.Histogram_CountFloat{CountFloat: h.Count.Float}
			}
			if h.ZeroCount.Form == remotewrite.IntegerCount {
				out.ZeroCount = &prompb.Histogram_ZeroCountInt{ZeroCountInt: h.ZeroCount.Integer}
			}
			ts.Histograms = append(ts.Histograms, out)
		}
		for _, x := range s.exemplars {
			ts.Exemplars = append(ts.Exemplars, prompb.Exemplar{Labels: pairs(x.labels), Value: x.value, Timestamp: x.t})
		}
		m.Timeseries = append(m.Timeseries, ts)
	}
	for _, f := range families {
		m.Metadata = append(m.Metadata, prompb.MetricMetadata{
			MetricFamilyName: f.name, Help: f.help, Type: prompb.MetricMetadata_MetricType(f.typ),
		})
	}
	return m.Marshal()
}

func marshalV2(all []series) ([]byte, error) {
	var m writev2.Request
	symbols := writev2.NewSymbolTable()
	refs := func(ls [][2]string) (out []uint32) {
		for _, l := range ls {
			out = append(out, symbols.Symbolize(l[0]), symbols.Symbolize(l[1]))
		}
		return out
	}
	for _, s := range all {
		ts := writev2.TimeSeries{LabelsRefs: refs(s.labels), Metadata: writev2.Metadata{
			Type: writev2.Metadata_MetricType(s.typ), HelpRef: symbols.Symbolize(s.help), UnitRef: symbols.Symbolize(s.unit),
		}}
		for _, x := range s.samples {
			ts.Samples = append(ts.Samples, writev2.Sample{Timestamp: x.Time, Value: x.Value, StartTimestamp: x.Start})
		}
		for _, h := range s.histograms {
			out := writev2.Histogram{
				Sum: h.Sum, Schema: h.Schema, ZeroThreshold: h.ZeroThreshold, ResetHint: writev2.Histogram_ResetHint(h.ResetHint),
				PositiveDeltas: h.PositiveDeltas, PositiveCounts: h.PositiveCounts, CustomValues: h.CustomValues,
				Timestamp: h.Time, StartTimestamp: h.Start,
			}
			for _, p := range h.PositiveSpans {
				out.PositiveSpans = append(out.PositiveSpans, writev2.BucketSpan{Offset: p.Offset, Length: p.Length})
			}
			switch h.Count.Form {
			case remotewrite.IntegerCount:
				out.Count = &writev2.Histogram_CountInt{CountInt: h.Count.Integer}
			case remotewrite.FloatCount:
				out.Count = &writev2.Histogram_CountFloat{CountFloat: h.Count.Float}
			}
			if h.ZeroCount.Form == remotewrite.IntegerCount {
				out.ZeroCount = &writev2.Histogram_ZeroCountInt{ZeroCountInt: h.ZeroCount.Integer}
			}
			ts.Histograms = append(ts.Histograms, out)
		}
		for _, x := range s.exemplars {
			ts.Exemplars = append(ts.Exemplars, writev2.Exemplar{LabelsRefs: refs(x.labels), Value: x.value, Timestamp: x.t})
		}
		m.Timeseries = append(m.Timeseries, ts)
	}
	m.Symbols = symbols.Symbols()
	return m.Marshal()
}

func build(r *remotewrite.Request, all []series, families []family) {
	var b remotewrite.Builder
	b.Begin(r, nil)
	for _, s := range all {
		b.Series()
		for _, l := range s.labels {
			b.Label(l[0], l[1])
		}
		b.Type(s.typ)
		for _, x := range s.samples {
			b.Sample(x)
		}
		for _, h := range s.histograms {
			b.Histogram(h)
		}
		for _, x := range s.exemplars {
			b.Exemplar(x.value, x.t)
			for _, l := range x.labels {
				b.Label(l[0], l[1])
			}
		}
	}
	for _, f := range families {
		b.Family(f.name, f.help, "", f.typ)
	}
	b.Finish()
}

// decoded reads a body, like a member that applies it.
func decoded(t testing.TB, b rewrite.Body) *remotewrite.Request {
	t.Helper()
	plain, err := snappy.Decode(nil, b.Bytes)
	r := new(remotewrite.Request)
	switch {
	case err != nil:
	case b.Form == entry.RemoteWrite1:
		err = r.DecodeV1(plain)
	case b.Form == entry.RemoteWrite2:
		err = r.DecodeV2(plain)
	default:
		err = fmt.Errorf("form %d", b.Form)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// random makes random requests. They choose from few different series, so that requests have series in
// common.
type random struct {
	*rand.Rand
	wild bool // series may be empty, or have times far in the past or future
}

func pick[T any](r random, all ...T) T { return all[r.IntN(len(all))] }

func (r random) request() (all []series, families []family) {
	for range 1 + r.IntN(6) {
		all = append(all, r.series())
	}
	for range pick(r, 0, 0, 0, 2) {
		typ := remotewrite.MetricType(r.IntN(4))
		families = append(families, family{"m" + pick(r, "0", "1", "2"), pick(r, "", "A text."), typ})
	}
	return all, families
}

func (r random) series() (s series) {
	name := pick(r, "m0", "m1", "m2", "dropped")
	s.labels = append(s.labels, [2]string{"__name__", name}, [2]string{"host", pick(r, "a", "b", "A")})
	switch r.IntN(12) {
	case 0:
		s.labels = append(s.labels, [2]string{"replica", pick(r, "x", "y", "")})
	case 1:
		s.labels = append(s.labels, [2]string{"empty", ""})
	case 2:
		slices.Reverse(s.labels)
	case 3:
		s.labels = append(s.labels, [2]string{"host", "twice"})
	case 4:
		s.labels = append(s.labels, [2]string{"long", strings.Repeat("v", 50)})
	case 5:
		s.labels = append(s.labels, [2]string{"zone", pick(r, "\xff", "", "q")}, [2]string{"z2", "1"}, [2]string{"z3", "1"})
	case 6:
		s.labels = s.labels[1:]
	}
	const hour = 3600_000
	t := base + 1000*r.Int64N(60)
	if r.wild {
		t += pick[int64](r, 0, 0, 0, 0, 0, 0, 0, 0, 0, -10*hour, 2*hour)
	}
	for range r.IntN(5) {
		s.samples = append(s.samples, remotewrite.Sample{
			Value: pick(r, 1, 1, 2, 0, math.Float64frombits(value.StaleNaN)), Time: t, Start: pick(r, 0, 0, t-500, base-1000),
		})
		t += pick[int64](r, 0, 1000, 1000, 2000, -3000)
	}
	for range pick(r, 0, 0, 1, 4) {
		s.histograms = append(s.histograms, r.histogram(t))
		t += pick[int64](r, 0, 1000, -3000)
	}
	for range pick(r, 0, 0, 2) {
		ls := [][2]string{{pick(r, "trace", ""), pick(r, "1", "2")}}
		s.exemplars = append(s.exemplars, exemplar{ls, 1, pick(r, 0, t, t+1)})
	}
	if len(s.samples)+len(s.histograms)+len(s.exemplars) == 0 && !r.wild {
		s.samples = []remotewrite.Sample{{Value: 3, Time: t}}
	}
	s.typ = remotewrite.MetricType(pick(r, 0, 0, 1, 2, 77))
	s.help, s.unit = pick(r, "", "", "A help."), pick(r, "", "s")
	return s
}

func (r random) histogram(t int64) remotewrite.Histogram {
	n := uint64(1 + r.IntN(2))
	h := remotewrite.Histogram{
		Count:     remotewrite.Count{Form: remotewrite.IntegerCount, Integer: n},
		ZeroCount: remotewrite.Count{Form: remotewrite.IntegerCount},
		Sum:       float64(n), Schema: 3, ZeroThreshold: 1e-9,
		PositiveSpans: []remotewrite.Span{{Offset: -2, Length: 1}}, PositiveDeltas: []int64{int64(n)},
		ResetHint: remotewrite.ResetHint(r.IntN(3)), Time: t, Start: pick(r, 0, 0, t-100),
	}
	switch r.IntN(5) {
	case 0: // of floats
		h.Count, h.ZeroCount = remotewrite.Count{Form: remotewrite.FloatCount, Float: 1.5}, remotewrite.Count{}
		h.PositiveDeltas, h.PositiveCounts = nil, []float64{1.5}
	case 1: // integers and floats mixed, which no store accepts
		h.Count = remotewrite.Count{Form: remotewrite.FloatCount, Float: 1.5}
	case 2: // classic bounds
		h.Schema, h.ZeroThreshold, h.CustomValues = -53, 0, []float64{1, 2}
		h.PositiveSpans[0].Offset = 0
	}
	return h
}

// rules returns the rules of a seed: none, one kind alone, or all kinds together.
func (r random) rules() *labelrules.Rules {
	rules := &labelrules.Rules{}
	kind := r.IntN(6)
	if kind == 1 || kind == 5 {
		rules.Limits = labelrules.Limits{Labels: pick(r, 0, 3, 4), NameBytes: pick(r, 0, 8), ValueBytes: pick(r, 0, 40)}
	}
	if kind == 2 || kind == 5 {
		rules.Replica = "replica"
	}
	if kind >= 3 {
		step := func(action relabel.Action, source model.LabelName, regex, target, to string) {
			rules.Relabel = append(rules.Relabel, &relabel.Config{
				Action: action, SourceLabels: model.LabelNames{source}, Regex: relabel.MustNewRegexp(regex),
				TargetLabel: target, Replacement: to, NameValidationScheme: model.UTF8Validation,
			})
		}
		step(relabel.Drop, "__name__", "dropped", "", "")
		step(relabel.Replace, "host", "A", "host", "a") // turns two series into one
		if kind > 3 {
			step(relabel.Replace, "__name__", "m2", "__name__", pick(r, "m1", ""))
		}
	}
	return rules
}

// lines applies rules to requests. It returns the parts and families that a store would see, by
// kind and in order, one line each. It also returns the parts that the store would refuse and drop.
func lines(rules *labelrules.Rules, all ...*remotewrite.Request) (found map[string][]string, o outcome.Outcome) {
	found = map[string][]string{}
	add := func(kind, format string, args ...any) {
		found[kind] = append(found[kind], fmt.Sprintf(format, args...))
	}
	for _, r := range all {
		for i := range r.Series {
			s := &r.Series[i]
			parts := outcome.Counts{Samples: len(r.Samples(s)), Histograms: len(r.Histograms(s)), Exemplars: len(r.Exemplars(s))}
			if parts == (outcome.Counts{}) && r.Version2() {
				o.Refuse(outcome.NoSamples, parts)
				continue
			}
			ls, refusal := rules.Resolve(r, s)
			if refusal != nil {
				o.Refuse(refusal.Reason, parts)
				continue
			}
			if ls.IsEmpty() {
				o.Dropped.Add(parts)
				continue
			}
			name := ls.String()
			if m := s.Metadata; m != (remotewrite.Metadata{}) && parts != (outcome.Counts{}) {
				add("metadata", "%s %d %q %q", name, m.Type, r.Symbol(m.Help), r.Symbol(m.Unit))
			}
			for _, x := range r.Samples(s) {
				add("samples", "%s %d %x %d", name, x.Time, math.Float64bits(x.Value), x.Start)
			}
			for _, x := range r.Histograms(s) {
				add("histograms", "%s %x %+v", name, math.Float64bits(x.Sum), x)
			}
			for i := range r.Exemplars(s) {
				x := &r.Exemplars(s)[i]
				ls, err := r.ExemplarLabels(nil, x)
				if err != nil {
					ls = []remotewrite.Label{{}} // no store accepts an empty label or the original labels
				}
				add("exemplars", "%s %d %x %q", name, x.Time, math.Float64bits(x.Value), ls)
			}
		}
		for _, f := range r.Families {
			add("families", "%q %q %q %d", f.Name, f.Help, f.Unit, f.Type)
		}
	}
	found["metadata"] = slices.Compact(found["metadata"]) // each piece of a series that was cut repeats its metadata
	return found, o
}

// seeds returns how many seeds a test runs: many more in a soak.
func seeds(n uint64) uint64 {
	if os.Getenv("FRESHET_SOAK") != "" {
		return 13 * n
	}
	return n
}

func withoutExample(o outcome.Outcome) outcome.Outcome {
	o.First = outcome.Example{}
	return o
}

// A member finds in the bodies exactly what the rules left, and each part has one fate. This covers
// random requests in all forms, random rules, and bodies of any size.
func TestWhatTheRulesLeft(t *testing.T) {
	var unchanged, cut int
	for seed := range seeds(2000) {
		r := random{rand.New(rand.NewPCG(seed, 1)), true}
		all, families := r.request()
		f := form(r.IntN(int(forms)))
		sent, rules := request(t, f, all, families), r.rules()
		if f == version2 {
			families = nil
		}
		size := pick(r, 150, 400, 1<<20)
		w := rewrite.Sized(size, 1<<20)
		bodies, o := w.Rewrite(sent, rules)
		var applied []*remotewrite.Request
		for _, b := range bodies {
			applied = append(applied, decoded(t, b))
		}
		got, there := lines(&labelrules.Rules{}, applied...)
		if there.Add(&o); there.AnyRefused() != (o.First != outcome.Example{}) {
			t.Fatalf("seed %d: %+v", seed, o)
		}
		want, wanted := lines(rules, &sent.Request)
		if fmt.Sprint(got) != fmt.Sprint(want) || withoutExample(there) != withoutExample(wanted) {
			t.Fatalf("seed %d, %d bodies, form %d, rules %+v:\ngot  %v\n%+v\nwant %v\n%+v",
				seed, len(bodies), f, rules, got, there, want, wanted)
		}
		if itself(bodies, sent) {
			unchanged++
		}
		if len(bodies) > 2 {
			cut++
		}
	}
	if unchanged < 300 || cut < 300 {
		t.Errorf("%d requests stayed unchanged, and %d were cut into many bodies, want at least 300 of each",
			unchanged, cut)
	}
}

// replacing returns a rule that sets the label `target` to y if the label `source` matches.
func replacing(source model.LabelName, regex, target string) *labelrules.Rules {
	step := &relabel.Config{
		Action: relabel.Replace, Regex: relabel.MustNewRegexp(regex), TargetLabel: target, Replacement: "y",
		NameValidationScheme: model.UTF8Validation,
	}
	if source != "" {
		step.SourceLabels = model.LabelNames{source}
	}
	return &labelrules.Rules{Relabel: []*relabel.Config{step}}
}

// dropping returns a rule that removes a label.
func dropping(label string) []*relabel.Config {
	return []*relabel.Config{
		{Action: relabel.LabelDrop, Regex: relabel.MustNewRegexp(label), NameValidationScheme: model.UTF8Validation},
	}
}

// itself reports whether the only body is the request's own, not a copy.
func itself(bodies []rewrite.Body, sent *write.Incoming) bool {
	return len(bodies) == 1 && sent.Compressed != nil && &bodies[0].Bytes[0] == &sent.Compressed[0]
}

// If the rules change nothing, the only body is the request's own: the very bytes that were
// received.
func TestUnchanged(t *testing.T) {
	sample := []remotewrite.Sample{{Value: 1, Time: base}}
	named := func(pairs ...string) series {
		s := series{labels: [][2]string{{"__name__", "up"}}, samples: sample}
		for i := 0; i < len(pairs); i += 2 {
			s.labels = append(s.labels, [2]string{pairs[i], pairs[i+1]})
		}
		return s
	}
	adding := replacing("", "", "added")
	relabelled := replacing("job", "x", "job")
	limited := func(labels, name, value int) *labelrules.Rules {
		return &labelrules.Rules{Limits: labelrules.Limits{Labels: labels, NameBytes: name, ValueBytes: value}}
	}
	for _, c := range []struct {
		why   string
		rules *labelrules.Rules
		of    series
		want  bool
	}{
		{"no rules", &labelrules.Rules{}, named("job", "a"), true},
		{"no rules, not sorted, without a value", &labelrules.Rules{}, named("job", "a", "a", "", "b", "1"), true},
		{"no rules, and labels that members refuse", &labelrules.Rules{}, named("job", "a", "job", "b"), true},
		{"limits that hold", limited(2, 8, 2), named("job", "ab"), true},
		{"too many labels", limited(2, 0, 0), named("job", "ab", "x", "1"), false},
		{"too many labels, by their number alone", limited(4, 0, 0), named("a", "1", "b", "1", "c", "1", "d", "1"), false},
		{"long labels", limited(3, 0, 0), named("a", strings.Repeat("a", 200), "b", strings.Repeat("b", 200)), true},
		{"a name that is too long", limited(0, 8, 0), named("job_job_job", "a"), false},
		{"a value that is too long", limited(0, 0, 2), named("job", "abc"), false},
		{"a value that would be too long for a name", limited(0, 8, 0), named("job", "a long value"), true},
		{"no replica label", &labelrules.Rules{Replica: "replica"}, named("job", "a"), true},
		{"the replica label's name as a value", &labelrules.Rules{Replica: "replica"}, named("job", "replica"), true},
		{"a replica label", &labelrules.Rules{Replica: "replica"}, named("replica", "a"), false},
		{"a rule for other series", relabelled, named("job", "a"), true},
		{"a rule for other series, not sorted, without a value", relabelled, named("job", "a", "b", "1", "a", ""), true},
		{"a rule that adds a label", adding, named("job", "a"), false},
		{"a rule for this series", relabelled, named("job", "x"), false},
	} {
		for f := range built {
			var w rewrite.Rewriter
			sent := request(t, f, []series{c.of, c.of}, []family{{"up", "", 1}})
			bodies, o := w.Rewrite(sent, c.rules)
			same := itself(bodies, sent) && bodies[0].Form == entry.Form(f+1) && o == outcome.Outcome{}
			if same != c.want {
				t.Errorf("%s, form %d: unchanged %v, want %v; %d bodies, %+v", c.why, f, same, c.want, len(bodies), o)
			}
		}
	}
}

// If the rules turn two series into one, their samples keep their order: of two values at one time, the
// first counts.
func TestTwoBecomeOne(t *testing.T) {
	one := func(host string, v float64) series {
		ls := [][2]string{{"__name__", "up"}, {"host", host}}
		return series{labels: ls, samples: []remotewrite.Sample{{Value: v, Time: base}}}
	}
	rules := &labelrules.Rules{Relabel: dropping("host")}
	const both = `[{__name__="up"} %d %x 0 {__name__="up"} %[1]d %[3]x 0]`
	want := fmt.Sprintf(both, base, math.Float64bits(1), math.Float64bits(2))
	for f := range forms {
		var w rewrite.Rewriter
		bodies, _ := w.Rewrite(request(t, f, []series{one("z", 1), one("a", 2)}, nil), rules)
		if len(bodies) != 1 {
			t.Fatalf("%d bodies", len(bodies))
		}
		got, _ := lines(&labelrules.Rules{}, decoded(t, bodies[0]))
		if fmt.Sprint(got["samples"]) != want {
			t.Errorf("form %d: %v, want %s", f, got["samples"], want)
		}
	}
}

// Each body fits into an entry. A series that is too large for one body is cut, and its parts keep
// their order.
func TestSizes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	long := series{labels: [][2]string{{"__name__", "up"}}}
	for i := range int64(100_000) {
		long.samples = append(long.samples, remotewrite.Sample{Value: r.Float64(), Time: base + i})
	}
	short := series{labels: long.labels, samples: []remotewrite.Sample{{Value: 1, Time: base - 1}}}
	all := []series{short, long, short}
	for range 400 { // random, so that compression does not make the text smaller
		random := make([]byte, 4000)
		for i := range random {
			random[i] = byte(r.IntN(128))
		}
		ls := [][2]string{{"__name__", "up"}, {"random", string(random)}}
		all = append(all, series{labels: ls, samples: long.samples[:1]})
	}
	var w rewrite.Rewriter
	sent := request(t, version2, all, nil)
	bodies, o := w.Rewrite(sent, &labelrules.Rules{})
	if len(bodies) < 4 || len(bodies) > 8 {
		t.Errorf("%d bodies from a request of %d bytes, want 4 to 8", len(bodies), len(sent.Compressed))
	}
	var applied []*remotewrite.Request
	for _, b := range bodies {
		e := entry.Entry{Kind: entry.KindRequest, Shape: 1, Request: entry.Request{Tenant: "t", Form: b.Form, Body: b.Bytes}}
		if size := len(e.Append(nil)); size > entry.TargetSize {
			t.Errorf("an entry has %d bytes, want at most entry.TargetSize", size)
		}
		applied = append(applied, decoded(t, b))
	}
	got, _ := lines(&labelrules.Rules{}, applied...)
	want, _ := lines(&labelrules.Rules{}, &sent.Request)
	if !slices.Equal(got["samples"], want["samples"]) || o != (outcome.Outcome{}) {
		t.Errorf("got %d samples, want %d in the same order; outcome %+v, want an empty one",
			len(got["samples"]), len(want["samples"]), o)
	}
}

// A part that fits into no entry is refused, and all other parts are kept.
func TestTooLargeForTheLog(t *testing.T) {
	huge := strings.Repeat("h", 3000)
	h := random{rand.New(rand.NewPCG(1, 1)), false}.histogram(base)
	vast := h
	vast.PositiveDeltas = slices.Repeat([]int64{1 << 40}, 1000)
	name := func(n string) [][2]string { return [][2]string{{"__name__", n}} }
	sample := []remotewrite.Sample{{Value: 1, Time: base}}
	all := []series{
		{labels: name("first"), samples: sample},
		{labels: [][2]string{{"__name__", "up"}, {"huge", huge}}, samples: sample},
		{labels: name("histograms"), histograms: []remotewrite.Histogram{h, vast, h}},
		{labels: name("exemplars"), samples: sample, exemplars: []exemplar{
			{[][2]string{{"a", "1"}}, 1, base}, {[][2]string{{"a", huge}}, 1, base},
		}},
		{labels: name("last"), samples: sample},
	}
	for f := range forms {
		sent := request(t, f, all, []family{{"up", huge, 1}, {"small", "", 1}})
		bodies, o := rewrite.Sized(500, 1000).Rewrite(sent, &labelrules.Rules{})
		var applied []*remotewrite.Request
		for _, b := range bodies {
			applied = append(applied, decoded(t, b))
		}
		got, _ := lines(&labelrules.Rules{}, applied...)
		families := 1
		if f == version2 {
			families = 0
		}
		for kind, want := range map[string]int{"samples": 3, "histograms": 2, "exemplars": 1, "families": families} {
			if len(got[kind]) != want {
				t.Errorf("form %d: %d %s: %v", f, len(got[kind]), kind, got)
			}
		}
		var want outcome.Outcome
		want.Refused[outcome.TooLongLabel].Samples = 1
		want.Refused[outcome.BadHistogram].Histograms = 1
		want.Refused[outcome.BadExemplar].Exemplars = 1
		if withoutExample(o) != want || !strings.Contains(o.Text(), "the most that fits into an entry of the log") {
			t.Errorf("form %d: %+v", f, o)
		}
	}
}

// A reader refuses a request with too many small parts for its length. A rewritten body can be shorter
// than its request. A reader must not refuse the body for that, or no member could apply it.
func TestManySmallParts(t *testing.T) {
	named := series{labels: [][2]string{{"__name__", "x"}, {"replica", "a"}}}
	samples, histograms, exemplars, all := named, named, named, named
	samples.samples = make([]remotewrite.Sample, 50_000)
	histograms.histograms = make([]remotewrite.Histogram, 20_000)
	exemplars.exemplars = make([]exemplar, 20_000)
	all.samples = samples.samples[:1]
	for _, c := range []struct {
		sent []series
		want outcome.Counts
	}{
		{[]series{samples}, outcome.Counts{Samples: 50_000}},
		{[]series{histograms}, outcome.Counts{Histograms: 20_000}},
		{[]series{exemplars}, outcome.Counts{Exemplars: 20_000}},
		{slices.Repeat([]series{all}, 20_000), outcome.Counts{Samples: 20_000}},
	} {
		var w rewrite.Rewriter
		bodies, _ := w.Rewrite(request(t, built, c.sent, nil), &labelrules.Rules{Replica: "replica"})
		parts := outcome.Counts{}
		for _, b := range bodies {
			parts.Add(decoded(t, b).Counts())
		}
		if parts != c.want {
			t.Errorf("%+v, want %+v", parts, c.want)
		}
	}
}

// An empty text with a symbol of its own is metadata; a missing text is not.
func TestEmptyMetadata(t *testing.T) {
	one := writev2.TimeSeries{LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Timestamp: base}}}
	for help, want := range map[uint32]int{0: 0, 3: 1} {
		one.Metadata.HelpRef = help
		symbols := []string{"", "__name__", "up", ""}
		body, err := (&writev2.Request{Symbols: symbols, Timeseries: []writev2.TimeSeries{one}}).Marshal()
		r := new(write.Incoming)
		if err == nil {
			err = r.DecodeV2(body)
		}
		if err != nil {
			t.Fatal(err)
		}
		var w rewrite.Rewriter
		bodies, _ := w.Rewrite(r, &labelrules.Rules{})
		if got, _ := lines(&labelrules.Rules{}, decoded(t, bodies[0])); len(got["metadata"]) != want {
			t.Errorf("with symbol %d as help, the body has metadata %q, want metadata only for a symbol above 0",
				help, got["metadata"])
		}
	}
}

// Exemplars whose labels cannot be read stay, so that members refuse them.
func TestUnreadableExemplar(t *testing.T) {
	broken := []byte{0x0a, 9, 'a'} // a label that ends too soon
	x := slices.Concat([]byte{0x0a, byte(len(broken))}, broken, []byte{0x18, 5})
	label := append([]byte{0x0a, 14, 0x0a, 8}, "__name__\x12\x02up"...)
	s := slices.Concat(label, []byte{0x12, 2, 0x10, 5, 0x1a, byte(len(x))}, x)
	r := new(write.Incoming)
	if err := r.DecodeV1(append([]byte{0x0a, byte(len(s))}, s...)); err != nil {
		t.Fatal(err)
	}
	var w rewrite.Rewriter
	bodies, _ := w.Rewrite(r, &labelrules.Rules{})
	got, _ := lines(&labelrules.Rules{}, decoded(t, bodies[0]))
	if len(bodies) != 1 || !strings.Contains(fmt.Sprint(got["exemplars"]), `[{"" ""}]`) {
		t.Errorf("%v", got)
	}
}

// A Rewriter's bodies do not share memory with each other. The next request does not change the bodies
// of earlier ones.
func TestARewriterIsUsedAgain(t *testing.T) {
	w := rewrite.Sized(200, 1<<20)
	for seed := range uint64(500) {
		r := random{rand.New(rand.NewPCG(seed, 3)), true}
		all, families := r.request()
		sent, rules := request(t, form(r.IntN(int(forms))), all, families), r.rules()
		got, o := w.Rewrite(sent, rules)
		want, wanted := rewrite.Sized(200, 1<<20).Rewrite(sent, rules)
		same := func(a, b rewrite.Body) bool { return a.Form == b.Form && bytes.Equal(a.Bytes, b.Bytes) }
		if !slices.EqualFunc(got, want, same) || o != wanted {
			t.Fatalf("seed %d: after earlier requests, the bodies or the outcome differ from those of a new Rewriter",
				seed)
		}
	}
}

func TestUnchangedAllocatesNothing(t *testing.T) {
	for f := range built {
		sent, rules := usual(t, f)
		var w rewrite.Rewriter
		if n := testing.AllocsPerRun(100, func() {
			if bodies, _ := w.Rewrite(sent, rules); !itself(bodies, sent) {
				t.Fatal(errors.New("it was changed"))
			}
		}); n != 0 {
			t.Errorf("form %d: %v allocations", f, n)
		}
	}
}

// usual returns a request of 2,000 series of ten labels, as Prometheus sends them, and the limits
// of the default configuration.
func usual(t testing.TB, f form) (*write.Incoming, *labelrules.Rules) {
	var all []series
	for i := range 2000 {
		s := series{samples: []remotewrite.Sample{{Value: float64(i), Time: base}}}
		s.labels = append(s.labels, [2]string{"__name__", "http_request_duration_seconds_bucket"})
		for l := range 9 {
			s.labels = append(s.labels, [2]string{fmt.Sprint("label_", l), fmt.Sprint("value-of-a-label-", i%(1+100*l))})
		}
		all = append(all, s)
	}
	limits := labelrules.Limits{Labels: 100, NameBytes: 1 << 10, ValueBytes: 4 << 10}
	return request(t, f, all, nil), &labelrules.Rules{Limits: limits}
}

// Bound with limits alone: 0 allocs/op, and a quarter of the time that it takes to decode the request.
// Relabelling costs as much as a series that is new to a store, since nothing remembers its result.
func BenchmarkRewrite(b *testing.B) {
	for f, name := range map[form]string{version1: "v1", version2: "v2"} {
		sent, rules := usual(b, f)
		for _, c := range []struct {
			name  string
			rules *labelrules.Rules
		}{
			{"limits", rules},
			{"replica", &labelrules.Rules{Limits: rules.Limits, Replica: "label_8"}},
			{"relabel", &labelrules.Rules{Limits: rules.Limits, Relabel: dropping("label_3")}},
		} {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				var w rewrite.Rewriter
				b.ReportAllocs()
				for b.Loop() {
					if bodies, _ := w.Rewrite(sent, c.rules); len(bodies) != 1 {
						b.Fatal(len(bodies))
					}
				}
			})
		}
	}
}
