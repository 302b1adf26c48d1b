package tsdb

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/recentseries"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// WriteRequests stores requests of one tenant in its raw store, or results of rules in its store for
// them, all in one commit. The requests of a call are of one sort. A part that
// cannot be stored affects no other part. The request's Outcome has the fate of each part, and
// agrees with later queries. After an error nothing counts as written, and the caller should write
// the same requests again: parts that are stored by then are repeats.
//
// Fates and samples depend on the requests, on earlier requests, and on their order. They do not depend
// on how requests are grouped, nor on when the database was opened, compacted or killed. `state` has
// what the store does not know about earlier requests. An error leaves `state` unchanged. Changes of
// `state` can be undone until the next call.
//
// WriteRequests does not look at the labels of a known series: see core/seriescache.
func (s *Stores) WriteRequests(
	ctx context.Context, tenant string, state *write.State, requests []*write.Request,
) error {
	kind := Raw
	if requests[0].Results {
		kind = Rules
	}
	state.Recent.Keep()
	err := s.writeRequests(ctx, tenant, kind, state, requests)
	if err != nil {
		state.Recent.Undo()
		s.metrics.failed.WithLabelValues(kind).Inc()
		for _, r := range requests {
			r.Outcome, r.Described = outcome.Outcome{}, r.Described[:0]
		}
		return fmt.Errorf("write %d requests to store %s of tenant %.80q: %w", len(requests), kind, tenant, err)
	}
	return nil
}

func (s *Stores) writeRequests(
	ctx context.Context, tenant, kind string, state *write.State, requests []*write.Request,
) error {
	st, err := s.forWrite(tenant, kind)
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
	if err := st.takeWindow(requests); err != nil {
		return err
	}
	w := rawWrite{
		known:  db.raw,
		recent: &state.Recent,
		bounds: rawBounds{newest: state.Newest},
		commit: rawCommit{ctx: ctx, store: st, db: db},
	}
	w.begin()
	w.known.evict()
	for _, r := range requests {
		if err := w.writeRequest(r); err != nil {
			err = errors.Join(err, w.commit.app.Rollback())
			w.known.forget(db.maxT()) // the cache has samples that are not stored
			return err
		}
	}
	complete := state.Requests + uint64(len(requests))
	if err := st.commit(w.commit.app, w.commit.oldest, complete); err != nil {
		return err // the database opens again, with an empty cache
	}
	if err := st.syncCommit(); err != nil {
		return err
	}
	state.Requests = complete
	state.Newest = w.bounds.newest
	s.metrics.countRaw(kind, w.stored, w.repeated, w.lateReads, w.lateUnplaced)
	return nil
}

// rawWrite is one call of WriteRequests. It takes each series, and each of its samples, through
// phases that do not know each other:
//
//	look up   rawLookup: the labels as sent become a rawFound, once for all samples of a series
//	limit     recentseries: whether the tenant may have the series
//	order     rawOrder: where a sample lies among the samples of its series; if it is not the newest,
//	          the store is asked for its sample at this time
//	bounds    rawBounds: whether the tenant may have a sample of this time
//	append    rawCommit: the sample waits for the commit
//
// An appended sample counts in the Outcome at once. If the commit fails, all Outcomes are cleared.
type rawWrite struct {
	known  *rawCache
	recent *recentseries.Set
	bounds rawBounds
	commit rawCommit

	stored, repeated int // counts of samples and histograms
	lateReads        int // how often the store was read for a late sample
	lateUnplaced     int // how often there was no memory for what was read
}

// begin starts a commit.
func (w *rawWrite) begin() { w.commit.begin(w.known.nextCommit()) }

