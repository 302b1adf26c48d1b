package collector

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/core/top"
)

// The listener remembers malformed lines for 15 s. A client that flushes every 10 s may send all of its
// malformed lines before the first request of freshet top, and none afterwards.
func TestMalformedLinesFromBeforeAnybodyLooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		l := f.listeners()[0]
		pass := func(seconds int) {
			for range seconds {
				time.Sleep(time.Second)
				l.Tick(time.Now().UnixNano())
			}
		}
		malformed := func() []top.ViewListener {
			t.Helper()
			found, err := f.Top(t.Context(), l.terms.tenant, 10, TopLease)
			if err != nil || len(found.Malformed) > 0 {
				t.Fatal(found.Malformed, err)
			}
			return found.Listeners
		}
		l.Tick(time.Now().UnixNano())
		pass(3)
		for range 20 {
			l.Packet([]byte("x:\nx:one|c\nx:two|c"), time.Now().UnixNano())
		}
		pass(9)
		want := top.ViewListener{Listener: l.name(), Lines: 4, Malformed: 4, Share: 1, Reason: "bad_value"}
		if found := malformed(); len(found) != 1 || found[0] != want {
			t.Errorf("%+v, not %+v", found, want)
		}
		pass(10)
		if found := malformed(); len(found) > 0 {
			t.Errorf("after more than 15 s the listener has %+v, want nothing", found)
		}
	})
}
