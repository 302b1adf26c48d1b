package otlp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

var utf8 = Settings{Strategy: otlptranslator.NoTranslation}

// large returns deltas of all kinds in two resources. Each point has an attribute `at` of its own, of about
// 1000 bytes. Each fifth point also has the attribute "ä".
func large(points, head int) pmetric.Metrics {
	m := pmetric.NewMetrics()
	n := 0
	at := func(attributes pcommon.Map) {
		attributes.PutStr("at", fmt.Sprintf("%06d%s", n, strings.Repeat("x", 1000)))
		if n++; n%5 == 0 {
			attributes.PutStr("ä", "")
		}
	}
	for i := range 2 {
		r := m.ResourceMetrics().AppendEmpty()
		r.Resource().Attributes().PutStr("host", fmt.Sprint(i, strings.Repeat("h", head)))
		metrics := r.ScopeMetrics().AppendEmpty().Metrics()
		counter(metrics.AppendEmpty(), 1)
		addExplicit(metrics.AppendEmpty())
		addExponential(metrics.AppendEmpty())
		for _, one := range metrics.All() {
			setDelta(one)
			for range points {
				switch one.Type() {
				case pmetric.MetricTypeSum:
					all := one.Sum().DataPoints()
					all.At(0).CopyTo(all.AppendEmpty())
					at(all.At(all.Len() - 1).Attributes())
				case pmetric.MetricTypeHistogram:
					all := one.Histogram().DataPoints()
					all.At(0).CopyTo(all.AppendEmpty())
					at(all.At(all.Len() - 1).Attributes())
				case pmetric.MetricTypeExponentialHistogram:
					all := one.ExponentialHistogram().DataPoints()
					all.At(0).CopyTo(all.AppendEmpty())
					at(all.At(all.Len() - 1).Attributes())
				}
			}
		}
	}
	return m
}

// parts returns the part of each point, by the attribute `at`.
func parts(t *testing.T, r *remotewrite.Request) map[string]int {
	of, part := map[string]int{}, 0
	for i := range r.Series {
		for part < len(r.Cuts) && r.Cuts[part] <= i {
			part++
		}
		all, err := r.Labels(nil, &r.Series[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			if string(l.Name) != "at" {
				continue
			}
			point := string(l.Value[:6])
			if before, known := of[point]; known && before != part {
				t.Errorf("point %s is in the parts %d and %d", point, before, part)
			}
			of[point] = part
		}
	}
	return of
}

// The parts of a large request are of the points as received: other settings, which refuse some of the points
// or give each point more labels, make the same parts.
func TestSettingsDoNotChangeTheParts(t *testing.T) {
	const points = 500
	_, first, c, err := convertBoth(large(points, 100), utf8)
	if err != nil || c.Refused.AnyRefused() || c.Points != 6*(points+1) {
		t.Fatalf("%v, %+v", err, c)
	}
	want := parts(t, first)
	if n := len(first.Cuts) + 1; len(want) != 6*points || n < 6 || n > 9 {
		t.Fatalf("%d points in %d parts, want %d in 6 to 9", len(want), n, 6*points)
	}
	escaped := escaping
	escaped.Promote = []string{All}
	_, second, c, err := convertBoth(large(points, 100), escaped)
	if err != nil || len(second.Cuts) != len(first.Cuts) || !c.Refused.AnyRefused() {
		t.Fatalf("%v, %d parts, want %d; %+v", err, len(second.Cuts)+1, len(first.Cuts)+1, c)
	}
	for point, part := range parts(t, second) {
		if want[point] != part {
			t.Errorf("point %s is in part %d, and was in part %d", point, part, want[point])
		}
	}
}

// A resource with many attributes is not repeated in each part, since that could take memory without bound.
func TestALargeResourceIsInOnePart(t *testing.T) {
	_, r, c, err := convertBoth(large(400, maxHead), utf8)
	if err != nil || c.Refused.AnyRefused() || len(r.Cuts) > 0 {
		t.Errorf("%v, %d parts, want 1; %+v", err, len(r.Cuts)+1, c)
	}
}

// A request of usual size has one part.
func TestASmallRequestIsOnePart(t *testing.T) {
	for n, cut := range map[int]bool{50: false, 100: true} {
		if _, r, _, err := convertBoth(large(n, 0), utf8); err != nil || len(r.Cuts) > 0 != cut {
			t.Errorf("%d points: %v, %d parts", 6*n, err, len(r.Cuts)+1)
		}
	}
}
