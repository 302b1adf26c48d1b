package collector

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/settings"
)

// mapper returns a Mapper that adds one label to every series.
func mapper(t *testing.T, name, value string) *mapping.Mapper {
	t.Helper()
	m, err := mapping.New(mapping.Config{}, labels.FromStrings(name, value))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// reload applies the present configuration with a change.
func (f *fixture) reload(t *testing.T, m *mapping.Mapper, change func(*settings.DogStatsD)) {
	t.Helper()
	config := f.Config
	if change != nil {
		change(&config)
	}
	r, err := f.Prepare(config, m, f.Host)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// While traffic arrives, reloads lose no sample: each counts once, under the rules before or after a
// reload. The sockets stay the same.
func TestReloadsLoseNothing(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			t.Parallel() // each window takes a second of real time
			f := newFixture(t, nil).start(t)
			before := f.Listening()
			stop, sent := make(chan struct{}), make(chan int)
			conn := dial(t, network, f.address(network))
			go func() {
				n := 0
				defer func() { sent <- n }()
				for {
					select {
					case <-stop:
						return
					default:
						if _, err := conn.Write([]byte("hits:1|c")); err != nil {
							t.Error(err)
							return
						}
						// Send a few packets at a time, and wait until they are read, so that the
						// kernel drops none.
						if n++; n%500 == 0 {
							want := n
							await(t, "what was sent", func() bool { return packets(f, network) >= want })
						}
					}
				}
			}()
			for i := range 3 {
				for range 10 { // several reloads in each window
					f.reload(t, mapper(t, "generation", fmt.Sprint(i)), nil)
				}
				await(t, "a window by the new rules", func() bool {
					return f.aggregator.totals()[fmt.Sprintf(`counter {__name__="hits", generation="%d"}`, i)] > 0
				})
			}
			close(stop)
			n := <-sent
			f.stop()
			got := 0.0
			for name, v := range f.aggregator.totals() {
				if !strings.HasPrefix(name, `counter {__name__="hits"`) {
					t.Errorf("a series %s", name)
				}
				got += v
			}
			if int(got) != n {
				t.Errorf("%v counted, %d sent", got, n)
			}
			if got := f.metric(t, "samples_total"); int(got) != n {
				t.Errorf("the metric counts %v samples, want %d as sent", got, n)
			}
			if after := f.Listening(); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("after the reloads, the sockets are %v, want %v as before", after, before)
			}
		})
	}
}

// packets returns the number of packets read on a network.
func packets(f *fixture, network string) int {
	n := uint64(0)
	for _, l := range f.listeners() {
		if l.address.network == network {
			n += l.socket.Stats().Packets
		}
	}
	return int(n)
}

// The new rules apply from the next window on, even to known contexts.
func TestReloadChangesWhatAContextBecomes(t *testing.T) {
	f := newFixture(t, nil).start(t)
	conn := dial(t, "udp", f.address("udp"))
	send(t, conn, "hits:1|c")
	await(t, "the first window", func() bool { return len(f.aggregator.taken()) == 1 })
	f.reload(t, mapper(t, "zone", "a"), func(c *settings.DogStatsD) { c.Tenant = "blue" })
	await(t, "the new terms", func() bool {
		send(t, conn, "hits:1|c")
		w := f.aggregator.taken()
		return w[len(w)-1].tenant == "blue"
	})
	w := f.aggregator.taken()
	if got := w[len(w)-1].series; len(got) != 1 || got[`counter {__name__="hits", zone="a"}`] == 0 {
		t.Errorf("after the reload the last window has %v, want only hits with the zone", got)
	}
}

// A socket that a reload removes hands over everything that it received. An added socket is read at
// once.
func TestReloadAddsAndRemovesSockets(t *testing.T) {
	f := newFixture(t, nil).start(t)
	path := filepath.Join(t.TempDir(), "new")
	conn := dial(t, "unixgram", f.address("unixgram"))
	for range 5 {
		send(t, conn, "old:1|c")
	}
	f.reload(t, f.Mapper, func(c *settings.DogStatsD) {
		c.Unixgram = ""
		c.Listeners = []settings.Listener{{Network: "unixgram", Address: path, Tenant: "blue"}}
	})
	if _, err := conn.Write([]byte("old:1|c")); err == nil {
		t.Error("the removed socket still takes datagrams")
	}
	send(t, dial(t, "unixgram", path), "new:1|c")
	want := map[string]float64{`counter {__name__="old"}`: 5, `counter {__name__="new"}`: 1}
	await(t, "both counters", func() bool { return maps.Equal(f.aggregator.totals(), want) })
	// The path of the removed socket is free, so the old configuration can be loaded again.
	f.reload(t, f.Mapper, nil)
	send(t, dial(t, "unixgram", f.address("unixgram")), "old:1|c")
	await(t, "the socket that came back", func() bool { return f.aggregator.totals()[`counter {__name__="old"}`] == 6 })
}

