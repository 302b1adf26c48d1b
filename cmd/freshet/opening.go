package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/role/aggregator"
)

// opening is the aggregator to those who push before it is open. A collector
// reads its sockets long before the journal is replayed: its windows grow
// meanwhile, and nothing waits in a kernel's buffer that could overflow.
type opening struct {
	done chan struct{} // closed by open or fail
	to   *aggregator.Aggregator
}

var errNotOpened = errors.New("the aggregator could not be opened")

// open lets windows through from now on. It is called once, as is fail in its place.
func (o *opening) open(to *aggregator.Aggregator) {
	o.to = to
	close(o.done)
}

// fail says that nobody will ever take windows.
func (o *opening) fail() { close(o.done) }

// wait returns nil once the aggregator is open.
func (o *opening) wait(ctx context.Context) error {
	select {
	case <-o.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if o.to == nil {
		return errNotOpened
	}
	return nil
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
	return o.to.Push(ctx, batches)
}

// lateEvents is the event log to those who write before it is open.
type lateEvents struct{ *server }

// Append is part of collector.Events.
func (l lateEvents) Append(ctx context.Context, events []event.Event) error {
	if err := l.opening.wait(ctx); err != nil {
		return err
	}
	return l.events.Append(ctx, events)
}
