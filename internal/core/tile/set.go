package tile

import (
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/distinct"
)

// set counts the distinct values of a tile.
type set struct{}

func (set) add(_ *entry, t *openTile, inc *batch.Increment) bool {
	if t.set == nil {
		t.set = new(distinct.Set)
	}
	t.set.Merge(inc.Set)
	return true
}

// absorb keeps the tile's values until the tile is closed, and adds them to the minute's values.
func (set) absorb(e *entry, t *openTile) {
	e.total.set = t.set
	if t.set != nil {
		e.minute.Merge(t.set)
	}
}

// appendSamples appends how many different values the closing tile had, or the minute for wider tiles; 0 without one.
func (set) appendSamples(e *entry, out []Sample, w Width, at int64, f form) []Sample {
	var n uint64
	switch {
	case w != finest:
		n = e.minute.Len()
	case e.total.set != nil:
		n = e.total.set.Len()
		e.total.set = nil
	}
	return appendValue(out, e.series, at, f, float64(n))
}

func (set) append(e *entry, t *openTile, dst []byte) []byte {
	if a := e.amount(t); a.set == nil {
		dst = appendAmount(dst, 0, 0, 0)
	} else {
		dst = a.set.Append(appendAmount(dst, flagSet, 0, 0))
	}
	dst = appendSources(dst, nil)
	if t == nil {
		dst = e.minute.Append(dst)
	}
	return dst
}

// parse skips the set of a total, which older programs kept until the next tile.
func (set) parse(e *entry, t *openTile, d *decoder) {
	if flags, _, _ := d.amount(flagSet); flags != 0 {
		s := new(distinct.Set)
		d.rest(s.Parse(d.b))
		if t != nil {
			t.set = s
		}
	}
	d.sources()
	if t == nil {
		d.rest(e.minute.Parse(d.b))
	}
}

func (set) rises() bool { return false }
