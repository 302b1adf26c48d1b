package tsdb

import (
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/growth"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/write"
)

// growing lists the noted series by store and metric: "raw a 1 0" is one new series and none
// refused.
func growing(r []growth.Tenant) string {
	var words []string
	for _, of := range r {
		for _, m := range of.Metrics {
			var new, refused uint64
			for i := range m.New {
				new, refused = new+m.New[i], refused+m.Refused[i]
			}
			word := m.Store + " " + m.Name + " " + string('0'+rune(new)) + " " + string('0'+rune(refused))
			words = append(words, strings.Join(append([]string{word}, m.Senders...), " by "))
		}
	}
	return strings.Join(words, ", ")
}

// A series is noted once, with its sender, when it is new to its store. A series that a limit
// refuses is noted each time. Series that a store had when it closed are not new when it opens
// again. A series of tiles is noted once, although there are two widths.
func TestNewcomersAreToldOf(t *testing.T) {
	w := newWorld(t)
	push := func(text string) {
		t.Helper()
		r := requestOf(t, true, &plain, parseRaw(t, text))
		r.MaxSeries, r.Sender = 2, sender.Of("10.0.0.7:1", "shop/1")
		if err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
			t.Fatal(err)
		}
	}
	push("a@10=1 b@10=1 c@10=1 dropped@10=1 refused@10=1")
	push("a@20=1 b@20=1 c@20=1")
	if got, want := growing(w.stores.Growth()), "raw c 0 2 by 10.0.0.7 (shop/1), raw a 1 0 by 10.0.0.7 (shop/1), raw b "+
		"1 0 by 10.0.0.7 (shop/1)"; got != want {
		t.Errorf("got %s", got)
	}
	w.write("t@10=1")
	w.write("t@20=1")
	if got := growing(w.stores.Growth()); !strings.HasSuffix(got, "10s t 1 0") {
		t.Errorf("growth is %s, want 10s t 1 0 at the end", got)
	}
	w.close()
	w.open()
	push("a@30=1 b@30=1")
	w.write("t@30=1")
	if got := growing(w.stores.Growth()); got != "" {
		t.Errorf("known series are reported as new after a restart: %s", got)
	}
}
