package tsdb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/seriescache"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// WriteRequests stores requests of one tenant in its raw store, all in one commit. What
// of a request cannot be stored harms nothing else: its Outcome says what became of each
// part, exactly as queries see it afterwards. After an error nothing counts as written,
// and the same requests should be written again: what is there by then is a repeat.
//
// The labels of a series that came before are not looked at: see core/seriescache.
func (s *Stores) WriteRequests(ctx context.Context, tenant string, requests []*write.Request) error {
	err := s.writeRequests(ctx, tenant, requests)
	if err != nil {
		s.metrics.failed.WithLabelValues(Raw).Inc()
		for _, r := range requests {
			r.Outcome, r.Described = outcome.Outcome{}, r.Described[:0]
		}
		return fmt.Errorf("write %d requests to store %s of tenant %.80q: %w", len(requests), Raw, tenant, err)
	}
	return nil
}

func (s *Stores) writeRequests(ctx context.Context, tenant string, requests []*write.Request) error {
	st, err := s.forWrite(tenant, Raw)
	if errors.Is(err, ErrTooManyTenants) {
		for _, r := range requests {
			refuseRequest(r, outcome.TooManyTenants, err)
		}
		return nil // a repeat would find the same
	}
	if err != nil {
		return err
	}
	db, err := st.write(ctx)
	if err != nil {
		return err
	}
	defer st.release()
	db.raw.mu.Lock()
	defer db.raw.mu.Unlock()
	w := rawWrite{
		rawCache: db.raw,
		ctx:      ctx,
		store:    st,
		db:       db,
		latest:   s.now().Add(MaxAhead).UnixMilli(),
	}
	w.open()
	w.evict()
	w.begin()
	for _, r := range requests {
		if err := w.request(r); err != nil {
			err = errors.Join(err, w.app.Rollback())
			w.forget(db.maxT()) // it knows of samples that are not there
			return err
		}
	}
	if err := st.commit(w.app); err != nil {
		return err // and the database opens again, with an empty cache
	}
	s.metrics.countRaw(w.stored, w.repeated)
	return nil
}

// refuseRequest refuses each part of a request.
func refuseRequest(r *write.Request, reason outcome.Reason, cause error) {
	refuse := func(s *remotewrite.Series) {
		parts := outcome.Counts{Samples: len(r.Samples(s)), Histograms: len(r.Histograms(s)), Exemplars: len(r.Exemplars(s))}
		if r.Outcome.Refuse(reason, parts) {
			r.Outcome.Tell(labelrules.Text(r.Request, s), cause)
		}
	}
	if r.Only != nil {
		for _, i := range r.Only {
			refuse(&r.Series[i])
		}
		return
	}
	for i := range r.Series {
		refuse(&r.Series[i])
	}
}

// rawCache is what is known of the series of one open database of raw samples. It dies
// with it, since references of one database mean nothing in another.
type rawCache struct {
	*newcomers
	mu       sync.Mutex // held through a commit, so that what is known is what is written
	cache    *seriescache.Cache
	bound    int64  // Unix milliseconds; a series in the head and not in the cache has nothing newer
	terms    uint64 // generation that its spellings are of
	resolved int    // how often labels were looked at since the database is open
	commit   uint32 // number of the last
	cursor   seriescache.Cursor
	builder  labels.ScratchBuilder
	labels   []remotewrite.Label

	deleting sync.Mutex
	deleted  []uint64 // references that the head has let go since the last commit
}

func newRawCache(n *newcomers) *rawCache {
	return &rawCache{newcomers: n, builder: labels.NewScratchBuilder(16)}
}

// forget forgets all series of a database that has nothing newer than maxT.
func (c *rawCache) forget(maxT int64) { c.cache, c.bound = seriescache.New(), maxT }

// PostDeletion is tsdb's callback.
func (c *rawCache) PostDeletion(series map[chunks.HeadSeriesRef]labels.Labels) {
	c.deleting.Lock()
	defer c.deleting.Unlock()
	for ref := range series {
		c.deleted = append(c.deleted, uint64(ref))
	}
}

// evict forgets what the head has let go.
func (c *rawCache) evict() {
	c.deleting.Lock()
	deleted := c.deleted
	c.deleted = nil
	c.deleting.Unlock()
	for _, ref := range deleted {
		c.cache.Evict(ref)
	}
}

// begin begins a commit.
func (c *rawCache) begin() {
	if c.commit++; c.commit == 0 {
		c.commit = 1 // 0 is no commit
	}
}

