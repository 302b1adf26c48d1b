package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The tests of this file inject the faults of one table. Each fault happens under the load of
// load_test.go, and the cluster must keep the same promises for all faults.

// trouble is a fault of one node. A call of `do` begins the fault, and a call of `undo` ends it.
type trouble struct {
	name  string
	lasts time.Duration // in `make soak`; CI waits for inCI
	shows bool          // other nodes soon say that the node is not ready
	parts bool          // the node is cut off in one direction at least, so an answer of 503 is right
	do    func(l *loaded, node string) (undo func())
}

const inCI = 6 * time.Second

var troubles = []trouble{
	{"kill -9", 20 * time.Second, true, false, func(l *loaded, node string) func() {
		l.nodes[node].kill(l.t)
		return func() { l.begin(node) }
	}},
	{"SIGSTOP", time.Minute, true, false, func(l *loaded, node string) func() {
		p := l.nodes[node]
		p.signal(l.t, syscall.SIGSTOP)
		return func() { p.signal(l.t, syscall.SIGCONT) }
	}},
	{"link down", 30 * time.Second, true, true, func(l *loaded, node string) func() { return l.machines[node].cut() }},
	{"nothing from it reaches the others", 30 * time.Second, true, true, func(l *loaded, node string) func() {
		return l.between(node, func(other string) func() { return l.machines[node].silence(l.machines[other]) })
	}},
	{"nothing from the others reaches it", 30 * time.Second, true, true, func(l *loaded, node string) func() {
		return l.between(node, func(other string) func() { return l.machines[other].silence(l.machines[node]) })
	}},
	{"1 Mbit/s", 30 * time.Second, false, false, func(l *loaded, node string) func() {
		l.slowed = true
		return l.machines[node].slow()
	}},
	{"frozen disk", 30 * time.Second, true, false, func(l *loaded, node string) func() { return l.disks[node].freeze() }},
	{"full disk", 30 * time.Second, true, false, func(l *loaded, node string) func() { return l.disks[node].fill() }},
}

// begins applies the fault to a node. The returned function ends the fault.
func (f trouble) begins(l *loaded, node string) (undo func()) {
	l.t.Helper()
	l.setParted(node, f.parts)
	end := f.do(l, node)
	return func() {
		end()
		l.setParted(node, false)
	}
}

// between is a helper that calls `do` with each of the two other nodes. The returned function undoes
// both.
func (l *loaded) between(node string, do func(other string) (undo func())) (undo func()) {
	var all []func()
	for _, other := range nodeNames {
		if other != node {
			all = append(all, do(other))
		}
	}
	return func() {
		for _, undo := range all {
			undo()
		}
	}
}

// next is the node after `node`, in a circle.
func next(node string) string { return nodeNames[(slices.Index(nodeNames, node)+1)%len(nodeNames)] }

// suffer applies the trouble to a node for a time, and waits until the node has caught up by itself.
func (l *loaded) suffer(f trouble, node string) {
	l.t.Helper()
	led := l.leader()
	l.longestGap()
	lasts := inCI
	if soak {
		lasts = f.lasts
	}
	begun := time.Now()
	undo := f.begins(l, node)
	if f.shows {
		eventually(l.t, 30*time.Second, "another node says that node "+node+" is not ready: "+f.name, func() error {
			s, err := l.nodes[next(node)].clusterState()
			if err == nil && s.Nodes[slices.Index(nodeNames, node)].Ready {
				err = fmt.Errorf("%+v", s)
			}
			return err
		})
	}
	showed := time.Since(begun)
	reach(begun.Add(lasts))
	gap := l.longestGap()
	undo()
	undone := time.Now()
	l.caughtUp()
	caughtUp, after := time.Since(undone), l.longestGap()
	l.t.Logf("%s of node %s (leader %s): status showed it after %.1f s; caught up %.1f s after the end; "+
		"longest gap of writes %.1f s, then %.1f s; %v late gauges", f.name, node, led, showed.Seconds(), caughtUp.Seconds(),
		gap.Seconds(), after.Seconds(), l.lateGauges())
	l.shortGap(f.name+" of node "+node, max(gap, after))
}

// lateGauges returns how many gauge values came too late for their tile. Each node counts them since its
// start, and the largest count is returned.
func (l *loaded) lateGauges() (late float64) {
	for _, n := range nodeNames {
		if v, err := l.nodes[n].ownMetric("freshet_aggregator_late_gauge_samples_total"); err == nil {
			late = max(late, v)
		}
	}
	return late
}

// shortGap checks that a gap between writes is within the limit: 5 s, as promised, but 30 s in CI, whose
// machine may be busy.
func (l *loaded) shortGap(what string, gap time.Duration) {
	l.t.Helper()
	limit := 30 * time.Second
	if soak {
		limit = 5 * time.Second
	}
	if gap > limit {
		l.t.Errorf("%s: no write was acknowledged for %v", what, gap)
	}
}

