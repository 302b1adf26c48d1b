package remotewrite

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// The plain form of a request, in which the results of both decoders are compared. Floats are
// compared by their bits, since one particular NaN marks a stale series.
type (
	plain struct {
		Series   []plainSeries
		Families []plainFamily
	}
	plainSeries struct {
		Labels     [][2]string
		Samples    [][3]uint64 // value, time, start
		Exemplars  []plainExemplar
		Histograms []plainHistogram
		Type       int32
		Help, Unit string
	}
	plainExemplar struct {
		Labels      [][2]string
		Value, Time uint64
	}
	plainFamily struct {
		Name, Help, Unit string
		Type             int32
	}
	plainHistogram struct {
		Count, Zero                            string
		Sum, Threshold                         uint64
		Schema, Hint                           int32
		NegativeSpans, PositiveSpans           [][2]int64
		NegativeDeltas, PositiveDeltas         []int64
		NegativeCounts, PositiveCounts, Custom []uint64
		Time, Start                            int64
	}
)

// FuzzDecodeV1 checks that our decoder reads from any body what Prometheus' decoder reads, or that both
// refuse it.
func FuzzDecodeV1(f *testing.F) {
	for _, seed := range seedsV1(f) {
		f.Add(seed)
	}
	var r Request // the request is reused, as in production
	f.Fuzz(func(t *testing.T, body []byte) {
		var reference prompb.WriteRequest
		refused := reference.Unmarshal(body)
		compare(t, &r, readV1(&r, body), func() plain { return plainOfV1(&reference) }, refused)
	})
}

// FuzzDecodeV2 is FuzzDecodeV1 for version 2. Prometheus' decoder does not check that a
// referenced symbol exists; ours does.
func FuzzDecodeV2(f *testing.F) {
	for _, seed := range seedsV2(f) {
		f.Add(seed)
	}
	var r Request
	f.Fuzz(func(t *testing.T, body []byte) {
		var reference writev2.Request
		refused := reference.Unmarshal(body)
		if refused == nil {
			refused = checkRefsOf(&reference)
		}
		compare(t, &r, r.DecodeV2(body), func() plain { return plainOfV2(&reference) }, refused)
	})
}

