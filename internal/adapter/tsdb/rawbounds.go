package tsdb

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/core/outcome"
)

// rawBounds are the times that samples may have.
type rawBounds struct {
	head   *tsdb.Head
	window int64 // store.out_of_order, in milliseconds
	oldest int64 // Unix milliseconds; tsdb refuses a sample before it that is the newest of its series; MinInt64 while the head is empty
	latest int64 // Unix milliseconds; newer samples are refused
}

// look reads the time before which the head refuses a sample that is to be the newest of its
// series. An empty head has none: the first sample decides. Source: Head.appender and
// memSeries.appendable in tsdb/head_append.go.
//
// The bound only becomes tighter, so nothing is refused here that an appender opened after look
// would take.
func (b *rawBounds) look() {
	oldest, ok := b.head.AppendableMinValidTime()
	if !ok {
		b.oldest = math.MinInt64
		return
	}
	if b.window > 0 {
		oldest = min(oldest, b.head.MaxTime()-b.window)
	}
	b.oldest = oldest
}

// check returns the error with which tsdb will refuse a sample that is newer than all of its
// series, or the first. It runs before tsdb, because a refusal by tsdb leaves something behind:
// a series in the head, which would take the place of one with samples, or a zero.
func (b *rawBounds) check(x rawValue) error {
	if b.oldest == math.MinInt64 {
		b.look() // the appender may have begun the head by now
	}
	tooOld := x.t < b.oldest
	if tooOld && b.window == 0 {
		return storage.ErrOutOfBounds
	}
	if err := x.h.validate(); err != nil {
		return err
	}
	if tooOld {
		return storage.ErrTooOldSample
	}
	return nil
}

// refusal translates the error with which tsdb, or check, refuses a sample.
func (b *rawBounds) refusal(x rawValue, err error) (outcome.Reason, error) {
	switch {
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		return outcome.Duplicate, err
	case errors.Is(err, storage.ErrTooOldSample), errors.Is(err, storage.ErrOutOfBounds), errors.Is(err, storage.ErrOutOfOrderSample):
		return outcome.TooOld, fmt.Errorf("its time %s is more than store.out_of_order (%v) before the newest sample of the tenant",
			stamp(x.t), time.Duration(b.window)*time.Millisecond)
	case !x.isFloat():
		return outcome.BadHistogram, err
	}
	return outcome.BadLabels, err
}
