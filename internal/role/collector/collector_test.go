package collector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/settings"
)

var networks = []string{"udp", "unixgram", "unix"}

// Metrics of every kind arrive on sockets of every kind, and nothing is counted twice.
func TestCountsAreExact(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			f := newFixture(t, nil).start(t)
			conn := dial(t, network, f.address(network))
			for i := range 300 {
				send(t, conn,
					fmt.Sprintf("hits:%d|c|#route:%d\nbroken\nqueue.depth:%[1]d|g\nquery:%[1]d:%[1]d|ms\nuser:u%[1]d|s\n_sc|db|%[3]d",
						i, i%3, i%4))
			}
			want := map[string]float64{
				`counter {__name__="hits", route="0"}`: 14_850, // the sum of every third number from 0 to 299
				`counter {__name__="hits", route="1"}`: 14_950,
				`counter {__name__="hits", route="2"}`: 15_050,
				`gauge {__name__="queue_depth"}`:       299,
				`timer {__name__="query"}`:             600,
				`check {__name__="db"}`:                3,
			}
			await(t, "all packets", func() bool { return f.aggregator.totals()[`timer {__name__="query"}`] == 600 })
			f.stop()
			got := f.aggregator.totals()
			// 300 members in one or a few windows: the sketch is exact to 1 %.
			if users := got[`set {__name__="user"}`]; users < 295 || users > 305 {
				t.Errorf("%v distinct users, want 300", users)
			}
			delete(got, `set {__name__="user"}`)
			if !maps.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
			for name, want := range map[string]float64{"malformed_lines_total": 300, "packets_total": 300,
				"samples_total": 6 * 300} {
				if got := f.metric(t, name); got != want {
					t.Errorf("%s = %v, want %v", name, got, want)
				}
			}
		})
	}
}

// Each listener has one window a second. No window comes twice or out of order. Each has the time of its
// second, and is pushed when that second is over.
func TestWindowsArriveOnceASecond(t *testing.T) {
	f := newFixture(t, nil).start(t)
	conn := dial(t, "udp", f.address("udp"))
	begun := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(f.aggregator.taken()) < 4 {
		if <-tick.C; time.Since(begun) > patience {
			t.Fatalf("%d windows came in %v, want 4", len(f.aggregator.taken()), patience)
		}
		send(t, conn, "a:1|c")
	}
	windows := f.aggregator.taken()
	for i, w := range windows {
		if w.producer != 7 || w.tenant != "default" || w.incarnation != windows[0].incarnation || w.sequence != uint64(i+1) {
			t.Errorf("window %d is %+v", i, w)
		}
		if i > 0 && w.second <= windows[i-1].second {
			t.Errorf("window %d is of second %d, and the previous one is of second %d, want rising seconds",
				i, w.second, windows[i-1].second)
		}
		if end := time.Unix(w.second+1, 0); w.at.Before(end) || w.birth < begun.UnixNano() || w.birth > end.UnixNano() {
			t.Errorf("the window of second %d, with its first packet at %d, was pushed at %v, want after that second",
				w.second, w.birth, w.at)
		}
	}
}

// A listener without packets sends the aggregator no windows.
func TestEmptyWindowsAreNotPushed(t *testing.T) {
	f := newFixture(t, nil).start(t)
	conn := dial(t, "unixgram", f.address("unixgram"))
	send(t, conn, "a:1|c")
	await(t, "the window", func() bool { return len(f.aggregator.taken()) == 1 })
	f.stop()
	if got := f.aggregator.taken(); len(got) != 1 {
		t.Errorf("%d windows were pushed for a single packet, want 1: %v", len(got), got)
	}
}

// Several readers share a port, and the kernel distributes senders among them. Answers and metrics
// show the sum of all readers as one listener.
func TestReadersShareAnAddress(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Config.Readers = 4 }).start(t)
	const senders, packets = 64, 20
	for range senders {
		conn := dial(t, "udp", f.address("udp"))
		for range packets {
			send(t, conn, "a:1|c")
		}
	}
	await(t, "all packets", func() bool { return f.aggregator.totals()[`counter {__name__="a"}`] == senders*packets })
	f.stop()
	if got := f.aggregator.totals()[`counter {__name__="a"}`]; got != senders*packets {
		t.Errorf("counted %v, sent %d", got, senders*packets)
	}
	if got := f.metric(t, "packets_total"); got != senders*packets {
		t.Errorf("packets_total = %v, want %d as sent", got, senders*packets)
	}
	busy := 0
	for _, l := range f.listeners() {
		if l.socket.Stats().Packets > 0 {
			busy++
		}
	}
	if busy < 2 {
		t.Errorf("%d of 4 readers got packets of the %d senders, want at least 2", busy, senders)
	}
}

