package member

import (
	"slices"
	"testing"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/write"
)

// offerOf returns what the proposer of an entry can offer: the body of the entry, decoded.
func offerOf(t *testing.T, e *entry.Entry) *write.Offer {
	t.Helper()
	r := Request{entry: e.Request}
	if err := r.decode(); err != nil {
		t.Fatal(err)
	}
	o := &write.Offer{Request: r.decoded}
	o.Take()
	return o
}

// The leader stores a request that its caller gave, and does not decode the entry. The other members decode
// it. If much waits for the stores, the leader decodes it, too, so that little memory is in use. All members
// decide the same.
func TestALeaderStoresWhatItsCallerGave(t *testing.T) {
	for _, waits := range []int64{0, maxDecoded} {
		g := newThree(t, 3)
		leader := g.leader()
		for _, n := range g.nodes {
			n.hangs = true
		}
		leader.settings.MaxQueued, leader.settings.MaxQueuedSum = 2*maxDecoded, 2*maxDecoded
		leader.state.requestsBytes += waits
		e := requestEntry(t, g.now)
		e.Request.Offer = offerOf(t, e)
		leader.Write(g.now, 1, e)
		g.pass(1000)
		leader.state.requestsBytes -= waits
		for i, n := range g.nodes {
			r := n.work[0].Requests[0]
			if n == leader && waits == 0 {
				if r.decoded != e.Request.Offer.Request {
					t.Error("the leader has not kept what its caller gave")
				}
			} else if r.decoded != nil {
				t.Errorf("member %d keeps a decoded request while %d bytes wait", i+1, waits)
			}
			n.hangs = false
		}
		g.pass(1000)
		if a := leader.answers[1]; a.Err != nil || a.Outcome == nil || a.Outcome.Written == (outcome.Counts{}) {
			t.Errorf("answered %+v, want an outcome with samples", a)
		}
		_, want := leader.State().Digests("one")
		for _, n := range g.nodes {
			if _, got := n.State().Digests("one"); got != want || want.Index == 0 {
				t.Errorf("digest %v, want %v", got, want)
			}
		}
	}
}

// An entry of another leadership at the index of a lost proposal is not what the caller gave.
func TestALostProposalsRequestIsNotStored(t *testing.T) {
	g := newThree(t, 3)
	old := g.leader()
	old.parted = true
	for id := range ID(4) { // the next leader's first entry, which is empty, takes the index of the first one
		e := requestEntry(t, g.now)
		e.Request.Offer = offerOf(t, e)
		old.Write(g.now, 10+id, e)
	}
	g.pass(5000)
	at := slices.IndexFunc(g.nodes, func(n *testNode) bool { return n != old && n.leads.Leads })
	next := g.nodes[at]
	for id := range ID(3) {
		next.Write(g.now, 20+id, requestEntry(t, g.now))
		g.pass(100)
	}
	old.hangs, old.parted = true, false
	g.pass(2000)
	if len(old.work) == 0 || len(old.work[0].Requests) == 0 {
		t.Fatal("the old leader has applied no request")
	}
	for _, w := range old.work {
		for _, r := range w.Requests {
			if r.decoded != nil {
				t.Errorf("entry %d has the request of a lost proposal", r.Index)
			}
		}
	}
}
