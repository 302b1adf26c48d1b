package distributor

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/watermark"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/settings"
)

// The watermark learns of each request of a tenant with rules: that it is written, or sent back. Of an HA
// pair, the server whose samples are not stored does not count.
func TestTheWatermarkLearnsOfRequests(t *testing.T) {
	w := newWorld(t, func(c *settings.Distributor) { c.HA.Replica = "replica" })
	w.Watermarks = new(watermark.All)
	of := w.Watermarks.Watch("a", 300_000)
	from := sender.Sender{Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), 0)}
	push := func(series string) {
		r := w.request(series)
		r.Sender = from
		_, _ = w.Push(t.Context(), "a", r) // the watermark learns of errors, too
	}
	late := func() (all []string) {
		for _, l := range of.Marks(w.now.UnixMilli(), w.now.UnixMilli()).Late {
			all = append(all, l.Sender+" "+string(l.Reason))
		}
		return all
	}
	for range 5 {
		w.now = w.now.Add(10 * time.Second)
		push("up")
		push("up{cluster=c,replica=one}")
	}
	w.now = w.now.Add(10 * time.Second)
	push("up{cluster=c,replica=two}")
	w.now = w.now.Add(10*time.Second + time.Second)
	if got := late(); len(got) != 2 || got[0] != "10.0.0.1 silent" || got[1] != "HA pair c silent" {
		t.Errorf("late are %q, want both senders: the other server of the pair is not elected", got)
	}
	w.err = errors.New("no space left on device")
	push("up")
	if got := late(); len(got) != 3 || got[2] != " refused" {
		t.Errorf("late are %q, want the refusal, too", got)
	}
	// No tenant without rules pays for this.
	if w.Watermarks.Of("b") != nil {
		t.Error("tenant b is watched")
	}
}

// In a cluster, requests come in at any node. So each node learns of them from the log, and counts by the time of the
// leader.
func TestTheWatermarkLearnsFromTheLog(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	w.Watermarks, w.Cluster = new(watermark.All), true
	of := w.Watermarks.Watch("a", 300_000)
	g := &group{world: w}
	w.Group = g
	from := sender.Sender{Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), 0)}
	came := func(pair write.Pair, written int) {
		r := w.request("up")
		w.Came(&write.Request{Request: &r.Request, Tenant: "a", Sender: from, Pair: pair, Arrival: w.now.UnixMilli(),
			Outcome: outcome.Outcome{Written: outcome.Counts{Samples: written}}})
	}
	for range 4 {
		w.now = w.now.Add(10 * time.Second)
		came(write.Pair{}, 1)
		came(write.Pair{Cluster: "c", Replica: "one"}, 1)
	}
	w.now = w.now.Add(10 * time.Second)
	came(write.Pair{Cluster: "c", Replica: "two"}, 0) // it is not elected
	r := w.request("up")
	r.Sender = from
	if _, err := w.Push(t.Context(), "a", r); err != nil { // the log has not come by yet
		t.Fatal(err)
	}
	w.now = w.now.Add(11 * time.Second)
	late := of.Marks(w.now.UnixMilli(), w.now.UnixMilli()).Late
	if len(late) != 2 || late[0].Reason != watermark.Silent || late[1].Reason != watermark.Silent {
		t.Errorf("late are %v, want both senders", late)
	}
}

// logged is a group whose log does not say that samples are results, so they are stored among the samples of senders.
type logged struct{ *world }

func (l logged) Push(ctx context.Context, r *write.Request) error {
	r.Results = false
	return direct(l).Push(ctx, r)
}

func (l logged) PushDeltas(context.Context, *write.Request) error { return errors.New("not used") }

// The ruler evaluates what it missed up to 15 min late, and writes each series in order. In a cluster, senders and
// other groups have written meanwhile what is newer. The results are stored nevertheless, even with a short
// store.out_of_order.
func TestLateResultsAreStored(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		w := newWorld(t, func(*settings.Distributor) {})
		w.OutOfOrder = time.Minute
		if w.Cluster = cluster; cluster {
			w.Group = logged{w}
		}
		push := func(series string, results bool, age time.Duration) int {
			t.Helper()
			r := w.request(series)
			r.Results = results
			r.Samples(&r.Series[0])[0].Time = w.now.Add(-age).UnixMilli()
			o, err := w.Push(t.Context(), "a", r)
			if err != nil {
				t.Fatal(err)
			}
			return o.Written.Samples
		}
		const late = 15*time.Minute + 10*time.Second
		if push("a:sum", true, late+10*time.Second) != 1 || push("up", false, 0) != 1 || push("other:sum", true, 0) != 1 {
			t.Fatal("samples in time are refused")
		}
		for age := late; age > 0; age -= 10 * time.Second {
			if push("a:sum", true, age) != 1 {
				t.Errorf("cluster %v: a result of %v ago is not stored", cluster, age)
			}
		}
	}
}
