package remotewrite

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/prompb"
)

// build builds a copy of a request.
func build(to *Request, body []byte, of *Request) *Builder {
	label := func(b *Builder, all []Label, _ error) {
		for _, l := range all {
			b.Label(string(l.Name), string(l.Value))
		}
	}
	var b Builder
	b.Begin(to, body)
	for _, f := range of.Families {
		b.Family(string(f.Name), string(f.Help), string(f.Unit), f.Type)
	}
	for _, s := range of.Series {
		b.Series()
		all, err := of.Labels(nil, &s)
		label(&b, all, err)
		for _, x := range of.Samples(&s) {
			b.Sample(x)
		}
		for _, x := range of.Histograms(&s) {
			b.Histogram(x)
		}
		for _, x := range of.Exemplars(&s) {
			b.Exemplar(x.Value, x.Time)
			all, err := of.ExemplarLabels(nil, &x)
			label(&b, all, err)
		}
	}
	b.Finish()
	return &b
}

// A built request can be read, and its series have the same spelling as from Prometheus, so that
// the series cache knows them.
func TestABuiltRequestIsOneOfVersion1(t *testing.T) {
	long := plainRequestV1()
	long.Timeseries[0].Labels[1].Value = strings.Repeat("v", 300) // its length takes two bytes
	for name, m := range map[string]*prompb.WriteRequest{"everything": fullV1(), "nothing": {}, "long": long} {
		var sent, built Request
		if err := readV1(&sent, marshal(t, m)); err != nil {
			t.Fatal(err)
		}
		body := []byte("what the buffer had before")
		for range 2 { // first in new memory, then in the same memory again
			b := build(&built, body[:0], &sent)
			if body = b.Body; built.Version2() || built.Counts() != sent.Counts() {
				t.Errorf("%s: version 2: %v, counts %+v, want false and the source's counts",
					name, built.Version2(), built.Counts())
			}
			if got, want := fmt.Sprintf("%+v", plainOf(&built)), fmt.Sprintf("%+v", plainOf(&sent)); got != want {
				t.Errorf("%s: got  %s\nwant %s", name, got, want)
			}
			for i := range sent.Series {
				if got, want := built.Key(&built.Series[i]), sent.Key(&sent.Series[i]); !bytes.Equal(got, want) {
					t.Errorf("%s: key %q, want %q", name, got, want)
				}
			}
		}
	}
}

// A built request shares no memory with its source.
func TestABuiltRequestIsACopy(t *testing.T) {
	var sent, built Request
	body := marshal(t, fullV1())
	if err := readV1(&sent, body); err != nil {
		t.Fatal(err)
	}
	build(&built, nil, &sent)
	before := fmt.Sprintf("%+v", plainOf(&built))
	for i := range body {
		body[i] = 0xff
	}
	for _, h := range sent.histograms {
		clear(h.PositiveSpans)
		clear(h.PositiveDeltas)
		clear(h.CustomValues)
	}
	if after := fmt.Sprintf("%+v", plainOf(&built)); after != before {
		t.Errorf("got  %s\nwant %s", after, before)
	}
}

// A built request keeps the start times of version 2.
func TestStartsAreBuilt(t *testing.T) {
	var sent, built Request
	if err := sent.DecodeV2(marshal(t, fullV2())); err != nil {
		t.Fatal(err)
	}
	build(&built, nil, &sent)
	if s, h := built.Samples(&built.Series[0])[0],
		built.Histograms(&built.Series[1])[0]; s.Start != 1e12-5 || h.Start != 7 {
		t.Errorf("%+v, %+v", s, h)
	}
}

func TestBuildingDoesNotAllocate(t *testing.T) {
	var r Request
	var b Builder
	body := make([]byte, 0, 1<<10)
	deltas := []int64{1, 2}
	allocs := testing.AllocsPerRun(100, func() {
		b.Begin(&r, body)
		b.Family("up", "Whether.", "", GaugeType)
		for range 5 {
			b.Series()
			b.Label("__name__", "up")
			b.Label("job", "a")
			b.Sample(Sample{Value: 1, Time: 2})
			b.Histogram(Histogram{PositiveDeltas: deltas})
			b.Exemplar(1, 2)
			b.Label("trace_id", "1")
		}
		b.Finish()
	})
	if allocs != 0 {
		t.Errorf("%v allocations a request", allocs)
	}
}
