package collector

import (
	"context"
	"fmt"
	"math"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/top"
)

// mostBusy returns the busiest metrics and senders of the default tenant.
func (f *fixture) mostBusy(t *testing.T, limit int) *top.View {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	view, err := f.Top(ctx, "default", limit, TopLease)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// in is a helper that turns a rate into a count: the rate times the view's seconds.
func in(v *top.View, rate float64) int { return int(math.Round(rate * float64(v.Seconds))) }

// The answer shows the busiest metrics, the senders, the new series and the labels with the most
// values. All figures cover whole windows.
func TestTop(t *testing.T) {
	m, err := mapping.New(mapping.Config{Rules: []mapping.Rule{{Match: "open", UpDown: true}}}, labels.EmptyLabels())
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(o *Options) { o.Mapper = m }).start(t)
	f.mostBusy(t, 10) // from now on datagrams are counted for freshet top

	busy, quiet, local := dial(t, "udp", f.address("udp")), dial(t, "udp", f.address("udp")),
		dial(t, "unixgram", f.address("unixgram"))
	for range 10 {
		send(t, busy, "hits:1:2:3|c|#page:home", "hits:1|c|#page:cart\nhits:1|c|#page:pay")
	}
	send(t, quiet, "depth:1|g|#queue:a\ndepth:2|g|#queue:b")
	send(t, local, "took:1|ms", "took:2|ms\nopen:-1|c")

	var v *top.View
	await(t, "all samples and datagrams are in whole windows", func() bool {
		v = f.mostBusy(t, 10)
		return in(v, v.Samples) == 55 && in(v, v.Datagrams) == 23
	})
	for i, want := range []struct {
		name, kind      string
		samples, series int
	}{{"hits", "counter", 50, 3}, {"depth", "gauge", 2, 2}, {"took", "timer", 2, 1}, {"open", "updown", 1, 1}} {
		if got := v.Metrics[i]; got.Name != want.name || got.Kind != want.kind || in(v, got.Samples) != want.samples ||
			got.Series != want.series {
			t.Errorf("metric %d: got %+v, want %+v", i, got, want)
		}
	}
	if share := v.Metrics[0].Share; share != 0.9091 {
		t.Errorf("the share of hits in all samples is %v, want 0.9091", share)
	}
	if len(v.Senders) != 3 {
		t.Fatalf("senders %+v", v.Senders)
	}
	if s := v.Senders[0]; s.Address != busy.LocalAddr().String() || in(v, s.Datagrams) != 20 ||
		in(v, s.Bytes) != 10*(23+38) {
		t.Errorf("busiest sender: %+v", s)
	}
	if s := v.Senders[1]; s.Process == nil || s.Process.PID != int32(os.Getpid()) || s.Process.Command == "" ||
		in(v, s.Datagrams) != 2 {
		t.Errorf("the sender on a Unix socket: %+v, want this process and 2 datagrams", s)
	}
	if s := v.Senders[2]; s.Address != quiet.LocalAddr().String() || in(v, s.Datagrams) != 1 {
		t.Errorf("quiet sender: %+v", s)
	}
	if v.Series != 7 || len(v.Newest) != 7 || v.Newest[0].At == 0 {
		t.Errorf("%d series, and the newest are %+v, want 7 of each", v.Series, v.Newest)
	}
	f.checkLabels(t)

	v = f.mostBusy(t, 1)
	if len(v.Metrics) != 2 || v.Metrics[1].Name != "" || v.Metrics[1].Others != 3 || in(v, v.Metrics[1].Samples) != 5 {
		t.Errorf("the remaining metrics are not in one row: %+v", v.Metrics)
	}
}

func (f *fixture) checkLabels(t *testing.T) {
	t.Helper()
	if v := f.mostBusy(t, 10); len(v.Labels) > 0 {
		t.Errorf("Top visited every series for its labels: %+v", v.Labels)
	}
	var all []top.ViewLabel
	await(t, "labels are counted again", func() bool {
		all = f.TopLabels("default", 10)
		return len(all) == 2
	})
	if l := all[0]; l.Metric != "hits" || l.Label != "page" || l.Values != 3 || len(l.Examples) != 3 ||
		l.Examples[0] != "cart" {
		t.Errorf("the label with the most values: %+v, want page of hits with 3 values", l)
	}
	if one := f.TopLabels("default", 1); len(one) != 1 {
		t.Errorf("%d labels, want 1: %+v", len(one), one)
	}
}

// The first answer shows which metric is over a limit, by which label and sender.
func TestTopOverALimit(t *testing.T) {
	f := newFixture(t,
		func(o *Options) { o.Limiter = limit.New(limit.Config{MaxSeriesPerMetric: 2}, time.Minute, time.Hour) }).start(t)
	f.mostBusy(t, 10)
	conn := dial(t, "udp", f.address("udp"))
	for i := range 30 {
		send(t, conn, fmt.Sprintf("logins:1|c|#zone:eu,user:u%d", i))
	}
	var v *top.View
	await(t, "the metric is named", func() bool {
		v = f.mostBusy(t, 10)
		return len(v.Over) == 1
	})
	o := v.Over[0]
	if o.Metric != "logins" || o.Kind != "counter" || o.Limit != "limits.max_series_per_metric" || o.Fate != "folded" ||
		o.Label != "user" || o.Samples == 0 {
		t.Errorf("got %+v", o)
	}
	if address := conn.LocalAddr().String(); o.Sender != address {
		t.Errorf("sender %s, want %s", o.Sender, address)
	}
}

