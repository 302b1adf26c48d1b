package tsdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/wlog"

	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/pagefault"
)

// database is one open TSDB.
type database struct {
	*tsdb.DB
	reg        *registrations
	openMaxT   int64       // Unix milliseconds; no sample was newer when the database opened
	raw        *rawCache   // nil if the database keeps tiles
	references *references // references to the series of tiles
	numbers    numbering

	fromSavedHead bool // it was opened with a saved head

	exemplars exemplarRoom
}

// numbering is what is known of the numbers that the head of an open database has given to series.
type numbering struct {
	highest atomic.Uint64 // number of a series that began since the opening; see the method readNumbers

	// The opening read the log from the segment `from` to the one before `end`.
	from, end int

	mu      sync.Mutex
	read    bool // see the method readNumbers
	several bool // the log at the opening had several numbers for one series
}

// raise makes `highest` at least as high as a number that the head has given to a series.
func (n *numbering) raise(number chunks.HeadSeriesRef) {
	for {
		now := n.highest.Load()
		if uint64(number) <= now || n.highest.CompareAndSwap(now, uint64(number)) {
			return
		}
	}
}

// now returns the highest number of a series, as far as it is known.
func (n *numbering) now() chunks.HeadSeriesRef { return chunks.HeadSeriesRef(n.highest.Load()) }

// openDatabase opens a database of raw samples if `raw` is an empty cache, and of tiles if `raw` is
// nil. If `tells` is not nil, tsdb's callbacks report new series to it.
func openDatabase(
	dir string, options tsdb.Options, raw *rawCache, tells *newcomers, reg *registrations, logger *slog.Logger,
) (*database, error) {
	d := &database{
		reg:        reg,
		references: newReferences(),
		raw:        raw,
	}
	options.SeriesLifecycleCallback = callback(raw, tells)
	var head atomic.Pointer[tsdb.Head]
	options.BlockCompactionExcludeFunc = func(b *tsdb.BlockMeta) bool { return reachesIntoHead(b, head.Load()) }
	err := pagefault.Guard(func() (err error) {
		d.DB, err = tsdb.Open(dir, slog.New(quiet{logger.Handler()}), d.reg, &options, nil)
		return err
	})
	if err != nil {
		d.reg.unregister()
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	d.reg.sums.join(d.reg)
	head.Store(d.Head())
	if tells != nil {
		tells.open.Store(true)
	}
	d.openMaxT = d.maxT()
	d.numbers.from = -1
	if _, d.numbers.end, err = wlog.Segments(filepath.Join(dir, "wal")); err != nil { // tsdb has just begun the last one
		return nil, errors.Join(fmt.Errorf("open %s: %w", dir, err), d.close())
	}
	if raw != nil {
		raw.forget(d.openMaxT)
	}
	d.exemplars = exemplarRoom{
		most: options.MaxExemplars, now: options.MaxExemplars, outOfOrder: options.OutOfOrderTimeWindow,
	}
	if options.EnableExemplarStorage && !d.hasExemplars() {
		d.exemplars.resize(d.DB, 0)
	}
	return d, nil
}

// hasExemplars reports whether the database has any exemplar.
func (d *database) hasExemplars() bool {
	q, err := d.ExemplarQuerier(context.Background())
	if err != nil {
		return true // unknown: assume there are some
	}
	found, err := q.Select(math.MinInt64, math.MaxInt64, []*labels.Matcher{})
	return err != nil || len(found) > 0
}

// reachesIntoHead reports whether a block of out-of-order samples ends after the beginning of the
// head. The head is nil until it is open. tsdb must not merge such a block with others yet: it would
// treat the merged block as made from the head, and at the next opening it would drop the samples of
// that time from the head's log.
func reachesIntoHead(b *tsdb.BlockMeta, head *tsdb.Head) bool {
	return b.Compaction.FromOutOfOrder() && (head == nil || b.MaxTime > head.MinTime())
}

func (d *database) close() error {
	err := d.DB.Close()
	d.reg.unregister()
	if d.raw != nil {
		d.raw.pasts.forget()
	}
	return err
}

// maxT returns an upper bound for the times of committed samples.
func (d *database) maxT() int64 {
	return max(d.Head().MaxTime(), d.Head().MaxOOOTime(), d.blocksMaxT())
}

// blocksMaxT returns an upper bound for the times of samples in blocks on disk.
func (d *database) blocksMaxT() int64 {
	newest := int64(math.MinInt64)
	for _, b := range d.Blocks() {
		newest = max(newest, b.MaxTime()-1) // a block ends before its MaxTime
	}
	return newest
}

// callback returns the callbacks for a database's series, nil for none.
func callback(raw *rawCache, n *newcomers) tsdb.SeriesLifecycleCallback {
	switch {
	case raw != nil:
		return raw
	case n != nil:
		return n
	}
	return nil
}

// at returns the stored sample of one series at exactly the time `t`, or nil if there is none.
func (d *database) at(ctx context.Context, series labels.Labels, t int64) (at *tile.Point, err error) {
	err = d.read(ctx, series, t, t, func(it chunkenc.Iterator, kind chunkenc.ValueType) bool {
		x := pointOf(it, kind)
		at = &x
		return true
	})
	return at, err
}

// pointOf returns the sample at which an iterator is.
func pointOf(it chunkenc.Iterator, kind chunkenc.ValueType) (x tile.Point) {
	if kind == chunkenc.ValFloat {
		x.T, x.V = it.At()
	} else {
		x.T, x.H = it.AtFloatHistogram(nil)
	}
	return x
}

// last returns the time of the newest stored sample of one series. Samples before `from` do not count.
func (d *database) last(ctx context.Context, series labels.Labels, from int64) (t int64, found bool, err error) {
	err = d.read(ctx, series, from, math.MaxInt64, func(it chunkenc.Iterator, _ chunkenc.ValueType) bool {
		t, found = it.AtT(), true
		return true
	})
	return t, found, err
}

// read calls `fn` at each stored sample of one series from `mint` to `maxt`, in order of time, until `fn` returns
// false.
func (d *database) read(ctx context.Context, series labels.Labels, mint, maxt int64,
	fn func(chunkenc.Iterator, chunkenc.ValueType) (more bool)) error {
	return pagefault.Guard(func() error { return d.readMapped(ctx, series, mint, maxt, fn) })
}

func (d *database) readMapped(ctx context.Context, series labels.Labels, mint, maxt int64,
	fn func(chunkenc.Iterator, chunkenc.ValueType) (more bool)) error {
	q, err := d.DB.Querier(mint, maxt)
	if err != nil {
		return err
	}
	defer q.Close()
	matchers := make([]*labels.Matcher, 0, series.Len())
	series.Range(func(l labels.Label) {
		matchers = append(matchers, &labels.Matcher{Type: labels.MatchEqual, Name: l.Name, Value: l.Value})
	})
	set := q.Select(ctx, false, nil, matchers...)
	for set.Next() {
		if !labels.Equal(set.At().Labels(), series) { // the found series has more labels
			continue
		}
		it := set.At().Iterator(nil)
		for kind := it.Seek(mint); kind != chunkenc.ValNone && it.AtT() <= maxt; kind = it.Next() {
			if !fn(it, kind) {
				return nil
			}
		}
		if err := it.Err(); err != nil {
			return err
		}
	}
	return set.Err()
}