func compare(t *testing.T, r *Request, err error, reference func() plain, refused error) {
	t.Helper()
	if errors.Is(err, ErrTooManyParts) { // Prometheus' decoder has no such bound
		return
	}
	if (err != nil) != (refused != nil) {
		t.Fatalf("our decoder's error is %v, want %v as from Prometheus", err, refused)
	}
	if err != nil {
		return
	}
	if got, want := fmt.Sprintf("%+v", plainOf(r)), fmt.Sprintf("%+v", reference()); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// readV1 decodes a request. It also parses all labels, which DecodeV1 does not.
func readV1(r *Request, body []byte) error {
	if err := r.DecodeV1(body); err != nil {
		return err
	}
	for i := range r.Series {
		if _, err := r.Labels(nil, &r.Series[i]); err != nil {
			return err
		}
		for _, e := range r.Exemplars(&r.Series[i]) {
			if _, err := r.ExemplarLabels(nil, &e); err != nil {
				return err
			}
		}
	}
	return nil
}

func plainOf(r *Request) (p plain) {
	labels := func(list []Label, _ error) (pairs [][2]string) {
		for _, l := range list {
			pairs = append(pairs, [2]string{string(l.Name), string(l.Value)})
		}
		return pairs
	}
	for _, s := range r.Series {
		ps := plainSeries{Labels: labels(r.Labels(nil, &s)), Type: int32(s.Metadata.Type)}
		if r.v2 {
			ps.Help, ps.Unit = string(r.Symbol(s.Metadata.Help)), string(r.Symbol(s.Metadata.Unit))
		}
		for _, x := range r.Samples(&s) {
			ps.Samples = append(ps.Samples, [3]uint64{math.Float64bits(x.Value), uint64(x.Time), uint64(x.Start)})
		}
		for _, x := range r.Exemplars(&s) {
			ps.Exemplars = append(ps.Exemplars,
				plainExemplar{labels(r.ExemplarLabels(nil, &x)), math.Float64bits(x.Value), uint64(x.Time)})
		}
		for _, x := range r.Histograms(&s) {
			count := func(c Count) string {
				return [...]string{NoCount: "", IntegerCount: fmt.Sprint("int ", c.Integer),
					FloatCount: fmt.Sprint("float ", math.Float64bits(c.Float))}[c.Form]
			}
			spans := func(list []Span) (pairs [][2]int64) {
				for _, s := range list {
					pairs = append(pairs, [2]int64{int64(s.Offset), int64(s.Length)})
				}
				return pairs
			}
			ps.Histograms = append(ps.Histograms, plainHistogram{
				count(x.Count), count(x.ZeroCount), math.Float64bits(x.Sum), math.Float64bits(x.ZeroThreshold), x.Schema,
				int32(x.ResetHint),
				spans(x.NegativeSpans), spans(x.PositiveSpans), x.NegativeDeltas, x.PositiveDeltas,
				bitsOf(x.NegativeCounts), bitsOf(x.PositiveCounts), bitsOf(x.CustomValues), x.Time, x.Start,
			})
		}
		p.Series = append(p.Series, ps)
	}
	for _, m := range r.Families {
		p.Families = append(p.Families, plainFamily{string(m.Name), string(m.Help), string(m.Unit), int32(m.Type)})
	}
	return p
}

func bitsOf(list []float64) (bits []uint64) {
	for _, v := range list {
		bits = append(bits, math.Float64bits(v))
	}
	return bits
}

func plainOfV1(m *prompb.WriteRequest) (p plain) {
	labels := func(list []prompb.Label) (pairs [][2]string) {
		for _, l := range list {
			pairs = append(pairs, [2]string{l.Name, l.Value})
		}
		return pairs
	}
	spans := func(list []prompb.BucketSpan) (pairs [][2]int64) {
		for _, s := range list {
			pairs = append(pairs, [2]int64{int64(s.Offset), int64(s.Length)})
		}
		return pairs
	}
	for _, s := range m.Timeseries {
		ps := plainSeries{Labels: labels(s.Labels)}
		for _, x := range s.Samples {
			ps.Samples = append(ps.Samples, [3]uint64{math.Float64bits(x.Value), uint64(x.Timestamp)})
		}
		for _, x := range s.Exemplars {
			ps.Exemplars = append(ps.Exemplars, plainExemplar{labels(x.Labels), math.Float64bits(x.Value), uint64(x.Timestamp)})
		}
		for _, x := range s.Histograms {
			var count, zero string
			switch c := x.Count.(type) {
			case *prompb.Histogram_CountInt:
				count = fmt.Sprint("int ", c.CountInt)
			case *prompb.Histogram_CountFloat:
				count = fmt.Sprint("float ", math.Float64bits(c.CountFloat))
			}
			switch c := x.ZeroCount.(type) {
			case *prompb.Histogram_ZeroCountInt:
				zero = fmt.Sprint("int ", c.ZeroCountInt)
			case *prompb.Histogram_ZeroCountFloat:
				zero = fmt.Sprint("float ", math.Float64bits(c.ZeroCountFloat))
			}
			ps.Histograms = append(ps.Histograms, plainHistogram{
				count, zero, math.Float64bits(x.Sum), math.Float64bits(x.ZeroThreshold), x.Schema, int32(x.ResetHint),
				spans(x.NegativeSpans), spans(x.PositiveSpans), x.NegativeDeltas, x.PositiveDeltas,
				bitsOf(x.NegativeCounts), bitsOf(x.PositiveCounts), bitsOf(x.CustomValues), x.Timestamp, 0,
			})
		}
		p.Series = append(p.Series, ps)
	}
	for _, m := range m.Metadata {
		p.Families = append(p.Families, plainFamily{m.MetricFamilyName, m.Help, m.Unit, int32(m.Type)})
	}
	return p
}

func checkRefsOf(m *writev2.Request) error {
	check := func(refs []uint32) error {
		for _, ref := range refs {
			if int(ref) >= len(m.Symbols) {
				return fmt.Errorf("symbol %d of %d", ref, len(m.Symbols))
			}
		}
		if len(refs)%2 != 0 {
			return errors.New("a name without a value")
		}
		return nil
	}
	for _, s := range m.Timeseries {
		if err := check(s.LabelsRefs); err != nil {
			return err
		}
		for _, e := range s.Exemplars {
			if err := check(e.LabelsRefs); err != nil {
				return err
			}
		}
		for _, ref := range []uint32{s.Metadata.HelpRef, s.Metadata.UnitRef} {
			if ref != 0 && int(ref) >= len(m.Symbols) {
				return fmt.Errorf("symbol %d of %d", ref, len(m.Symbols))
			}
		}
	}
	return nil
}

func plainOfV2(m *writev2.Request) (p plain) {
	labels := func(refs []uint32) (pairs [][2]string) {
		for i := 0; i < len(refs); i += 2 {
			pairs = append(pairs, [2]string{m.Symbols[refs[i]], m.Symbols[refs[i+1]]})
		}
		return pairs
	}
	symbol := func(n uint32) string {
		if int(n) < len(m.Symbols) {
			return m.Symbols[n]
		}
		return ""
	}
	spans := func(list []writev2.BucketSpan) (pairs [][2]int64) {
		for _, s := range list {
			pairs = append(pairs, [2]int64{int64(s.Offset), int64(s.Length)})
		}
		return pairs
	}
	for _, s := range m.Timeseries {
		ps := plainSeries{
			Labels: labels(s.LabelsRefs), Type: int32(s.Metadata.Type), Help: symbol(s.Metadata.HelpRef),
			Unit: symbol(s.Metadata.UnitRef),
		}
		for _, x := range s.Samples {
			ps.Samples = append(ps.Samples, [3]uint64{math.Float64bits(x.Value), uint64(x.Timestamp), uint64(x.StartTimestamp)})
		}
		for _, x := range s.Exemplars {
			ps.Exemplars = append(ps.Exemplars,
				plainExemplar{labels(x.LabelsRefs), math.Float64bits(x.Value), uint64(x.Timestamp)})
		}
		for _, x := range s.Histograms {
			var count, zero string
			switch c := x.Count.(type) {
			case *writev2.Histogram_CountInt:
				count = fmt.Sprint("int ", c.CountInt)
			case *writev2.Histogram_CountFloat:
				count = fmt.Sprint("float ", math.Float64bits(c.CountFloat))
			}
			switch c := x.ZeroCount.(type) {
			case *writev2.Histogram_ZeroCountInt:
				zero = fmt.Sprint("int ", c.ZeroCountInt)
			case *writev2.Histogram_ZeroCountFloat:
				zero = fmt.Sprint("float ", math.Float64bits(c.ZeroCountFloat))
			}
			ps.Histograms = append(ps.Histograms, plainHistogram{
				count, zero, math.Float64bits(x.Sum), math.Float64bits(x.ZeroThreshold), x.Schema, int32(x.ResetHint),
				spans(x.NegativeSpans), spans(x.PositiveSpans), x.NegativeDeltas, x.PositiveDeltas,
				bitsOf(x.NegativeCounts), bitsOf(x.PositiveCounts), bitsOf(x.CustomValues), x.Timestamp, x.StartTimestamp,
			})
		}
		p.Series = append(p.Series, ps)
	}
	return p
}

// seedsV1 returns requests with everything that version 1 has: whole requests, cut ones, and forms
// that are valid but that no encoder writes.
func seedsV1(t testing.TB) [][]byte {
	whole := marshal(t, fullV1())
	pair := func(name, value string) []byte {
		return fieldOf(1, append(fieldOf(1, []byte(name)), fieldOf(2, []byte(value))...))
	}
	sample := marshal(t, &prompb.Sample{Value: 1, Timestamp: 2})
	exemplar := slices.Concat(pair("trace", "1"), []byte{0x18, 5}, pair("span", "2"))
	group := []byte{0x3b, 0x08, 1, 0x3c} // field 7, a group as in proto2
	return [][]byte{
		nil, whole, whole[:len(whole)/2], bytes.Repeat(marshal(t, plainRequestV1()), 2),
		// The series' labels are not adjacent.
		fieldOf(1, slices.Concat(pair("a", "b"), fieldOf(2, sample), pair("c", "d"), fieldOf(3, exemplar), pair("e", "f"))),
		fieldOf(1, slices.Concat(pair("a", "b"), group, fieldOf(2, append(group, sample...)))),
		fieldOf(1, append(fieldOf(1, []byte{0x0a, 9, 'a'}), fieldOf(2, sample)...)), // a label that ends too soon
		fieldOf(1, fieldOf(4, []byte{0x4a, 1, 0x80, 0x01, 0x6a, 1, 1, 2, 3, 4, 5, 6, 7, 8})),
		{0x0a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7e}, // a length with more than 64 bits
		{0x3c}, {0x00}, {0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, {0x0f}, {0x0d, 1, 2, 3, 4},
	}
}

func seedsV2(t testing.TB) [][]byte {
	whole := marshal(t, fullV2())
	twice := fullV2()
	twice.Timeseries[0].LabelsRefs[1] = 1 << 20 // there is no such symbol
	odd := fullV2()
	odd.Timeseries[0].LabelsRefs = odd.Timeseries[0].LabelsRefs[:1]
	sample := marshal(t, &writev2.Sample{Value: 1, Timestamp: 2, StartTimestamp: 1})
	series := slices.Concat(
		// The series' references are not adjacent. Some are packed and some are not.
		[]byte{0x08, 1}, fieldOf(4, []byte{0x08, 2, 0x18, 5, 0x0a, 1, 1}), fieldOf(2, sample), []byte{0x0a, 1, 2},
		fieldOf(5, []byte{0x08, 1, 0x18, 1}), fieldOf(5, []byte{0x20, 2}), // metadata in two parts
	)
	return [][]byte{
		nil, whole, whole[:len(whole)/2], marshal(t, twice), marshal(t, odd),
		// The symbols come after the series that refers to them.
		slices.Concat(fieldOf(5, series), fieldOf(4, nil), fieldOf(4, []byte("a")), fieldOf(4, []byte("b"))),
		fieldOf(5, nil), fieldOf(5, fieldOf(5, []byte{0x18, 1})),
	}
}

// fieldOf returns a length-delimited field of a message.
func fieldOf(number byte, value []byte) []byte {
	head := []byte{number<<3 | wireBytes}
	for n := len(value); ; n >>= 7 {
		if n < 0x80 {
			return append(append(head, byte(n)), value...)
		}
		head = append(head, byte(n)|0x80)
	}
}

func marshal(t testing.TB, m interface{ Marshal() ([]byte, error) }) []byte {
	b, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func plainRequestV1() *prompb.WriteRequest {
	return &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels: []prompb.Label{{Name: "__name__", Value: "up"}, {Name: "job", Value: "a"}},
		Samples: []prompb.Sample{
			{Value: 1, Timestamp: 1e12}, {Value: math.Float64frombits(0x7ff0000000000002), Timestamp: 1e12 + 1},
		},
	}}}
}

