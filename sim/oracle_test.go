package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/value"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// oracle knows what the senders sent and what was acknowledged, and checks the promises.
type oracle struct {
	leaders  map[uint64]int   // nodes by term
	elected  map[uint64]int64 // when the leader was elected, by term
	heard    map[uint64]heard // when collectors were last heard, by producer
	effects  map[uint64]string
	outcomes map[uint64]outcome.Outcome
	digests  map[decisions]uint64
	taken    string // the pair's replica whose requests were taken last

	acked, sent map[string]float64                   // totals of counters, by tenant and name
	offered     map[string]map[int64]map[uint64]bool // bits of values that requests have, by tenant, name and time
	must        map[string]map[int64]float64         // values that were acknowledged as written
	news        map[string][]offered                 // the samples in `must`, by tenant, in the order of their answers
	parts       []part

	events []string // titles of acknowledged events

	emptied     map[uint64]bool          // members whose disks were emptied
	evaluations evaluations              // of rules that were acknowledged
	ruleSets    evaluations              // the newest acknowledged text of each group set by the API
	setsBegun   evaluations              // the newest text of each that was proposed
	imports     [importedBlocks]imported // what an operator knows of each block
	results     []string                 // of rules that were acknowledged, as node.all writes samples

	deltas  map[string]*bounds // bounds of totals of deltas, by tenant and name
	counted map[string]uint64  // number of delta increments that the books count, by tenant
}

// stored has the names of a tenant's stores.
var stored = []string{tsdb.Raw, tile.Width10s.String(), tile.Width1m.String()}

// bounds are the least and the greatest total that a series of deltas may have.
type bounds struct{ least, most float64 }

// part is a request of which only a part was written.
type part struct {
	tenant  string
	samples []offered
	written int
}

func (o *oracle) begin() {
	*o = oracle{leaders: map[uint64]int{}, elected: map[uint64]int64{}, heard: map[uint64]heard{},
		effects: map[uint64]string{}, outcomes: map[uint64]outcome.Outcome{}, digests: map[decisions]uint64{},
		acked: map[string]float64{}, sent: map[string]float64{}, offered: map[string]map[int64]map[uint64]bool{},
		must: map[string]map[int64]float64{}, news: map[string][]offered{}, deltas: map[string]*bounds{},
		counted: map[string]uint64{}, emptied: map[uint64]bool{}}
}

// leads is a check that at most one member leads in a term.
func (o *oracle) leads(s *sim, n *node, term uint64) {
	if other, known := o.leaders[term]; known && other != n.n {
		s.Fail("nodes %d and %d lead in term %d", other, n.n, term)
	}
	o.leaders[term], o.elected[term] = n.n, s.Now
}

// heard tells when the log last had a collector's windows, and in which term.
type heard struct {
	at                int64
	term, incarnation uint64
}

// applied is a check that an entry has the same effect on all members.
func (o *oracle) applied(s *sim, n *node, a *member.Applied) {
	var b strings.Builder
	fmt.Fprint(&b, a.Kind, a.Moved, a.Closed.Samples, a.Closed.Duplicates, a.Windows.Pushes, a.Windows.Damaged)
	for _, tenant := range slices.Sorted(maps.Keys(a.Windows.Folded)) {
		fmt.Fprint(&b, " ", tenant, *a.Windows.Folded[tenant])
	}
	s.Note(fmt.Appendf(nil, "%d %d %s", n.n, a.Index, &b))
	if a.Outcome != nil {
		got := *a.Outcome
		if a.Kind == entry.KindDeltas {
			got.First = outcome.Example{} // a replay knows the first decision, and not its cause
		}
		o.outcome(s, n, a.Index, &got)
	}
	if a.Index <= n.whole {
		return // some shards have had the entry before
	}
	before, known := o.effects[a.Index]
	switch {
	case !known:
		o.effects[a.Index] = b.String()
		o.count(s, n, a)
	case before != b.String():
		s.Fail("node %d: entry %d has the effect %s, but on another node %s", n.n, a.Index, &b, before)
	}
}

