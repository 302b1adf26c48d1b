// Package write holds a request on its way to a store: the request as received, the decisions about
// it, and its outcome. All of it is plain data. The store calls nothing back while it writes, so a
// request can be written in this process or in another.
//
// adapter/receive reads an Incoming request, and role/distributor decides about it and makes a Request
// of it. Incoming has the fields that no store needs, such as the compressed body. The request's
// stage.Trip is in the context of each call.
//
// Receiver, distributor and ingester hand a request on by Push(ctx, request). When Push returns
// nil, the outcome is known, and the written parts survive the death of the process. After an error
// no outcome counts, and the request may come again: parts that are stored by then are repeats. The
// end of ctx, for example because the sender disconnects, ends only the wait for the request's
// turn. Push always waits for a write that has begun. After Push has returned, nothing uses the
// memory of the request, unless a group has taken the request: see Offer.
package write

import (
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/lib/buf"
)

// MaxAhead is how far a sample may lie in the future. A sample a year ahead would make the whole
// TSDB refuse the present as too old.
const MaxAhead = 10 * time.Minute

// Incoming is a request as received, before the distributor has decided about it.
type Incoming struct {
	remotewrite.Request

	Sender     sender.Sender // zero if unknown
	Compressed []byte        // the body as received, for backends; nil if there is none
	Hash       uint64        // of OTLP: see seen.Of
	Results    bool          // as in Request
	Body       *buf.Buf      // the decompressed body, into which Request points; nil if it points elsewhere
	Offer      *Offer        // nil if the request cannot be taken
}

var pool = sync.Pool{New: func() any { return new(Incoming) }}

// NewIncoming returns an empty request from a pool. Its owner calls Release.
func NewIncoming() *Incoming { return pool.Get().(*Incoming) }

// Release gives the memory of the request and of its Body back for other requests.
func (r *Incoming) Release() {
	if r.Body != nil {
		r.Body.Release()
	}
	r.Sender, r.Compressed, r.Hash, r.Results, r.Body, r.Offer = sender.Sender{}, nil, 0, false, nil, nil
	if r.Small() {
		pool.Put(r)
	}
}

// Offer is a request that was decoded from its Compressed body and not changed since. A group that puts this
// body into its log as it is needs the decoded request when it applies the entry, perhaps after Push has
// returned. So it takes the request instead of decoding the body again. Only one goroutine calls Take.
type Offer struct {
	Request *Incoming
	taken   bool
}

// Take reports whether the request was still there. It then belongs to the caller.
func (o *Offer) Take() bool {
	if o == nil || o.Request == nil || o.taken {
		return false
	}
	o.taken = true
	return true
}

// Request is what a store needs to write one request of a tenant. It points into memory of the
// caller, which must not reuse it while the request may still be written.
type Request struct {
	*remotewrite.Request // the body, its form, and the series in it

	Tenant    string
	Arrival   int64         // Unix milliseconds
	Window    time.Duration // how much older than the tenant's newest sample an out-of-order sample may be
	Sender    sender.Sender // of the request, and so of its new series; zero if unknown
	Only      []uint32      // series to write, as increasing indexes; nil for all
	MaxSeries int           // how many recent series the tenant may have; 0 for no limit
	Terms     *Terms

	// Results means that the samples are results of rules, which have a store of their own.
	Results bool

	// Only a group uses these fields. It puts them into the entries of its log.
	Compressed []byte // as in Incoming
	Hash       uint64 // as in Incoming
	Pair       Pair
	Offer      *Offer // as in Incoming

	// Begun is set before a store is asked to write the request. From then on the tenant may have a
	// store, even if the write fails.
	Begun bool

	// Outcome has the fate of each part. The store fills it in.
	Outcome outcome.Outcome

	// Copies counts two sorts of parts in Outcome.Dropped: parts that the replica of an HA pair sent
	// while it was not elected, and metadata without samples for a tenant that is not admitted. A group
	// sets Copies.
	Copies outcome.Counts

	// Described has the series whose metadata is new to the store, whether or not the series are
	// written. The store appends to Described.
	Described []Description
}

// Pair is the place of a request's sender in an HA pair. It is zero if the sender is in no pair.
type Pair struct {
	Cluster, Replica string
	Timeout          time.Duration // how long the elected replica may send nothing before the other is elected
}

// Parts counts the parts of a series.
func (r *Request) Parts(s *remotewrite.Series) outcome.Counts {
	return outcome.Counts{Samples: len(r.Samples(s)), Histograms: len(r.Histograms(s)), Exemplars: len(r.Exemplars(s))}
}

// Refuse counts refused parts of a series.
func (r *Request) Refuse(s *remotewrite.Series, reason outcome.Reason, parts outcome.Counts, cause error) {
	if r.Outcome.Refuse(reason, parts) {
		r.Outcome.Tell(labelrules.Text(r.Request, s), cause)
	}
}

// RefuseAll refuses every part of the request.
func (r *Request) RefuseAll(reason outcome.Reason, cause error) {
	if r.Only == nil {
		for i := range r.Series {
			r.Refuse(&r.Series[i], reason, r.Parts(&r.Series[i]), cause)
		}
		return
	}
	for _, i := range r.Only {
		r.Refuse(&r.Series[i], reason, r.Parts(&r.Series[i]), cause)
	}
}

// Terms decide which series the labels of a request stand for. They are immutable: a reload makes
// new ones, of the next generation. A store must not use data that it remembers from another
// generation.
type Terms struct {
	Generation uint64
	Rules      labelrules.Rules
}

// Description is the metadata that a request has for one of its series.
type Description struct {
	Metric   string
	Metadata remotewrite.Metadata // as indexes into the request's symbols
}