// When the collector stops, it still counts the datagrams in the kernel, and hands over the open
// window. In this test the collector stops before it has read any datagram.
func TestShutdownHandsOverEverything(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			f := newFixture(t, nil)
			conn := dial(t, network, f.address(network))
			// The sockets are not read yet, so send only as many writes as fit into the kernel's
			// queue. The queue of a Unix datagram socket holds net.unix.max_dgram_qlen datagrams,
			// 10 by default.
			n := map[string]int{"udp": 500, "unixgram": 8, "unix": 100}[network]
			for range n {
				send(t, conn, "a:1|c\n_e{1,1}:t|x")
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := f.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if got := f.aggregator.totals()[`counter {__name__="a"}`]; got != float64(n) {
				t.Errorf("counted %v, sent %d", got, n)
			}
			if got := len(f.events.all()); got != n {
				t.Errorf("%d events, sent %d", got, n)
			}
		})
	}
}

// Samples on a socket belong to the socket's tenant. The same name on another tenant's socket is
// another series, and may have another kind.
func TestListenersHaveTheirTenants(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.Config.Listeners = []settings.Listener{{Network: "udp", Address: "127.0.0.1:0", Tenant: "blue"}}
		o.Host = "web-1"
	}).start(t)
	for _, l := range f.Listening() {
		if l.Network == "udp" {
			send(t, dial(t, "udp", l.Address), map[string]string{"default": "a:1|c", "blue": "a:2|g\n_e{1,1}:t|x"}[l.Tenant])
		}
	}
	await(t, "a window of each tenant and an event", func() bool {
		return len(f.aggregator.taken()) == 2 && len(f.events.all()) == 1
	})
	want := map[string]string{"default": `map[counter {__name__="a"}:1]`, "blue": `map[gauge {__name__="a"}:2]`}
	for _, w := range f.aggregator.taken() {
		if got := fmt.Sprint(w.series); got != want[w.tenant] {
			t.Errorf("tenant %s has %s, want %s", w.tenant, got, want[w.tenant])
		}
	}
	if e := f.events.all()[0]; e.Tenant != "blue" || e.Host != "web-1" {
		t.Errorf("the event has tenant %s, host %s, want blue, web-1", e.Tenant, e.Host)
	}
}

// A constant label applies if the sender sent no label of that name.
func TestConstantLabels(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		mapper, err := mapping.New(mapping.Config{}, labels.FromStrings("host", "web-1", "zone", "a"))
		if err != nil {
			t.Fatal(err)
		}
		o.Mapper = mapper
	}).start(t)
	send(t, dial(t, "udp", f.address("udp")), "a:1|c\nb:1|c|#host:mine")
	await(t, "the window", func() bool { return len(f.aggregator.totals()) == 2 })
	want := map[string]float64{
		`counter {__name__="a", host="web-1", zone="a"}`: 1, `counter {__name__="b", host="mine", zone="a"}`: 1,
	}
	if got := f.aggregator.totals(); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// An address in use is an error, and releases the sockets bound so far.
func TestNewGivesBackWhatItBound(t *testing.T) {
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	f := newFixture(t, func(o *Options) { o.Config.UDP = "" })
	o := f.Options
	o.Registry = prometheus.NewRegistry()
	o.Config.Unixgram += "2"
	o.Config.Unix = ""
	o.Config.Listeners = []settings.Listener{{Network: "udp", Address: taken.LocalAddr().String(), Tenant: "default"}}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), taken.LocalAddr().String()) {
		t.Fatalf("error %v does not name %v", err, taken.LocalAddr())
	}
	o.Config.Listeners = nil
	c, err := New(o)
	if err != nil {
		t.Fatalf("after the port is free, New returned %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Each metric of a collector is registered once, has a name that follows the rules, and has help
// that an operator can act on.
func TestMetrics(t *testing.T) {
	f := newFixture(t, nil).start(t)
	conn := dial(t, "udp", f.address("udp"))
	packet := "a:1|c|#x:1\na:-1|c|#x:1\nbroken\n_e{1,1}:t|x\nb:1|g|zz:1\n_sc|c|0|d:x\na:1|g\nq.r:1|c\nq_r:1|c\n" +
		"t:1|d|x:ab,1,2\nt:1|d|x:ab,1,8999999999999\nt:1|d|x:g,1,2\na:1|g|T8999999999"
	send(t, conn, packet)
	want := map[string]float64{
		"packets_total": 1, "bytes_total": float64(len(packet)), "samples_total": 9, "negative_samples_total": 1,
		"malformed_lines_total": 1,
		"events_total":          1, "unknown_fields_total": 1, "bad_fields_total": 2, "contexts": 7, "series": 6,
		"new_contexts_total": 7,
		"exemplars_total":    1, "refused_exemplars_total": 1,
		"kernel_dropped_packets_total": 0, "oversized_packets_total": 0, "read_errors_total": 0,
		"refused_connections_total": 0, "cut_frames_total": 0, "rule_dropped_samples_total": 0, "respelled_samples_total": 0,
		"refused_events_total": 0, "overflowed_samples_total": 0, "unsent_samples_total": 0, "push_errors_total": 0,
		"unsent_events_total": 0, "timed_refused_samples_total": 0, "ahead_refused_samples_total": 1,
		"kind_conflicts_total": 1, "name_collisions_total": 1, "unremembered_names_total": 0, "given_back_names_total": 0,
		"form_conflicts_total": 0, "refused_samples_total": 0,
	}
	want["setting_too_small"], want["client_dropped_packets_total"] = 0, 0
	for _, l := range f.listeners() {
		if _, tooSmall := l.socket.Setting(); tooSmall { // a limit of this machine's kernel
			want["setting_too_small"]++
		}
		wanted, granted := l.socket.ReceiveBuffer()
		want["receive_buffer_wanted_bytes"] += float64(wanted)
		want["receive_buffer_bytes"] += float64(granted)
	}
	await(t, "the window", func() bool { return len(f.aggregator.taken()) > 0 && len(f.events.all()) > 0 })
	for name, v := range want {
		if got := f.metric(t, name); got != v {
			t.Errorf("%s = %v, want %v", name, got, v)
		}
	}
	families, err := f.registry.Gather() // fails if a metric is registered twice
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		name, ours := strings.CutPrefix(family.GetName(), "freshet_dogstatsd_")
		if !ours {
			continue
		}
		if _, known := want[name]; !known {
			t.Errorf("this test does not know the metric %s", family.GetName())
		}
		if !strings.HasSuffix(family.GetHelp(), ".") {
			t.Errorf("%s: the help %q is not a sentence", family.GetName(), family.GetHelp())
		}
		if counter := family.GetType().String() == "COUNTER"; counter != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %v", family.GetName(), family.GetType())
		}
	}
}

