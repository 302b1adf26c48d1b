package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	own "github.com/freshet-io/freshet/client"
)

// TestOwnClient checks that everything sent by our own client is counted once, and that the ledger
// shows the client's own counts. The client sends on every kind of socket: while the server runs,
// while it is down, and when it runs again at the same address.
func TestOwnClient(t *testing.T) {
	t.Parallel() // the test mostly waits for processes
	p := start(t, dataDir(t))
	var senders []*ownSender
	for network, address := range map[string]string{
		"udp": p.UDP, "unixgram": "unixgram://" + p.Unixgram, "unix": "unix://" + p.Unix,
	} {
		senders = append(senders, newOwnSender(t, network, address))
	}
	each := func(do func(s *ownSender)) {
		for _, s := range senders {
			do(s)
		}
	}
	// A set is of one tile, so its members come within one.
	if end := time.Now().Truncate(tileWidth).Add(tileWidth); time.Until(end) < sendTime {
		reach(end)
	}
	each(func(s *ownSender) { s.use(); s.flush(t) })
	each(func(s *ownSender) { s.check(t, p) })
	p.terminate(t)

	each(func(s *ownSender) { s.use() })
	flushed := make(chan error, len(senders))
	each(func(s *ownSender) {
		// The client notices the missing server only when a send fails. Over UDP, this is the send of a
		// probe.
		go func() { flushed <- s.client.Flush(context.WithoutCancel(t.Context())) }()
		select {
		case err := <-s.trouble:
			t.Logf("%s: %v", s.network, err)
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: the client reports no error without a server", s.network)
		}
		s.use()
	})
	p = start(t, p.dataDir, "--dogstatsd-udp", p.UDP)
	for range senders {
		if err := <-flushed; err != nil {
			t.Fatal(err)
		}
	}
	each(func(s *ownSender) { s.use() })
	each(func(s *ownSender) {
		if err := s.client.Close(); err != nil {
			t.Fatal(err)
		}
		s.check(t, p)
	})

	want := map[string]float64{}
	each(func(s *ownSender) {
		stats := s.client.Stats()
		t.Logf("%s: %+v", s.network, stats)
		if stats.Sent != stats.Calls-stats.Refused || stats.DroppedPackets > 0 {
			t.Errorf("%s: the client's counts are wrong: %+v", s.network, stats)
		}
		want["metrics"] += float64(stats.Calls - 8) // each round has two events and two checks, which are not metrics
		want["events"] += 4
		want["service_checks"] += 4
		want["metric_dropped_on_receive"] += float64(stats.Refused)
	})
	eventually(t, 20*time.Second, "the ledger has the counts of the clients", func() error {
		now, previous, err := p.ledger()
		if err != nil {
			return err
		}
		for name, n := range want {
			got := now.Clients[name]
			if previous != nil {
				got += previous.Clients[name]
			}
			if got != n {
				return fmt.Errorf("%s: %v, want %v", name, got, n)
			}
		}
		if now.Clients["packets_sent"] == 0 || now.Clients["packets_dropped"] != 0 || len(now.Samples.Malformed) > 0 {
			return fmt.Errorf("the ledger has %+v, want packets sent by clients, none dropped, and no malformed sample", now)
		}
		return nil
	})
}

// ownSender is a client of ours, with the sums of the values that it sent.
type ownSender struct {
	network string
	client  *own.Client
	trouble chan error
	rounds  int
	timings []float64
}

func newOwnSender(t *testing.T, network, address string) *ownSender {
	t.Helper()
	s := &ownSender{network: network, trouble: make(chan error, 10)}
	var err error
	s.client, err = own.NewWithOptions(address, own.Options{
		Prefix:  "own_" + network + "_",
		Tags:    []string{"env:prod"},
		OnError: func(err error) { s.trouble <- err },
		// Only the test flushes. If the client also flushed, the server could end before it has read
		// all datagrams, and the client would not notice the loss.
		FlushInterval: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.client.Close() })
	return s
}

func (s *ownSender) use() {
	s.rounds++
	for i := range 1000 {
		route := fmt.Sprintf("route:/r%d", i%10)
		s.client.Count("requests", 2, route, "code:200")
		s.client.Gauge("depth", float64(s.rounds*1000+i), route)
		s.client.Timing("took", time.Duration(i+1)*time.Millisecond, "route:/all")
		s.timings = append(s.timings, float64(i+1))
		s.client.Set("users", fmt.Sprint(i))
	}
	s.client.Count("odd", 1, "city:Zürich, CH")
	s.client.Count("odd", -1)
	_ = s.client.Event(own.Event{Title: "round", Text: "of " + s.network})
	_ = s.client.ServiceCheck(own.ServiceCheck{Name: "check", Status: own.Critical})
}

func (s *ownSender) flush(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func (s *ownSender) check(t *testing.T, p *process) {
	t.Helper()
	eventually(t, 20*time.Second, s.network, func() error {
		name := func(metric, labels string) string {
			return fmt.Sprintf(`own_%s_%s{env="prod"%s}`, s.network, metric, labels)
		}
		n := float64(s.rounds)
		for _, e := range []struct {
			expr string
			want float64
		}{
			{"sum(" + name("requests", "") + ")", 2000 * n},
			{name("requests", `,route="/r7",code="200"`), 200 * n},
			{"increase(" + name("requests", `,route="/r7",code="200"`) + "[10m] anchored)", 200 * n},
			{name("depth", `,route="/r9"`), 1000*n + 999},
			{name("odd", `,city="Zürich_ CH"`), n},
			{name("check", ""), 2},
		} {
			if err := p.expect(e.expr, e.want, 0); err != nil {
				return err
			}
		}
		if err := p.expect("max_over_time("+name("users", "")+"[10m])", 1000, 0.025); err != nil {
			return err
		}
		return p.checkTimer(name("took", `,route="/all"`), s.timings)
	})
}
