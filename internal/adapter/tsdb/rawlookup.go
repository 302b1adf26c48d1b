package tsdb

import (
	"fmt"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/seriescache"
	"github.com/freshet-io/freshet/internal/core/write"
)

// rawLookup is the database's knowledge of the series that is being written.
type rawLookup struct {
	n     seriescache.Number // 0 if the head does not have it
	known bool               // ls has its labels; otherwise only its reference is known
	ls    labels.Labels
}

// lookUp finds the series for the request's labels, and reports whether to write it. It does
// not look at the labels of a known series.
func (w *rawWrite) lookUp() bool {
	w.known = false
	w.n = w.cache.Find(&w.cursor, w.request.Request, w.sent)
	switch w.n {
	case seriescache.Dropped:
		w.request.Outcome.Dropped.Add(w.counts())
		return false
	case 0:
		if !w.resolve() {
			return false
		}
	}
	if w.sent.Metadata != (remotewrite.Metadata{}) && w.n != 0 {
		if e := w.cache.At(w.n); !e.Described {
			e.Described = true
			if !w.known { // otherwise resolve has done it
				w.spell()
				w.describe()
			}
		}
	}
	return true
}

// resolve looks up a series that the cache does not know, and reports whether to write it.
func (w *rawWrite) resolve() bool {
	ls, refused := w.labelsOf()
	switch {
	case refused != nil:
		w.refuse(refused.Reason, w.counts(), refused.Cause)
		return false
	case ls.IsEmpty():
		w.cache.Add(&w.cursor, w.request.Request, w.sent, seriescache.Dropped)
		w.request.Outcome.Dropped.Add(w.counts())
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
	if limit := w.request.MaxSeries; limit > 0 && w.db.Head().NumSeries() >= uint64(limit) {
		w.tell(ls, true)
		w.refuse(outcome.TooManySeries, w.counts(), fmt.Errorf(
			"the tenant has %d series in memory, and distributor.max_series allows %d; known series go on", w.db.Head().NumSeries(), limit))
		return false
	}
	return true
}

// labelsOf returns the labels of the series for the labels as sent: none if a rule drops it.
func (w *rawWrite) labelsOf() (labels.Labels, *outcome.Refusal) {
	w.resolved++
	return w.request.Terms.Rules.Resolve(w.request.Request, w.sent)
}

// describe passes on the request's metadata for the series' metric.
func (w *rawWrite) describe() {
	if w.sent.Metadata != (remotewrite.Metadata{}) {
		w.request.Described = append(w.request.Described, write.Description{Metric: w.ls.Get(model.MetricNameLabel), Metadata: w.sent.Metadata})
	}
}

// learn remembers the reference of the series that is being written. If it is new to the cache,
// it has no sample newer than lastT.
func (w *rawWrite) learn(ref uint64, lastT int64) {
	if w.n = w.cache.ByRef(ref); w.n == 0 {
		w.n = w.cache.NewSeries(ref, lastT)
	}
	w.cache.Add(&w.cursor, w.request.Request, w.sent, w.n)
}

// spell finds the labels of a series that was found by its spelling.
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
