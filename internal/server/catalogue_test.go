package server

import (
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/settings"
)

// A name keeps its owner longer than any of its series lives. Otherwise another kind would write into
// the same series.
func TestNamesAreKeptAsLongAsTheirSeriesLive(t *testing.T) {
	c := settings.Default()
	c.Aggregator.CounterTTL, c.Aggregator.GaugeTTL = time.Hour, 2*time.Hour
	c.Aggregator.CheckTTL, c.Aggregator.UpDownTTL = 3*time.Hour, 100*24*time.Hour
	s := &server{config: c}
	s.current.Store(&c)
	for kind := series.Counter; kind <= series.LastKind; kind++ {
		ttl := c.Aggregator.CounterTTL
		switch kind {
		case series.Gauge:
			ttl = c.Aggregator.GaugeTTL
		case series.Check:
			ttl = c.Aggregator.CheckTTL
		case series.UpDown:
			ttl = c.Aggregator.UpDownTTL
		}
		if kept := s.keptNames(kind); kept <= ttl || kept > ttl+time.Hour {
			t.Errorf("a name of kind %v is kept for %v, but its series are kept for %v", kind, kept, ttl)
		}
	}
}
