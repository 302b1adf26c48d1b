package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/role/collector"
)

// opening is the aggregator and the event log to those who hand over before these
// are open. A collector reads its sockets long before the journal is replayed: its
// windows grow meanwhile, and nothing waits in a kernel's buffer that could overflow.
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

// open lets windows and events through from now on. It is called once, as is fail
// in its place.
func (o *opening) open(aggregator collector.Aggregator, events collector.Events) {
	o.aggregator, o.events = aggregator, events
	close(o.opened)
}

// fail says that nobody will ever take windows.
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

// wait returns nil once the aggregator is open: for those who wait in the middle of their
// work. Parts of the process say in run.Part.After that they need it.
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

// Push is part of collector.Aggregator.
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

// Through is part of collector.Aggregator. Calls before the opening are dropped: the next
// second's call says more.
func (o *opening) Through(sender uint64, t int64) {
	if o.isOpen() {
		o.aggregator.Through(sender, t)
	}
}

// Append is part of collector.Events.
func (o *opening) Append(ctx context.Context, events []event.Event) error {
	if err := o.wait(ctx); err != nil {
		return err
	}
	return o.events.Append(ctx, events)
}
