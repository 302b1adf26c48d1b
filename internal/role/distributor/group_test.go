package distributor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	prom "github.com/prometheus/prometheus/model/metadata"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/settings"
)

// group takes the place of a group that has admitted tenant "a". It accepts only replica 1 of an HA
// pair.
type group struct {
	*world
	pair write.Pair
	hash uint64
	err  error
}

func (g *group) Push(ctx context.Context, r *write.Request) error {
	if _, bounded := ctx.Deadline(); !bounded {
		g.t.Error("the context of a request has no deadline")
	}
	g.pair, g.hash = r.Pair, r.Hash
	parts := r.Counts()
	switch {
	case r.Pair.Replica == "2":
		r.Outcome.Dropped, r.Copies = parts, parts
	case len(r.Series) == 0 && r.Tenant != "a":
		r.Outcome.Dropped.Series, r.Copies.Series = len(r.Families), len(r.Families)
	default:
		r.Outcome.Written = parts
	}
	return g.err
}

// PushDeltas posts what it writes in the books, as the members do.
func (g *group) PushDeltas(ctx context.Context, r *write.Request) error {
	if err := g.Push(ctx, r); err != nil {
		return err
	}
	g.Ledger.Post(r.Tenant, ledger.Transfer{From: ledger.Window, To: ledger.Tile, Samples: samples(r.Outcome.Written)})
	return nil
}

// A group elects the servers of HA pairs in its log. The distributor hands the pair of a request's
// sender to the group, and counts what the group decided.
func TestAGroupElects(t *testing.T) {
	w := newWorld(t, func(c *settings.Distributor) { c.HA.Replica = "replica" })
	g := &group{world: w}
	w.Group = g
	deltas := func(replica string) (outcome.Outcome, error) {
		r := w.increments(func(to pmetric.MetricSlice) {
			w.sum(to, "s", true, 1)
			attributes := to.At(0).Sum().DataPoints().At(0).Attributes()
			attributes.PutStr("cluster", "c")
			attributes.PutStr("replica", replica)
		})
		r.Hash = 5
		return w.PushDeltas(t.Context(), "a", r)
	}
	for _, push := range []func(replica string) (outcome.Outcome, error){
		func(replica string) (outcome.Outcome, error) {
			return w.push("a", "up{cluster=c,replica="+replica+"}")
		}, deltas,
	} {
		for _, replica := range []string{"2", "1"} {
			o, err := push(replica)
			if taken := replica == "1"; err != nil || (o.Written.Samples == 1) != taken || (o.Dropped.Samples == 1) == taken {
				t.Errorf("%v: %+v", err, o)
			}
			if want := (write.Pair{Cluster: "c", Replica: replica, Timeout: 30 * time.Second}); g.pair != want {
				t.Errorf("pair %+v, not %+v", g.pair, want)
			}
		}
	}
	if g.hash != 5 {
		t.Errorf("hash %d", g.hash)
	}
	g.err = errors.New("no leader")
	var again *RetryError
	if _, err := deltas("1"); !errors.As(err, &again) || !errors.Is(err, g.err) {
		t.Error(err)
	}
	books := w.Ledger.Books().Tenants["a"].Samples
	if books.Received != 5 || books.Stored != 1 || books.Tile != 1 || books.Refused["replica"] != 2 ||
		books.Refused["rule"] != 0 || books.Refused["unavailable"] != 1 || books.Window != 0 || books.Difference != 0 {
		t.Errorf("the books are %+v", books)
	}
	if n := testutil.ToFloat64(w.metrics.dropped.WithLabelValues(droppedReplica)); n != 2 {
		t.Errorf("the metric counts %v dropped samples, want 2", n)
	}
	if n := testutil.ToFloat64(w.metrics.elections); n != 0 {
		t.Errorf("the metric counts %v elections, want 0, because the group holds the elections", n)
	}
}

// The answer to a refused request says that nothing was written. If a group may have the request anyway,
// the answer says so, and says that sending it again does no harm.
func TestTheTextOfARefusal(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	g := &group{world: w}
	w.Group = g
	for _, c := range []struct {
		err  error
		text string
	}{
		{errors.New("the group has no leader"), "nothing was written, send it again in "},
		{fmt.Errorf("%w: the group has no leader", member.ErrUnknown),
			"it may be written, in whole or in part; send it again in "},
	} {
		g.err = c.err
		_, err := w.push("a", "up")
		if err == nil || !strings.HasPrefix(err.Error(), c.text) || !strings.HasSuffix(err.Error(), ": "+c.err.Error()) {
			t.Errorf("%v, want %s", err, c.text)
		}
	}
}

// In a group, the distributor keeps no metadata and forwards no requests. Each member does both when it
// stores a request.
func TestAGroupKeepsMetadataAndForwards(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	w.Group = &group{world: w}
	b := &backend{requests: true}
	w.backends(b)
	for _, tenant := range []string{"invented", "a"} {
		r := w.request()
		r.Families = []remotewrite.Family{{Name: []byte("up"), Help: []byte("help")}}
		if o, err := w.Push(t.Context(), tenant, r); err != nil || o.AnyRefused() || len(b.bodies) != 0 {
			t.Errorf("tenant %s: outcome %+v, error %v; %d requests were forwarded, want 0", tenant, o, err, len(b.bodies))
		}
		w.Metadata.All(tenant, func(string, prom.Metadata) bool {
			t.Errorf("the distributor kept metadata of tenant %s", tenant)
			return false
		})
	}
	books := w.Ledger.Books().Tenants["invented"].Samples
	if books.Received != 0 || books.Difference != 0 {
		t.Errorf("the books are %+v", books)
	}
}