// The leader is killed again and again.
func TestTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	l := startCluster(t)
	kills, every := 2, 8*time.Second
	if soak {
		kills, every = fromEnvironment(t, "FRESHET_KILLS", 30), 20*time.Second
	}
	l.start("kills")
	for i := range kills {
		begun := time.Now()
		leader := l.leader()
		l.longestGap()
		l.nodes[leader].kill(t)
		reach(begun.Add(every / 2))
		l.begin(leader)
		l.caughtUp()
		gap := l.longestGap()
		t.Logf("kill %d: node %s led; the longest gap of writes was %.1f s", i+1, leader, gap.Seconds())
		l.shortGap("kill -9 of the leader", gap)
		reach(begun.Add(every))
	}
	l.finish(true)
}

// Each node has each trouble. In CI, each trouble affects only one node. Before each trouble, some node
// leads.
func TestEachNodeHasTrouble(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	l := startCluster(t)
	l.start("each")
	for i, f := range troubles {
		leader := l.leader()
		if nodes := []string{leader, next(leader), next(next(leader))}; soak {
			for _, node := range nodes {
				l.suffer(f, node)
			}
		} else {
			l.suffer(f, nodes[(i+1)%2])
		}
	}
	l.finish(true)

	// With both followers slow, an answer of 503 is right.
	l.start("slow")
	leader := l.leader()
	undo := l.between(leader, func(other string) func() { return l.machines[other].slow() })
	lasts := inCI
	if soak {
		lasts = time.Minute
	}
	reach(time.Now().Add(lasts))
	undo()
	l.caughtUp()
	l.finish(false)
}

// All three nodes are killed at once.
func TestAllThreeKilled(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	l := startCluster(t)
	rounds := 1
	if soak {
		rounds = 20
	}
	l.start("all")
	for range rounds {
		reach(time.Now().Add(3 * time.Second))
		l.killAll()
		l.leader()
	}
	reach(time.Now().Add(time.Second))
	l.finish(false)
}

// killAll kills all nodes at once, and starts them.
func (l *loaded) killAll() {
	l.t.Helper()
	for _, p := range l.nodes {
		p.signal(l.t, syscall.SIGKILL)
	}
	for _, p := range l.nodes {
		<-p.exited
	}
	l.begin(nodeNames...)
}

// The nodes are restarted one after the other under a larger load. Each node is first stopped and
// started, and later restarted in place. A leader hands over the lead first. Each write and each query
// succeeds at the first or the second node, and each node catches up within 30 s.
func TestRollingRestarts(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	l := startCluster(t)
	rounds, perSecond := 1, 4_000
	if soak {
		rounds, perSecond = 3, fromEnvironment(t, "FRESHET_BULK", 100_000)
	}
	l.start("rolling")
	bulk := l.startBulk("rolling", perSecond)
	for range rounds {
		l.eachOnce(func(node string) {
			p := l.nodes[node]
			l.restarts("stop and start", node, p, func() {
				p.terminate(t)
				l.begin(node)
			})
		})
		l.eachOnce(func(node string) {
			p := l.nodes[node]
			l.restarts("restart in place", node, p, func() {
				if r, said, err := p.restart(t); err != nil || r.State != "ready" {
					t.Errorf("node %s: the restart in place failed: %v: %+v\n%s", node, err, r, said)
				}
			})
		})
	}
	bulk.stop()
	bulk.isStored()
	l.mayNotRetryTwice()
	l.mostHandOver()
	l.finish(true)
}

// eachOnce calls `do` once for each node. It prefers the leader, unless the leader had its turn already.
func (l *loaded) eachOnce(do func(node string)) {
	l.t.Helper()
	left := slices.Clone(nodeNames)
	for len(left) > 0 {
		i := max(0, slices.Index(left, l.leader()))
		node := left[i]
		left = slices.Delete(left, i, i+1)
		do(node)
	}
}

// mostHandOver is a check that leaders handed over the lead before they stopped. On a busy machine, the next leader may
// need more time than a stopping one waits, so CI checks that most did.
func (l *loaded) mostHandOver() {
	l.t.Helper()
	if kept := len(l.kept); kept > 0 && (soak || 2*kept > l.stops) {
		l.t.Errorf("%d of %d nodes did not hand over the lead:\n%s", kept, l.stops, strings.Join(l.kept, "\n"))
	}
}

// restarts calls `do` to restart a node, and waits until the node has caught up. Its present process `p`
// hands over the lead: see mostHandOver. Meanwhile the node may answer 503 to senders that do not know yet
// that it is not ready.
func (l *loaded) restarts(how, node string, p *process, do func()) {
	l.t.Helper()
	led := l.leader()
	l.longestGap()
	begun := time.Now()
	l.setParted(node, true)
	do()
	l.caughtUp()
	l.setParted(node, false)
	took := time.Since(begun)
	l.t.Logf("%s of node %s (leader %s): caught up %.1f s after the stop began; longest gap of writes %.1f s", how, node,
		led, took.Seconds(), l.longestGap().Seconds())
	if soak && took > 30*time.Second {
		l.t.Errorf("node %s caught up only after %v", node, took)
	}
	if node == led && how != "kill" {
		l.stops++
	}
	if said := p.output.String(); strings.Contains(said, "no other node took over the lead") {
		l.kept = append(l.kept, fmt.Sprintf("%s of node %s: %s", how, node, said))
	}
}

