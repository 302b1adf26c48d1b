package tsdb

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/core/changes"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// Querier reads the samples of a store from `mint` to `maxt` inclusive, in Unix milliseconds. An
// unknown tenant or store has no samples.
func (s *Stores) Querier(tenant, store string, mint, maxt int64) (storage.Querier, error) {
	db, release, err := s.read(context.Background(), tenant, store)
	if db == nil {
		return storage.NoopQuerier(), err
	}
	q, err := db.Querier(mint, maxt)
	if err != nil {
		release()
		return nil, readError(tenant, store, err)
	}
	return querier{q, s.reading(tenant, store, release)}, nil
}

// ChunkQuerier is like Querier, but returns samples in chunks.
func (s *Stores) ChunkQuerier(tenant, store string, mint, maxt int64) (storage.ChunkQuerier, error) {
	db, release, err := s.read(context.Background(), tenant, store)
	if db == nil {
		return storage.NoopChunkedQuerier(), err
	}
	q, err := db.ChunkQuerier(mint, maxt)
	if err != nil {
		release()
		return nil, readError(tenant, store, err)
	}
	return chunkQuerier{q, s.reading(tenant, store, release)}, nil
}

// ExemplarQuerier reads a tenant's exemplars, which are in the raw store and the store of the
// finest tiles.
func (s *Stores) ExemplarQuerier(ctx context.Context, tenant string) (storage.ExemplarQuerier, error) {
	var all exemplarQuerier
	for _, store := range []string{Raw, tile.Width10s.String()} {
		db, release, err := s.read(ctx, tenant, store)
		if err != nil {
			return nil, err
		}
		if db == nil {
			continue
		}
		q, err := db.ExemplarQuerier(ctx)
		release() // exemplars are in memory, and stay readable
		if err != nil {
			return nil, readError(tenant, store, err)
		}
		all = append(all, q)
	}
	return all, nil
}

// Stats returns tsdb's figures about the newest samples of a store, or nil if there is no such store.
// Each table has the rows with the largest counts, at most `limit`. `label` is the label whose values
// are counted.
func (s *Stores) Stats(tenant, store, label string, limit int) (*tsdb.Stats, error) {
	db, release, err := s.read(context.Background(), tenant, store)
	if db == nil {
		return nil, err
	}
	defer release()
	return db.Head().Stats(label, limit), nil
}

// InMemory returns how many series each tenant has in memory in one of its stores. A closed
// store has none, and stays closed.
func (s *Stores) InMemory(kind string) map[string]int {
	s.mu.Lock()
	asked := make([]*store, 0, len(s.tenants))
	for _, stores := range s.tenants {
		asked = append(asked, stores[kind])
	}
	s.mu.Unlock() // a store that just closes answers only afterwards, and the others go on meanwhile
	all := make(map[string]int, len(asked))
	for _, st := range asked {
		all[st.tenant] = st.inMemory()
	}
	return all
}

// Blocks describes a store's blocks on disk.
func (s *Stores) Blocks(tenant, store string) ([]tsdb.BlockMeta, error) {
	db, release, err := s.read(context.Background(), tenant, store)
	if db == nil {
		return nil, err
	}
	defer release()
	return db.BlockMetas(), nil
}

// Changes has what was written to a tenant's stores, by the times of the samples. It is nil if the tenant has no
// stores.
func (s *Stores) Changes(tenant string) *changes.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.tenants[tenant] { // all have the same
		return st.changes
	}
	return nil
}

// Files returns a number that changes with the blocks on disk of a tenant's open stores: when samples become too old to
// be kept, and at each compaction.
func (s *Stores) Files(tenant string) uint64 {
	s.mu.Lock()
	stores := s.tenants[tenant]
	s.mu.Unlock()
	h := fnv.New64a()
	for _, kind := range kinds {
		if st := stores[kind]; st != nil {
			st.mu.Lock()
			if st.db != nil {
				for _, b := range st.db.Blocks() {
					id := b.Meta().ULID
					_, _ = h.Write(id[:]) // never fails
				}
			}
			st.mu.Unlock()
		}
		_, _ = h.Write([]byte(kind))
	}
	return h.Sum64()
}

// read returns a database that stays open until `release` is called, or nil if there is none.
// `release` may be called twice.
func (s *Stores) read(ctx context.Context, tenant, kind string) (db *database, release func(), err error) {
	st, err := s.forRead(tenant, kind)
	if st == nil {
		return nil, nil, err
	}
	if db, err = st.read(ctx); err != nil {
		return nil, nil, readError(tenant, kind, err)
	}
	return db, sync.OnceFunc(st.release), nil
}