func fullV1() *prompb.WriteRequest {
	m := plainRequestV1()
	m.Timeseries[0].Exemplars = []prompb.Exemplar{{
		Labels: []prompb.Label{{Name: "trace", Value: "1"}}, Value: -1, Timestamp: -5,
	}}
	m.Timeseries = append(m.Timeseries, prompb.TimeSeries{
		Labels: []prompb.Label{{Name: "__name__", Value: "h"}},
		Histograms: []prompb.Histogram{
			{
				Count: &prompb.Histogram_CountInt{CountInt: 9}, ZeroCount: &prompb.Histogram_ZeroCountInt{ZeroCountInt: 1},
				Sum: 2.5, Schema: -3, ZeroThreshold: 1e-9, ResetHint: prompb.Histogram_GAUGE, Timestamp: 1e12,
				NegativeSpans: []prompb.BucketSpan{{Offset: -2, Length: 1}}, NegativeDeltas: []int64{3},
				PositiveSpans:  []prompb.BucketSpan{{Offset: 1, Length: 2}, {Offset: 3, Length: 1}},
				PositiveDeltas: []int64{3, -1, 2},
			},
			{
				Count:     &prompb.Histogram_CountFloat{CountFloat: 1.5},
				ZeroCount: &prompb.Histogram_ZeroCountFloat{ZeroCountFloat: .5},
				Schema:    -53, CustomValues: []float64{1, 2, math.Inf(1)}, Timestamp: 1e12 + 1,
				NegativeCounts: []float64{1}, PositiveCounts: []float64{.5, .5},
			},
		},
	})
	m.Metadata = []prompb.MetricMetadata{{
		Type: prompb.MetricMetadata_COUNTER, MetricFamilyName: "up", Help: "Whether.", Unit: "s",
	}}
	return m
}

