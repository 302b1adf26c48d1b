package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/rewrite"
	"github.com/freshet-io/freshet/internal/core/seen"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/retry"
)

// Requests hands requests to a group, in as many entries as they need. It is safe for concurrent use.
type Requests struct {
	group     Proposer
	rewriters sync.Pool // of *rewrite.Rewriter
}

// Proposer is what Requests need of a Group. An error is member.ErrLost or ErrUnknown if the entry may
// count nevertheless, and context.DeadlineExceeded if the proposer has no time to try again.
type Proposer interface {
	Write(ctx context.Context, e *entry.Entry) (*outcome.Outcome, error)
}

const (
	// proposeAgain is the pause after which an entry is proposed again when the group has no leader or has
	// another leader. An election takes 1 to 2 s.
	proposeAgain = 50 * time.Millisecond

	// maxPair is the most bytes that the names of an HA pair may have. Requests of a pair with longer
	// names are all taken, like the requests of a sender in no pair.
	maxPair = 8 << 10
)

// NewRequests returns Requests that hand requests to a group.
func NewRequests(group Proposer) *Requests {
	return &Requests{group: group, rewriters: sync.Pool{New: func() any { return new(rewrite.Rewriter) }}}
}

// Push writes a request and sets its outcome: see package write. Described stays empty, since each
// member gives Told the metadata of the requests that it stores. The error is member.ErrUnknown if
// the request may be written nevertheless, in whole or in part. The end of ctx ends only the wait.
func (q *Requests) Push(ctx context.Context, r *write.Request) error {
	return q.push(ctx, entry.KindRequest, r)
}

// PushDeltas adds the values of a request to totals and sets its outcome. A request that comes again
// does not count again.
func (q *Requests) PushDeltas(ctx context.Context, r *write.Request) error {
	return q.push(ctx, entry.KindDeltas, r)
}

func (q *Requests) push(ctx context.Context, kind entry.Kind, r *write.Request) error {
	if len(r.Series) == 0 && len(r.Families) == 0 {
		return nil // an entry would admit the tenant
	}
	w := q.rewriters.Get().(*rewrite.Rewriter)
	defer q.rewriters.Put(w)
	var o outcome.Outcome
	var copies outcome.Counts
	entries := 0
	for part, in := range partsOf(kind, r) {
		bodies, rest := rewritten(w, kind, in, r)
		o.Add(&rest)
		for i := range bodies {
			e := entryOf(kind, r, &bodies[i])
			e.Request.Hash = uint64(seen.Hash(r.Hash).Part(part, i))
			one, err := q.propose(ctx, e)
			if err != nil && entries > 0 && !errors.Is(err, member.ErrUnknown) {
				err = fmt.Errorf("%w: the earlier parts of the request are written: %w", member.ErrUnknown, err)
			}
			entries++
			if err != nil {
				return fmt.Errorf("write entry %d of the request to the log: %w", entries, err)
			}
			ctx = stage.NewContext(ctx, nil) // the trip goes with the first entry
			o.Add(one)
			copies.Add(one.Dropped) // an entry drops only copies: the rules were applied to the bodies before
		}
	}
	r.Outcome, r.Copies = o, copies
	return nil
}

// partsOf returns the parts of a request, by number. A request that is no delta is one part, and so are most
// deltas. The last part has the metadata, since only a tenant that is admitted may have some.
func partsOf(kind entry.Kind, r *write.Request) iter.Seq2[int, *write.Incoming] {
	return func(yield func(int, *write.Incoming) bool) {
		whole := write.Incoming{Request: *r.Request, Sender: r.Sender, Compressed: r.Compressed}
		if kind != entry.KindDeltas || len(r.Cuts) == 0 {
			yield(0, &whole)
			return
		}
		from := 0
		for i := range len(r.Cuts) + 1 {
			part := whole
			if i < len(r.Cuts) {
				part.Series, part.Families = r.Series[from:r.Cuts[i]], nil
				from = r.Cuts[i]
			} else {
				part.Series = r.Series[from:]
			}
			if !yield(i, &part) {
				return
			}
		}
	}
}

