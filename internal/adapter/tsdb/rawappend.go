package tsdb

import (
	"errors"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// rawAppender gathers samples for the commit.
type rawAppender struct {
	app    storage.Appender
	oldest int64 // Unix milliseconds; app refuses a series' first sample before it; MinInt64 while the head is empty
	latest int64 // Unix milliseconds; newer samples are refused
}

// open makes the appender. It reads the head's bounds first. They only become tighter, so
// nothing is refused here that the appender would take.
func (w *rawWrite) open() {
	w.oldest = w.headOldest()
	w.app = w.db.Appender(w.ctx)
}

// append appends by the reference alone, if the series has one: tsdb looks at labels only if it
// no longer knows the reference.
func (w *rawWrite) append(t int64, v float64, h nativeHistogram) error {
	if w.n == 0 {
		got, err := w.appendTo(0, w.ls, t, v, h)
		if err != nil {
			return err
		}
		w.learn(got, w.before)
		w.cache.At(w.n).Described = w.sent.Metadata != (remotewrite.Metadata{}) // by resolve, just before
		return nil
	}
	ref := w.cache.At(w.n).Ref
	got, err := w.appendTo(ref, labels.EmptyLabels(), t, v, h)
	if errors.Is(err, tsdb.ErrInvalidSample) { // the head has dropped the series
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

// start writes a zero at the time at which a series began to count, so that rate() sees its
// first increment, unless there is a sample at or after that time. A series that began long ago
// has no first increment here.
//
// The sample at t is admitted and newer than last, and so is its start. So if tsdb takes the
// zero, which is older, it also takes the sample.
func (w *rawWrite) start(start, last, t int64, h nativeHistogram) {
	if start == 0 || start <= last || start >= t || start < t-w.store.options.OutOfOrderTimeWindow {
		return
	}
	if h != (nativeHistogram{}) {
		h = h.zero()
	}
	if w.append(start, 0, h) != nil {
		return // the zero is our addition; its loss does no harm
	}
	e := w.cache.At(w.n)
	e.Commit, e.LastT, e.Bits, e.Float = w.commit, start, 0, h == (nativeHistogram{})
}
