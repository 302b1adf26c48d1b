package collector

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/sender"
)

// The listener counts metrics of several datagrams together. It reads a datagram in place if there is
// spare memory after it, and otherwise copies it.
func TestMetricsOfSeveralDatagramsAreCountedTogether(t *testing.T) {
	f := newFixture(t, nil)
	l := f.listeners()[0]
	l.Tick(second * 1e9)
	want := map[string]float64{}
	for i := range 40 {
		packet := fmt.Appendf(nil, "one.%d:%d|c\ntwo.%d:1:2|c|#a:b", i, i+1, i)
		want[fmt.Sprintf(`counter {__name__="one_%d"}`, i)] = float64(i + 1)
		want[fmt.Sprintf(`counter {__name__="two_%d", a="b"}`, i)] = 3
		if i%3 == 0 {
			packet = append(make([]byte, 0, len(packet)+256), packet...)
		} else {
			packet = append(make([]byte, 0, len(packet)), packet...)
		}
		l.Packet(packet, second*1e9)
	}
	if l.held == 0 {
		t.Fatal("no metric waits for the Tick, so this test checks nothing")
	}
	l.Tick(second*1e9 + 1)
	if l.held != 0 {
		t.Errorf("after the Tick, %d metrics still wait, want 0, because their memory is reused", l.held)
	}
	f.flush(t, l, (second+1)*1e9)
	got := f.aggregator.totals()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s = %v, want %v", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d series, want %d", len(got), len(want))
	}
	if l.received != 3*40 {
		t.Errorf("received %d samples, want %d", l.received, 3*40)
	}
}

// If lines are held back, only the time at which they are counted changes. A packet gives the same
// totals as its lines sent one by one. This holds for malformed lines, for any order of senders, and
// with or without spare memory after the packet.
func TestHoldingLinesChangesNothing(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 0))
		pick := func(of ...string) string { return of[rng.IntN(len(of))] }
		held, single := newFixture(t, nil), newFixture(t, nil)
		a, b := held.listeners()[0], single.listeners()[0]
		a.Tick(second * 1e9)
		b.Tick(second * 1e9)
		for range 100 {
			var packet []byte
			for range rng.IntN(30) {
				name := fmt.Sprintf("n%d", rng.IntN(30))
				value := fmt.Sprint(rng.IntN(100))
				line := []byte(pick(
					name+":"+value+"|c", name+":"+value+"|g", name+":"+value+":7:9|ms", name+":"+value+"|s", name+":"+value+"|h|@0.5",
					name+":"+value+"|c|#a:"+value+",b", "_sc|"+name+"|1", "_e{1,1}:a|b", name+":|c", "x", "",
				))
				packet = append(append(packet, line...), '\n')
				b.Packet(line, second*1e9)
				b.countHeld(second * 1e9)
			}
			// The packet's slice either has spare capacity, as in the buffers of a socket, or has none.
			packet = append(make([]byte, 0, len(packet)+256*rng.IntN(2)), packet...)
			a.from.PID = int32(rng.IntN(2)) // one of two senders at random, so that the held lines may have another sender
			a.Packet(packet, second*1e9)
			if rng.IntN(10) == 0 {
				a.Tick(second * 1e9)
			}
		}
		held.flush(t, a, (second+1)*1e9)
		single.flush(t, b, (second+1)*1e9)
		if got, want := held.aggregator.totals(), single.aggregator.totals(); !maps.Equal(got, want) {
			for name, v := range want {
				if got[name] != v {
					t.Errorf("seed %d: %s = %v, want %v", seed, name, got[name], v)
				}
			}
			t.Errorf("seed %d: %d series, want %d", seed, len(got), len(want))
		}
		if a.received != b.received || a.parser.Malformed != b.parser.Malformed || a.eventCount != b.eventCount ||
			a.table.Stats() != b.table.Stats() {
			t.Errorf("seed %d: %d received, %v malformed, %d events, %+v; want %d, %v, %d, %+v", seed,
				a.received, a.parser.Malformed, a.eventCount, a.table.Stats(), b.received, b.parser.Malformed, b.eventCount,
				b.table.Stats())
		}
	}
}

// A service check does not overtake the metrics before it, since the first line with a name owns
// the name.
func TestLinesAreCountedInTheirOrder(t *testing.T) {
	f := newFixture(t, nil)
	l := f.listeners()[0]
	l.Tick(second * 1e9)
	l.Packet([]byte("a:2|c\n_sc|a|1\n_sc|b|1\nb:2|c"), second*1e9)
	f.flush(t, l, (second+1)*1e9)
	for name, want := range map[string]float64{
		`counter {__name__="a"}`: 2, `check {__name__="a_check"}`: 1, `check {__name__="b"}`: 1,
		`counter {__name__="b_counter"}`: 2,
	} {
		if got := f.aggregator.totals()[name]; got != want {
			t.Errorf("%s = %v, want %v; all: %v", name, got, want, f.aggregator.totals())
		}
	}
}

// The log names a sender only for its own metrics, even if datagrams of another sender
// arrive between its datagrams.
func TestASenderIsNotBlamedForAnother(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.Limiter = limit.New(limit.Config{MaxSeriesPerMetric: 1}, time.Minute, time.Hour)
	}).start(t)
	to := f.address("udp")
	a, b := dial(t, "udp", to), dial(t, "udp", to)
	offenders := func() (all []limit.Offender) {
		for _, tenant := range f.Limits() {
			all = append(all, tenant.Offenders...)
		}
		return all
	}
	await(t, "the senders are known", func() bool {
		for i := range 20 {
			send(t, a, fmt.Sprintf("of_a:1|c|#request:%d", i))
			send(t, b, fmt.Sprintf("of_b:1|c|#request:%d", i))
		}
		known := 0
		for _, o := range offenders() {
			for _, s := range o.Senders {
				if s.Sender != (sender.Sender{}) {
					known++
				}
			}
		}
		return known >= 2
	})
	want := map[string]string{"of_a": a.LocalAddr().String(), "of_b": b.LocalAddr().String()}
	for _, o := range offenders() {
		for _, s := range o.Senders {
			if s.Sender != (sender.Sender{}) && s.Sender.Addr.String() != want[o.Metric] {
				t.Errorf("%d samples of %s are counted for sender %v, want %s",
					s.Samples, o.Metric, s.Sender.Addr, want[o.Metric])
			}
		}
	}
}
