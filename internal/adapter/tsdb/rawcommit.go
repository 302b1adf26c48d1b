package tsdb

import (
	"context"
	"errors"
	"math"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// rawCommit gathers samples and exemplars. Until they are committed, no query sees them.
type rawCommit struct {
	ctx    context.Context
	store  *store
	db     *database
	app    storage.Appender
	oldest int64  // time of the oldest sample, Unix ms
	number uint32 // also in the entry of each series to which this commit appends
}

// begin starts the commit with this number.
func (c *rawCommit) begin(number uint32) {
	c.number, c.app, c.oldest = number, c.db.Appender(c.ctx), math.MaxInt64
}

// add adds a sample to the series with this reference, and returns the reference. If ref is 0, it
// uses the series with these labels; otherwise tsdb ignores the labels.
func (c *rawCommit) add(ref uint64, ls labels.Labels, x rawValue) (uint64, error) {
	c.oldest = min(c.oldest, x.t)
	if x.isFloat() {
		got, err := c.app.Append(storage.SeriesRef(ref), ls, x.t, x.v)
		return c.note(ref, got), err
	}
	got, err := c.app.AppendHistogram(storage.SeriesRef(ref), ls, x.t, x.h.integer, x.h.float)
	return c.note(ref, got), err
}

// note notes the number of a series, if it may be new.
func (c *rawCommit) note(ref uint64, got storage.SeriesRef) uint64 {
	if uint64(got) != ref {
		c.db.numbers.raise(chunks.HeadSeriesRef(got))
	}
	return uint64(got)
}

// addExemplar adds an exemplar to a series of the head, and reports whether it is kept.
func (c *rawCommit) addExemplar(ref uint64, e exemplar.Exemplar) (kept bool, err error) {
	c.db.exemplars.grow(c.db.DB)
	got, err := c.app.AppendExemplar(storage.SeriesRef(ref), labels.EmptyLabels(), e)
	switch {
	case err == nil && got == 0 && c.store.options.MaxExemplars == 0, errors.Is(err, storage.ErrOutOfOrderExemplar):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil // kept now, or already stored
}

// refOf returns the reference of a series, 0 if the head does not have it.
func (c *rawCommit) refOf(ls labels.Labels) uint64 {
	g, ok := c.app.(storage.GetRef)
	if !ok {
		return 0
	}
	ref, _ := g.GetRef(ls, ls.Hash())
	return uint64(ref)
}