// A configuration that cannot be applied, for example because a port is in use, changes nothing. None of
// its sockets stays open.
func TestAReloadThatCannotBeChangesNothing(t *testing.T) {
	f := newFixture(t, nil).start(t)
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := filepath.Join(t.TempDir(), "free")
	config := f.Config
	config.Listeners = []settings.Listener{
		{Network: "unixgram", Address: free, Tenant: "default"},
		{Network: "udp", Address: taken.LocalAddr().String(), Tenant: "default"},
	}
	before := fmt.Sprint(f.Listening())
	if _, err := f.Prepare(config, f.Mapper, ""); err == nil ||
		!strings.Contains(err.Error(), taken.LocalAddr().String()) {
		t.Errorf("error %v", err)
	}
	if after := fmt.Sprint(f.Listening()); after != before {
		t.Errorf("the sockets are %s, want %s as before", after, before)
	}
	if c, err := net.Dial("unixgram", free); err == nil {
		c.Close()
		t.Error("a socket of the refused configuration is still bound")
	}
	send(t, dial(t, "udp", f.address("udp")), "a:1|c")
	await(t, "a sample", func() bool { return len(f.aggregator.totals()) == 1 })
}

// A reload waits for a collector that does not run yet, and gives up when its context ends.
func TestAReloadCanGiveUp(t *testing.T) {
	f := newFixture(t, nil)
	path := filepath.Join(t.TempDir(), "d")
	config := f.Config
	config.Listeners = []settings.Listener{{Network: "unixgram", Address: path, Tenant: "default"}}
	r, err := f.Prepare(config, f.Mapper, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrUnexpectedEOF)
	if err := r.Apply(ctx); err == nil || !strings.Contains(err.Error(), "unexpected EOF") {
		t.Errorf("error %v", err)
	}
	if c, err := net.Dial("unixgram", path); err == nil {
		c.Close()
		t.Error("the socket of the reload that was given up is still bound")
	}
}

// A reload that changes nothing for a listener keeps its table, with all known contexts.
func TestAReloadWithoutChangesKeepsTheTables(t *testing.T) {
	f := newFixture(t, nil).start(t)
	conn := dial(t, "udp", f.address("udp"))
	send(t, conn, "hits:1|c")
	await(t, "the first window", func() bool { return len(f.aggregator.taken()) == 1 })
	same, err := mapping.New(mapping.Config{}, labels.EmptyLabels())
	if err != nil {
		t.Fatal(err)
	}
	f.reload(t, same, func(c *settings.DogStatsD) { c.ReceiveBuffer *= 2 })
	await(t, "a second window", func() bool {
		send(t, conn, "hits:1|c")
		return len(f.aggregator.taken()) >= 3
	})
	if n := f.metric(t, "new_contexts_total"); n != 1 {
		t.Errorf("%v contexts were looked up, want 1", n)
	}
}

// A reload sets the receive buffer only if the configuration of the buffer changes. Otherwise a
// reload could shrink a buffer from systemd that is larger than Freshet itself may request.
func TestReloadSetsTheReceiveBufferOnceItIsAnother(t *testing.T) {
	f := newFixture(t, nil).start(t)
	udp := f.listeners()[0].socket
	if err := udp.SetReceiveBuffer(100_000); err != nil { // as if systemd had passed a socket with this buffer
		t.Fatal(err)
	}
	f.reload(t, mapper(t, "zone", "a"), nil)
	if wanted, _ := udp.ReceiveBuffer(); wanted != 100_000 {
		t.Errorf("after a reload that does not change the buffer, it is %d, want 100000", wanted)
	}
	f.reload(t, f.Mapper, func(c *settings.DogStatsD) { c.ReceiveBuffer = 50_000 })
	if wanted, _ := udp.ReceiveBuffer(); wanted != 50_000 {
		t.Errorf("the buffer is %d, want 50000 as configured", wanted)
	}
}

// A rule turns a counter into an up/down counter. That is another series, with a total and a name of its
// own. The counter's total ends as if the counter were no longer sent. If no counter has had the plain
// name, the up/down counter gets it.
func TestAReloadMakesUpDownCounters(t *testing.T) {
	f := newFixture(t, nil).start(t)
	conn := dial(t, "udp", f.address("udp"))
	send(t, conn, "open:7|c\nopen:-1|c")
	await(t, "the counter", func() bool { return f.aggregator.totals()[`counter {__name__="open"}`] == 7 })
	m, err := mapping.New(mapping.Config{Rules: []mapping.Rule{{Match: "open", UpDown: true},
		{Match: "jobs", UpDown: true}}}, labels.EmptyLabels())
	if err != nil {
		t.Fatal(err)
	}
	f.reload(t, m, nil)
	await(t, "the new rules", func() bool {
		send(t, conn, "probe:1|g")
		return f.aggregator.totals()[`gauge {__name__="probe"}`] == 1
	})
	send(t, conn, "open:2|c\nopen:-5|c\njobs:-1|c")
	await(t, "the up/down counters", func() bool {
		got := f.aggregator.totals()
		return got[`updown {__name__="open_updown"}`] == -3 && got[`updown {__name__="jobs"}`] == -1
	})
	if got := f.aggregator.totals()[`counter {__name__="open"}`]; got != 7 {
		t.Errorf("the counter is %v", got)
	}
	if help := descNegative.String(); !strings.Contains(help, "a mapping rule with updown: true") {
		t.Errorf("the help of the counter of refused samples does not mention updown: %s", help)
	}
	if f.metric(t, "negative_samples_total") != 1 || f.logs.count("two kinds have the same name") != 1 {
		t.Errorf("%v samples are counted as refused, and the log reports the conflict %d times, want 1 of each",
			f.metric(t, "negative_samples_total"), f.logs.count("two kinds have the same name"))
	}
}
