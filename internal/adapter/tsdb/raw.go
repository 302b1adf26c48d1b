package tsdb

import (
	"context"
	"errors"
	"fmt"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/write"
)

// WriteRequests and its phases. Each phase has a file, which declares its part of rawWrite:
//
//	look up    rawlookup.go  find the series for the labels as sent
//	order      raworder.go   decide about a sample that is not the newest of its series
//	refuse     rawrefuse.go  refuse what tsdb would refuse, before it leaves something behind
//	append     rawappend.go  add to the samples that wait for the commit
//	exemplars  rawexemplar.go
//	commit     here, and in raworder.go if waiting samples must be visible at once
//
// A series is looked up once for each request. Its samples are then ordered, refused and
// appended one by one. An appended sample counts in the Outcome at once; if the commit fails,
// no Outcome counts.

// WriteRequests stores requests of one tenant in its raw store, all in one commit. A part that
// cannot be stored affects no other: the request's Outcome has the fate of each part, exactly
// as queries see it afterwards. After an error nothing counts as written, and the caller should
// write the same requests again: parts that are stored by then are repeats.
//
// It does not look at the labels of a known series: see core/seriescache.
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
			r.RefuseAll(outcome.TooManyTenants, err)
		}
		return nil // repeating the write would give the same result
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
	w := rawWrite{rawCache: db.raw, ctx: ctx, store: st, db: db}
	w.latest = s.now().Add(write.MaxAhead).UnixMilli()
	w.open()
	w.evict()
	w.begin()
	for _, r := range requests {
		if err := w.writeRequest(r); err != nil {
			err = errors.Join(err, w.app.Rollback())
			w.forget(db.maxT()) // the cache knows samples that are not stored
			return err
		}
	}
	if err := st.commit(w.app); err != nil {
		return err // the database opens again, with an empty cache
	}
	s.metrics.countRaw(w.stored, w.repeated)
	return nil
}

// rawWrite is the state of one WriteRequests.
type rawWrite struct {
	*rawCache
	ctx   context.Context
	store *store
	db    *database

	request *write.Request
	sent    *remotewrite.Series // the series of request that is being written

	rawLookup
	rawOrder
	rawAppender

	stored, repeated int // samples and histograms
}

func (w *rawWrite) writeRequest(r *write.Request) error {
	w.useTerms(r.Terms.Generation)
	w.request = r
	w.sender = r.Sender
	w.cursor.Begin()
	if r.Only != nil {
		for _, i := range r.Only {
			if err := w.writeSeries(&r.Series[i]); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range r.Series {
		if err := w.writeSeries(&r.Series[i]); err != nil {
			return err
		}
	}
	return nil
}

// writeSeries writes one series of the request.
func (w *rawWrite) writeSeries(sent *remotewrite.Series) error {
	w.sent = sent
	// Prometheus refuses a series with only exemplars, too. But as a sender it writes each
	// exemplar into a series of its own, so refusing would lose all of them.
	if w.request.Version2() && w.counts() == (outcome.Counts{}) {
		w.refuse(outcome.NoSamples, outcome.Counts{}, errors.New("it has no sample, no histogram and no exemplar"))
		return nil
	}
	if !w.lookUp() {
		return nil
	}
	w.beginOrder()
	samples, histograms := w.request.Samples(sent), w.request.Histograms(sent)
	for i := range samples {
		s := &samples[i]
		// A series may change from floats to histograms or back within a request. In the order of
		// time no sample is late.
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
	exemplars := w.request.Exemplars(sent)
	for i := range exemplars {
		w.addExemplar(&exemplars[i])
	}
	return nil
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

// add takes a sample, or a histogram if h has one, through the phases after the look-up. If
// start, the time at which the series began to count, is not 0, it adds a zero there first. An
// error is one of the disk.
func (w *rawWrite) add(start, t int64, v float64, h nativeHistogram) error {
	part := outcome.Counts{Samples: 1}
	if h != (nativeHistogram{}) {
		part = outcome.Counts{Histograms: 1}
	}
	if t > w.latest {
		w.refuse(outcome.TooFarAhead, part, fmt.Errorf("its time %s is more than %v ahead of the clock here", stamp(t), write.MaxAhead))
		return nil
	}
	last := w.lastT()
	if t <= last {
		if done, err := w.settle(t, v, h, part); done || err != nil {
			return err
		}
	}
	// Nearly all samples are of a known series, and have no start or a known one.
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
	w.request.Outcome.Written.Add(part)
	w.appended(t, v, part.Samples == 1)
	return nil
}

// counts returns the parts of the series that is being written.
func (w *rawWrite) counts() outcome.Counts {
	return outcome.Counts{
		Samples: len(w.request.Samples(w.sent)), Histograms: len(w.request.Histograms(w.sent)), Exemplars: len(w.request.Exemplars(w.sent)),
	}
}
