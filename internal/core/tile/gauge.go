package tile

import (
	"maps"
	"slices"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/series"
)

// gauge keeps the newest value, or merges the newest values of several sources.
type gauge struct{}

// isReading reports whether values of a kind are readings, not counts. A late reading is
// worthless, and one with its own time is stored at that time.
func isReading(k series.Kind) bool { return k == series.Gauge || k == series.Check }

// add keeps the value with the latest reading time, in whatever order batches come.
func (gauge) add(e *entry, t *openTile, inc *batch.Increment) bool {
	if inc.Relative && !e.bears(inc.Value, amountValue) {
		return false
	}
	if e.policy.Merge != series.MergeLast {
		c := t.needs()
		if c.sources == nil {
			c.sources = map[uint64]sourceValue{}
		}
		if last, known := c.sources[inc.Source]; !known || inc.At >= last.at {
			c.sources[inc.Source] = sourceValue{inc.Value, inc.At}
		}
		return true
	}
	switch {
	case inc.Relative:
		if t.at == 0 {
			t.relative = true
		}
		t.value += inc.Value
		t.at = max(t.at, inc.At)
	case t.at == 0 || t.relative || inc.At >= t.at:
		t.value, t.at, t.relative = inc.Value, inc.At, false
	}
	return true
}

func (gauge) absorb(e *entry, t *openTile) {
	switch {
	case len(t.has().sources) > 0:
		c := e.total.needs()
		if c.sources == nil {
			c.sources = map[uint64]sourceValue{}
		}
		maps.Copy(c.sources, t.has().sources)
		e.total.value = e.merged()
		return
	case t.at == 0:
		return
	case t.relative:
		e.total.value += t.value
	default:
		e.total.value = t.value
	}
	e.total.at = t.at
}

// merged returns the value of a gauge with several sources. It adds their values in a fixed order,
// since the sum must have the same bits each time.
func (e *entry) merged() float64 {
	var v float64
	sources := e.total.has().sources
	for i, id := range slices.Sorted(maps.Keys(sources)) {
		value := sources[id].value
		switch {
		case i == 0:
			v = value
		case e.policy.Merge == series.MergeSum:
			v += value
		case e.policy.Merge == series.MergeMin:
			v = min(v, value)
		case e.policy.Merge == series.MergeMax:
			v = max(v, value)
		}
	}
	return v
}

// expireSources forgets sources of a merged gauge that have been silent for `ttl`.
func (e *entry) expireSources(boundary, ttl int64) {
	sources, changed := e.total.has().sources, false
	for id, s := range sources {
		if boundary-s.at/1e6 >= ttl {
			delete(sources, id)
			changed = true
		}
	}
	if changed && len(sources) > 0 {
		e.total.value = e.merged()
	}
}

func (gauge) appendSamples(e *entry, out []Sample, _ Width, at int64, f form) []Sample {
	return appendValue(out, e.series, at, f, e.total.value)
}

func (gauge) append(e *entry, t *openTile, dst []byte) []byte {
	a := e.amount(t)
	var flags byte
	if a.relative {
		flags |= flagRelative
	}
	return appendSources(appendAmount(dst, flags, a.value, a.at), a.has().sources)
}

func (gauge) parse(e *entry, t *openTile, d *decoder) {
	a := e.amount(t)
	var flags byte
	flags, a.value, a.at = d.amount(flagRelative)
	a.relative = flags&flagRelative != 0
	if sources := d.sources(); sources != nil {
		a.needs().sources = sources
	}
}

func (gauge) rises() bool { return false }