func readError(tenant, store string, err error) error {
	return fmt.Errorf("read store %s of tenant %s: %w", store, tenant, err)
}

// DamageOf returns the error of a tenant's damaged store. It is nil if no store is known to be damaged, or if no other
// member has the data.
func (s *Stores) DamageOf(tenant string) error {
	if !s.others.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range kinds {
		st := s.tenants[tenant][kind]
		if st == nil {
			continue
		}
		for _, damage := range []*BrokenError{st.broken.Load(), st.hurt.Load()} {
			if damage != nil && damage.Damaged {
				return readError(tenant, kind, damage)
			}
		}
	}
	return nil
}

// reading is a database that stays open until it is released. A querier shows its errors to Stores.Suspect, except for
// the errors of iterators: to wrap these would cost something for each sample.
type reading struct {
	release func()
	suspect func(error) error
	hurt    *BrokenError // a damaged file of the store, nil if none is known
}

func (s *Stores) reading(tenant, store string, release func()) reading {
	return reading{release, func(err error) error { return s.Suspect(tenant, err) }, s.hurt(tenant, store)}
}

// notes adds a warning if the answer may lack what a damaged file had.
func (r reading) notes(all annotations.Annotations) annotations.Annotations {
	if r.hurt != nil {
		all.Add(fmt.Errorf("store %s of tenant %s may lack samples: %w", r.hurt.Store, r.hurt.Tenant, r.hurt.Cause))
	}
	return all
}

type querier struct {
	storage.Querier
	reading
}

func (q querier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	return suspectSet{q.Querier.Select(ctx, sorted, hints, matchers...), q.reading}
}

func (q querier) LabelValues(ctx context.Context, name string, hints *storage.LabelHints,
	matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	values, notes, err := q.Querier.LabelValues(ctx, name, hints, matchers...)
	return values, q.notes(notes), q.suspect(err)
}

func (q querier) LabelNames(ctx context.Context, hints *storage.LabelHints,
	matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	names, notes, err := q.Querier.LabelNames(ctx, hints, matchers...)
	return names, q.notes(notes), q.suspect(err)
}

type suspectSet struct {
	storage.SeriesSet
	of reading
}

func (s suspectSet) Err() error { return s.of.suspect(s.SeriesSet.Err()) }

func (s suspectSet) Warnings() annotations.Annotations { return s.of.notes(s.SeriesSet.Warnings()) }

type suspectChunkSet struct {
	storage.ChunkSeriesSet
	of reading
}

func (s suspectChunkSet) Err() error { return s.of.suspect(s.ChunkSeriesSet.Err()) }

func (s suspectChunkSet) Warnings() annotations.Annotations {
	return s.of.notes(s.ChunkSeriesSet.Warnings())
}

func (q querier) Close() error {
	defer q.release()
	return q.Querier.Close()
}

type chunkQuerier struct {
	storage.ChunkQuerier
	reading
}

func (q chunkQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.ChunkSeriesSet {
	return suspectChunkSet{q.ChunkQuerier.Select(ctx, sorted, hints, matchers...), q.reading}
}

func (q chunkQuerier) Close() error {
	defer q.release()
	return q.ChunkQuerier.Close()
}

// exemplarQuerier merges the exemplars of several stores.
type exemplarQuerier []storage.ExemplarQuerier

func (all exemplarQuerier) Select(start, end int64, matchers ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	var merged []exemplar.QueryResult
	for _, q := range all {
		found, err := q.Select(start, end, matchers...)
		if err != nil {
			return nil, err
		}
		merged = append(merged, found...)
	}
	slices.SortStableFunc(merged, func(a, b exemplar.QueryResult) int {
		return labels.Compare(a.SeriesLabels, b.SeriesLabels)
	})
	// Series of one name may have come both in requests and as tiles.
	out := merged[:0]
	for _, r := range merged {
		if n := len(out); n > 0 && labels.Equal(out[n-1].SeriesLabels, r.SeriesLabels) {
			out[n-1].Exemplars = append(out[n-1].Exemplars, r.Exemplars...)
			slices.SortStableFunc(out[n-1].Exemplars, exemplar.Compare)
			continue
		}
		out = append(out, r)
	}
	return out, nil
}
