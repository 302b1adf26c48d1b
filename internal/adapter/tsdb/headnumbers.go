package tsdb

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// readNumbers reads which numbers the log had at the opening. A saved head does not say which numbers were given to
// series that are gone. They must not be given again, since the log may still have samples under them.
func (d *database) readNumbers(dir string) error {
	n := &d.numbers
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.read {
		return nil
	}
	ranges := []wlog.SegmentRange{{Dir: filepath.Join(dir, "wal"), First: n.from, Last: -1}}
	if n.from < 0 {
		ranges = walRanges(dir)
	}
	ranges[len(ranges)-1].Last = n.end - 1
	if n.end > 0 {
		if err := d.readNumbersIn(ranges); err != nil {
			return err
		}
	}
	n.raise(headNumber(d.Head()))
	n.read = true
	return nil
}

func (d *database) readNumbersIn(ranges []wlog.SegmentRange) error {
	segments, err := wlog.NewSegmentsRangeReader(ranges...)
	if err != nil {
		return err
	}
	defer segments.Close()
	app := d.Appender(context.Background())
	defer func() { _ = app.Rollback() }() // it has no samples
	head, ok := app.(storage.GetRef)
	if !ok {
		return fmt.Errorf("%T cannot find series", app)
	}
	decoder := record.NewDecoder(nil, slog.New(slog.DiscardHandler))
	r := wlog.NewReader(segments)
	for r.Next() {
		series, stones, err := numbersIn(&decoder, r.Record())
		if err != nil {
			return err
		}
		for _, s := range series {
			d.numbers.raise(s.Ref)
			ref, _ := head.GetRef(s.Labels, s.Labels.Hash())
			d.numbers.several = d.numbers.several || ref != 0 && chunks.HeadSeriesRef(ref) != s.Ref
		}
		for _, s := range stones {
			d.numbers.raise(chunks.HeadSeriesRef(s.Ref))
		}
	}
	return r.Err()
}

// savable reports whether a head that is saved now has all numbers that an opening needs. If the log had several
// numbers for a series at the opening, tsdb remembers that only until it closes. It then drops the record of one of
// them from the log, and needs it as long as the head has samples from before the opening.
func (d *database) savable() bool {
	d.numbers.mu.Lock()
	defer d.numbers.mu.Unlock()
	return !d.numbers.several || d.Head().MinTime() > d.openMaxT
}