// count adds an entry to the coverage of the run, notes the collectors in it, and checks a boundary.
func (o *oracle) count(s *sim, n *node, a *member.Applied) {
	for tenant, f := range a.Windows.Folded {
		s.covered.late += int(f.Late)
		s.covered.lateGauges += int(f.LateGauge)
		if a.Kind == entry.KindDeltas {
			o.counted[tenant] += f.Samples
			s.covered.deltasAgain += int(f.Repeated)
		}
	}
	if a.Kind == entry.KindDeltas {
		s.covered.deltaLimits += a.Outcome.Refused[outcome.TooManySeries].Samples
	}
	if a.Kind == 0 {
		return
	}
	data, err := n.entry(a.Index)
	if err != nil {
		s.Fail("entry %d: %v", a.Index, err)
		return
	}
	term, err := n.entries.Term(a.Index)
	if err != nil {
		s.Fail("entry %d: %v", a.Index, err)
		return
	}
	var e entry.Entry
	if err := e.Parse(data); err != nil {
		s.Fail("entry %d: %v", a.Index, err)
	}
	switch e.Kind {
	case entry.KindWindows:
		for b := range e.Windows.Pushes.All() {
			p, err := entry.ParsePush(b)
			if err != nil {
				s.Fail("entry %d: %v", a.Index, err)
			}
			if p.Leaves {
				if o.heard[p.Producer].incarnation == p.Incarnation {
					delete(o.heard, p.Producer)
				}
				continue
			}
			// Without a quorum, an entry may wait long, but members know only the time at which it was
			// proposed.
			o.heard[p.Producer] = heard{min(s.Now, e.Windows.Clock-base), term, p.Incarnation}
		}
	case entry.KindBoundary:
		o.closes(s, n, term, &e.Boundary, a.Closed.Samples)
	}
	if e.Kind == entry.KindRequest && e.Request.Pair != (entry.Pair{}) && a.Outcome == nil {
		if o.taken != "" && o.taken != e.Request.Pair.Replica {
			s.covered.turns++
		}
		o.taken = strings.Clone(e.Request.Pair.Replica)
	}
}

// closes is a check that no tile is closed before its time. A new leader must also have heard all
// recent collectors, or have waited for five seconds.
func (o *oracle) closes(s *sim, n *node, term uint64, b *entry.Boundary, samples uint64) {
	if early := b.End + lateness.Milliseconds() - (base + s.Now); early > 1200 {
		s.Fail("node %d: tiles up to %d are closed %d ms early", n.n, b.End-base, early)
	}
	if b.Begins && samples > 0 {
		s.Fail("node %d: a boundary that only begins shards closes tiles with %d samples", n.n, samples)
	}
	if samples == 0 || s.Now-o.elected[term] > 4700 {
		return
	}
	for producer, h := range o.heard {
		if h.term != term && h.at > o.elected[term]-8*second {
			s.Fail("node %d: collector %d was heard %d ms before the election, but not since, and tiles are closed", n.n,
				producer, o.elected[term]-h.at)
		}
	}
}

// outcome is a check that a request has the same outcome on all members, and again in a replay.
func (o *oracle) outcome(s *sim, n *node, index uint64, got *outcome.Outcome) {
	s.Note(fmt.Appendf(nil, "%d %d %+v", n.n, index, *got))
	before, known := o.outcomes[index]
	if !known {
		o.outcomes[index] = *got
		s.covered.limits += got.Refused[outcome.TooManySeries].Samples
		s.covered.tooOld += got.Refused[outcome.TooOld].Samples
		s.covered.duplicates += got.Refused[outcome.Duplicate].Samples
		s.covered.ahead += got.Refused[outcome.TooFarAhead].Samples
		return
	}
	if before != *got {
		s.Fail("node %d: the request of entry %d has the outcome %+v, but before it had %+v", n.n, index, *got, before)
	}
}

// decisions identifies a tenant's decisions up to an entry: those known when the entry is applied or, if
// stored is true, those about the requests that the stores have.
type decisions struct {
	tenant string
	index  uint64
	stored bool
}