// bulk sends large requests of remote write. Its series are too large to be compared one by one, so their names end
// in bulkSuffix, and their samples are counted.
type bulk struct {
	*loaded
	name    string
	acked   atomic.Int64 // samples
	quit    chan struct{}
	running sync.WaitGroup
}

const (
	bulkSuffix  = "_bulk"
	bulkSenders = 4
	bulkSamples = 2000 // in a request
)

// startBulk starts several senders with a common rate. Each sender writes its own series.
func (l *loaded) startBulk(name string, perSecond int) *bulk {
	name += bulkSuffix
	b := &bulk{loaded: l, name: name, quit: make(chan struct{})}
	for i := range bulkSenders {
		r := &remote{l: l, name: name, kind: remoteWriteV2, tenant: firstTenant, prefers: i}
		b.running.Go(func() {
			every := time.Second * bulkSenders * bulkSamples / time.Duration(perSecond)
			for at := time.Now(); ; at = at.Add(every) {
				select {
				case <-b.quit:
					return
				case <-time.After(time.Until(at)):
				}
				samples, now := make([]single, bulkSamples), time.Now().UnixMilli()
				for s := range samples {
					samples[s] = single{name: name, n: fmt.Sprintf("%d-%d", i, s), at: now, value: float64(s)}
				}
				r.send(samples)
				b.acked.Add(bulkSamples)
			}
		})
	}
	return b
}

func (b *bulk) stop() {
	close(b.quit)
	b.running.Wait()
}

// isStored waits until all nodes have all samples once.
func (b *bulk) isStored() {
	b.t.Helper()
	for _, n := range nodeNames {
		eventually(b.t, time.Minute, "node "+n+" has all samples of large requests", func() error {
			v, err := b.nodes[n].value("sum(count_over_time(" + b.name + "[1h]))")
			if want := float64(b.acked.Load()); err == nil && v != want {
				err = fmt.Errorf("%v of %v samples", v, want)
			}
			return err
		})
	}
	b.t.Logf("%d samples in large requests are on all nodes once", b.acked.Load())
}

// fromEnvironment returns the number in an environment variable, or `preset` if it is empty.
func fromEnvironment(t *testing.T, variable string, preset int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return preset
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s = %s is not a number", variable, text)
	}
	return n
}

// Random faults happen one after the other. Sometimes two happen at once, or all three nodes are killed.
// After every ten faults, the test checks all promises. FRESHET_FAULTS is the number of faults, and
// FRESHET_FAULT_SEED is the seed of the random numbers.
func TestRandomFaults(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	faults, seed := 3, 2
	if soak {
		faults, seed = 100, int(time.Now().UnixNano()%1e6)
	}
	faults, seed = fromEnvironment(t, "FRESHET_FAULTS", faults), fromEnvironment(t, "FRESHET_FAULT_SEED", seed)
	t.Logf("%d faults; run them again with FRESHET_FAULT_SEED=%d", faults, seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	l := startCluster(t)
	for i := 0; i < faults; {
		l.start(fmt.Sprintf("random%d", i))
		twoInOrder := true
		for end := min(i+10, faults); i < end; i++ {
			reach(time.Now().Add(time.Duration(random.IntN(3000)) * time.Millisecond))
			twoInOrder = l.randomFault(random, i) && twoInOrder
			l.caughtUp()
			l.leader()
		}
		l.finish(twoInOrder)
	}
}

// randomFault applies a random fault, and reports whether at least two nodes were always in order.
func (l *loaded) randomFault(random *rand.Rand, i int) (twoInOrder bool) {
	l.t.Helper()
	pick := func() trouble { return troubles[random.IntN(len(troubles))] }
	node := nodeNames[random.IntN(len(nodeNames))]
	lasts := inCI
	if soak {
		lasts = time.Duration(2000+random.IntN(28_000)) * time.Millisecond
	}
	l.longestGap()
	begun, story := time.Now(), ""
	switch random.IntN(6) {
	case 0:
		story = "all three nodes are killed"
		l.killAll()
	case 1:
		one, two := pick(), pick()
		story = fmt.Sprintf("%s of node %s for %v, and half of that time %s of node %s", one.name, node, lasts, two.name,
			next(node))
		undo := one.begins(l, node)
		reach(begun.Add(lasts / 2))
		undoSecond := two.begins(l, next(node))
		reach(begun.Add(lasts))
		undo()
		undoSecond()
	default:
		one := pick()
		story = fmt.Sprintf("%s of node %s for %v", one.name, node, lasts)
		twoInOrder = true
		undo := one.begins(l, node)
		reach(begun.Add(lasts))
		undo()
	}
	ended := time.Now()
	l.caughtUp()
	gap := l.longestGap()
	l.t.Logf("fault %d: %s; caught up %.1f s after its end; the longest gap of writes was %.1f s", i+1, story,
		time.Since(ended).Seconds(), gap.Seconds())
	if twoInOrder {
		l.shortGap(story, gap)
	}
	return twoInOrder
}