// The answer names a client that sends malformed lines, by its address or process. It shows the share of
// malformed lines, and one of them. It does not name other clients.
func TestTopNamesWhoSendsMalformedLines(t *testing.T) {
	f := newFixture(t, nil).start(t)
	f.mostBusy(t, 10)
	good, bad := dial(t, "udp", f.address("udp")), dial(t, "udp", f.address("udp"))
	local := dial(t, "unixgram", f.address("unixgram"))
	for range 10 {
		send(t, good, "hits:1|c\nhits:1|c")
		send(t, bad, "hits:1|c\nhits:?|c\nhits:one|c|#page:home\n_e{1,1}:t|x\nhits:1|c\n")
		send(t, local, "depth:1|g\ndepth:2|g|@x\ndepth")
	}
	var v *top.View
	await(t, "all datagrams are in whole windows", func() bool {
		v = f.mostBusy(t, 10)
		return in(v, v.Datagrams) == 30
	})
	if len(v.Malformed) != 2 {
		t.Fatalf("%+v", v.Malformed)
	}
	if m := v.Malformed[0]; m.Address != bad.LocalAddr().String() || in(v, m.Malformed) != 20 || in(v, m.Lines) != 50 ||
		m.Share != 0.4 || m.Reason != "bad_value" || m.Example != "hits:one|c|#page:home" {
		t.Errorf("by UDP: %+v", m)
	}
	if m := v.Malformed[1]; m.Process == nil || m.Process.PID != int32(os.Getpid()) || m.Process.Command == "" ||
		in(v, m.Malformed) != 10 || in(v, m.Lines) != 30 || m.Reason != "no_type" || m.Example != "depth" {
		t.Errorf("malformed lines on a Unix socket: %+v, want 10 of 30 lines from this process", m)
	}
}

// Counting continues while requests come, and ends some time after the last request. Afterwards
// no counts stay in memory, and sockets do not report senders.
func TestTopLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.top.run(ctx) }()
		l := f.listeners()[0]
		tick := func() {
			<-time.After(time.Second)
			now := time.Now().UnixNano()
			l.Tick(now)
			l.Packet([]byte("x:"), now) // malformed, so that no window waits for a flusher
		}
		counting := func(want bool) {
			t.Helper()
			synctest.Wait()
			tick()
			tick()
			f.mu.Lock()
			watchers := f.watchers
			f.mu.Unlock()
			if f.top.counting.Load() != want || (l.tally != nil) != want || (f.top.held() > 0) != want ||
				(watchers > 0) != want {
				t.Errorf("counting %t, tally %v, %d rows, %d watchers; want that counting runs: %t",
					f.top.counting.Load(), l.tally, f.top.held(), watchers, want)
			}
		}
		l.Tick(time.Now().UnixNano())
		counting(false)
		for range 3 { // requests, each within the lease of the last one
			begun := time.Now()
			f.mostBusy(t, 10)
			if waited := time.Since(begun); waited > 2*time.Second+topSlack {
				t.Errorf("waited %v", waited)
			}
			counting(true)
			<-time.After(TopLease - 6*time.Second)
		}
		counting(true)
		<-time.After(TopLease)
		counting(false)
		f.mostBusy(t, 10)
		cancel()
		<-done
		counting(false)
	})
}

// A record looks for some seconds. Then the counting ends, unless a client watches.
func TestTopLeaseOfARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		go f.top.run(t.Context())
		record := func() {
			t.Helper()
			for _, lease := range []time.Duration{8 * time.Second, 5 * time.Second} {
				if _, err := f.Top(t.Context(), "default", 10, lease); err != nil {
					t.Fatal(err)
				}
				<-time.After(3 * time.Second)
			}
		}
		counting := func(want bool) {
			t.Helper()
			synctest.Wait()
			if got := f.top.counting.Load(); got != want {
				t.Errorf("counting %t, want %t", got, want)
			}
		}
		record()
		counting(true)
		<-time.After(3 * time.Second)
		counting(false)
		f.mostBusy(t, 10)
		<-time.After(6 * time.Second)
		f.mostBusy(t, 10) // a longer lease than the record's
		record()
		<-time.After(TopLease - 8*time.Second) // the client's first lease has ended
		counting(true)
		<-time.After(TopLease)
		counting(false)
	})
}

// A datagram counts in its own window, and not again in later windows.
func TestTopCountsEachDatagramOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		l := f.listeners()[0]
		l.Tick(time.Now().UnixNano())
		f.mostBusy(t, 10)
		for range 6 {
			<-time.After(time.Second)
			now := time.Now().UnixNano()
			l.Tick(now)
			l.Packet([]byte("x:"), now) // malformed, so that no window waits for a flusher
		}
		// The first tick begins the counting. The last of the six windows is still open.
		if v := f.mostBusy(t, 10); in(v, v.Datagrams) != 5 || in(v, v.Bytes) != 5*len("x:") {
			t.Errorf("got %v datagrams/s over %d s", v.Datagrams, v.Seconds)
		}
	})
}