// decided is a check that all members have the same digests of their decisions.
func (o *oracle) decided(s *sim, n *node, tenant string) {
	applied, stored := n.node.State().Digests(tenant)
	for i, d := range []member.Digest{applied, stored} {
		key := decisions{tenant, d.Index, i == 1}
		if before, known := o.digests[key]; known && before != d.Hash {
			s.Fail("node %d: the decisions of tenant %s up to entry %d have the digest %x (stored: %v), but on another node %x",
				n.n, tenant, d.Index, d.Hash, key.stored, before)
		}
		o.digests[key] = d.Hash
	}
}

// sends is called before a window is pushed, and counts the window as sent.
func (o *oracle) sends(p *pushed) {
	for tenant, sums := range p.sums {
		for name, v := range sums {
			o.sent[tenant+"/"+name] += v
		}
	}
}

// refused is called when a tenant's part of a window was refused. It counts the part as not sent.
func (o *oracle) refused(p *pushed, tenant string) {
	for name, v := range p.sums[tenant] {
		o.sent[tenant+"/"+name] -= v
	}
	delete(p.sums, tenant)
}

func (o *oracle) acknowledged(p *pushed) {
	for tenant, sums := range p.sums {
		for name, v := range sums {
			o.acked[tenant+"/"+name] += v
		}
	}
}

// offers is called before a request is sent, and notes the request's samples.
func (o *oracle) offers(tenant string, samples []offered) {
	for _, x := range samples {
		o.offer(tenant+"/"+x.name, x.t, x.v)
		if x.starts != 0 {
			o.offer(tenant+"/"+x.name, x.starts, 0)
		}
	}
}

func (o *oracle) offer(key string, t int64, v float64) {
	if o.offered[key] == nil {
		o.offered[key] = map[int64]map[uint64]bool{}
	}
	if o.offered[key][t] == nil {
		o.offered[key][t] = map[uint64]bool{}
	}
	o.offered[key][t][math.Float64bits(v)] = true
}

// written is given the answer to a request, which it notes and checks.
func (o *oracle) written(s *sim, r *request, got outcome.Outcome) {
	tenant, all := r.parts[0].Tenant, o.writtenOf(s, r, &got)
	if all < len(r.samples) {
		o.parts = append(o.parts, part{tenant, r.samples, all})
		return
	}
	for _, x := range r.samples {
		key := tenant + "/" + x.name
		if o.must[key] == nil {
			o.must[key] = map[int64]float64{}
		}
		if before, known := o.must[key][x.t]; known && !same(before, x.v) {
			s.Fail("%s at %d: both %v and %v are acknowledged as written", key, x.t-base, x.v, before)
		}
		o.must[key][x.t] = x.v
		o.news[tenant] = append(o.news[tenant], x)
		if isHistogram(x.name) {
			s.covered.histograms++
		}
		if value.IsStaleNaN(x.v) {
			s.covered.stale++
		}
	}
}

// writtenOf returns how many samples of a request are written. It fails the run if the fate of a sample
// is missing.
func (o *oracle) writtenOf(s *sim, r *request, got *outcome.Outcome) int {
	sum := got.Written
	sum.Add(got.Dropped)
	sum.Add(got.AllRefused())
	if sum.Samples+sum.Histograms != len(r.samples) {
		s.Fail("a request of %d samples has the outcome %+v", len(r.samples), got)
	}
	return got.Written.Samples + got.Written.Histograms
}

