package collector

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/capture"
)

func openTap(t testing.TB, c *Collector, o TapOptions) *Tap {
	t.Helper()
	tap, err := c.Tap(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tap.Close)
	return tap
}

// next is a helper that waits until the tap has datagrams, and returns copies of them.
func next(t *testing.T, tap *Tap) []capture.Datagram {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all, _, err := tap.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return append([]capture.Datagram(nil), all...)
}

// A tap shows the datagrams of each socket with their senders, and the collector counts them as
// usual.
func TestTap(t *testing.T) {
	f := newFixture(t, nil).start(t)
	tap := openTap(t, f.Collector, TapOptions{Tenant: "default", Share: 1})
	for _, network := range []string{"udp", "unixgram", "unix"} {
		conn := dial(t, network, f.address(network))
		// The first batches may arrive before the socket reports senders.
		for named := false; !named; {
			send(t, conn, network+":1|c")
			for _, d := range next(t, tap) {
				if string(d.Data) != network+":1|c" || d.Network != network || d.Address != f.address(network) ||
					time.Since(time.Unix(0, d.Time)) > patience {
					t.Fatalf("%+v", d)
				}
				if network == "udp" {
					named = d.Sender.Addr.String() == conn.LocalAddr().String()
				} else {
					named = d.Sender.PID != 0
				}
			}
		}
	}
	if got := f.gauge(t, "freshet_taps"); got != 1 {
		t.Errorf("%v taps", got)
	}
	f.stop()
	for _, network := range []string{"udp", "unixgram", "unix"} {
		found := false
		for name := range f.aggregator.totals() {
			found = found || name == fmt.Sprintf(`counter {__name__="%s"}`, network)
		}
		if !found {
			t.Errorf("datagrams on %s were not counted: %v", network, f.aggregator.totals())
		}
	}
}

// Each tap gets the datagrams of its own tenant and listener.
func TestTapSelects(t *testing.T) {
	f := newFixture(t, nil).start(t)
	other := openTap(t, f.Collector, TapOptions{Tenant: "other", Share: 1})
	none := openTap(t, f.Collector, TapOptions{Tenant: "default", Share: 0})
	gram := openTap(t, f.Collector,
		TapOptions{Tenant: "default", Share: 1, Listener: "unixgram://" + f.address("unixgram")})
	udp := dial(t, "udp", f.address("udp"))
	send(t, udp, "a:1|c")
	send(t, dial(t, "unixgram", f.address("unixgram")), "b:1|c")
	var seen []capture.Datagram
	for len(seen) == 0 {
		seen = next(t, gram)
	}
	if len(seen) != 1 || string(seen[0].Data) != "b:1|c" {
		t.Errorf("%+v", seen)
	}
	for _, tap := range []*Tap{other, none} {
		if len(tap.filling.packets) != 0 {
			t.Errorf("tap %+v has %d datagrams, want 0", tap.TapOptions, len(tap.filling.packets))
		}
	}
}

// The number of taps is bounded, and a closed tap costs nothing.
func TestTapsAreFew(t *testing.T) {
	f := newFixture(t, nil)
	var all []*Tap
	for range maxTaps {
		tap, err := f.Tap(TapOptions{Tenant: "default", Share: 1})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tap)
	}
	if _, err := f.Tap(TapOptions{}); !errors.Is(err, ErrTaps) {
		t.Errorf("opening a tap beyond the limit returned %v, want ErrTaps", err)
	}
	for _, tap := range all {
		tap.Close()
	}
	if f.taps.open.Load() != nil || f.watchers != 0 {
		t.Errorf("after all taps closed, %v are open and %d callers watch senders, want none", f.taps.all(), f.watchers)
	}
}

// Readers do not wait for a slow tap. The datagrams that the tap misses are counted. Next reports how
// many datagrams were missed after the ones that it returns.
func TestTapMisses(t *testing.T) {
	f := newFixture(t, nil)
	tap := openTap(t, f.Collector, TapOptions{Tenant: "default", Share: 1})
	l := f.listeners()[0]
	packet := make([]byte, 1000)
	const sent = 2 * tapBytes / 1000
	for i := range sent {
		l.tap(*f.taps.open.Load(), packet, int64(i))
	}
	all, missed, err := tap.Next(t.Context())
	if err != nil || len(all)+int(missed) != sent || len(all) != tapBytes/1000 {
		t.Errorf("%d datagrams seen and %d missed, want %d in total; error %v", len(all), missed, sent, err)
	}
	if got := f.gauge(t, "freshet_tap_missed_packets_total"); got != float64(missed) {
		t.Errorf("metric: %v, want %d", got, missed)
	}
	l.tap(*f.taps.open.Load(), []byte("a:1|c"), 1)
	if all, missed, err := tap.Next(t.Context()); len(all) != 1 || missed != 0 || err != nil {
		t.Errorf("then Next returned %d datagrams, %d missed, error %v, want 1, 0, nil", len(all), missed, err)
	}
}

func TestTapEnds(t *testing.T) {
	f := newFixture(t, nil)
	tap := openTap(t, f.Collector, TapOptions{Tenant: "default", Share: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := tap.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// gauge returns one of the collector's own metrics by its full name.
func (f *fixture) gauge(t *testing.T, name string) float64 {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			m := family.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// Bound: without a tap, the check for taps costs less than the noise in the time of a datagram. Each tap
// adds at most 150 ns, plus the cost of the kernel's reports of senders (sockets.BenchmarkSender).
// Measured in one run, on two cores with other load: 133 to 147 ns without a tap, 141 to 181 ns without
// the check, 205 to 280 ns with one tap.
func BenchmarkPacket(b *testing.B) {
	packet := []byte("page_views:1|c|#env:prod,page:home,host:web-1\nrequest_seconds:0.123|d|#env:prod,page:home")
	for taps := range 3 {
		b.Run(fmt.Sprintf("taps=%d", taps), func(b *testing.B) {
			f := newFixture(b, nil)
			l := f.listeners()[0]
			now := time.Now().UnixNano()
			l.table.Start(now)
			for range taps {
				tap := openTap(b, f.Collector, TapOptions{Tenant: "default", Share: 1})
				go func() {
					for {
						if _, _, err := tap.Next(b.Context()); err != nil {
							return
						}
					}
				}()
			}
			b.ReportAllocs()
			for b.Loop() {
				l.Packet(packet, now)
			}
		})
	}
}
