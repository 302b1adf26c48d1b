package collector

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/probe"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/top"
)

// Probes go through the users' sockets, but users do not meet them: neither in freshet tail and top, nor
// in the ledger, limits, rules and names of a user's tenant.
func TestUsersDoNotMeetProbes(t *testing.T) {
	mark := probe.NewMark(7)
	f := newFixture(t, func(o *Options) {
		o.Probe = mark
		o.Limiter = limit.New(limit.Config{MaxSeries: 1}, time.Minute, time.Hour)
		m, err := mapping.New(mapping.Config{Rules: []mapping.Rule{{Match: "freshet_probe.*", Action: "drop"}}},
			labels.FromStrings("host", "a"))
		if err != nil {
			t.Fatal(err)
		}
		o.Mapper = m
	}).start(t)
	tap := openTap(t, f.Collector, TapOptions{Tenant: "default", Share: 1})
	f.mostBusy(t, 10) // from now on datagrams are counted for freshet top
	sent := time.UnixMicro(second*1e6 + 250_000)
	for _, network := range []string{"udp", "unixgram"} {
		conn := dial(t, network, f.address(network))
		send(t, conn, string(mark.Datagram(sent)), "mine:1|c")
	}
	var v *top.View
	await(t, "what was sent is in whole windows", func() bool {
		v = f.mostBusy(t, 10)
		return in(v, v.Samples) == 2 && in(v, v.Datagrams) == 2
	})
	if len(v.Metrics) != 1 || v.Metrics[0].Name != "mine" || v.Series != 1 || len(v.Over) != 0 {
		t.Errorf("top: %+v", v)
	}
	for _, d := range next(t, tap) {
		if string(d.Data) != "mine:1|c" {
			t.Errorf("tail: %q", d.Data)
		}
	}
	f.stop()

	own := map[string]float64{fmt.Sprintf("gauge %s", mark.Labels(probe.DogStatsD, "default")): probe.Seconds(sent)}
	for _, w := range f.aggregator.taken() {
		if w.tenant == tenant.Own && !maps.Equal(w.series, own) {
			t.Errorf("%s: %v, want %v", w.tenant, w.series, own)
		}
		if w.tenant == "default" && len(w.series) != 1 {
			t.Errorf("%s: %v", w.tenant, w.series)
		}
	}
	if !slices.ContainsFunc(f.aggregator.taken(), func(w pushed) bool { return w.tenant == tenant.Own }) {
		t.Error("the aggregator got no probe")
	}
	books := f.Ledger.Books().Tenants
	if b := books["default"]; b.Samples.Received != 2 || b.Samples.Difference != 0 || b.Datagrams.Read != 2 {
		t.Errorf("wrong books of the tenant: %+v", b)
	}
	if b := books[tenant.Own]; b.Samples.Received != 2 || b.Samples.Window != 2 || b.Samples.Difference != 0 ||
		b.Datagrams.Read != 2 {
		t.Errorf("the ledger of Freshet's own tenant has %+v, want 2 samples of 2 datagrams, all in windows", b)
	}
	if f.catalogueFile.has(probe.Metric) || !f.catalogueFile.has("mine") || len(f.Catalogue.Metadata("default")) != 1 {
		t.Errorf("names: %v", f.Catalogue.Metadata("default"))
	}
}

// An application's gauge is an ordinary gauge, even with the name of a probe.
func TestAnApplicationsProbeIsItsOwn(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Probe = probe.NewMark(7) })
	l := f.listeners()[0]
	l.Tick(second * 1e9)
	l.Packet([]byte("freshet_probe:1|g"), second*1e9)
	l.Packet(probe.NewMark(8).Datagram(time.Unix(second, 0)), second*1e9) // the mark of another Freshet
	f.flush(t, l, (second+1)*1e9)
	if got := f.aggregator.taken(); len(got) != 1 || got[0].tenant != "default" || len(got[0].series) != 2 {
		t.Errorf("%+v", got)
	}
}

