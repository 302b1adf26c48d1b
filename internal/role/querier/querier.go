// Package querier answers selects, which come from PromQL, from the endpoints for series and labels, and
// from remote read. It merges a tenant's stores with the tiles that are still open, and chooses the
// width of tiles for each query.
//
// adapter/promapi evaluates expressions, speaks HTTP and checks who may query which tenant;
// adapter/tsdb keeps the samples.
package querier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/core/changes"
	"github.com/freshet-io/freshet/internal/core/partial"
	"github.com/freshet-io/freshet/internal/core/stepcache"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// Every query reads the stores of samples that are not from tiles: samples of senders, results of rules, and
// imported samples.
const (
	raw     = "raw"
	rules   = "rules"
	history = "history"
)

// Store reads from disk. For a tenant or store that does not exist it returns storage's
// NoopQuerier, and for a store that cannot be opened a tsdb.BrokenError.
type Store interface {
	Querier(tenant, store string, mint, maxt int64) (storage.Querier, error)
	ChunkQuerier(tenant, store string, mint, maxt int64) (storage.ChunkQuerier, error)
	ExemplarQuerier(ctx context.Context, tenant string) (storage.ExemplarQuerier, error)
	Retention(store string) time.Duration
	Changes(tenant string) *changes.Log
	Files(tenant string) uint64
}

// Open is the source of the tiles that are in no store yet.
//
// Live returns each matching series once, with its points from mint to maxt, both included. A series
// stays open until its samples can be read from the store.
//
// Replayed waits until the raw store has all samples that were acknowledged before the start. Its
// error says why the store lacks some of them.
//
// Live's answers for times before FinalBefore, in Unix milliseconds, stay the same, except for what Changes says.
//
// Current waits until this process has all samples that any node of the cluster acknowledged before
// the call. Its error says how old the data may be.
type Open interface {
	Current(ctx context.Context, tenant string) error
	Replayed(ctx context.Context, tenant string) error
	Live(tenant string, w tile.Width, mint, maxt int64, matchers []*labels.Matcher) ([]tile.Live, error)
	FinalBefore(tenant string) int64
	Changes(tenant string) *changes.Log
}

// Queryable is the storage that Prometheus' engine and HTTP API read. The context of each call
// holds the tenant: see core/tenant.
type Queryable struct {
	// Doubt returns why any answer may be wrong; nil if nothing is known to be. Answers then have a warning. A nil
	// Doubt is never called.
	Doubt func() error

	// Lacking returns why imported samples of a tenant within two times, Unix ms, are missing; nil if none is. A nil
	// Lacking is never called.
	Lacking func(tenant string, mint, maxt int64) error

	store    Store
	open     Open
	lookback time.Duration
	now      func() time.Time
}

// New returns a Queryable. `lookback` is the engine's look-back delta: the greatest age of a sample
// that answers an instant selector.
func New(store Store, open Open, lookback time.Duration, now func() time.Time) *Queryable {
	return &Queryable{store: store, open: open, lookback: lookback, now: now}
}

// Querier returns a querier for the time from `mint` to `maxt`, in Unix milliseconds and both included.
func (q *Queryable) Querier(mint, maxt int64) (storage.Querier, error) {
	return &querier{source{Queryable: q, mint: mint, maxt: maxt}}, nil
}

// ChunkQuerier is like Querier, but returns samples in chunks.
func (q *Queryable) ChunkQuerier(mint, maxt int64) (storage.ChunkQuerier, error) {
	return &chunkQuerier{source{Queryable: q, mint: mint, maxt: maxt}}, nil
}

// ExemplarQuerier reads the exemplars of the context's tenant.
func (q *Queryable) ExemplarQuerier(ctx context.Context) (storage.ExemplarQuerier, error) {
	name, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	// Return an error, since the answer's format has no field for a warning.
	err = cmp.Or(q.open.Current(ctx, name), q.open.Replayed(ctx, name))
	if err != nil && !partial.Accepted(ctx) {
		return nil, fmt.Errorf("exemplars may be missing: %w", err)
	}
	return q.store.ExemplarQuerier(ctx, name)
}

var errNoTenant = errors.New("BUG: a query without a tenant")

func tenantOf(ctx context.Context) (string, error) {
	name, ok := tenant.FromContext(ctx)
	if !ok {
		return "", errNoTenant
	}
	return name, nil
}

// source is a time range, and the queriers that one query has opened for it. Like Prometheus'
// queriers, it is used by one goroutine only.
type source struct {
	*Queryable
	mint, maxt int64
	opened     []storage.LabelQuerier
	waited     bool  // Current was called
	stale      error // the result of Current
}

