package limit

import (
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/usage"
)

// shared is the answer of a leader about the tenant "t".
func shared(whole bool, others usage.Use, b usage.Bounds) usage.Answer {
	return usage.Answer{
		Others: map[string]usage.Use{"t": others}, Bounds: map[string]usage.Bounds{"t": b}, Whole: whole,
	}
}

// Series in other processes of the cluster take places, too.
func TestSeriesOfOtherProcessesTakePlaces(t *testing.T) {
	for _, c := range []struct {
		name   string
		others usage.Use
		bounds usage.Bounds
		want   Reason
	}{
		{"nothing in use elsewhere", usage.Use{}, usage.Bounds{}, 0},
		{"room for one more", usage.Use{Series: 8}, usage.Bounds{}, 0},
		{"the others have taken all places", usage.Use{Series: 9}, usage.Bounds{}, TenantSeries},
		{"the others have taken all places of the metric", usage.Use{Metrics: map[string]int{"m": 4}}, usage.Bounds{},
			MetricSeries},
		{"another metric is full", usage.Use{Metrics: map[string]int{"n": 4}}, usage.Bounds{}, 0},
		{"new series elsewhere in this minute", usage.Use{New: 6}, usage.Bounds{}, NewSeries},
		{"the leader has a tighter limit", usage.Use{}, usage.Bounds{Series: 1}, TenantSeries},
		{"the leader has a wider limit", usage.Use{Series: 8}, usage.Bounds{Series: 100}, 0},
	} {
		l := New(Config{MaxSeries: 10, MaxSeriesPerMetric: 5, MaxNewSeriesPerMinute: 7}, time.Hour, time.Hour)
		tenant := l.Tenant("t")
		if v := tenant.Admit(begin, claim(key(series.Counter, "m", 1))); v.Fate != Admitted {
			t.Fatalf("%s: the first series has the verdict %+v", c.name, v)
		}
		l.Share(shared(true, c.others, c.bounds))
		if v := tenant.Admit(begin, claim(key(series.Counter, "m", 2))); v.Reason != c.want {
			t.Errorf("%s: got %v, want %v", c.name, v.Reason, c.want)
		}
	}
}

// A new leader has not heard from all processes at first. Until it has, the sums of the previous leader
// hold.
func TestANewLeaderFreesNoPlaces(t *testing.T) {
	l := New(Config{MaxSeries: 10}, time.Hour, time.Hour)
	l.Share(shared(true, usage.Use{Series: 10}, usage.Bounds{}))
	l.Share(shared(false, usage.Use{Series: 2}, usage.Bounds{}))
	if v := l.Tenant("t").Admit(begin, claim(key(series.Counter, "m", 1))); v.Reason != TenantSeries {
		t.Errorf("before the new leader knows all processes: got %v, want %v", v.Reason, TenantSeries)
	}
	l.Share(shared(true, usage.Use{Series: 2}, usage.Bounds{}))
	if v := l.Tenant("t").Admit(begin, claim(key(series.Counter, "m", 1))); v.Fate != Admitted {
		t.Errorf("the new leader knows that 8 places are free, but the verdict is %+v", v)
	}
	if r := l.Tenant("t").Report(begin); r.Series != 1 || r.Elsewhere != 2 {
		t.Errorf("got %d series and %d elsewhere, want 1 and 2", r.Series, r.Elsewhere)
	}
}

// A report counts all series, counts new series once, and lists the metrics with the most series.
func TestUse(t *testing.T) {
	l := New(Config{MaxSeries: 10_000, MaxSeriesPerMetric: 512}, time.Hour, time.Hour)
	tenant := l.Tenant("t")
	for i := range 3 {
		tenant.Admit(begin, claim(key(series.Counter, "m", i)))
	}
	tenant.Admit(begin, claim(key(series.Counter, "small", 1)))
	got := l.Use()["t"]
	if got.Series != 4 || got.New != 4 || len(got.Metrics) != 1 || got.Metrics["m"] != 3 {
		t.Errorf("got %+v, want 4 series, 4 new ones, and only the metric m, with 3 series", got)
	}
	if got = l.Use()["t"]; got.Series != 4 || got.New != 0 {
		t.Errorf("the second report: got %+v, want 4 series and no new ones", got)
	}
}
