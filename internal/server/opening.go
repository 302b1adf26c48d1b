package server

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/role/collector"
	"github.com/freshet-io/freshet/internal/role/querier"
	"github.com/freshet-io/freshet/internal/tiling"
)

// tiles is the role that makes tiles: the aggregator, or a member of a group.
type tiles interface {
	collector.Aggregator
	querier.Open
	Kinds(tenant string, keys [][]byte) []series.Kind
	TenantSeries(tenant string) int
	Series() iter.Seq[tile.Held]
	Pending() map[string]tiling.Pending
	Replaying() []string
	Applied() uint64
	Run(context.Context) error
	Halt()
}

// opening stands in for the aggregator and the event log until both are open. A collector reads its
// sockets long before the journal is replayed. Meanwhile its windows grow, so that no buffer of the
// kernel overflows.
type opening struct {
	opened     chan struct{} // closed by open
	failed     chan struct{} // closed by fail
	aggregator collector.Aggregator
	events     collector.Events
}

var errNotOpened = errors.New("the aggregator could not be opened")

func newOpening() opening {
	return opening{opened: make(chan struct{}), failed: make(chan struct{})}
}

// open lets all windows and events pass from now on. The caller must call either open or fail, and only
// once.
func (o *opening) open(aggregator collector.Aggregator, events collector.Events) {
	o.aggregator, o.events = aggregator, events
	close(o.opened)
}

// fail ends the waiting, since the aggregator will never accept windows.
func (o *opening) fail() { close(o.failed) }

// isOpen reports whether wait would return nil at once.
func (o *opening) isOpen() bool {
	select {
	case <-o.opened:
		return true
	default:
		return false
	}
}

// wait returns nil once the aggregator is open. It is for callers that have already begun their work. A
// part that cannot start before the aggregator is open sets run.Part.After instead.
func (o *opening) wait(ctx context.Context) error {
	select {
	case <-o.opened:
		return nil
	case <-o.failed:
		return errNotOpened
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Push implements collector.Aggregator.
func (o *opening) Push(ctx context.Context, batches []batch.Batch) error {
	err := o.wait(ctx)
	if errors.Is(err, errNotOpened) {
		return fmt.Errorf("%w: %w", batch.ErrRefused, err)
	}
	if err != nil {
		return err
	}
	return o.aggregator.Push(ctx, batches)
}

// Through implements collector.Aggregator. It drops a call before `open`, since the call of the next
// second covers the same time.
func (o *opening) Through(t int64) {
	if o.isOpen() {
		o.aggregator.Through(t)
	}
}

// Append implements collector.Events.
func (o *opening) Append(ctx context.Context, events []event.Event) error {
	if err := o.wait(ctx); err != nil {
		return err
	}
	return o.events.Append(ctx, events)
}
