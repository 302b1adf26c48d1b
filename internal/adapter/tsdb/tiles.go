package tsdb

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// WriteTiles stores the samples of tiles of one width, all in one commit. Samples of one series
// come in the order of time, and share one tile.Series. A series that ended and returns may have
// another tile.Series; then the first tile.Series gets no more samples. The store keeps the labels
// and the histograms' buckets, and never changes its input.
//
// A sample that cannot be stored affects no other sample: the returned tile.Written has the fate of each
// sample. But after an error nothing counts as written, and the caller should write the same samples
// again. The samples that are already stored then count as repeats.
func (s *Stores) WriteTiles(
	ctx context.Context, tenant string, width tile.Width, samples []tile.Sample,
) (tile.Written, error) {
	kind := width.String()
	written, err := s.writeTiles(ctx, tenant, width, samples)
	if err != nil {
		s.metrics.failed.WithLabelValues(kind).Inc()
		return tile.Written{}, fmt.Errorf("write %d samples to store %s of tenant %.80q: %w", len(samples), kind, tenant, err)
	}
	s.metrics.count(kind, &written)
	return written, nil
}

func (s *Stores) writeTiles(
	ctx context.Context, tenant string, width tile.Width, samples []tile.Sample,
) (tile.Written, error) {
	st, err := s.forWrite(tenant, width.String())
	if err != nil {
		return tile.Written{}, err
	}
	db, err := st.write(ctx)
	if err != nil {
		return tile.Written{}, err
	}
	defer st.release()
	db.references.mu.Lock()
	defer db.references.mu.Unlock()
	w := tileWrite{
		store:    st,
		db:       db,
		app:      db.Appender(ctx),
		latest:   s.now().Add(write.MaxAhead).UnixMilli(),
		samples:  samples,
		appended: make([]int32, 0, len(samples)),
		newest:   math.MinInt64,
		oldest:   math.MaxInt64,
	}
	for i := range samples {
		w.oldest = min(w.oldest, samples[i].T)
		if err := w.add(ctx, i); err != nil {
			return tile.Written{}, errors.Join(err, w.app.Rollback())
		}
	}
	if err := st.commit(w.app, w.oldest, 0); err != nil {
		return tile.Written{}, err
	}
	for _, i := range w.appended {
		w.written.Stored.Add(&samples[i])
	}
	if len(w.appended) > 0 {
		db.references.sweep(w.newest)
	}
	return w.written, nil
}

// traceLabel is the exemplar label for the trace's ID. OTLP uses this name and Grafana looks for
// it.
const traceLabel = "trace_id"

// tileWrite is the state of one call of WriteTiles.
type tileWrite struct {
	store    *store
	db       *database
	app      storage.Appender
	latest   int64 // Unix milliseconds; newer exemplars are not kept
	samples  []tile.Sample
	appended []int32 // indexes of the samples that wait for the commit
	newest   int64   // time of the newest appended sample
	oldest   int64   // time of the oldest sample, whatever its fate
	written  tile.Written
	before   *reference // reference of the previous sample, nil at the first

	// pending has indexes of samples, by their series' reference in tsdb. It is nil until a sample
	// needs it, which is rare.
	pending map[uint64][]int32
}

// add decides the fate of sample i, or appends it. It returns only errors of the disk, not of the
// sample.
func (w *tileWrite) add(ctx context.Context, i int) error {
	sample := &w.samples[i]
	ref := w.db.references.find(w.before, sample.Series)
	if ref == nil {
		ref = w.resolve(sample.Series)
		w.db.references.of[sample.Series] = ref
	}
	w.before = ref
	if sample.T <= ref.lastT {
		settled, err := w.settle(ctx, sample, ref.ref)
		if settled || err != nil {
			return err
		}
	}
	got, err := w.append(ref.ref, sample)
	switch {
	case err == nil:
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp): // two goroutines write one series
		w.conflict(sample, err)
		return nil
	case errors.Is(err, storage.ErrTooOldSample), errors.Is(err, storage.ErrOutOfBounds),
		errors.Is(err, storage.ErrOutOfOrderSample):
		w.refuse(sample, tile.TooOld)
		return nil
	default:
		w.refuse(sample, tile.Invalid)
		return nil
	}
	if got != ref.ref { // the series was new to the head
		w.db.numbers.raise(chunks.HeadSeriesRef(got))
		w.db.references.touch(got)
		ref.ref = got
	}
	w.exemplar(sample, got)
	ref.lastT = max(ref.lastT, sample.T)
	w.newest = max(w.newest, sample.T)
	w.appended = append(w.appended, int32(i))
	if w.pending != nil {
		w.pending[got] = append(w.pending[got], int32(i))
	}
	return nil
}