// selection is one select. It reads the stores raw, rules and history, the open tiles, and the store of
// closed tiles of one width.
type selection struct {
	tenant string
	width  tile.Width
	live   []tile.Live
	read   func(tile.Width) ([]tile.Live, error) // reads the open tiles of a width
	short  error                                 // why raw or history lacks acknowledged samples; nil if they have all
	stale  error                                 // why the newest samples may be missing; nil if none is missing
	doubt  error                                 // see Queryable.Doubt
}

// begin reads the open tiles. It must run before any store is opened: a tile stays open until it can
// be read from its store. In this order, a query sees each tile once or twice. In the other order, it
// could miss a tile.
func (s *source) begin(ctx context.Context, hints *storage.SelectHints, matchers []*labels.Matcher) (selection, error) {
	name, err := tenantOf(ctx)
	if err != nil {
		return selection{}, err
	}
	if !s.waited { // a query waits for one barrier only
		s.waited, s.stale = true, s.open.Current(ctx, name)
	}
	if s.stale != nil && !partial.Accepted(ctx) {
		return selection{}, s.stale
	}
	if hints == nil {
		hints = &storage.SelectHints{Start: s.mint, End: s.maxt}
	}
	asked, reading := *hints, stepcache.FromContext(ctx)
	if reading != nil {
		asked.Start -= reading.Skipped
	}
	w := resolution(&asked, s.lookback, s.now(), [tile.NumWidths]time.Duration{
		tile.Width10s: s.store.Retention(tile.Width10s.String()),
		tile.Width1m:  s.store.Retention(tile.Width1m.String()),
	})
	reading.Read(uint8(w))
	sel := selection{tenant: name, width: w, stale: s.stale, read: func(w tile.Width) ([]tile.Live, error) {
		live, err := s.open.Live(name, w, max(s.mint, hints.Start), min(s.maxt, hints.End), matchers)
		if err != nil {
			return nil, fmt.Errorf("read open tiles of %v of tenant %s: %w", w, name, err)
		}
		return live, nil
	}}
	if s.Doubt != nil {
		sel.doubt = s.Doubt()
	}
	if err := s.open.Replayed(ctx, name); err != nil {
		sel.short = fmt.Errorf("samples from remote write and OTLP that were acknowledged before the start are missing, "+
			"since store %s of tenant %s does not take them: %w", raw, name, err)
	}
	if s.Lacking != nil {
		sel.short = errors.Join(sel.short, s.Lacking(name, s.mint, s.maxt))
	}
	sel.live, err = sel.read(w)
	return sel, err
}

// samples merges the open tiles with the stores.
func (s *source) samples(ctx context.Context, sel selection, hints *storage.SelectHints,
	matchers []*labels.Matcher) storage.SeriesSet {
	stored, err := openStores(s, &sel, s.store.Querier)
	if err != nil {
		return storage.ErrSeriesSet(err)
	}
	note := sparseNote(hints, sel.width, s.store.Retention(tile.Width10s.String()))
	live := newLiveSet(sel.live)
	sets := []storage.SeriesSet{live}
	if note != nil {
		live.series = tileEnds(live.series, sel.width)
		sets[0] = &sparse{SeriesSet: live, note: note, seen: len(sel.live) > 0}
	}
	for i, q := range stored.queriers {
		set := q.Select(ctx, true, hints, matchers...)
		if note != nil && i >= len(stored.queriers)-stored.tiles {
			set = &sparse{SeriesSet: set, note: note}
		}
		sets = append(sets, set)
	}
	reading := stepcache.FromContext(ctx)
	merged := storage.NewMergeSeriesSet(sets, limitOf(hints), func(all ...storage.Series) storage.Series {
		return mergeSeries(reading, all...)
	})
	if len(stored.warnings) > 0 {
		merged = warned{merged, stored.warnings}
	}
	if len(live.series) == 0 {
		return merged
	}
	return answer{SeriesSet: merged, live: live.series, width: sel.width}
}

