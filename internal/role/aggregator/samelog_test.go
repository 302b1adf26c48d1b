//go:build !race

package aggregator

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/lib/wallclock"
)

var (
	oneSeed    = flag.Uint64("seed", 0, "TestTheSameLogGivesTheSameTiles runs this seed alone, and prints its story")
	logTenants = []string{"one", "stuck", "two"}
	strangers  = []string{"s0", "s1", "s2", "s3", "s4"} // these tenants come rarely, and some get no place
	logShards  = []uint16{0, 500, series.Shards - 1}
)

// The members of a cluster fold one log. Each member appends the entries to its own journal, in groups
// of its own. Stores take tiles at different times. Members are killed, lose power and start again from
// checkpoints, with different settings and clocks. All members must still count the same, close the same
// tiles and store the same samples.
//
// One life of an aggregator decides the log: it gets windows, and closes tiles when they are due. A
// plain life folds the frames of that log one by one. A varied life folds them in groups that the seed
// chooses, with disturbances in between. All three must agree.
//
// The test does not run under the race detector: it would be five times as slow, and each life does only
// one thing at a time.
func TestTheSameLogGivesTheSameTiles(t *testing.T) {
	from, to := uint64(1), uint64(4)
	switch {
	case *oneSeed > 0:
		from, to = *oneSeed, *oneSeed
	case os.Getenv("FRESHET_SOAK") != "":
		to = 200
	}
	var mu sync.Mutex
	did := map[string]int{}
	t.Run("seeds", func(t *testing.T) {
		for seed := from; seed <= to; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				mine := sameLog(t, seed)
				mu.Lock()
				defer mu.Unlock()
				for what, n := range mine {
					did[what] += n
				}
			})
		}
	})
	t.Logf("%d seeds: %v", to-from+1, did)
	if *oneSeed > 0 {
		return
	}
	for what, atLeast := range map[string]int{ // minimum for each seed
		"late samples": 10, "late gauges": 2, "repeated batches": 3, "repeated deltas": 3, "ahead": 2, "refused": 2,
		"boundaries that did nothing": 3, "stamped gauges": 5, "stale markers": 20, "windows refused for a full tenant": 2,
		"full boundaries": 1, "kills": 1, "power losses": 1, "stops": 1, "replays": 2, "replays behind a checkpoint": 1,
		"replays with notes": 1, "frames lost and appended again": 1, "new blocks": 1, "stores reopened": 1,
		"stores closed while idle": 1, "failed appends": 1, "checkpoints": 2, "holds": 1, "samples of strangers refused": 5,
	} {
		if n := int(to - from + 1); did[what] < atLeast*n || did[what] == 0 {
			t.Errorf("%q happened %d times in %d seeds, want at least %d", what, did[what], n, atLeast*n)
		}
	}
}

// sameLog runs three lives with one log, and counts the events of each kind.
func sameLog(t *testing.T, seed uint64) map[string]int {
	d := &deciding{life: newLife(t, "deciding", 3*seed, nil), producers: map[uint64]*sender{}}
	d.decide()
	plain := newLife(t, "plain", 3*seed+1, d.log)
	plain.plain()
	varied := newLife(t, "varied", 3*seed+2, d.log)
	varied.vary()
	want := plain.samples()
	for _, l := range []*life{d.life, varied} {
		for _, e := range l.starts {
			l.compareStart(e)
		}
		for _, e := range l.effects {
			l.compare(e)
		}
		got := l.samples()
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if got[name] != want[name] {
				l.wrong("%s\nhas  %s\nwant %s", name, got[name], want[name])
			}
			delete(got, name)
		}
		for name, samples := range got {
			l.wrong("series %s is stored, and should not be: %s", name, samples)
		}
		for what, n := range l.did {
			plain.did[what] += n
		}
	}
	for _, samples := range want {
		plain.did["stale markers"] += strings.Count(samples, "=stale")
	}
	for _, l := range []*life{d.life, plain, varied} {
		if l.closeStores(); len(l.faults.lines) > 0 {
			t.Errorf("%s: %s", l, strings.Join(l.faults.lines, "\n"))
		}
	}
	if t.Failed() || *oneSeed > 0 {
		t.Logf("again: go test -run TheSameLogGivesTheSameTiles -seed %d", seed)
		for _, l := range []*life{d.life, varied} {
			t.Logf("%s:\n%s", l, strings.Join(l.story, "\n"))
		}
	}
	return plain.did
}