// A sender that knows the mark cannot hide a line after it. Such a datagram counts as an application's,
// and all of it is in the tenant's ledger.
func TestLinesBehindAProbeCount(t *testing.T) {
	mark := probe.NewMark(7)
	f := newFixture(t, func(o *Options) { o.Probe = mark })
	l := f.listeners()[0]
	l.Tick(second * 1e9)
	l.Packet(append(mark.Datagram(time.Unix(second, 0)), "\nattacked:1|c\nattacked2:2|g\nmalformed"...), second*1e9)
	f.flush(t, l, (second+1)*1e9)
	got := f.aggregator.totals()
	if len(got) != 3 || got[`counter {__name__="attacked"}`] != 1 || got[`gauge {__name__="attacked2"}`] != 2 {
		t.Errorf("%v", got)
	}
	if b := f.Ledger.Books().Tenants["default"].Samples; b.Received != 4 || len(b.Malformed) != 1 || b.Difference != 0 {
		t.Errorf("wrong books of the tenant: %+v", b)
	}
}

// While the aggregator accepts nothing, the open window grows, and so does the window of probes. No
// probe is lost, and none is counted twice.
func TestProbesWaitLikeSamples(t *testing.T) {
	mark := probe.NewMark(7)
	f := newFixture(t, func(o *Options) { o.Probe = mark })
	l := f.listeners()[0]
	l.Tick(second * 1e9)
	read := func(s int64) { l.Packet(mark.Datagram(time.Unix(s, 0)), s*1e9) }
	read(second)
	if !l.close((second+1)*1e9, false) {
		t.Fatal("not closed")
	}
	first := <-f.closed
	first.handed.Store(false) // the flusher does this before it pushes
	read(second + 1)
	if l.close((second+2)*1e9, true) {
		t.Fatal("the window was closed although the flusher still had the previous window")
	}
	read(second + 2)
	f.flusher.flush(t.Context(), tenant.Own, first.probed, first.at)
	f.flush(t, l, (second+3)*1e9)
	var values []float64
	for _, w := range f.aggregator.taken() {
		values = slices.AppendSeq(values, maps.Values(w.series))
	}
	if want := []float64{float64(second), float64(second + 2)}; !slices.Equal(values, want) {
		t.Errorf("%v, want %v", values, want)
	}
	if b := f.Ledger.Books().Tenants[tenant.Own].Samples; b.Window != 3 || b.Difference != 0 {
		t.Errorf("%+v", b)
	}
}

// A closed window of probes waits until the listener can close its own window. The listener cannot do so
// while the flusher still has the previous window.
func TestAClosedWindowOfProbesIsKept(t *testing.T) {
	mark := probe.NewMark(7)
	f := newFixture(t, func(o *Options) { o.Probe = mark })
	l := f.listeners()[0]
	l.Tick(second * 1e9)
	l.Packet([]byte("a:1|c"), second*1e9)
	if !l.close((second+1)*1e9, false) {
		t.Fatal("not closed")
	}
	first := <-f.closed
	first.handed.Store(false) // the flusher does this before it pushes
	l.Packet(mark.Datagram(time.Unix(second+1, 0)), (second+1)*1e9)
	l.Packet([]byte("a:1|c"), (second+1)*1e9)
	for range 2 {
		if l.close((second+2)*1e9, false) {
			t.Fatal("the window was closed although the flusher still had the previous window")
		}
	}
	f.flusher.flush(t.Context(), first.tenant, first.window, first.at)
	f.flush(t, l, (second+3)*1e9)
	want := map[string]float64{
		`counter {__name__="a"}`: 2, fmt.Sprintf("gauge %s", mark.Labels(probe.DogStatsD, "default")): float64(second + 1),
	}
	if got := f.aggregator.totals(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// After a reload gives a socket to another tenant, probes measure the socket for that tenant.
func TestProbesAfterAReload(t *testing.T) {
	mark := probe.NewMark(7)
	f := newFixture(t, func(o *Options) { o.Probe = mark })
	l := f.listeners()[0]
	l.Tick(second * 1e9)
	l.Packet(mark.Datagram(time.Unix(second, 0)), second*1e9)
	next := *l.terms
	next.tenant = "other"
	l.next.Store(&next)
	f.flush(t, l, (second+1)*1e9)
	l.Packet(mark.Datagram(time.Unix(second+1, 0)), (second+1)*1e9)
	f.flush(t, l, (second+2)*1e9)
	want := map[string]float64{
		fmt.Sprintf("gauge %s", mark.Labels(probe.DogStatsD, "default")): float64(second),
		fmt.Sprintf("gauge %s", mark.Labels(probe.DogStatsD, "other")):   float64(second + 1),
	}
	if got := f.aggregator.totals(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
