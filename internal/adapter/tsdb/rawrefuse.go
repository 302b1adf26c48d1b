package tsdb

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/outcome"
)

// admit returns the error with which tsdb will refuse a sample that is newer than all of its
// series, or the first. It runs before tsdb, because a refusal by tsdb leaves something behind:
// a series in the head, which would take the place of one with samples, or a zero.
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

// headOldest returns the time before which the head refuses a sample that is to be the newest
// of its series, or MinInt64 if the head is empty: then the first sample decides. Source:
// Head.appender and memSeries.appendable in tsdb/head_append.go.
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

// refuse counts refused parts of the series that is being written.
func (w *rawWrite) refuse(reason outcome.Reason, parts outcome.Counts, cause error) {
	if w.request.Outcome.Refuse(reason, parts) {
		w.request.Outcome.Tell(labelrules.Text(w.request.Request, w.sent), cause)
	}
}

// refuseAppend counts a sample that tsdb refused, with the reason.
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
