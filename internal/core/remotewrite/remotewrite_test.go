package remotewrite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// The error of a malformed request says where it is malformed.
func TestAnErrorSaysWhere(t *testing.T) {
	odd, far, help := fullV2(), fullV2(), fullV2()
	odd.Timeseries[1].LabelsRefs = odd.Timeseries[1].LabelsRefs[:1]
	far.Timeseries[0].Exemplars[0].LabelsRefs[1] = 8
	help.Timeseries[0].Metadata.HelpRef = 9
	good := marshal(t, plainRequestV1())
	for _, test := range []struct {
		v2   bool
		body []byte
		want string
	}{
		{false, append(good, 0x3c),
			fmt.Sprintf("byte %d of the decompressed body does not begin a well-formed field of the protobuf "+
				"message WriteRequest", len(good))},
		{false, append(good, fieldOf(1, []byte{0x12, 9})...),
			fmt.Sprintf("time series 2: byte %d of the decompressed body", len(good))},
		{false, fieldOf(1, fieldOf(1, []byte{0x0a, 9})), "label 1 of the series is not a protobuf message Label"},
		{true, fieldOf(5, []byte{0x12, 9}), "time series 1: byte 0 of the decompressed body"},
		{true, marshal(t, odd), "time series 2: labels_refs has an odd number of references, so a name has no value"},
		{true, marshal(t, far),
			"time series 1: labels_refs of an exemplar refers to symbol 8, and the request has 8 symbols"},
		{true, marshal(t, help), "time series 1: help_ref refers to symbol 9, and the request has 8 symbols"},
	} {
		var r Request
		err := r.DecodeV2(test.body)
		if !test.v2 {
			err = readV1(&r, test.body)
		}
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
}

// A reused request keeps nothing of the previous request.
func TestARequestIsUsedAgain(t *testing.T) {
	var r Request
	first, second := marshal(t, fullV1()), marshal(t, plainRequestV1())
	for range 3 {
		if err := r.DecodeV1(first); err != nil || len(r.Series) != 2 || len(r.Families) != 1 {
			t.Fatalf("first request: %d series, %d families, %v, want 2, 1, no error",
				len(r.Series), len(r.Families), err)
		}
		if err := r.DecodeV1(second); err != nil || len(r.Series) != 1 || len(r.Families) != 0 ||
			len(r.Exemplars(&r.Series[0])) != 0 {
			t.Fatalf("second request: %d series, %d families, %v, want 1, 0, no error",
				len(r.Series), len(r.Families), err)
		}
		if err := r.DecodeV2(marshal(t, fullV2())); err != nil || len(r.Series) != 2 || r.Series[0].Metadata.Help != 5 {
			t.Fatalf("%d series, %v", len(r.Series), err)
		}
	}
}

// Decoding allocates nothing once there is memory for the largest request.
func TestDecodingDoesNotAllocate(t *testing.T) {
	v1, v2 := marshal(t, fullV1()), marshal(t, fullV2())
	var r Request
	var list []Label
	allocs := testing.AllocsPerRun(100, func() {
		if r.DecodeV1(v1) != nil || r.DecodeV2(v2) != nil {
			t.Fatal("refused")
		}
		for i := range r.Series {
			list, _ = r.Labels(list[:0], &r.Series[i])
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a request", allocs)
	}
}

// BenchmarkDecode reads requests of series with 7 labels and a sample each. It also reads each
// label, which a store needs only for new series. The cases "-key" do not read labels, like a store
// that knows the series. The cases "-generated" use Prometheus' decoder.
//
// Bound: 0 allocations, at most 100 ns a sample in version 1 and 50 in version 2. That is a tenth
// of the time that Prometheus' receiver takes for a sample.
func BenchmarkDecode(b *testing.B) {
	for _, series := range []int{100, 2000} {
		v1, v2 := benchV1(series), benchV2(series)
		body1, body2 := marshal(b, v1), marshal(b, v2)
		bench := func(name string, body []byte, decode func() error) {
			b.Run(fmt.Sprintf("%s/series=%d", name, series), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(body)))
				for b.Loop() {
					if err := decode(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*series), "ns/sample")
			})
		}
		var r Request
		var list []Label
		look := func(err error) error {
			for i := range r.Series {
				if list, err = r.Labels(list[:0], &r.Series[i]); err != nil {
					return err
				}
			}
			return err
		}
		bench("v1", body1, func() error { return look(r.DecodeV1(body1)) })
		bench("v1-key", body1, func() error { return r.DecodeV1(body1) })
		bench("v1-generated", body1, func() error { v1.Reset(); return v1.Unmarshal(body1) })
		bench("v2", body2, func() error { return look(r.DecodeV2(body2)) })
		bench("v2-key", body2, func() error { return r.DecodeV2(body2) })
		bench("v2-generated", body2, func() error { v2.Reset(); return v2.Unmarshal(body2) })
	}
}

// benchLabels returns 7 labels of series i, of lengths that are common in Kubernetes.
func benchLabels(i int) [][2]string {
	return [][2]string{
		{"__name__", "http_server_requests_total"}, {"cluster", "eu-west-1-production"},
		{"instance", fmt.Sprintf("10.%d.%d.%d:9090", i>>16, i>>8&255, i&255)},
		{"job", "kubernetes-pods"}, {"method", []string{"GET", "POST"}[i%2]},
		{"pod", fmt.Sprintf("checkout-7d9f8b6c5d-%05x", i)}, {"status", "200"},
	}
}

func benchV1(series int) *prompb.WriteRequest {
	m := &prompb.WriteRequest{}
	for i := range series {
		s := prompb.TimeSeries{Samples: []prompb.Sample{{Value: float64(i), Timestamp: 1_790_000_000_000 + int64(i)}}}
		for _, l := range benchLabels(i) {
			s.Labels = append(s.Labels, prompb.Label{Name: l[0], Value: l[1]})
		}
		m.Timeseries = append(m.Timeseries, s)
	}
	return m
}

func benchV2(series int) *writev2.Request {
	m := &writev2.Request{}
	table := writev2.NewSymbolTable()
	for i := range series {
		s := writev2.TimeSeries{
			Samples: []writev2.Sample{{Value: float64(i), Timestamp: 1_790_000_000_000 + int64(i)}},
			Metadata: writev2.Metadata{
				Type: writev2.Metadata_METRIC_TYPE_COUNTER, HelpRef: table.Symbolize("Requests."), UnitRef: table.Symbolize(""),
			},
		}
		for _, l := range benchLabels(i) {
			s.LabelsRefs = append(s.LabelsRefs, table.Symbolize(l[0]), table.Symbolize(l[1]))
		}
		m.Timeseries = append(m.Timeseries, s)
	}
	m.Symbols = table.Symbols()
	return m
}
