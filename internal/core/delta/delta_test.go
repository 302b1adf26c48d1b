package delta

import (
	"reflect"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/write"
)

const arrival = 1_795_228_020_000

// requestOf returns a request of one increment for each named series, and one histogram with a bucket
// at the index.
func requestOf(bucket int32, names ...string) *write.Request {
	r := &write.Request{Request: new(remotewrite.Request), Tenant: "a", Arrival: arrival, MaxSeries: 3,
		Terms: &write.Terms{Rules: labelrules.Rules{}}}
	var b remotewrite.Builder
	b.Begin(r.Request, nil)
	for i, name := range names {
		b.Series()
		b.Label("__name__", name)
		b.Sample(remotewrite.Sample{Time: arrival - int64(i), Value: float64(i)})
	}
	b.Series()
	b.Label("__name__", "h")
	b.Histogram(remotewrite.Histogram{Time: arrival, Count: remotewrite.Count{Integer: 1},
		PositiveSpans: []remotewrite.Span{{Offset: bucket, Length: 1}}, PositiveDeltas: []int64{1}})
	b.Finish()
	return r
}

// A member that replays a request after a restart may have other totals than when it first counted
// the request. The first decision stays.
func TestRecount(t *testing.T) {
	names := []string{"known", "new", "too many", "another kind", "known"}
	first, again := requestOf(0, names...), requestOf(0, names...)
	d := Resolve(first)
	added := d.Count([]series.Kind{series.Counter, 0, 0, series.Gauge, series.Counter, series.Timer}, 2)
	refused := []Refused{{2, outcome.TooManySeries}, {3, outcome.Mixed}}
	if added != 1 || !reflect.DeepEqual(d.Refused, refused) {
		t.Errorf("%d added, want 1; refused %v, want %v", added, d.Refused, refused)
	}
	e := Resolve(again)
	e.Recount(d.Refused)
	if first.Outcome.First = again.Outcome.First; first.Outcome != again.Outcome || !first.Outcome.AnyRefused() {
		t.Errorf("outcome of the repeat %+v\nwant                  %+v", again.Outcome, first.Outcome)
	}
	if !reflect.DeepEqual(d.Increments, e.Increments) || len(d.Increments) != 4 {
		t.Errorf("increments of the repeat %v\nwant                     %v", e.Increments, d.Increments)
	}
}

func TestBucketsBeyondTheLargestIndex(t *testing.T) {
	for bucket, text := range map[int32]string{
		histogram.MaxIndex: "", -histogram.MaxIndex: "",
		histogram.MaxIndex + 1:  "its bucket 281601 is beyond the largest index, 281600",
		-histogram.MaxIndex - 1: "its bucket -281601 is beyond the largest index, 281600",
	} {
		r := requestOf(bucket)
		Resolve(r).Count([]series.Kind{0}, 0)
		if got := r.Outcome.First.Cause; !strings.Contains(got, text) || (got == "") != (text == "") {
			t.Errorf("%d: %q", bucket, got)
		}
	}
}
