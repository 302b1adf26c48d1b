package e2e

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// journalLag is the greatest age of a sample that is not in the journal when the process is killed:
// one second of an open window, the time until the window is journalled, and the delays of a busy
// machine.
const journalLag = 2500 * time.Millisecond

// TestKillRounds checks that SIGTERM loses no datagram that reached the socket, and that kill -9 loses
// no sample that was journalled: only samples of the last windows may be missing. Every few seconds the
// test ends the process under load, with SIGTERM and kill -9 in turn, and starts it again. Every
// remaining sample is counted once, in the totals and in the tiles, without a reset that rate() would
// see.
//
// 3 rounds in CI, 24 in `make soak`.
func TestKillRounds(t *testing.T) {
	t.Parallel() // the test mostly waits for tiles
	rounds := 3
	if soak {
		rounds = 24
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	p := start(t, dataDir(t))
	var kept totals // the totals that survived the rounds so far
	for round := range rounds {
		l := startLoad(t, p.Unixgram)
		reach(time.Now().Add(2*time.Second + time.Duration(rnd.Int64N(int64(3*time.Second)))))

		conflicts(t, p)
		var lowest int // how many of this round's datagrams must be counted
		var journalled float64
		how := "SIGTERM"
		if round%2 == 0 {
			how = "kill -9"
			journalled = p.journalled(t)
			at := time.Now()
			p.kill(t)
			l.stop()
			lowest = l.sentBefore(at.Add(-journalLag))
		} else {
			l.stop()
			p.terminate(t)
			lowest = l.sent()
		}
		p = start(t, p.dataDir)
		before := kept
		kept = p.totals(t, before.add(lowest), before.add(l.sent()))
		got := kept.minus(before)
		t.Logf("round %d, %s: of %d datagrams, %v counted", round, how, l.sent(), got)
		if got.counters+got.timers < journalled {
			t.Errorf("%v samples were journalled, but only %v are left", journalled, got.counters+got.timers)
		}
	}
	checkTiles(t, p, kept)
}

// Each datagram of the load has one increment and one timer, both of the same context.
const (
	loadContexts       = 50
	datagramsPerSecond = 4000
)

// load sends to the Unix datagram socket: once a write succeeds, its datagram is in the receiver's queue.
type load struct {
	quit chan struct{}
	done chan struct{}

	history []sentAt // one entry for each burst; the test reads it only after stop
}

// sentAt is how many datagrams had been sent at one moment.
type sentAt struct {
	at time.Time
	n  int
}

func startLoad(t *testing.T, address string) *load {
	t.Helper()
	conn, err := net.Dial("unixgram", address)
	if err != nil {
		t.Fatal(err)
	}
	l := &load{quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer conn.Close()
		l.send(conn)
	}()
	t.Cleanup(l.stop)
	return l
}

// send sends bursts until stop is called or the receiver is gone.
func (l *load) send(conn net.Conn) {
	const bursts = 200 // per second
	tick := time.NewTicker(time.Second / bursts)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-l.quit:
			return
		case <-tick.C:
		}
		for range datagramsPerSecond / bursts {
			if _, err := fmt.Fprintf(conn, "e2e.kill.count:1|c|#n:%d\ne2e.kill.timer:%d|ms|#n:%[1]d", n%loadContexts,
				n%1000); err != nil {
				return
			}
			n++
			l.history = append(l.history, sentAt{time.Now(), n})
		}
	}
}

// stop ends the sending, and returns when it has ended.
func (l *load) stop() {
	select {
	case <-l.quit:
	default:
		close(l.quit)
	}
	<-l.done
}

// sent returns how many datagrams reached the socket.
func (l *load) sent() int { return l.sentBefore(time.Now()) }

func (l *load) sentBefore(at time.Time) (n int) {
	for _, h := range l.history {
		if h.at.After(at) {
			break
		}
		n = h.n
	}
	return n
}

// totals are the results of two queries that each count the datagrams.
type totals struct{ counters, timers float64 }

func (a totals) add(datagrams int) totals {
	return totals{a.counters + float64(datagrams), a.timers + float64(datagrams)}
}

func (a totals) minus(b totals) totals { return totals{a.counters - b.counters, a.timers - b.timers} }

func (p *process) askTotals() (a totals, err error) {
	if a.counters, err = p.value("sum(e2e_kill_count)"); err != nil {
		return a, err
	}
	a.timers, err = p.value("sum(histogram_count(e2e_kill_timer))")
	return a, err
}

// totals waits until the totals are between two bounds, and returns them. Two seconds later, the
// totals must still be the same.
func (p *process) totals(t *testing.T, lowest, highest totals) totals {
	t.Helper()
	var first totals
	eventually(t, 30*time.Second, "the totals are within the bounds", func() (err error) {
		if first, err = p.askTotals(); err != nil {
			return err
		}
		for _, c := range [][3]float64{
			{lowest.counters, first.counters, highest.counters}, {lowest.timers, first.timers, highest.timers},
		} {
			if c[1] < c[0] || c[1] > c[2] {
				return fmt.Errorf("the totals are %v, want %v to %v", first, lowest, highest)
			}
		}
		return nil
	})
	reach(time.Now().Add(2 * time.Second))
	again, err := p.askTotals()
	if err != nil {
		t.Fatal(err)
	}
	if again != first {
		t.Fatalf("the totals changed without load: %v became %v", first, again)
	}
	return again
}

// journalled returns how many samples this process has journalled.
func (p *process) journalled(t *testing.T) float64 {
	t.Helper()
	n, err := p.ownMetric("freshet_aggregator_journalled_samples_total")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func conflicts(t *testing.T, p *process) {
	t.Helper()
	n, err := p.ownMetric("freshet_store_tile_conflicts_total")
	if err != nil {
		t.Fatal(err)
	}
	if n != 0 {
		t.Fatalf("%v tiles were written again with another value, want none", n)
	}
}

// checkTiles waits until the last tile is stored and then checks every sample.
func checkTiles(t *testing.T, p *process, want totals) {
	t.Helper()
	reach(time.Now().Truncate(tileWidth).Add(tileWidth + 5*time.Second))
	conflicts(t, p)
	for _, c := range []struct {
		why, expr string
		want      float64
	}{
		{"the increments", "sum(increase(e2e_kill_count[1h] anchored))", want.counters},
		{"the timers", "sum(histogram_count(increase(e2e_kill_timer[1h] anchored)))", want.timers},
		{"resets that rate() would see", "sum(resets(e2e_kill_count[1h]))", 0},
		{"resets of histograms", "sum(resets(e2e_kill_timer[1h]))", 0},
	} {
		if err := p.expect(c.expr, c.want, 1e-12); err != nil {
			t.Errorf("%s: %v", c.why, err)
		}
	}
	series, err := p.query("e2e_kill_count[1h]")
	if err != nil {
		t.Fatal(err)
	}
	if len(series) != loadContexts {
		t.Errorf("there are %d series, want %d", len(series), loadContexts)
	}
	for _, s := range series {
		for i, v := range s.Values[:len(s.Values)-1] { // the last point belongs to the open tile
			next := s.Values[i+1]
			if next.T <= v.T || next.V < v.V {
				t.Errorf("%v goes back: %v at %v, then %v at %v", s.Metric, v.V, v.T, next.V, next.T)
			}
			if i > 0 && math.Mod(v.T, tileWidth.Seconds()) != 0 { // the first point is the zero before the first tile
				t.Errorf("%v has a sample at %v, which is not the end of a tile", s.Metric, v.T)
			}
		}
	}
}
