package tile

import (
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Live returns what the open tiles of a tenant know of the series that match:
// samples of closed tiles that are not stored yet, the tiles that ended
// and wait for late data, and one sample at stamp, the end of the last complete
// window. If less is asked, up to the time until, that sample is at the end of the last second
// before it, and says what had been counted then, if that second is in an open tile; there is none if it is not.
// The same holds at stamp if a window beyond it is folded: a shard has a window before all shards have it.
// Times are Unix milliseconds. w is the width of the store that the answer is merged with.
func (s *Shard) Live(tenantName string, w Width, stamp, until int64, matchers []*labels.Matcher) []Live {
	t := s.tenants[tenantName]
	if t == nil {
		return nil
	}
	past := until < stamp || t.folded > stamp
	if past {
		stamp = min(stamp, until)
		stamp -= stamp % 1000
	}
	var out []Live
	waiting := t.waitingSamples(w, matchers)
	look := func(e *entry) {
		var matching []*Series
		for _, s := range e.stored() {
			if matches(s.Labels, matchers) {
				matching = append(matching, s)
			}
		}
		if len(matching) == 0 {
			return
		}
		var samples []Sample
		if waiting != nil {
			for _, s := range matching {
				samples = append(samples, waiting[s]...)
				delete(waiting, s)
			}
		}
		out = appendPoints(out, matching, s.liveSamples(e, samples, w, stamp, past))
	}
	for _, m := range matchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			for e := range t.byName[m.Value] {
				look(e)
			}
			return appendWaiting(out, waiting)
		}
	}
	for _, e := range t.entries {
		look(e)
	}
	return appendWaiting(out, waiting)
}

func matches(ls labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// appendPoints sorts an entry's samples by those of its series that match.
func appendPoints(out []Live, matching []*Series, samples []Sample) []Live {
	for _, s := range matching {
		var points []Point
		for _, sample := range samples {
			if sample.Series == s {
				points = append(points, Point{T: sample.T, V: sample.V, H: sample.H})
			}
		}
		if len(points) == 0 {
			continue
		}
		out = append(out, Live{Labels: s.Labels, Points: sortPoints(points)})
	}
	return out
}

// liveSamples adds to samples what the open tiles of a series say. It plays them forward on
// a copy, as if they closed one after the other without anything late, and the last one at stamp.
// If that is past, more than what had been counted then is folded.
func (s *Shard) liveSamples(e *entry, samples []Sample, w Width, stamp int64, past bool) []Sample {
	for _, p := range e.timed {
		samples = append(samples, Sample{Series: e.series, T: p.t, V: p.v})
	}
	if past && stamp < s.closed {
		return samples // the total has counted more
	}
	if stamp <= e.lastStored[w] || len(e.open) == 0 && !e.owes[w] && (!e.live[w] || stamp-e.lastSeen >= s.config.ttl(e.kind)) {
		return samples
	}
	c := e.clone()
	if w == finest && len(e.open) > 0 {
		samples = c.begin(samples, w, e.open[0].end-finest.Millis(), min(e.open[0].end, stamp))
		c.live[w] = true
	}
	// What has counted without being stored in a wider width began in the tile
	// that is open there.
	start := s.closed - s.closed%w.Millis()
	if !e.owes[w] && len(e.open) > 0 {
		start = e.open[0].end - finest.Millis()
		start -= start % w.Millis()
	}
	emit := func(t int64) {
		samples = c.begin(samples, w, start, t)
		c.live[w] = true
		samples = c.samples(samples, w, t, form{})
	}
	c.total.set = nil // of the last tile; the open ones have their own
	last := int64(0)
	for i := range e.open {
		t := &e.open[i]
		if t.end-finest.Millis() >= stamp {
			break // ahead of the clock
		}
		if past && t.end > stamp {
			then, known := s.at(e, t, stamp)
			if !known {
				return samples
			}
			if then.samples > 0 {
				c.absorb(&then)
			}
			break
		}
		c.absorb(t)
		if t.end > stamp {
			break
		}
		if t.end%w.Millis() == 0 {
			emit(t.end)
			last = t.end
			c.minute.Reset()
		}
		c.total.set = nil
	}
	if c.started && last < stamp {
		emit(stamp)
	}
	return samples
}