func (w *rawWrite) writeRequest(r *write.Request) error {
	w.known.lookup.begin(r)
	w.known.pasts.begin(r.Arrival)
	w.bounds.begin(r)
	if mutant.LocalClock {
		w.bounds.latest = w.commit.store.now().Add(write.MaxAhead).UnixMilli()
	}
	w.recent.Advance(r.Arrival)
	w.known.noteIn(w.recent)
	w.known.sender = r.Sender
	if r.Only != nil {
		for _, i := range r.Only {
			if err := w.writeSeries(rawSent{r, &r.Series[i]}); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range r.Series {
		if err := w.writeSeries(rawSent{r, &r.Series[i]}); err != nil {
			return err
		}
	}
	return nil
}

func (w *rawWrite) writeSeries(sent rawSent) error {
	// Prometheus also refuses a series that has only exemplars. We take such a series, because
	// Prometheus as a sender puts each exemplar into a series of its own.
	if sent.request.Version2() && sent.parts() == (outcome.Counts{}) {
		sent.refuse(outcome.NoSamples, outcome.Counts{}, errors.New("it has no sample, no histogram and no exemplar"))
		return nil
	}
	f := rawFound{sent: sent}
	if !w.known.lookup.find(&f) {
		return nil
	}
	if f.entry == nil {
		w.findInHead(&f)
	}
	if !w.hasRoom(&f) {
		return nil
	}
	onDisk := int64(math.MinInt64)
	if f.entry == nil { // the head does not have the series: its samples, if any, are in blocks
		onDisk = w.commit.db.blocksMaxT()
	}
	o := rawOrderOf(f.entry, w.commit.number, onDisk)
	samples, histograms := sent.request.Samples(sent.series), sent.request.Histograms(sent.series)
	for i := range samples {
		s := &samples[i]
		// A series may change from floats to histograms or back within a request. If its samples are
		// added in the order of their times, none is late.
		for len(histograms) > 0 && histograms[0].Time < s.Time {
			if err := w.addHistogram(&f, &o, &histograms[0]); err != nil {
				return err
			}
			histograms = histograms[1:]
		}
		if err := w.add(&f, &o, s.Start, rawValue{t: s.Time, v: s.Value}); err != nil {
			return err
		}
	}
	for i := range histograms {
		if err := w.addHistogram(&f, &o, &histograms[i]); err != nil {
			return err
		}
	}
	exemplars := sent.request.Exemplars(sent.series)
	for i := range exemplars {
		w.addExemplar(&f, &exemplars[i])
	}
	return nil
}

// findInHead looks up a series whose spelling is new.
func (w *rawWrite) findInHead(f *rawFound) {
	if ref := w.commit.refOf(f.labels); ref != 0 {
		w.known.lookup.learn(f, ref, w.known.bound)
	}
}

// hasRoom reports whether to write a series: the tenant wrote to it recently, or has room for one
// more. If not, it refuses the series.
func (w *rawWrite) hasRoom(f *rawFound) bool {
	limit := f.sent.request.MaxSeries
	if w.known.isNoted(f) || !w.recent.Full(limit) || w.recent.Has(f.hash()) {
		return true
	}
	w.known.tell(w.known.lookup.spell(f), true)
	f.sent.refuse(outcome.TooManySeries, f.sent.parts(), fmt.Errorf(
		"the tenant has written to %d series in the last 2 to 4 hours, and distributor.max_series allows %d; "+
			"samples of these series are still accepted", w.recent.Len(), limit))
	return false
}

func (w *rawWrite) addHistogram(f *rawFound, o *rawOrder, sent *remotewrite.Histogram) error {
	h, err := newHistogram(sent)
	if err != nil {
		f.sent.refuse(outcome.BadHistogram, outcome.Counts{Histograms: 1}, err)
		return nil
	}
	return w.add(f, o, sent.Start, rawValue{t: sent.Time, v: sent.Sum, h: h})
}

// add takes a sample through the phases after the look-up. It returns only errors of the disk.
func (w *rawWrite) add(f *rawFound, o *rawOrder, start int64, x rawValue) error {
	if x.t > w.bounds.latest {
		f.sent.refuse(outcome.TooFarAhead, x.part(), fmt.Errorf(
			"its time %s is more than %v ahead of the clock here", stamp(x.t), write.MaxAhead))
		return nil
	}
	if x.t <= o.last {
		if decided, err := w.settle(f, o, x); decided || err != nil {
			return err
		}
	}
	if w.bounds.late(x.t) {
		tooOld := w.bounds.tooOld(x.t)
		if !tooOld {
			var err error
			if tooOld, err = w.has(f, o, x.t); err != nil {
				return err
			}
		}
		if tooOld {
			f.sent.refuse(outcome.TooOld, x.part(), w.bounds.errTooOld(x.t))
			return nil
		}
	}
	zero := false
	if w.bounds.startsAt(start, x.t) {
		counted, err := w.has(f, o, start)
		if err != nil {
			return err
		}
		zero = !counted
	}
	if f.entry == nil || zero {
		// If tsdb itself refused the histogram, it would leave something in the head: a zero, or a new
		// series, which would take the place of a series with samples.
		if err := x.h.validate(); err != nil {
			w.refuse(f, x, err)
			return nil
		}
	}
	if zero {
		_ = w.append(f, o, x.zeroAt(start)) // the sender did not send the zero, so its loss does no harm
	}
	if err := w.append(f, o, x); err != nil {
		w.refuse(f, x, err)
		return nil
	}
	w.stored++
	w.bounds.taken(x.t)
	w.known.note(f)
	f.sent.write(x.part())
	return nil
}

// has reports whether the series has a sample at or after `from`. If the newest sample of the series is
// not known, as after an opening, has reads the store: the result must not depend on what the cache and
// the head happen to hold.
func (w *rawWrite) has(f *rawFound, o *rawOrder, from int64) (bool, error) {
	if has, certain := o.known(from); certain {
		return has, nil
	}
	if o.anyWaits() {
		if err := w.commitWaiting(o); err != nil {
			return false, err
		}
	}
	ls := w.known.lookup.spell(f)
	last, found, err := w.commit.db.last(w.commit.ctx, ls, from)
	if err != nil {
		return false, fmt.Errorf("look for %s from %d: %w", ls, from, err)
	}
	o.learned(f.entry, from, last, found)
	return found, nil
}

// commitWaiting commits the waiting samples, and begins the next commit.
func (w *rawWrite) commitWaiting(o *rawOrder) error {
	if err := w.commit.store.commit(w.commit.app, w.commit.oldest, 0); err != nil {
		return err
	}
	w.begin()
	o.committed()
	return nil
}

// settle decides about a sample that is not newer than all others of its series. If the series has
// no sample at that time, settle decides nothing, and the caller appends the sample. tsdb would
// silently lose a repeat of a sample that waits for the commit, and would let an out-of-order
// sample replace a stored one.
func (w *rawWrite) settle(f *rawFound, o *rawOrder, x rawValue) (decided bool, err error) {
	place := o.place(f.entry, x)
	switch place {
	case rawRepeat:
		w.repeat(f, x)
		return true, nil
	case rawConflict:
		w.conflict(f, x, tile.Point{T: x.t, V: math.Float64frombits(f.entry.Bits)})
		return true, nil
	}
	there, err := w.late(f, o, x.t, place == rawLateWaiting)
	switch {
	case err != nil:
		return false, err
	case there == nil:
		return false, nil
	case same(*there, x.point()):
		w.repeat(f, x)
	default:
		w.conflict(f, x, *there)
	}
	return true, nil
}

// late returns the sample of a series at time t, at which a late sample came, or nil if there is none. `waits` is true
// if the store alone does not know, because samples of the series wait for the commit.
func (w *rawWrite) late(f *rawFound, o *rawOrder, t int64, waits bool) (*tile.Point, error) {
	w.known.pasts.used = w.known.pasts.now
	past := w.known.pasts.of(f.number, f.entry)
	if past.covers(t) {
		return past.at(t), nil
	}
	if waits {
		if err := w.commitWaiting(o); err != nil {
			return nil, err
		}
	}
	return w.readPast(f, o, t)
}

// readPast does what late does, from the store, which has all samples of the series. It remembers what follows t.
func (w *rawWrite) readPast(f *rawFound, o *rawOrder, t int64) (there *tile.Point, err error) {
	w.lateReads++
	var past *rawPast
	if f.entry != nil {
		if past = w.known.pasts.place(f.number, f.entry); past == nil {
			w.lateUnplaced++
		}
	}
	if past == nil { // nothing is remembered
		past = new(rawPast)
	}
	past.begin(t, o.last)
	ls := w.known.lookup.spell(f)
	err = w.commit.db.read(w.commit.ctx, ls, t, o.last, func(it chunkenc.Iterator, kind chunkenc.ValueType) bool {
		x := pointOf(it, kind)
		if x.T == t {
			there = &x
		}
		return past.add(x)
	})
	if err != nil {
		past.begin(t, t-1)
		return nil, fmt.Errorf("look for %s at %d: %w", ls, t, err)
	}
	return there, nil
}

// repeat counts a sample that the series already has. Such a sample counts as if it were stored now:
// after a failure, or in a replay, the repeat is all that is known of the first write.
func (w *rawWrite) repeat(f *rawFound, x rawValue) {
	w.repeated++
	w.bounds.taken(x.t)
	w.known.note(f)
	f.sent.write(x.part())
}

// conflict refuses a sample if the series has another value at its time. The first value stays.
func (w *rawWrite) conflict(f *rawFound, x rawValue, there tile.Point) {
	f.sent.refuse(outcome.Duplicate, x.part(), fmt.Errorf(
		"at %s the stored value is %s, not %s", stamp(x.t), format(there), format(x.point())))
}

// append adds a sample to the samples that wait for the commit. tsdb looks at labels only if it
// does not know the reference of the series.
func (w *rawWrite) append(f *rawFound, o *rawOrder, x rawValue) error {
	if f.entry == nil {
		return w.appendNew(f, o, x)
	}
	ref, err := w.commit.add(f.entry.Ref, labels.EmptyLabels(), x)
	if err != nil {
		if errors.Is(err, tsdb.ErrInvalidSample) { // the head has dropped the series
			return w.appendNew(f, o, x)
		}
		return err
	}
	if ref != f.entry.Ref {
		w.known.lookup.learn(f, ref, o.last)
	}
	w.appended(f, o, x)
	return nil
}

// appendNew does what append does, for a series that the head does not have.
func (w *rawWrite) appendNew(f *rawFound, o *rawOrder, x rawValue) error {
	ref, err := w.commit.add(0, w.known.lookup.spell(f), x)
	if err != nil {
		return err
	}
	w.known.lookup.learn(f, ref, o.last)
	w.appended(f, o, x)
	return nil
}

// appended is called for a sample that now waits for the commit.
func (w *rawWrite) appended(f *rawFound, o *rawOrder, x rawValue) {
	if f.entry.Past {
		w.known.pasts.of(f.number, f.entry).appended(x, o.last)
	}
	o.appended(f.entry, w.commit.number, x)
}

// refuse counts a sample that tsdb refused, or would refuse because of its value.
func (w *rawWrite) refuse(f *rawFound, x rawValue, err error) {
	reason, cause := w.bounds.refusal(x, err)
	f.sent.refuse(reason, x.part(), cause)
}

// addExemplar adds an exemplar of a series after its samples.
func (w *rawWrite) addExemplar(f *rawFound, x *remotewrite.Exemplar) {
	part := outcome.Counts{Exemplars: 1}
	kept, err := false, error(nil)
	switch {
	case x.Time == 0:
		err = errors.New("the exemplar has no time")
	case f.entry == nil:
		err = errors.New("its series has no sample")
	default:
		var e exemplar.Exemplar
		if e, err = w.known.exemplars.read(f.sent, x); err == nil {
			kept, err = w.commit.addExemplar(f.entry.Ref, e)
		}
	}
	switch {
	case err != nil:
		f.sent.refuse(outcome.BadExemplar, part, err)
	case kept:
		f.sent.write(part)
	default:
		f.sent.request.Outcome.NotKept++
	}
}
