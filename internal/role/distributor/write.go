package distributor

import (
	"errors"
	"sync/atomic"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/quorum"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/lib/buf"
)

// writing is a request on its way to those that own its series.
type writing struct {
	distributor *Distributor
	terms       *terms
	tenant      string
	request     *remotewrite.Request
	body        *buf.Buf
	done        func() // once nobody uses the memory any more
	users       atomic.Int32
}

func (w *writing) keep(users int) { w.users.Add(int32(users)) }

func (w *writing) release() {
	if w.users.Add(-1) == 0 {
		w.done()
	}
}

// write returns when every part of the request is with a quorum of its replicas, or one
// cannot be.
func (w *writing) write() (outcome.Outcome, error) {
	if all := w.distributor.Placement.Instances(); len(all) == 1 { // who owns everything
		w.keep(1)
		return quorum.Write(w.distributor.replicas(all[0]), &part{writing: w})
	}
	parts := w.split()
	w.keep(len(parts))
	type answer struct {
		outcome outcome.Outcome
		err     error
	}
	answers := make(chan answer, len(parts))
	for owner, only := range parts {
		go func() {
			o, err := quorum.Write(w.distributor.replicas(owner), &part{w, only})
			answers <- answer{o, err}
		}()
	}
	var all outcome.Outcome
	for range parts {
		a := <-answers
		if a.err != nil {
			return outcome.Outcome{}, a.err // the others go on, and are repeats when it comes again
		}
		all.Add(&a.outcome)
	}
	return all, nil
}

// split says which instance owns which series.
func (w *writing) split() map[string][]uint32 {
	parts := map[string][]uint32{}
	var key []byte
	for i := range w.request.Series {
		// What is malformed is refused wherever it comes.
		key, _ = w.request.AppendSeriesKey(key[:0], &w.request.Series[i], w.terms.HA.Replica)
		owner := w.distributor.Placement.Owner(series.Shard(w.tenant, key))
		parts[owner] = append(parts[owner], uint32(i))
	}
	return parts
}

// replicas are the ingesters that have what an instance of the placement owns: itself. The
// slice is not to be changed.
func (d *Distributor) replicas(instance string) []Ingester { return d.ingesters[instance] }

// part is what of a request goes to the same replicas: a quorum.Job.
type part struct {
	*writing
	only []uint32 // series; nil for all
}

// attempt is what one replica works with. It is used again.
type attempt struct {
	tsdb.Request
	rules rules
}

// Write is part of quorum.Job.
func (p *part) Write(to Ingester) (outcome.Outcome, error) {
	a := p.distributor.attempts.Get().(*attempt)
	defer p.distributor.attempts.Put(a)
	a.rules = rules{p.terms, p.tenant, p.distributor.Metadata}
	a.Request = tsdb.Request{Request: p.request, Rules: &a.rules, MaxSeries: p.terms.Tenants[p.tenant].MaxSeries.Or(p.terms.MaxSeries), Only: p.only}
	err := to.Push(p.tenant, &a.Request, p.body)
	return a.Outcome, err
}

// Failed is part of quorum.Job: nobody may hear of it but the log.
func (p *part) Failed(_ Ingester, err error) {
	p.distributor.complain(p.tenant, err)
	if panicked, ok := errors.AsType[*quorum.PanicError](err); ok {
		p.distributor.Logger.Error("BUG: an ingester panicked", "panic", panicked.Value, "stack", string(panicked.Stack))
	}
}

// Done is part of quorum.Job.
func (p *part) Done() { p.release() }
