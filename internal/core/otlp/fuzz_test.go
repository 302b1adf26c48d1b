package otlp

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

//go:generate go test . -run TestCorpus -update
var update = flag.Bool("update", false, "rewrite the seeds of the fuzz tests")

// The seeds are files in testdata/fuzz, so that every run of the tests tries them, not only
// fuzzing.
func TestCorpus(t *testing.T) {
	full := one(func(m pmetric.Metric) { counter(m, 1, 2) })
	full.ResourceMetrics().At(0).Resource().Attributes().PutStr("os", "linux")
	metrics := full.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
	addExplicit(metrics.AppendEmpty()).Attributes().PutEmptyMap("pairs").PutEmptySlice("list").AppendEmpty().SetInt(1)
	addExponential(metrics.AppendEmpty()).Negative().BucketCounts().FromRaw([]uint64{1})
	setNumber(metrics.AppendEmpty().SetEmptyGauge().DataPoints().AppendEmpty(), 1).SetTimestamp(0)
	summary := metrics.AppendEmpty().SetEmptySummary().DataPoints().AppendEmpty()
	summary.SetTimestamp(stamp(now))
	summary.QuantileValues().AppendEmpty().SetQuantile(1)
	delta := one(func(m pmetric.Metric) {
		counter(m, 1)
		m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	})
	for name, m := range map[string]pmetric.Metrics{"full": full, "delta": delta, "empty": pmetric.NewMetrics()} {
		r := pmetricotlp.NewExportRequestFromMetrics(m)
		wire, err := r.MarshalProto()
		compare(t, "FuzzProtobuf", name, wire, err)
		compare(t, "FuzzProtobuf", name+"-cut", wire[:len(wire)/2], nil)
		text, err := r.MarshalJSON()
		compare(t, "FuzzJSON", name, text, err)
		compare(t, "FuzzJSON", name+"-cut", text[:len(text)/2], nil)
	}
	// JSON as in the specification, which differs from the encoder's JSON.
	compare(t, "FuzzJSON", "specification",
		[]byte(`{"resourceMetrics":[{"unknown":[{"a":{}}],"scopeMetrics":[{"metrics":[{"name":"a","sum":{"aggregationTemporality":2,"isMonotonic":true,
		"dataPoints":[{"asDouble":"NaN","timeUnixNano":"1790000000000000000","startTimeUnixNano":1790000000000000000,"exemplars":[{"asInt":"3","traceId":"5b8efff798038103d269b633813fc60c"}]}]}}]}]}]}`), nil)
	compare(t, "FuzzProtobuf", "group", []byte{0x0b, 0x08, 1, 0x0c}, nil)
	compare(t, "FuzzProtobuf", "long-tag", []byte{0x8a, 0x00, 0x02, 0x0a, 0x00}, nil)
}

// compare compares a seed with its file.
func compare(t *testing.T, fuzz, name string, seed []byte, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "fuzz", fuzz, name)
	text := fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", seed)
	if *update {
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if has, err := os.ReadFile(path); err != nil || string(has) != text {
		t.Errorf("%s is out of date; run: go generate ./internal/core/otlp (%v)", path, err)
	}
}

// FuzzProtobuf checks that any body is either refused as a whole or converted. After a conversion each
// data point is either refused or in the request, and the request can be read.
func FuzzProtobuf(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) { everyPointIsSomewhere(t, body, Protobuf) })
}

// FuzzJSON does the same as FuzzProtobuf, for JSON.
func FuzzJSON(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) { everyPointIsSomewhere(t, body, JSON) })
}

func everyPointIsSomewhere(t *testing.T, body []byte, form Form) {
	if _, err := Size(body, form); err != nil {
		return
	}
	body = bytes.Clone(body)
	m, err := Decode(body, form)
	if err != nil {
		return
	}
	before, err := pmetricotlp.NewExportRequestFromMetrics(m).MarshalProto()
	for i := range body { // overwrite the body, since the converted request must not point into it
		body[i] = 0xff
	}
	if after, _ := pmetricotlp.NewExportRequestFromMetrics(m).MarshalProto(); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the metrics point into the body: %v", err)
	}
	points := m.DataPointCount()
	for _, s := range []Settings{escaping,
		{Strategy: "NoTranslation", CustomBuckets: true, PromoteScope: true, Promote: []string{All}}} {
		copied := pmetric.NewMetrics()
		m.CopyTo(copied)
		totals, increments, c, err := convertBoth(copied, s)
		if err != nil {
			t.Fatal(err)
		}
		if all := c.Refused.AllRefused(); c.Points+all.Samples != points || all.Histograms != 0 {
			t.Errorf("%d points: %d converted, %+v refused: %s", points, c.Points, all, c.Refused.Text())
		}
		some, targets := readBack(t, totals)
		added, none := readBack(t, increments)
		if all := some + added; all < c.Samples || all > c.Samples+targets || none > 0 {
			t.Errorf("%d samples were converted, but the two requests have %d and %d, with %d and %d of target_info",
				c.Samples, some, added, targets, none)
		}
	}
}

// readBack counts the samples and histograms of a request, and how many of them are of
// target_info.
func readBack(t *testing.T, r *remotewrite.Request) (all, targets int) {
	var samples, histograms, exemplars int
	for i := range r.Series {
		series := &r.Series[i]
		all, err := r.Labels(nil, series)
		if err != nil || len(all) == 0 {
			t.Fatalf("series %d: %v, %v", i, all, err)
		}
		for _, l := range all {
			if string(l.Name) == "__name__" && string(l.Value) == targetInfo {
				targets++
			}
		}
		samples += len(r.Samples(series))
		histograms += len(r.Histograms(series))
		for _, e := range r.Exemplars(series) {
			exemplars++
			if _, err := r.ExemplarLabels(nil, &e); err != nil {
				t.Error(err)
			}
		}
		if len(r.Samples(series))+len(r.Histograms(series)) != 1 {
			t.Errorf("series %d has %d samples and %d histograms, want one in total",
				i, len(r.Samples(series)), len(r.Histograms(series)))
		}
	}
	if n := r.Counts(); n.Samples != samples || n.Histograms != histograms || n.Exemplars != exemplars {
		t.Errorf("%d samples, %d histograms and %d exemplars were read, but the request counts %+v",
			samples, histograms, exemplars, n)
	}
	return samples + histograms, targets
}