// plain folds each entry alone, without an interruption, and remembers its effect.
func (l *life) plain() {
	for n, e := range l.log {
		shard := e.frame.Shard
		closed := int64(math.MinInt64)
		if l.positions[shard] > 0 {
			closed = l.shards.Of(shard).Closed()
		}
		l.apply([]int{n})
		done := l.effects[0]
		l.effects = nil
		e.fates, e.posted, e.handed, e.state = done.fates, done.posted, done.handed[0], done.states[shard]
		if e.frame.Type == frameBoundary && l.shards.Of(shard).Closed() == closed {
			l.did["boundaries that did nothing"]++
		}
		if n%20 == 0 {
			l.write()
		}
	}
	l.storeAll()
	for i, what := range map[int]string{
		1: "late samples", 2: "ahead", 3: "late gauges", 4: "refused", 5: "repeated deltas", 6: "repeated batches",
	} {
		l.did[what] += int(fatesOf(l.metrics)[i])
	}
}

// vary folds the log in groups. Between the groups, it disturbs the life.
func (l *life) vary() {
	for {
		var next []int
		size := 1 + l.rnd.IntN(20)
		for n := l.begin(); n < len(l.log) && len(next) < size; n++ {
			if n > l.lastOf(l.log[n].frame.Shard) {
				next = append(next, n)
			}
		}
		if len(next) == 0 {
			break
		}
		l.fs.Short = l.rnd.IntN(30) == 0
		l.apply(next)
		l.disturb()
	}
	l.storeAll()
	l.tell("everything is stored")
}

// begin returns the first entry that some shard may lack.
func (l *life) begin() int {
	first := len(l.log)
	for _, shard := range logShards {
		first = min(first, l.lastOf(shard)+1)
	}
	return first
}

// disturb makes one event that may happen between two appends.
func (l *life) disturb() {
	if l.rnd.IntN(2) == 0 {
		l.write()
	}
	if l.checkpoint != nil && l.rnd.IntN(3) > 0 {
		l.continueSome()
	}
	switch l.rnd.IntN(50) {
	case 0, 1, 2, 3, 4, 5:
		tenant, m := logTenants[l.rnd.IntN(len(logTenants))], mood(l.rnd.IntN(int(moods)))
		l.gate.set(func() { l.gate.moods[tenant] = m })
		l.tell("the stores of %s: mood %d", tenant, m)
		l.did[[]string{"takes", "fails", "fails in 1m", "takes and fails", "holds"}[m]]++
		l.takeBack()
		if l.rnd.IntN(4) == 0 { // tiles that were closed since the write began still wait
			l.restart(l.kill)
		}
	case 6, 7, 8, 9:
		if err := l.Aggregator.log.Sync(); err != nil {
			l.t.Error(err)
		}
	case 10, 11, 12, 13:
		if l.checkpoint == nil {
			l.beginCheckpoint(l.Aggregator.now())
			l.tell("begins a checkpoint")
		}
	case 14:
		hold := l.rnd.IntN(2) == 0
		l.gate.set(func() { l.gate.holdSync = hold })
		l.finishSync()
	case 15, 16:
		before := l.blocks()
		if err := l.stores.Compact(l.t.Context(), l.rnd.IntN(3) == 0); err != nil {
			l.t.Error(err)
		}
		l.did["new blocks"] += max(0, l.blocks()-before)
		l.tell("compacts")
	case 17:
		l.closeStores()
		l.openStores()
		l.did["stores reopened"]++
		l.tell("opens the stores again")
	case 18:
		l.storeAt.Add(2 * 3_600_000)
		if err := l.stores.Tend(l.t.Context()); err != nil {
			l.t.Error(err)
		}
		l.copySynced()
		l.did["stores closed while idle"]++
		l.tell("closes idle stores")
	case 19, 20:
		l.restart(l.kill)
	case 21, 22:
		l.restart(l.losePower)
	case 23:
		l.restart(l.terminate)
	}
	l.now.Add(l.rnd.Int64N(60_000))
}

// restart ends the process and starts another one, with other settings and another clock.
func (l *life) restart(end func()) {
	end()
	l.config = l.newConfig()
	l.now.Add(l.rnd.Int64N(7_200_000) - 3_600_000)
	l.start()
}

// continueSome continues the checkpoint in progress.
func (l *life) continueSome() {
	l.continueCheckpoint(1 + l.rnd.IntN(series.Shards))
	l.finishSync()
}

// finishSync waits for the end of a checkpoint whose sync does not hang. The aggregator takes note of
// the end later.
func (l *life) finishSync() {
	if c := l.checkpoint; c != nil && c.commit != nil && !l.gate.holdSync && len(c.commit) == 0 {
		err := <-c.commit
		c.commit <- err
		if err == nil {
			l.did["checkpoints"]++
			l.tell("commits the checkpoint at %d", c.Base())
		}
	}
}

// deciding is the life that makes the log.
type deciding struct {
	*life
	producers map[uint64]*sender
	sent      []batch.Batch // the newest batches
}

// sender is a producer in its present incarnation.
type sender struct {
	id, incarnation, sequence uint64
}