// same reports whether two values are equal. Two stale markers are equal.
func same(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

// offersDeltas notes increments before they are sent.
func (o *oracle) offersDeltas(tenant string, samples []offered) {
	for _, x := range samples {
		o.bounds(tenant, x.name).most += x.v
	}
}

func (o *oracle) bounds(tenant, name string) *bounds {
	key := tenant + "/" + name
	if o.deltas[key] == nil {
		o.deltas[key] = new(bounds)
	}
	return o.deltas[key]
}

// deltasWritten notes the answer to increments. If only some of them are written, the answer does not
// tell which ones are counted. A repeat is answered as written even if a limit refused some of its
// series at first.
func (o *oracle) deltasWritten(s *sim, r *request, got outcome.Outcome) {
	tenant, all := r.parts[0].Tenant, o.writtenOf(s, r, &got)
	for _, x := range r.samples {
		b := o.bounds(tenant, x.name)
		switch {
		case all == len(r.samples) && r.parts[0].MaxSeries == 0:
			b.least += x.v
		case all == 0:
			b.most -= x.v
		}
	}
}

// question returns a check of the result of a read that begins now.
func (o *oracle) question(s *sim, tenant string) (check func(*node)) {
	if all := o.news[tenant]; len(all) > 0 && s.Chance(50) {
		x := all[len(all)-1-s.Rand.IntN(min(len(all), 20))]
		return func(n *node) {
			v, found := n.has(tenant, x.name, x.t)
			s.Note(fmt.Appendf(nil, "%d reads %v %v", n.n, v, found))
			if !found || !same(v, x.v) {
				s.Fail("node %d: a read of %s of tenant %s at %d finds %v (found: %v), but %v was acknowledged before", n.n,
					x.name, tenant, x.t-base, v, found, x.v)
			}
		}
	}
	name := []string{"own0", "own1", "own2", "shared0", "shared1", "shared2"}[s.Rand.IntN(6)]
	name = crowded(tenant, series.Counter, name)
	floor := o.acked[tenant+"/"+name]
	return func(n *node) {
		got := n.total(tenant, name)
		s.Note(fmt.Appendf(nil, "%d reads %v", n.n, got))
		if got < floor {
			s.Fail("node %d: a read finds %v of %s of tenant %s, but %v was acknowledged before", n.n, got, name, tenant, floor)
		}
		// A refused window counts as not sent, but only once its answer has arrived.
		if sent := o.sent[tenant+"/"+name]; got > sent {
			s.Fail("node %d: a read finds %v of %s of tenant %s, but only %v was sent", n.n, got, name, tenant, sent)
		}
	}
}

// finish checks that, without faults, all members end with the same state, and with what the
// senders expect.
func (s *sim) finish() {
	for _, c := range s.collectors {
		if len(c.outbox) > 0 {
			s.Fail("collector %d still has %d windows", c.n, len(c.outbox))
		}
	}
	for _, w := range s.writers {
		if w.deltas && w.doing != nil {
			s.Fail("writer %d still waits for an answer", w.n)
		}
	}
	for _, n := range s.nodes {
		m := n.node.State()
		if !n.Up || n.working > 0 || m.Index() != s.nodes[0].node.State().Index() {
			s.Fail("node %d, up %v, ends at entry %d with %d works, but node 0 ends at entry %d",
				n.n, n.Up, m.Index(), n.working,
				s.nodes[0].node.State().Index())
			return
		}
	}
	for _, n := range s.nodes[1:] {
		s.sameState(s.nodes[0], n)
		s.sameStores(s.nodes[0], n)
	}
	s.sameEvents()
	s.evaluated()
	if s.Failed == nil {
		s.noteEnd(s.nodes[0])
		s.expected(s.nodes[0])
	}
}

// noteEnd adds the state and the samples of a node to the digest of the run.
func (s *sim) noteEnd(n *node) {
	m := n.node.State()
	s.Note(m.AppendGroup(nil))
	for number := range uint16(series.Shards) {
		b, _, _ := m.AppendShard(nil, number)
		s.Note(b)
	}
	for _, tenant := range tenants {
		s.Note(m.AppendTenant(nil, tenant, m.Index()))
		for _, store := range s.stores() {
			all := n.all(tenant, store)
			for _, ls := range slices.Sorted(maps.Keys(all)) {
				s.Note([]byte(ls + all[ls]))
			}
		}
	}
}

// stores has the names of a tenant's stores in this run. Without rules, none has results.
func (s *sim) stores() []string {
	if s.mistakes.rules {
		return append(slices.Clone(stored), tsdb.Rules)
	}
	return stored
}

func (s *sim) sameState(a, b *node) {
	x, y := a.node.State(), b.node.State()
	if string(x.AppendGroup(nil)) != string(y.AppendGroup(nil)) {
		s.Fail("nodes %d and %d end with other sections of the group", a.n, b.n)
	}
	for number := range uint16(series.Shards) {
		m, _, _ := x.AppendShard(nil, number)
		n, _, _ := y.AppendShard(nil, number)
		if string(m) != string(n) {
			s.Fail("nodes %d and %d end with other sections of shard %d", a.n, b.n, number)
		}
	}
	for _, name := range tenants {
		m := x.AppendTenant(nil, name, x.Index())
		n := y.AppendTenant(nil, name, y.Index())
		if string(m) != string(n) {
			s.Fail("nodes %d and %d end with other sections of tenant %s", a.n, b.n, name)
		}
	}
}

func (s *sim) sameStores(a, b *node) {
	for _, tenant := range tenants {
		for _, store := range s.stores() {
			x, y := a.all(tenant, store), b.all(tenant, store)
			for _, ls := range slices.Sorted(maps.Keys(x)) {
				if x[ls] != y[ls] {
					s.Fail("store %s of tenant %s, %s: node %d has%s\nand node %d has%s", store, tenant, ls, a.n, x[ls], b.n, y[ls])
				}
				delete(y, ls)
			}
			for ls, samples := range y {
				s.Fail("store %s of tenant %s: only node %d has %s:%s", store, tenant, b.n, ls, samples)
			}
		}
	}
}

// checkMixed checks that the counter and the gauge that claim the same name are stored under two names.
// It returns the name of the counter.
func (s *sim) checkMixed(n *node, tenant, name string) (counter string) {
	names := n.node.State().Names()
	counter, known, _ := names.Peek(&catalogue.Claim{Tenant: tenant, Name: name, Kind: series.Counter})
	gauge, gaugeKnown, _ := names.Peek(&catalogue.Claim{Tenant: tenant, Name: name, Kind: series.Gauge})
	if known && gaugeKnown && (counter == name) == (gauge == name) {
		s.Fail("the counter %s of tenant %s is stored as %s, and the gauge as %s", name, tenant, counter, gauge)
	}
	if known && gauge == name {
		s.covered.conflicts++
	}
	return counter
}

// expected is a check that a node agrees with what the senders know.
func (s *sim) expected(n *node) {
	o := &s.oracle
	sums := map[string]float64{}
	for _, key := range slices.Sorted(maps.Keys(o.deltas)) {
		tenant, name, _ := strings.Cut(key, "/")
		got, want := n.total(tenant, name), o.deltas[key]
		if got < want.least || got > want.most {
			s.Fail("%s of tenant %s ends at %v, but its sender knows that it is between %v and %v", name, tenant, got,
				want.least, want.most)
		}
		sums[tenant] += got
	}
	if counted := float64(o.counted["two"]); sums["two"] != counted { // each increment is 1
		s.Fail("the deltas of tenant two add up to %v, but the books say %v", sums["two"], counted)
	}
	for _, key := range slices.Sorted(maps.Keys(o.sent)) {
		tenant, name, _ := strings.Cut(key, "/")
		if strings.HasPrefix(name, "level") {
			continue
		}
		if isMixed(name) {
			name = s.checkMixed(n, tenant, name)
		}
		if got := n.total(tenant, name); got != o.sent[key] || o.acked[key] != o.sent[key] {
			s.Fail("%s of tenant %s ends at %v, its collectors sent %v, and %v was acknowledged", name, tenant, got, o.sent[key],
				o.acked[key])
		}
	}
	has := map[string]map[int64]float64{}
	for _, tenant := range tenants {
		n.each(tenant, func(name string, t int64, v float64) {
			key := tenant + "/" + name
			if has[key] == nil {
				has[key] = map[int64]float64{}
			}
			has[key][t] = v
			if !o.offered[key][t][math.Float64bits(v)] {
				s.Fail("%s has %v at %d, but nobody sent that", key, v, t-base)
			}
		})
	}
	for _, key := range slices.Sorted(maps.Keys(o.must)) {
		for t, v := range o.must[key] {
			if got, found := has[key][t]; !found || !same(got, v) {
				s.Fail("%s has %v (found: %v) at %d, but %v was acknowledged as written", key, got, found, t-base, v)
			}
		}
	}
	for _, p := range o.parts {
		got := 0
		for _, x := range p.samples {
			if v, found := has[p.tenant+"/"+x.name][x.t]; found && same(v, x.v) {
				got++
			}
		}
		if got < p.written {
			s.Fail("%d of the samples %v of tenant %s are written, but %d are there", p.written, p.samples, p.tenant, got)
		}
	}
}
