// Package write holds a request on its way to a store: what came, what was decided about it
// on the way in, and what became of it. All of it is data. The store asks nobody while it
// writes, so that a request can be written in this process or in another.
//
// How a request comes in is adapter/receive's business, and what is decided about it
// role/distributor's.
package write

import (
	"time"

	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// MaxAhead is how far a sample may lie in the future. One that is a year ahead would make a
// whole TSDB refuse the present as too old.
const MaxAhead = 10 * time.Minute

// Request is one request of a tenant. It points into memory of the caller, who gets it back
// when the request is written, or will not be.
type Request struct {
	*remotewrite.Request // as it came: the bytes, the form they have, and the series in them

	Tenant    string
	Only      []uint32 // series to write, as indexes that grow; nil for all
	MaxSeries int      // of the tenant in memory; 0 for any number
	Terms     *Terms

	// Outcome says what became of each part. The store fills it in.
	Outcome outcome.Outcome

	// Described are the series whose metadata the store had not seen, written or not. The
	// store appends to it.
	Described []Description
}

// RefuseAll refuses each part of the request.
func (r *Request) RefuseAll(reason outcome.Reason, cause error) {
	if r.Only == nil {
		for i := range r.Series {
			r.refuse(&r.Series[i], reason, cause)
		}
		return
	}
	for _, i := range r.Only {
		r.refuse(&r.Series[i], reason, cause)
	}
}

func (r *Request) refuse(s *remotewrite.Series, reason outcome.Reason, cause error) {
	parts := outcome.Counts{Samples: len(r.Samples(s)), Histograms: len(r.Histograms(s)), Exemplars: len(r.Exemplars(s))}
	if r.Outcome.Refuse(reason, parts) {
		r.Outcome.Tell(labelrules.Text(r.Request, s), cause)
	}
}

// Terms say what series the labels of a request stand for. They never change once made: a
// reload makes others, of the next generation. What a store remembers of one generation says
// nothing in another.
type Terms struct {
	Generation uint64
	Rules      labelrules.Rules
}

// Description is what a request says of the metric of one of its series.
type Description struct {
	Metric   string
	Metadata remotewrite.Metadata // with numbers of the request's symbols
}
