package tsdb

import (
	"context"
	"runtime"
)

// turns bounds how many stores compact at a time. The heads of all tenants become due at the same second, since blocks
// begin at the same times.
type turns chan struct{}

// newTurns leaves half of the processors to requests.
func newTurns() turns { return make(turns, max(1, runtime.GOMAXPROCS(0)/2)) }

// take waits for a turn, which the caller must give back.
func (t turns) take(ctx context.Context) (giveBack func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
