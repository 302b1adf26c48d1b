package distributor

import (
	"context"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/watermark"
	"github.com/freshet-io/freshet/internal/core/write"
)

// watched pushes a request, and tells the watermark of its tenant about it. Requests of our own have no
// sender to wait for.
func (d *Distributor) watched(
	ctx context.Context, tenant string, r *write.Incoming,
	push func(context.Context, string, *write.Incoming) (outcome.Outcome, error),
) (outcome.Outcome, error) {
	w := d.Watermarks.Of(tenant)
	if w == nil || r.Results || r.Sender == (sender.Sender{}) {
		return push(ctx, tenant, r)
	}
	if d.Cluster { // requests come in at any node: see Came
		o, err := push(ctx, tenant, r)
		if err != nil {
			w.SentBack(d.Now().UnixMilli())
		}
		return o, err
	}
	begun := d.Now().UnixMilli()
	w.Begin(begun)
	o, err := push(ctx, tenant, r)
	newest, any := r.Newest()
	pair := d.terms.Load().pairOf(r)
	now := d.Now().UnixMilli()
	switch {
	case err != nil:
		w.Ended(begun)
		w.SentBack(now)
	case !any, pair != (write.Pair{}) && o.Written == (outcome.Counts{}): // the pair's other server is elected
		w.Ended(begun)
	case pair != (write.Pair{}):
		w.Written(watermark.Key{Pair: pair.Cluster}, begun, newest, now)
	default:
		w.Written(watermark.Key{Sender: r.Sender}, begun, newest, now)
	}
	return o, err
}

// Came tells the watermark of its tenant about a request in the log of a cluster, at whichever node it came in. Times
// are of the leader that proposed it.
func (d *Distributor) Came(r *write.Request) {
	w := d.Watermarks.Of(r.Tenant)
	if w == nil || !d.Cluster || r.Sender == (sender.Sender{}) {
		return
	}
	newest, any := r.Newest()
	switch {
	case !any, r.Pair != (write.Pair{}) && r.Outcome.Written == (outcome.Counts{}): // as in watched
	case r.Pair != (write.Pair{}):
		w.Written(watermark.Key{Pair: r.Pair.Cluster}, r.Arrival, newest, r.Arrival)
	default:
		w.Written(watermark.Key{Sender: r.Sender}, r.Arrival, newest, r.Arrival)
	}
}

// sentBack tells the watermark of a tenant that a request was refused before it was read.
func (d *Distributor) sentBack(tenant string) {
	if w := d.Watermarks.Of(tenant); w != nil {
		w.SentBack(d.Now().UnixMilli())
	}
}