func fullV2() *writev2.Request {
	return &writev2.Request{
		Symbols: []string{"", "__name__", "up", "trace", "1", "Whether.", "s", "h"},
		Timeseries: []writev2.TimeSeries{
			{
				LabelsRefs: []uint32{1, 2},
				Samples:    []writev2.Sample{{Value: 1, Timestamp: 1e12, StartTimestamp: 1e12 - 5}},
				Exemplars:  []writev2.Exemplar{{LabelsRefs: []uint32{3, 4}, Value: -1, Timestamp: 5}},
				Metadata:   writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_COUNTER, HelpRef: 5, UnitRef: 6},
			},
			{
				LabelsRefs: []uint32{1, 7},
				Histograms: []writev2.Histogram{
					{
						Count: &writev2.Histogram_CountInt{CountInt: 9}, ZeroCount: &writev2.Histogram_ZeroCountInt{ZeroCountInt: 1},
						Sum: 2.5, Schema: -3, ZeroThreshold: 1e-9, ResetHint: writev2.Histogram_RESET_HINT_GAUGE, Timestamp: 1e12,
						StartTimestamp: 7,
						NegativeSpans:  []writev2.BucketSpan{{Offset: -2, Length: 1}}, NegativeDeltas: []int64{3},
						PositiveSpans: []writev2.BucketSpan{{Offset: 1, Length: 2}}, PositiveDeltas: []int64{3, -1},
					},
					{
						Count:     &writev2.Histogram_CountFloat{CountFloat: 1.5},
						ZeroCount: &writev2.Histogram_ZeroCountFloat{ZeroCountFloat: .5},
						Schema:    -53, CustomValues: []float64{1, 2}, Timestamp: 1e12 + 1,
						NegativeCounts: []float64{1}, PositiveCounts: []float64{.5},
					},
				},
			},
		},
	}
}
