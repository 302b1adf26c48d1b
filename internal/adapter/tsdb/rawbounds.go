package tsdb

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/write"
)

// rawBounds are the times that samples may have. They depend on the request and on the samples
// before it. They never depend on the state of the database or the time of the write.
type rawBounds struct {
	newest int64 // time of the tenant's newest sample in Unix milliseconds
	window int64 // the request's out-of-order window in milliseconds
	latest int64 // Unix milliseconds; newer samples of the request are refused
}

func (b *rawBounds) begin(r *write.Request) {
	b.window = r.Window.Milliseconds()
	b.latest = r.Arrival + write.MaxAhead.Milliseconds()
}

// taken is called with the time of a sample that the tenant has.
func (b *rawBounds) taken(t int64) { b.newest = max(b.newest, t) }

// tooOld reports whether a sample at time t is always refused. late reports whether the sample is
// accepted only if it is the newest of its series.
func (b *rawBounds) tooOld(t int64) bool { return t < b.newest-max(b.window, slowSeries) }
func (b *rawBounds) late(t int64) bool   { return t < b.newest-b.window }

func (b *rawBounds) errTooOld(t int64) error {
	return fmt.Errorf("its time %s is more than store.out_of_order (%v) before the newest sample of the tenant",
		stamp(t), time.Duration(b.window)*time.Millisecond)
}

// startsAt reports whether to put a zero before a sample, so that rate() sees the first
// increment. The zero gets the time `start`, when the series began to count. There is no zero if
// the series began longer ago than the window. `start` is 0 if it is unknown.
func (b *rawBounds) startsAt(start, t int64) bool {
	return start != 0 && start < t && start >= t-b.window && !b.tooOld(start)
}

// refusal translates the error with which tsdb refuses a sample.
func (b *rawBounds) refusal(x rawValue, err error) (outcome.Reason, error) {
	switch {
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		return outcome.Duplicate, err
	case errors.Is(err, storage.ErrTooOldSample), errors.Is(err, storage.ErrOutOfBounds),
		errors.Is(err, storage.ErrOutOfOrderSample):
		return outcome.TooOld, b.errTooOld(x.t)
	case !x.isFloat():
		return outcome.BadHistogram, err
	}
	return outcome.BadLabels, err
}

// takeWindow makes tsdb's window wider than the windows of the requests, so that tsdb refuses none of
// their samples. Members of a group may have different windows, and a request comes with the window of
// the member that proposed it.
func (s *store) takeWindow(requests []*write.Request) error {
	window := int64(0)
	for _, r := range requests {
		window = max(window, r.Window.Milliseconds()+spareWindow)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if window <= s.options.OutOfOrderTimeWindow {
		return nil
	}
	next := *s.options
	next.OutOfOrderTimeWindow = window
	s.options = &next
	if s.db == nil {
		return nil // the next opening uses the window
	}
	return s.applyOptions()
}
