package tile

import (
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/distinct"
)

// set counts the distinct values of a tile.
type set struct{}

func (set) add(_ *entry, t *openTile, inc *batch.Increment) bool {
	c := t.needs()
	if c.set == nil {
		c.set = new(distinct.Set)
	}
	c.set.Merge(inc.Set)
	return true
}

// absorb keeps the tile's values until the tile is closed, and adds them to the minute's values.
func (set) absorb(e *entry, t *openTile) {
	values := t.has().set
	e.total.needs().set = values
	if values != nil {
		e.needs().minute.Merge(values)
	}
}

// appendSamples appends how many different values the closing tile had, or the minute for wider tiles; 0 without one.
func (set) appendSamples(e *entry, out []Sample, w Width, at int64, f form) []Sample {
	var n uint64
	switch {
	case w != finest:
		n = e.needs().minute.Len() // Len sorts the values
	case e.total.has().set != nil:
		n = e.total.contents.set.Len()
		e.total.contents.set = nil
	}
	return appendValue(out, e.series, at, f, float64(n))
}

func (set) append(e *entry, t *openTile, dst []byte) []byte {
	if values := e.amount(t).has().set; values == nil {
		dst = appendAmount(dst, 0, 0, 0)
	} else {
		dst = values.Append(appendAmount(dst, flagSet, 0, 0))
	}
	dst = appendSources(dst, nil)
	if t == nil {
		dst = e.needs().minute.Append(dst) // Append sorts the values
	}
	return dst
}

// parse skips the set of a total, which older programs kept until the next tile.
func (set) parse(e *entry, t *openTile, d *decoder) {
	if flags, _, _ := d.amount(flagSet); flags != 0 {
		s := new(distinct.Set)
		d.rest(s.Parse(d.b))
		if t != nil {
			t.needs().set = s
		}
	}
	d.sources()
	if t == nil {
		d.rest(e.needs().minute.Parse(d.b))
	}
}

func (set) rises() bool { return false }
