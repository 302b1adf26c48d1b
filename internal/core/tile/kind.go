package tile

import (
	"fmt"
	"slices"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/series"
)

// kind is how the values of a series combine. In its methods, t is an open tile of the series, or
// nil for the total of the closed ones.
type kind interface {
	// add folds an increment into an open tile. It returns false, and leaves the tile as it was,
	// if the increment does not fit the series or the sum would overflow.
	add(e *entry, t *openTile, inc *batch.Increment) bool
	// absorb adds a closing tile to the total.
	absorb(e *entry, t *openTile)
	// appendSamples appends what the store of a width gets for the time `at`: one sample, or, for
	// classic buckets, one per bucket, the sum and the count.
	appendSamples(e *entry, out []Sample, w Width, at int64, f form) []Sample
	// append writes a tile's content into a checkpoint, and parse reads it.
	append(e *entry, t *openTile, dst []byte) []byte
	parse(e *entry, t *openTile, d *decoder)
	// rises reports whether queries ask for the increase of the series. A zero then precedes a new
	// series, so that queries see its first increment.
	rises() bool
}

var kinds = [series.LastKind + 1]kind{
	series.Counter: counter{},
	series.Gauge:   gauge{},
	series.Timer:   timer{},
	series.Set:     set{},
	series.Check:   check{},
	series.UpDown:  upDown{},
}

func (e *entry) combines() kind {
	if e.inBuckets {
		return classic{}
	}
	return kinds[e.kind]
}

func newEntry(key, policy []byte) (*entry, error) {
	kind, ls, err := series.ParseKey(key)
	if err != nil {
		return nil, fmt.Errorf("series: %w", err)
	}
	e := &entry{kind: kind, key: string(key), series: &Series{Labels: ls, Kind: kind}}
	_, err = e.setPolicy(policy)
	return e, err
}

// setPolicy applies the policy of the last increment. If the buckets change, it refuses the values
// in open tiles, and returns how many values on the wire these were.
func (e *entry) setPolicy(b []byte) (unfit uint64, err error) {
	p, err := series.ParsePolicy(b)
	if err != nil {
		return 0, err
	}
	if e.policy != nil && !slices.Equal(e.policy.Bounds, p.Bounds) {
		// New buckets make new series, which start at zero. The content of open tiles cannot be converted
		// to the new buckets, and is refused.
		for i := range e.open {
			unfit += e.open[i].samples
		}
		e.forget()
		e.live, e.owes, e.open = [NumWidths]bool{}, [NumWidths]bool{}, nil
		if e.rare != nil {
			e.rare.classic, e.rare.exemplars = nil, nil
		}
	}
	e.policy, e.policyBytes = p, string(b)
	e.inBuckets = e.kind == series.Timer && p.Bounds != nil
	if e.inBuckets && e.has().classic == nil {
		e.needs().classic = classicSeries(e.series.Labels, p.Bounds)
	}
	return unfit, nil
}

// add folds an increment into an open tile, and reports whether it fits.
func (e *entry) add(t *openTile, inc *batch.Increment) bool {
	if !e.combines().add(e, t, inc) {
		return false
	}
	t.samples += uint64(inc.Samples)
	return true
}