// The collector refuses a value that would overflow its sum to infinity, because the series would
// stay infinite. Other values still count.
func TestOverflowedWindowsAreCounted(t *testing.T) {
	f := newFixture(t, nil)
	l := f.listeners()[0]
	for range 2 {
		l.Packet(fmt.Appendf(nil, "a:%g|c\nb:1|c", math.MaxFloat64), second*1e9)
	}
	f.flush(t, l, second*1e9)
	if got, want := f.aggregator.totals(),
		map[string]float64{`counter {__name__="a"}`: math.MaxFloat64, `counter {__name__="b"}`: 2}; !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := f.metric(t, "overflowed_samples_total"); got != 1 {
		t.Errorf("overflowed_samples_total = %v, want 1", got)
	}
}

// Run ends with an error when a socket cannot be read any more. A process that ends is better than
// a process that looks alive and counts nothing.
func TestAReaderThatFailsEndsTheRun(t *testing.T) {
	f := newFixture(t, nil)
	send(t, dial(t, "unixgram", f.address("unixgram")), "a:1|c")
	if err := f.listeners()[0].socket.Close(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.Run(t.Context()) }()
	select {
	case err := <-done:
		if !errors.Is(err, net.ErrClosed) || !strings.HasPrefix(err.Error(), "read udp "+f.address("udp")+": ") {
			t.Errorf("error %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Run continues without one of its sockets")
	}
	// The other listeners hand over their counts.
	if got := f.aggregator.totals()[`counter {__name__="a"}`]; got != 1 {
		t.Errorf("counted %v, sent 1", got)
	}
}

// With every input turned off, as on a machine that only answers queries, the collector waits. If Run
// ended early, the process would stop.
func TestRunWithoutInputsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(o *Options) { o.Config.UDP, o.Config.Unixgram, o.Config.Unix = "", "", "" })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("Run returned %v", err)
		default:
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// An empty address turns its input off.
func TestListening(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Config.UDP = "" })
	var got []string
	for _, l := range f.Listening() {
		got = append(got, l.Network)
	}
	if want := []string{"unixgram", "unix"}; !slices.Equal(got, want) {
		t.Errorf("listening on %v, want %v", got, want)
	}
}

// A UDP socket has a buffer that is limited in bytes. A Unix datagram socket has a queue that is limited
// in datagrams. For each of the two, a metric reports the kernel setting that limits it. Only clients
// know how many datagrams they drop when the queue is full.
func TestMetricsOfWhatWaits(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Config.ReceiveBuffer = 4096 }).start(t)
	send(t, dial(t, "unixgram", f.address("unixgram")),
		"datadog.dogstatsd.client.packets_dropped_writer:7|c\ndatadog.dogstatsd.client.packets_dropped_queue:2|c\na:1|c")
	await(t, "the window", func() bool { return f.metric(t, "client_dropped_packets_total") > 0 })
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			network, _, _ := strings.Cut(labels["listener"], ":")
			switch key := network + " " + strings.TrimPrefix(family.GetName(), "freshet_dogstatsd_"); key {
			case "udp setting_too_small", "unixgram setting_too_small", "unix setting_too_small":
				got[key] = labels["setting"]
			case "udp receive_buffer_bytes", "udp receive_buffer_wanted_bytes", "unixgram receive_buffer_bytes",
				"unixgram client_dropped_packets_total", "udp client_dropped_packets_total":
				got[key] = fmt.Sprint(m.GetGauge().GetValue() + m.GetCounter().GetValue())
			}
		}
	}
	want := map[string]string{
		"udp setting_too_small": "net.core.rmem_max", "unixgram setting_too_small": "net.unix.max_dgram_qlen",
		"udp receive_buffer_bytes": "4096", "udp receive_buffer_wanted_bytes": "4096",
		"udp client_dropped_packets_total": "0", "unixgram client_dropped_packets_total": "7",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