// rawWrite is the state of one WriteRequests.
type rawWrite struct {
	*rawCache
	ctx              context.Context
	store            *store
	db               *database
	app              storage.Appender
	latest           int64 // Unix milliseconds; what is newer is refused
	oldest           int64 // Unix milliseconds; app refuses what is older and the first of a series; MinInt64 while the head is empty
	stored, repeated int

	r *write.Request
	s *remotewrite.Series

	// Of the series that is being written.
	n         seriescache.Number // 0 while it is unknown
	known     bool               // ls is what it is called; else its reference is
	ls        labels.Labels
	before    int64 // LastT when the series, or the commit, began
	lateNewer int64 // time of the newest sample that waits for the commit and is not in order
}

func (w *rawWrite) request(r *write.Request) error {
	if g := r.Terms.Generation; g != w.terms {
		w.cache.ForgetSpellings()
		w.terms = g
	}
	w.r = r
	w.sender = r.Sender
	w.cursor.Begin()
	if r.Only != nil {
		for _, i := range r.Only {
			w.s = &r.Series[i]
			if err := w.series(); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range r.Series {
		w.s = &r.Series[i]
		if err := w.series(); err != nil {
			return err
		}
	}
	return nil
}

func (w *rawWrite) counts() outcome.Counts {
	return outcome.Counts{
		Samples: len(w.r.Samples(w.s)), Histograms: len(w.r.Histograms(w.s)), Exemplars: len(w.r.Exemplars(w.s)),
	}
}

// series writes one series of the request.
func (w *rawWrite) series() error {
	// Prometheus refuses one that has exemplars alone, too. But its sender writes each
	// exemplar into a series of its own, so that this would lose all of them.
	if w.r.Version2() && w.counts() == (outcome.Counts{}) {
		w.refuse(outcome.NoSamples, outcome.Counts{}, errors.New("it has no sample, no histogram and no exemplar"))
		return nil
	}
	w.known = false
	w.n = w.cache.Find(&w.cursor, w.r.Request, w.s)
	switch w.n {
	case seriescache.Dropped:
		w.r.Outcome.Dropped.Add(w.counts())
		return nil
	case 0:
		if !w.resolve() {
			return nil
		}
	}
	if w.s.Metadata != (remotewrite.Metadata{}) && w.n != 0 {
		if e := w.cache.At(w.n); !e.Described {
			e.Described = true
			if !w.known { // or resolve has done it
				w.spell()
				w.describe()
			}
		}
	}
	w.beginSeries()
	samples, histograms := w.r.Samples(w.s), w.r.Histograms(w.s)
	for i := range samples {
		s := &samples[i]
		// A series may change from one to the other within a request. In the order of
		// time none is late.
		for len(histograms) > 0 && histograms[0].Time < s.Time {
			if err := w.addHistogram(&histograms[0]); err != nil {
				return err
			}
			histograms = histograms[1:]
		}
		if err := w.add(s.Start, s.Time, s.Value, nativeHistogram{}); err != nil {
			return err
		}
	}
	for i := range histograms {
		if err := w.addHistogram(&histograms[i]); err != nil {
			return err
		}
	}
	for i := range w.r.Exemplars(w.s) {
		w.exemplar(&w.r.Exemplars(w.s)[i])
	}
	return nil
}

// resolve finds out what a series is that was not found, and reports whether it is to be
// written.
func (w *rawWrite) resolve() bool {
	ls, refused := w.labelsOf()
	switch {
	case refused != nil:
		w.refuse(refused.Reason, w.counts(), refused.Cause)
		return false
	case ls.IsEmpty():
		w.cache.Add(&w.cursor, w.r.Request, w.s, seriescache.Dropped)
		w.r.Outcome.Dropped.Add(w.counts())
		return false
	}
	w.known, w.ls = true, ls
	w.describe()
	var ref storage.SeriesRef
	if g, ok := w.app.(storage.GetRef); ok {
		ref, _ = g.GetRef(ls, ls.Hash())
	}
	if ref != 0 {
		w.learn(uint64(ref), w.bound)
		return true
	}
	if limit := w.r.MaxSeries; limit > 0 && w.db.Head().NumSeries() >= uint64(limit) {
		w.tell(ls, true)
		w.refuse(outcome.TooManySeries, w.counts(), fmt.Errorf(
			"the tenant has %d series in memory, and distributor.max_series allows %d; series that are known go on", w.db.Head().NumSeries(), limit))
		return false
	}
	return true
}

// labelsOf says what series the labels that were sent stand for: none if a rule drops it.
func (w *rawWrite) labelsOf() (labels.Labels, *outcome.Refusal) {
	w.resolved++
	return w.r.Terms.Rules.Resolve(w.r.Request, w.s)
}

// describe passes on what the request says of the metric of a series.
func (w *rawWrite) describe() {
	if w.s.Metadata != (remotewrite.Metadata{}) {
		w.r.Described = append(w.r.Described, write.Description{Metric: w.ls.Get(model.MetricNameLabel), Metadata: w.s.Metadata})
	}
}

// learn remembers the reference of the series that is being written, which has nothing
// newer than lastT if it is new to the cache.
func (w *rawWrite) learn(ref uint64, lastT int64) {
	if w.n = w.cache.ByRef(ref); w.n == 0 {
		w.n = w.cache.NewSeries(ref, lastT)
	}
	w.cache.Add(&w.cursor, w.r.Request, w.s, w.n)
}

// beginSeries is called when what waits for the commit of the series is known.
func (w *rawWrite) beginSeries() {
	w.lateNewer = math.MinInt64
	w.before = math.MinInt64
	if w.n == 0 {
		w.before = w.db.blocksMaxT() // it is not in the head, so on disk at most
		return
	}
	if e := w.cache.At(w.n); e.Commit != w.commit {
		w.before = e.LastT
	}
}

// addHistogram is add for a histogram of the request.
func (w *rawWrite) addHistogram(sent *remotewrite.Histogram) error {
	h, err := newHistogram(sent)
	if err != nil {
		w.refuse(outcome.BadHistogram, outcome.Counts{Histograms: 1}, err)
		return nil
	}
	return w.add(sent.Start, sent.Time, sent.Sum, h)
}

// add writes a sample, or a histogram if h has one, and before it a zero at start, the
// time at which it began to count, if that is not 0. Its error is one of the disk.
func (w *rawWrite) add(start, t int64, v float64, h nativeHistogram) error {
	part := outcome.Counts{Samples: 1}
	if h != (nativeHistogram{}) {
		part = outcome.Counts{Histograms: 1}
	}
	if t > w.latest {
		w.refuse(outcome.TooFarAhead, part, fmt.Errorf("its time %s is more than %v ahead of the clock here", stamp(t), MaxAhead))
		return nil
	}
	last := w.before
	if w.n != 0 {
		last = w.cache.At(w.n).LastT
	}
	if t <= last {
		if done, err := w.settle(t, v, h, part); done || err != nil {
			return err
		}
	}
	// Nearly all are of a known series, and have no start or one that is known as well.
	if w.n == 0 || start > last {
		if err := w.admit(t, h); err != nil {
			w.refuseAppend(part, t, err)
			return nil
		}
		w.start(start, last, t, h)
	}
	if err := w.append(t, v, h); err != nil {
		w.refuseAppend(part, t, err)
		return nil
	}
	w.stored++
	w.r.Outcome.Written.Add(part)
	e := w.cache.At(w.n)
	e.Commit = w.commit
	if t > e.LastT {
		e.LastT, e.Bits, e.Float = t, math.Float64bits(v), part.Samples == 1
	} else {
		w.lateNewer = t
	}
	return nil
}

// open makes the appender. What the head takes is read before, and only gets less, so that
// nothing is refused here that the appender would take.
func (w *rawWrite) open() {
	w.oldest = w.headOldest()
	w.app = w.db.Appender(w.ctx)
}

// headOldest is the time before which the head takes nothing that is to be the newest
// sample of a series, or MinInt64 if it is empty: then the first sample decides.
// Source: Head.appender and memSeries.appendable in tsdb/head_append.go.
func (w *rawWrite) headOldest() int64 {
	oldest, ok := w.db.Head().AppendableMinValidTime()
	if !ok {
		return math.MinInt64
	}
	if window := w.store.options.OutOfOrderTimeWindow; window > 0 {
		oldest = min(oldest, w.db.Head().MaxTime()-window)
	}
	return oldest
}

// admit returns the error with which tsdb will refuse a sample that is newer than all of
// its series, or the first. It comes before what stays when tsdb refuses the sample: a
// series in the head, which would take the place of one that has samples, or a zero.
func (w *rawWrite) admit(t int64, h nativeHistogram) error {
	if w.oldest == math.MinInt64 {
		w.oldest = w.headOldest() // app may have begun the head by now
	}
	tooOld := t < w.oldest
	if tooOld && w.store.options.OutOfOrderTimeWindow == 0 {
		return storage.ErrOutOfBounds
	}
	if err := h.validate(); err != nil {
		return err
	}
	if tooOld {
		return storage.ErrTooOldSample
	}
	return nil
}

// append appends by the reference alone, if the series has one: tsdb looks at labels
// only if it does not know the reference any more.
func (w *rawWrite) append(t int64, v float64, h nativeHistogram) error {
	if w.n == 0 {
		got, err := w.appendTo(0, w.ls, t, v, h)
		if err != nil {
			return err
		}
		w.learn(got, w.before)
		w.cache.At(w.n).Described = w.s.Metadata != (remotewrite.Metadata{}) // by resolve, just now
		return nil
	}
	ref := w.cache.At(w.n).Ref
	got, err := w.appendTo(ref, labels.EmptyLabels(), t, v, h)
	if errors.Is(err, tsdb.ErrInvalidSample) { // the head has let it go
		if err = w.admit(t, h); err == nil {
			w.spell()
			got, err = w.appendTo(0, w.ls, t, v, h)
		}
	}
	if err == nil && got != ref {
		w.cache.SetRef(w.n, got)
	}
	return err
}

func (w *rawWrite) appendTo(ref uint64, ls labels.Labels, t int64, v float64, h nativeHistogram) (uint64, error) {
	if h == (nativeHistogram{}) {
		got, err := w.app.Append(storage.SeriesRef(ref), ls, t, v)
		return uint64(got), err
	}
	got, err := w.app.AppendHistogram(storage.SeriesRef(ref), ls, t, h.integer, h.float)
	return uint64(got), err
}

// spell finds out what a series is called that was found by its spelling.
func (w *rawWrite) spell() {
	if w.known {
		return
	}
	ls, refused := w.labelsOf()
	if refused != nil || ls.IsEmpty() {
		panic(fmt.Sprintf("BUG: the rules took a series and now, in the same generation, do not: %v", refused))
	}
	w.ls, w.known = ls, true
}

// settle handles a sample that is not newer than everything that the series has. It
// reports whether the sample met its fate here; otherwise it is to be appended.
//
// tsdb would lose a repeat of what waits for the commit without a word, and would let a
// sample out of order replace one that is stored.
func (w *rawWrite) settle(t int64, v float64, h nativeHistogram, part outcome.Counts) (done bool, err error) {
	if w.n != 0 {
		e := w.cache.At(w.n)
		if t == e.LastT && e.Float && e.Commit != 0 && h == (nativeHistogram{}) {
			w.meet(part, t, e.Bits == math.Float64bits(v), func() string { return fmt.Sprintf("%v, not %v", math.Float64frombits(e.Bits), v) })
			return true, nil
		}
		// What waits for the commit cannot be looked up. Late samples that come in the
		// order of time, as those of a backlog, cannot meet each other.
		if e.LastT != w.before || t <= w.lateNewer {
			if err := w.flush(); err != nil {
				return false, err
			}
		}
	}
	w.spell()
	earlier, err := w.db.at(w.ctx, w.ls, t)
	if err != nil {
		return false, fmt.Errorf("look for %s at %d: %w", w.ls, t, err)
	}
	if earlier == nil {
		return false, nil
	}
	now := tile.Point{T: t, V: v}
	if h != (nativeHistogram{}) {
		now.H = h.floats()
	}
	w.meet(part, t, same(*earlier, now), func() string { return format(*earlier) + ", not " + format(now) })
	return true, nil
}

// meet is for a sample at whose time there is one.
func (w *rawWrite) meet(part outcome.Counts, t int64, same bool, both func() string) {
	if same {
		w.repeated++
		w.r.Outcome.Written.Add(part)
		return
	}
	w.refuse(outcome.Duplicate, part, fmt.Errorf("at %s there is another value: %s", stamp(t), both()))
}

// flush commits what there is so far and goes on.
func (w *rawWrite) flush() error {
	if err := w.store.commit(w.app); err != nil {
		return err
	}
	w.open()
	w.begin()
	w.lateNewer = math.MinInt64
	w.before = w.cache.At(w.n).LastT
	return nil
}

// start writes a zero at the time at which a series began to count, so that rate() sees
// its first increment, unless there is something at that time or after it. One that began
// long ago has no first increment here.
//
// The sample at t is admitted and newer than last, as its start is, so that tsdb takes the
// sample as well if it takes the zero, which is older.
func (w *rawWrite) start(start, last, t int64, h nativeHistogram) {
	if start == 0 || start <= last || start >= t || start < t-w.store.options.OutOfOrderTimeWindow {
		return
	}
	if h != (nativeHistogram{}) {
		h = h.zero()
	}
	if w.append(start, 0, h) != nil {
		return // it is an addition of ours, which nobody misses
	}
	e := w.cache.At(w.n)
	e.Commit, e.LastT, e.Bits, e.Float = w.commit, start, 0, h == (nativeHistogram{})
}

func (w *rawWrite) refuse(reason outcome.Reason, parts outcome.Counts, cause error) {
	if w.r.Outcome.Refuse(reason, parts) {
		w.r.Outcome.Tell(labelrules.Text(w.r.Request, w.s), cause)
	}
}

// refuseAppend says why tsdb did not take a sample.
func (w *rawWrite) refuseAppend(part outcome.Counts, t int64, err error) {
	switch {
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		w.refuse(outcome.Duplicate, part, err)
	case errors.Is(err, storage.ErrTooOldSample), errors.Is(err, storage.ErrOutOfBounds), errors.Is(err, storage.ErrOutOfOrderSample):
		w.refuse(outcome.TooOld, part, fmt.Errorf("its time %s is more than store.out_of_order (%v) before the newest sample of the tenant",
			stamp(t), time.Duration(w.store.options.OutOfOrderTimeWindow)*time.Millisecond))
	case part.Histograms > 0:
		w.refuse(outcome.BadHistogram, part, err)
	default:
		w.refuse(outcome.BadLabels, part, err)
	}
}

func stamp(t int64) string { return time.UnixMilli(t).UTC().Format("2006-01-02T15:04:05.000Z") }

// exemplar writes an exemplar of a series that has a sample by now.
func (w *rawWrite) exemplar(x *remotewrite.Exemplar) {
	part := outcome.Counts{Exemplars: 1}
	if x.Time == 0 {
		w.refuse(outcome.BadExemplar, part, errors.New("the exemplar has no time"))
		return
	}
	if w.n == 0 {
		w.refuse(outcome.BadExemplar, part, errors.New("its series has no sample"))
		return
	}
	var err error
	if w.labels, err = w.r.ExemplarLabels(w.labels[:0], x); err != nil {
		w.refuse(outcome.BadExemplar, part, err)
		return
	}
	ls, err := w.exemplarLabels()
	if err != nil {
		w.refuse(outcome.BadExemplar, part, err)
		return
	}
	e := exemplar.Exemplar{Labels: ls, Value: x.Value, Ts: x.Time, HasTs: true}
	ref, err := w.app.AppendExemplar(storage.SeriesRef(w.cache.At(w.n).Ref), labels.EmptyLabels(), e)
	switch {
	case err == nil && ref == 0 && w.store.options.MaxExemplars == 0, errors.Is(err, storage.ErrOutOfOrderExemplar):
		w.r.Outcome.NotKept++
	case err != nil:
		w.refuse(outcome.BadExemplar, part, err)
	default: // or it is there already
		w.r.Outcome.Written.Add(part)
	}
}

// exemplarLabels returns w.labels sorted, in memory of their own. tsdb would take them as
// they are, and the answer to a query would be JSON that not everybody can read.
func (w *rawWrite) exemplarLabels() (labels.Labels, error) {
	w.builder.Reset()
	for i, l := range w.labels {
		switch {
		case len(l.Name) == 0:
			return labels.EmptyLabels(), fmt.Errorf("label %d of the exemplar has no name", i+1)
		case !utf8.Valid(l.Name):
			return labels.EmptyLabels(), fmt.Errorf("the label name %.80q of the exemplar is not UTF-8", l.Name)
		case !utf8.Valid(l.Value):
			return labels.EmptyLabels(), fmt.Errorf("the value %.80q of the exemplar's label %.80s is not UTF-8", l.Value, l.Name)
		}
		if len(l.Value) > 0 { // a label without a value is none, to tsdb as well
			w.builder.Add(string(l.Name), string(l.Value))
		}
	}
	w.builder.Sort()
	ls := w.builder.Labels()
	if name, twice := ls.HasDuplicateLabelNames(); twice {
		return labels.EmptyLabels(), fmt.Errorf("the label %.80s of the exemplar is there twice", name)
	}
	return ls, nil
}