// chunks merges the chunks of the stores. It returns an error if a store is broken, damaged or lacks samples:
// only remote read uses it, and its answers have no field for a warning.
func (s *source) chunks(ctx context.Context, sel selection, hints *storage.SelectHints,
	matchers []*labels.Matcher) storage.ChunkSeriesSet {
	if err := cmp.Or(sel.stale, sel.short, sel.doubt); err != nil {
		return storage.ErrChunkSeriesSet(err)
	}
	var sets []storage.ChunkSeriesSet
	for _, store := range []string{raw, rules, history, sel.width.String()} {
		q, err := s.store.ChunkQuerier(sel.tenant, store, s.mint, s.maxt)
		if err != nil {
			return storage.ErrChunkSeriesSet(err)
		}
		s.opened = append(s.opened, q)
		set := q.Select(ctx, true, hints, matchers...)
		if notes := set.Warnings(); len(notes) > 0 {
			return storage.ErrChunkSeriesSet(errors.Join(notes.AsErrors()...))
		}
		sets = append(sets, set)
	}
	return storage.NewMergeChunkSeriesSet(sets, limitOf(hints),
		storage.NewCompactingChunkSeriesMerger(storage.ChainedSeriesMerge))
}

func limitOf(hints *storage.SelectHints) int {
	if hints == nil {
		return 0
	}
	return hints.Limit
}

// LabelValues returns the values of a label, sorted.
func (s *source) LabelValues(ctx context.Context, name string, hints *storage.LabelHints,
	matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return s.labels(ctx, hints, matchers,
		func(ls labels.Labels, add func(string)) {
			if v := ls.Get(name); v != "" {
				add(v)
			}
		},
		func(q storage.LabelQuerier) ([]string, annotations.Annotations, error) {
			return q.LabelValues(ctx, name, hints, matchers...)
		})
}

// LabelNames returns the names of labels, sorted.
func (s *source) LabelNames(ctx context.Context, hints *storage.LabelHints,
	matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return s.labels(ctx, hints, matchers,
		func(ls labels.Labels, add func(string)) {
			ls.Range(func(l labels.Label) { add(l.Name) })
		},
		func(q storage.LabelQuerier) ([]string, annotations.Annotations, error) {
			return q.LabelNames(ctx, hints, matchers...)
		})
}

// labels merges the labels of the open tiles, from `live`, with the labels of the stores, from
// `stored`.
func (s *source) labels(ctx context.Context, hints *storage.LabelHints, matchers []*labels.Matcher,
	live func(labels.Labels, func(string)),
	stored func(storage.LabelQuerier) ([]string, annotations.Annotations, error),
) ([]string, annotations.Annotations, error) {
	sel, err := s.begin(ctx, nil, matchers)
	if err != nil {
		return nil, nil, err
	}
	opened, err := openStores(s, &sel, s.store.Querier)
	warnings := opened.warnings
	if err != nil {
		return nil, warnings, err
	}
	found := map[string]struct{}{}
	add := func(text string) { found[text] = struct{}{} }
	for _, l := range sel.live {
		live(l.Labels, add)
	}
	for _, q := range opened.queriers {
		texts, more, err := stored(q)
		warnings.Merge(more)
		if err != nil {
			return nil, warnings, fmt.Errorf("read labels of the stores of tenant %s: %w", sel.tenant, err)
		}
		for _, text := range texts {
			add(text)
		}
	}
	return limited(slices.Sorted(maps.Keys(found)), hints), warnings, nil
}

func limited(texts []string, hints *storage.LabelHints) []string {
	if hints != nil && hints.Limit > 0 && len(texts) > hints.Limit {
		return texts[:hints.Limit]
	}
	return texts
}

// Close closes the queriers that the query opened. Results must not be used afterwards.
func (s *source) Close() error {
	var errs []error
	for _, q := range s.opened {
		errs = append(errs, q.Close())
	}
	s.opened = nil
	return errors.Join(errs...)
}

type querier struct{ source }

// Select returns the series that match, sorted by their labels.
func (q *querier) Select(ctx context.Context, _ bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	sel, err := q.begin(ctx, hints, matchers)
	if err != nil {
		return storage.ErrSeriesSet(err)
	}
	return q.samples(ctx, sel, hints, matchers)
}

type chunkQuerier struct{ source }

// Select returns the matching series, sorted by labels. Chunks of the stores are passed on unchanged
// unless open tiles must be merged into them.
func (q *chunkQuerier) Select(ctx context.Context, _ bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.ChunkSeriesSet {
	sel, err := q.begin(ctx, hints, matchers)
	switch {
	case err != nil:
		return storage.ErrChunkSeriesSet(err)
	case len(sel.live) == 0:
		return q.chunks(ctx, sel, hints, matchers)
	}
	set := q.samples(ctx, sel, hints, matchers)
	if a, ok := set.(answer); ok {
		set = a.SeriesSet // chunks have no mark for live samples
	}
	if w, ok := set.(warned); ok {
		return storage.ErrChunkSeriesSet(errors.Join(w.own.AsErrors()...))
	}
	return storage.NewSeriesSetToChunkSet(set)
}
