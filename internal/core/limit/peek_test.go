package limit

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/series"
)

// Peek gives the answer of the next Admit, even if it is called several times.
func TestPeek(t *testing.T) {
	const now = int64(time.Hour)
	l := New(Config{MaxSeries: 3, MaxSeriesPerMetric: 2, MaxNewSeriesPerMinute: 100}, time.Minute, time.Hour)
	key := func(kind series.Kind, name, value string) []byte {
		return series.AppendKey(nil, kind, labels.FromStrings("__name__", name, "x", value))
	}
	if p := l.Peek(now, "t", key(series.Counter, "a", "1"), 0, 0); p !=
		(Prospect{MaxSeries: 3, MaxMetricSeries: 2, New: 100, MaxNew: 100}) || len(l.tenants) > 0 {
		t.Errorf("a tenant without samples: got %+v; %d tenants, want 0", p, len(l.tenants))
	}
	for _, step := range []struct {
		why    string
		key    []byte
		fate   Fate
		reason Reason
	}{
		{"room", key(series.Counter, "a", "1"), Admitted, 0},
		{"known", key(series.Counter, "a", "1"), Admitted, 0},
		{"a second", key(series.Counter, "a", "2"), Admitted, 0},
		{"one more of the metric", key(series.Counter, "a", "3"), FoldedMetric, MetricSeries},
		{"known, though there is no room", key(series.Counter, "a", "2"), Admitted, 0},
		{"gauges do not add up", key(series.Gauge, "a", "3"), Refused, MetricSeries},
		{"a third", key(series.Counter, "b", "1"), Admitted, 0},
		{"one more of the tenant", key(series.Counter, "c", "1"), FoldedKind, TenantSeries},
	} {
		for range 3 {
			if p := l.Peek(now, "t", step.key, 0, 0); p.Fate != step.fate || p.Reason != step.reason {
				t.Errorf("%s: Peek returns %+v, want %v for the reason %v", step.why, p, step.fate, step.reason)
			}
		}
		if v := l.Tenant("t").Admit(now, &Claim{Key: step.key}); v.Fate != step.fate || v.Reason != step.reason {
			t.Errorf("%s: Admit returns %+v, want %v for the reason %v", step.why, v, step.fate, step.reason)
		}
	}
	p := l.Peek(now, "t", key(series.Counter, "a", "1"), 0, 0)
	if !p.Known || p.Series != 3 || p.MetricSeries != 2 || p.New != 97 {
		t.Errorf("got %+v, want a known series, Series 3, MetricSeries 2, New 97", p)
	}
}
