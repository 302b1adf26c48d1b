package group

import (
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/tiling"
)

const (
	// retryPause is how long a tenant waits after a store refused a write.
	retryPause = time.Second

	// complaint is the interval at which the log repeats that a tenant's store takes nothing.
	// A try fails each second, and many tenants may have stores on one broken disk.
	complaint = time.Minute

	// stalled is the duration of a write after which the end of the process does not wait for it any
	// more.
	stalled = 5 * time.Second
)

// backlog is what the role knows about the closed tiles that wait for the stores of one tenant.
// core/member has the tiles.
type backlog struct {
	tenant string
	job    *job // under way, or to be tried again; nil if nothing waits

	full        bool  // the backlog has reached Options.MaxPending
	refused     bool  // a window was refused because the backlog is full
	refusedFrom int64 // Unix ms, the start of the first such window
}

// backlogOf returns the backlog of a tenant, and makes one if there is none.
func (g *Group) backlogOf(tenant string) *backlog {
	b := g.backlogs[tenant]
	if b == nil {
		b = &backlog{tenant: tenant}
		g.backlogs[tenant] = b
		g.metrics.WriteErrors.WithLabelValues(tenant) // shown as 0 until there are errors
	}
	return b
}

// reason returns why the tiles are not stored, or nil if a write is in progress.
func (b *backlog) reason() error {
	if b.job == nil {
		return nil
	}
	if b.job.err == nil && b.job.onItsWay && time.Since(b.job.begun) >= stalled {
		return errStalled
	}
	return b.job.err
}

// errStalled is the reason when a write neither ends nor fails.
var errStalled = fmt.Errorf("a write has been running for more than %v", stalled)

// publish updates whether there is room for more, and the summary for other goroutines.
func (g *Group) publish(b *backlog) {
	waits := g.node.State().Waiting(b.tenant)
	if full := waits.Bytes >= g.MaxPending; full != b.full {
		b.full = full
		if full {
			g.full++
			g.Logger.Error("a tenant's store takes no writes, and store.pending is reached: the tenant's new "+
				"samples are refused",
				"tenant", b.tenant, "bytes", waits.Bytes, "error", b.reason())
		} else {
			g.full--
			g.Logger.Info("there is room for a tenant's samples again", "tenant", b.tenant)
		}
	}
	b.refused = b.refused && b.full
	var p tiling.Pending
	if waits.Tiles > 0 {
		p = tiling.Pending{Samples: waits.Samples, Bytes: waits.Bytes, Since: waits.Since, Err: b.reason(),
			Refused: b.refused, RefusedFrom: b.refusedFrom}
	}
	g.SetPending(b.tenant, p)
}