func (d *deciding) watch() *watchedJournal {
	w := d.Aggregator.log.(*watchedJournal)
	w.keep = true
	return w
}

// decide makes the log. For a few hours, it pushes windows, closes tiles, and lets one process follow
// another.
func (d *deciding) decide() {
	d.pending = 10_000
	d.again(d.terminate)
	d.now.Store(logStart + 5_000)
	steps := 80
	for step := range steps {
		switch d.rnd.IntN(40) {
		case 0:
			d.now.Add(60_000 + d.rnd.Int64N(40*60_000))
		case 1, 2:
			d.now.Add(3_600_000 + d.rnd.Int64N(2*3_600_000))
		case 3, 4, 5:
			d.now.Add(d.rnd.Int64N(120_000))
		default:
			d.now.Add(d.rnd.Int64N(12_000))
		}
		switch d.rnd.IntN(30) {
		case 0:
			d.again(d.kill)
		case 1:
			d.again(d.terminate)
		case 2, 3:
			m := []mood{takes, fails, fails, fails1m}[d.rnd.IntN(4)]
			d.gate.set(func() { d.gate.moods["stuck"] = m })
			d.tell("the stores of stuck: mood %d", m)
		case 4:
			d.boundaryAgain()
		}
		quiet := step%40 > 25 && d.rnd.IntN(4) > 0 // so that series end
		if quiet {
			d.close()
			continue
		}
		if d.rnd.IntN(5) > 0 {
			d.close()
		}
		d.push()
		if d.rnd.IntN(2) == 0 {
			d.close()
		}
		d.write()
	}
	d.now.Add(30_000)
	d.close()
	d.storeAll()
}

// again ends the process and starts another one, with other settings and the same clock.
func (d *deciding) again(end func()) {
	end()
	d.config = d.newConfig()
	d.start()
}

// note adds to the log the frames that were just appended to the journal.
func (d *deciding) note(before [fates]float64) {
	w := d.watch()
	if len(w.appended) == 0 {
		return
	}
	var entries []int
	for _, f := range w.appended {
		entries = append(entries, len(d.log))
		d.log = append(d.log, &entry{frame: f})
	}
	w.appended = nil
	d.applied(entries, before)
}

// close closes all tiles that are due.
func (d *deciding) close() {
	d.wall = wallclock.New(d.Aggregator.now, d.logger) // a new clock, because the time leaps in this test
	w := d.watch()
	for {
		clear(d.books)
		before := fatesOf(d.metrics)
		if d.full > 0 {
			d.did["full boundaries"]++
		}
		d.flushDue()
		done := len(w.appended) == 0
		d.note(before)
		d.takeBack()
		if done {
			return
		}
	}
}

// boundaryAgain appends a boundary that is not later than the last one.
func (d *deciding) boundaryAgain() {
	shard := logShards[d.rnd.IntN(len(logShards))]
	d.watch()
	if d.positions[shard] == 0 {
		return
	}
	clear(d.books)
	before := fatesOf(d.metrics)
	d.boundaries = d.boundaries[:0]
	frames := []journal.Frame{d.boundaryFrame(shard, d.shards.Of(shard).Closed()-tileMillis*d.rnd.Int64N(3), nil)}
	if err := d.append(frames); err != nil {
		d.t.Fatal(err)
	}
	d.fold(frames)
	d.note(before)
}

// push pushes windows of some producers together.
func (d *deciding) push() {
	var pushes []*push
	for range 1 + d.rnd.IntN(3) {
		p := &push{ctx: d.t.Context(), done: make(chan error, 1)}
		for range 1 + d.rnd.IntN(3) {
			p.batches = append(p.batches, d.window())
		}
		pushes = append(pushes, p)
	}
	d.watch()
	clear(d.books)
	before := fatesOf(d.metrics)
	d.count(pushes, d.Aggregator.now())
	for _, p := range pushes {
		var full *batch.FullError
		switch err := <-p.done; {
		case errors.As(err, &full):
			d.did["windows refused for a full tenant"]++
		case err != nil:
			d.t.Fatal(err)
		}
	}
	for what, n := range d.books { // books of samples that are not in the log
		if strings.HasSuffix(what, "too_many_tenants") {
			d.did["samples of strangers refused"] += int(n)
			delete(d.books, what)
		}
	}
	d.note(before)
}

