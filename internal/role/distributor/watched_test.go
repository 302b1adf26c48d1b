package distributor

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/watermark"
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