// rewritten returns the bodies of a part of a request, and the outcome of what is in no body.
func rewritten(
	w *rewrite.Rewriter, kind entry.Kind, part *write.Incoming, r *write.Request,
) ([]rewrite.Body, outcome.Outcome) {
	if kind != entry.KindDeltas {
		return w.Rewrite(part, &r.Terms.Rules)
	}
	bodies, o := w.RewritePart(part, &r.Terms.Rules)
	o.Dropped.Exemplars = 0 // totals have no exemplars
	for i := range o.Refused {
		o.Refused[i].Exemplars = 0
	}
	return bodies, o
}

// entryOf returns an entry that shares no memory with the request: the entry may be in use when ctx has
// ended.
func entryOf(kind entry.Kind, r *write.Request, body *rewrite.Body) *entry.Entry {
	e := &entry.Entry{Kind: kind, Request: entry.Request{
		Tenant: r.Tenant, Window: r.Window.Milliseconds(), MaxSeries: r.MaxSeries,
		Sender: r.Sender.Clone(), Form: body.Form, Body: bytes.Clone(body.Bytes), Results: r.Results,
	}}
	if body.Unchanged {
		e.Request.Offer = r.Offer
	}
	if p := &r.Pair; len(p.Cluster)+len(p.Replica) <= maxPair && *p != (write.Pair{}) {
		e.Request.Pair = entry.Pair{Cluster: p.Cluster, Replica: p.Replica, Timeout: p.Timeout.Milliseconds()}
	}
	return e
}

// propose proposes an entry until its outcome is known. An entry whose outcome was lost may be
// proposed twice: stored samples are then repeats, and deltas are recognized as repeats by their hash.
func (q *Requests) propose(ctx context.Context, e *entry.Entry) (*outcome.Outcome, error) {
	lost := false
	for {
		// Each try has an entry of its own, since a try that ctx ended may still read it.
		try := *e
		o, err := q.group.Write(ctx, &try)
		if err == nil && o == nil {
			panic(fmt.Sprintf("BUG: an entry of kind %d has no outcome", e.Kind))
		}
		lost = lost || errors.Is(err, member.ErrLost)
		if again(err) {
			waited := retry.Wait(ctx, proposeAgain)
			if waited == nil {
				continue
			}
			err = fmt.Errorf("%w: %w", err, waited)
		}
		if err != nil && lost && !errors.Is(err, member.ErrUnknown) {
			err = fmt.Errorf("%w: %w", member.ErrUnknown, err)
		}
		return o, err
	}
}

// again reports whether an entry may be proposed again after an error.
func again(err error) bool {
	if errors.Is(err, member.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return errors.Is(err, replica.ErrNotLeader) || errors.Is(err, member.ErrLost) || errors.Is(err, member.ErrMoved)
}

// Told gets, on every member, requests, and the metadata, totals and elections that they bring. The goroutine of
// Run calls it.
type Told interface {
	// Families and Series get the metadata of metrics: see metadata.Store.
	Families(tenant string, families []remotewrite.Family)
	Series(tenant, name string, r *remotewrite.Request, m remotewrite.Metadata)
	// NewTotal is called with a series of deltas that is new, or that a limit refused.
	NewTotal(tenant string, ls labels.Labels, from sender.Sender, refused bool)
	// Elected is called when another server of an HA pair is elected.
	Elected(tenant, cluster, replica string)
	// Came is called with each request whose values queries can see, and whose outcome is known.
	Came(r *write.Request)
}

// tellStored tells `to` of requests that the stores have.
func tellStored(to Told, w *member.Work) {
	for _, r := range w.Requests {
		if r.Write.Outcome.NoTenant() {
			continue
		}
		to.Families(w.Tenant, r.Write.Families)
		for _, x := range r.Write.Described {
			to.Series(w.Tenant, x.Metric, r.Write.Request, x.Metadata)
		}
	}
}

// tellApplied tells `to` of an entry that is applied.
func tellApplied(to Told, done *member.Applied) {
	if e := done.Elected; e != nil {
		to.Elected(e.Tenant, e.Cluster, e.Replica)
	}
	if d := done.Deltas; d != nil {
		to.Families(d.Tenant, d.Families)
		for _, x := range d.New {
			to.NewTotal(d.Tenant, x.Labels, d.Sender, x.Refused)
		}
		to.Came(d.Request)
	}
}