// window returns a batch of one producer. Sometimes it is a repeat.
func (d *deciding) window() batch.Batch {
	rnd := d.rnd
	if len(d.sent) > 0 && rnd.IntN(15) == 0 {
		return d.sent[rnd.IntN(len(d.sent))]
	}
	id := 1 + rnd.Uint64N(3)
	from := d.producers[id]
	if from == nil || rnd.IntN(25) == 0 {
		from = &sender{id: id, incarnation: rnd.Uint64()}
		d.producers[id] = from
	}
	from.sequence++
	now := d.now.Load()
	second := now/1000 - 1
	switch rnd.IntN(20) {
	case 0, 1, 2:
		second -= rnd.Int64N(90)
	case 3:
		second += rnd.Int64N(120)
	}
	tenant, shard := logTenants[rnd.IntN(len(logTenants))], logShards[rnd.IntN(len(logShards))]
	if len(d.log) > 20 && rnd.IntN(12) == 0 {
		tenant = strangers[rnd.IntN(len(strangers))]
	}
	h := batch.Header{Tenant: []byte(tenant), Shard: shard, Producer: id, Incarnation: from.incarnation,
		Sequence: from.sequence, Second: second, Birth: second * 1e9, UpDown: true}
	b := batch.Begin(nil, &h)
	n := rnd.IntN(6) // may be 0: an empty batch counts, too
	for range n {
		b = d.increment(shard, &h).Append(b, second)
	}
	batch.End(b, uint32(n))
	if d.sent = append(d.sent, batch.Batch{Shard: shard, Samples: uint64(n), Bytes: b}); len(d.sent) > 12 {
		d.sent = d.sent[1:]
	}
	return batch.Batch{Shard: shard, Samples: uint64(n), Bytes: b}
}

// increment returns an increment of a series of any kind, with a time near the window's.
func (d *deciding) increment(shard uint16, h *batch.Header) *batch.Increment {
	rnd := d.rnd
	inc := &batch.Increment{Samples: 1 + uint32(rnd.IntN(3))}
	policy := series.DefaultPolicy
	n := rnd.IntN(3)
	name, kind := "", series.Counter
	switch rnd.IntN(10) {
	case 0, 1:
		name, inc.Value = "counter", float64(rnd.IntN(50))/8
		if rnd.IntN(12) == 0 {
			inc.Value = []float64{-1, math.MaxFloat64}[rnd.IntN(2)] // -1 is always refused, MaxFloat64 sometimes
		}
	case 2:
		name, kind, inc.Value = "updown", series.UpDown, float64(rnd.IntN(50)-25)/8
	case 3:
		name, kind, inc.Value, inc.At = "gauge", series.Gauge, rnd.Float64(), h.Second*1e9+rnd.Int64N(1e9)
		inc.Relative = rnd.IntN(4) == 0
	case 4:
		name, kind, inc.Value, inc.At = "merged", series.Gauge, rnd.Float64(), h.Second*1e9
		inc.Source, policy.Merge = 1+rnd.Uint64N(4), series.MergeSum
	case 5:
		name, kind, inc.Value = "stamped", series.Gauge, float64(rnd.IntN(3))
		inc.Time = h.Second - rnd.Int64N([]int64{5, 60, 1200}[rnd.IntN(3)]) + rnd.Int64N(5)
		inc.At = inc.Time * 1e9
		if rnd.IntN(4) == 0 {
			inc.Time -= inc.Time % 10 // where tiles end
		}
		d.did["stamped gauges"]++
	case 6:
		name, kind = "timer", series.Timer
		if n == 0 {
			name, policy.Bounds = "classic", [][]float64{{1, 10}, {1, 10, 100}}[min(1, rnd.IntN(8))]
			inc.Classic, inc.Sum = make([]float64, len(policy.Bounds)+1), rnd.Float64()
			inc.Classic[rnd.IntN(len(inc.Classic))] = float64(inc.Samples)
			break
		}
		inc.Timer = new(histogram.Exponential)
		inc.Timer.Reset(policy.Schema)
		for range inc.Samples {
			inc.Timer.Observe(rnd.ExpFloat64(), 1, int(policy.MaxBuckets))
		}
	case 7:
		name, kind, inc.Set = "set", series.Set, new(distinct.Set)
		for range inc.Samples {
			inc.Set.Add(distinct.HashString(fmt.Sprint(rnd.IntN(40))))
		}
	case 8:
		name, kind, inc.Value, inc.At = "check", series.Check, float64(rnd.IntN(4)), h.Second*1e9
	case 9:
		name, inc.Value = "delta", float64(rnd.IntN(9))
		// Often a sender repeats a delta, or is late by about the time to live of a series.
		inc.Delta = h.Second*1000 - 1000*rnd.Int64N([]int64{3, 30, 600}[rnd.IntN(3)])
		inc.Delta -= inc.Delta % 5000
		if rnd.IntN(4) == 0 {
			name, kind = "updelta", series.UpDown
		}
	}
	inc.Key = series.AppendKey(nil, kind,
		labels.FromStrings("__name__", fmt.Sprint(name, n), "shard", fmt.Sprint(shard)))
	inc.Policy = series.AppendPolicy(nil, &policy)
	return inc
}