// exemplar adds the exemplar of a stored sample, if there is one. Its outcome affects nothing else. An
// exemplar that is already stored is a repeat.
func (w *tileWrite) exemplar(sample *tile.Sample, ref uint64) {
	x := sample.Exemplar
	if x == nil {
		return
	}
	// If the sample is a repeat and is only in a block, its series has no reference. The head may then
	// be empty, and the exemplar would set the time at which the head begins.
	if w.db.exemplars.most == 0 || ref == 0 || x.Time > w.latest {
		w.written.ExemplarsNotKept++
		return
	}
	w.db.exemplars.grow(w.db.DB)
	if _, err := w.app.AppendExemplar(storage.SeriesRef(ref), sample.Series.Labels, exemplar.Exemplar{
		Labels: labels.FromStrings(traceLabel, x.Trace.String()), Value: x.Value, Ts: x.Time, HasTs: true,
	}); err != nil {
		w.written.ExemplarsNotKept++
		return
	}
	w.written.Exemplars++
}

// resolve looks up a series, and finds a time after which the database has no sample of the series.
// Usually the next tile of the series is later than that time.
func (w *tileWrite) resolve(series *tile.Series) *reference {
	ref := &reference{series: series}
	if g, ok := w.app.(storage.GetRef); ok {
		got, _ := g.GetRef(series.Labels, series.Labels.Hash())
		ref.ref = uint64(got)
	}
	switch {
	case ref.ref == 0:
		// The series is not in the head, so its samples can only be on disk. A compaction makes the
		// block before it takes the series from the head, so the head must be read first.
		ref.lastT = w.db.blocksMaxT()
	case !w.db.references.isTouched(ref.ref):
		// The series has been in the head since the opening, as all series are after a restart.
		ref.lastT = w.db.openMaxT
		w.db.references.touch(ref.ref)
	default:
		// The series was written with another tile.Series before, so it ended and returned.
		ref.lastT = max(w.db.Head().MaxTime(), w.db.Head().MaxOOOTime(), w.newest)
	}
	return ref
}

func (w *tileWrite) append(ref uint64, sample *tile.Sample) (uint64, error) {
	if sample.H == nil {
		got, err := w.app.Append(storage.SeriesRef(ref), sample.Series.Labels, sample.T, sample.V)
		return uint64(got), err
	}
	// tsdb keeps the histogram, and replaces its spans and buckets if the chunk has more of them. tsdb
	// never writes into the original spans and buckets, so a shallow copy is enough to leave H
	// unchanged.
	h := *sample.H
	got, err := w.app.AppendHistogram(storage.SeriesRef(ref), sample.Series.Labels, sample.T, nil, &h)
	return uint64(got), err
}

// settle handles a sample that might not be new. `settled` means that it decided the sample's fate;
// otherwise the caller appends the sample.
func (w *tileWrite) settle(ctx context.Context, sample *tile.Sample, ref uint64) (settled bool, err error) {
	earlier, newer := w.pendingAt(ref, sample.T)
	if earlier == nil {
		if earlier, err = w.db.at(ctx, sample.Series.Labels, sample.T); err != nil {
			return false, fmt.Errorf("look for %s at %d: %w", sample.Series.Labels, sample.T, err)
		}
	}
	switch {
	case earlier != nil && same(*earlier, point(sample)):
		w.written.Repeated.Add(sample)
		w.exemplar(sample, ref)
	case earlier != nil:
		w.conflict(sample, fmt.Errorf("the stored value is %v, not %v", format(*earlier), format(point(sample))))
	case newer && sample.T < w.db.Head().MaxTime()-w.store.options.OutOfOrderTimeWindow:
		// The samples of this write are not in the order of time. The newer sample is not in tsdb yet,
		// so Append would accept the present sample, and Commit would lose it.
		w.refuse(sample, tile.TooOld)
	default:
		return false, nil
	}
	return true, nil
}

// pendingAt looks at the samples of a series that wait for the commit, which no query can see. It
// returns the sample at t, and whether any is newer.
func (w *tileWrite) pendingAt(ref uint64, t int64) (at *tile.Point, newer bool) {
	if w.pending == nil {
		w.pending = map[uint64][]int32{}
		for _, i := range w.appended {
			r := w.db.references.of[w.samples[i].Series].ref
			w.pending[r] = append(w.pending[r], i)
		}
	}
	for _, i := range w.pending[ref] {
		switch s := &w.samples[i]; {
		case s.T == t:
			p := point(s)
			at = &p
		case s.T > t:
			newer = true
		}
	}
	return at, newer
}

// conflict refuses a second value for a time. Computed tiles never have a second value, but a sender
// that sets timestamps may send one.
func (w *tileWrite) conflict(sample *tile.Sample, cause error) {
	if sample.Timed {
		w.refuse(sample, tile.Duplicate)
		return
	}
	w.refuse(sample, tile.Conflict)
	w.store.logger.Error("BUG: a final tile was written again with another value; the first value stays",
		"series", sample.Series.Labels.String(), "t", sample.T, "err", cause)
}

func (w *tileWrite) refuse(sample *tile.Sample, reason tile.Reason) {
	w.written.Refused[reason].Add(sample)
}
