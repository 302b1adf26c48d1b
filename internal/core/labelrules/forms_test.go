package labelrules

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// A series is the same in every form of request: remote write 1.0, remote write 2.0, or made by a
// Builder.
func TestTheFormOfARequestDoesNotMatter(t *testing.T) {
	want := labels.FromStrings("__name__", "up", "job", "a", "zone", "ä")
	var first, second, built remotewrite.Request
	v1 := prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{Labels: prompb.FromLabels(want, nil)}}}
	body1, err := v1.Marshal()
	if err == nil {
		err = first.DecodeV1(body1)
	}
	if err != nil {
		t.Fatal(err)
	}
	table := writev2.NewSymbolTable()
	v2 := writev2.Request{
		Timeseries: []writev2.TimeSeries{{LabelsRefs: table.SymbolizeLabels(want, nil)}}, Symbols: table.Symbols(),
	}
	body2, err := v2.Marshal()
	if err == nil {
		err = second.DecodeV2(body2)
	}
	if err != nil {
		t.Fatal(err)
	}
	var b remotewrite.Builder
	b.Begin(&built, nil)
	b.Series()
	want.Range(func(l labels.Label) { b.Label(l.Name, l.Value) })
	b.Finish()

	var rules Rules
	for name, r := range map[string]*remotewrite.Request{"1.0": &first, "2.0": &second, "built": &built} {
		if got, refused := rules.Resolve(r, &r.Series[0]); refused != nil || !labels.Equal(got, want) {
			t.Errorf("%s: %v, %+v", name, got, refused)
		}
	}
}
