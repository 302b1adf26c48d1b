package sim

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/rewrite"
	"github.com/freshet-io/freshet/internal/core/seen"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/write"
)

// tenants have both windows and requests. The requests of the tenant "past" have samples from hours
// ago, so that heads are cut.
var tenants = []string{"one", "past", "two"}

func (s *sim) beginSenders() {
	for i := range 3 {
		c := &collector{n: i, producer: uint64(100 + i), incarnation: 1, target: s.anyNode()}
		if i == 2 && s.Chance(50) {
			c.off = []int64{-30, -8, 5}[s.Rand.IntN(3)] * second // a host with a wrong clock
		}
		s.collectors = append(s.collectors, c)
		s.At(s.Between(0, second), nil, func() { s.collect(c) })
	}
	pair := func(replica string) entry.Pair {
		return entry.Pair{Cluster: "c", Replica: replica, Timeout: 3 * second}
	}
	s.writers = []*writer{
		{tenant: "one", prefix: "r", series: 6, most: 3, every: 300 * ms, spoils: true},
		{tenant: "one", prefix: "split", series: 12, most: 12, every: second, body: 200},
		{tenant: "two", prefix: "limited", series: 20, most: 3, limit: 9, every: 500 * ms},
		{tenant: "two", prefix: "pair", series: 3, most: 3, pair: pair("a"), every: second},
		{tenant: "two", prefix: "pair", series: 3, most: 3, pair: pair("b"), every: second},
		{tenant: "past", prefix: "p", series: 4, most: 3, behind: 8 * 3600 * second, every: 250 * ms},
		{tenant: "one", prefix: "delta", series: 4, most: 4, every: 400 * ms, deltas: true, body: 200},
		{tenant: "two", prefix: "delta", series: 20, most: 3, limit: 18, every: 700 * ms, deltas: true},
	}
	for i, tenant := range []string{"one", "two"} {
		e := &eventSender{n: i, tenant: tenant, target: s.anyNode()}
		s.At(s.Between(0, second), nil, func() { s.nextEvents(e) })
	}
	if s.mistakes.rules {
		s.At(second, nil, s.nextEvaluation)
		s.At(second, nil, s.nextRuleSet)
		s.At(second, nil, s.nextImport)
		s.At(second, nil, s.nextResult)
	}
	for i, w := range s.writers {
		w.n, w.target = i, s.anyNode()
		w.rewrite = rewrite.Sized(cmp.Or(w.body, entry.TargetSize), entry.TargetSize)
		s.At(s.Between(0, second), nil, func() { s.nextRequest(w) })
	}
	for i := range 2 {
		r := &reader{n: i}
		s.readers = append(s.readers, r)
		s.At(s.Between(second, 2*second), nil, func() { s.nextRead(r) })
	}
}

// collector cuts a window each second, and pushes it again and again until it is acknowledged.
type collector struct {
	n                     int
	producer, incarnation uint64
	portions, sequence    uint64
	off                   int64 // how far its clock is ahead, in ms
	writer                batch.Writer
	outbox                []*pushed
	target                *node
}

// pushed is a window in an outbox.
type pushed struct {
	entry.Push
	second  int64
	sums    map[string]map[string]float64 // by tenant and name
	samples map[string]uint64             // by tenant
	flies   bool
	try     int
	done    bool
}

// collect cuts a window.
func (s *sim) collect(c *collector) {
	if s.Now > s.end-quietFor {
		return
	}
	s.At(second, nil, func() { s.collect(c) })
	if s.Chance(1) { // the collector was killed, with its outbox on disk, or it stopped in good order
		if len(c.outbox) == 0 {
			c.outbox = append(c.outbox, &pushed{Push: entry.Push{Producer: c.producer, Incarnation: c.incarnation,
				Sequence: c.sequence + 1, Shape: 1, Leaves: true}})
			s.covered.leaves++
		}
		c.incarnation++
		c.portions, c.sequence = 0, 0
		s.Tell("collector %d: incarnation %d, %d windows in the outbox", c.n, c.incarnation, len(c.outbox))
	}
	now := base + s.Now + c.off
	c.sequence++
	p := &pushed{second: now/1000 - 1, sums: map[string]map[string]float64{}, samples: map[string]uint64{}}
	p.Push = entry.Push{Producer: c.producer, Incarnation: c.incarnation, Sequence: c.sequence, Shape: 1}
	for i, tenant := range tenants {
		c.portions++
		// Each tenant has a producer of its own, since a push is repeated when another tenant in it has
		// room again. With one producer for all tenants, a shard that already has a later batch would
		// take the earlier batch in that push for a repeat.
		c.writer.Begin(batch.Header{Tenant: []byte(tenant), Producer: c.producer + uint64(i)<<32, Incarnation: c.incarnation,
			Sequence: c.portions, Second: p.second, Birth: p.second * 1e9})
		p.sums[tenant] = map[string]float64{}
		add := func(kind series.Kind, name string, v float64) {
			if !isMixed(name) {
				name = crowded(tenant, kind, name)
			}
			inc := batch.Increment{Key: series.AppendKey(nil, kind, labels.FromStrings("__name__", name)),
				Samples: 1 + s.Rand.Uint32N(3), Value: v}
			if kind == series.Gauge {
				inc.At = p.second*1e9 + 5e8
			} else {
				p.sums[tenant][name] += v
			}
			p.samples[tenant] += uint64(inc.Samples)
			c.writer.Add(series.Shard(tenant, inc.Key), &inc)
		}
		add(series.Counter, fmt.Sprint("own", c.n), float64(s.Between(1, 100)))
		add(series.Counter, fmt.Sprint("shared", s.Rand.IntN(3)), float64(s.Between(1, 100)))
		if s.Chance(50) {
			add(series.UpDown, "level", float64(s.Between(-50, 50)))
		}
		if s.Chance(70) {
			add(series.Gauge, fmt.Sprint("gauge", c.n), float64(s.Between(0, 1000)))
		}
		if c.n == 0 || c.n == 1 && s.Chance(70) { // two kinds claim one name
			add([]series.Kind{series.Counter, series.Gauge}[c.n], mixed(p.second), float64(s.Between(1, 100)))
		}
		for _, b := range c.writer.End() {
			p.Batches = p.Batches.Append(b.Bytes)
		}
	}
	s.oracle.sends(p)
	c.outbox = append(c.outbox, p)
	s.pushNext(c)
}

// mixed returns the name of a counter of one collector, and of a gauge of another one. Every ten seconds, both
// claim another name.
func mixed(second int64) string { return fmt.Sprint("mixed", second/10) }

func isMixed(name string) bool { return strings.HasPrefix(name, "mixed") }

// crowds is the number of shards in which all series of windows lie, so that a shard has several
// series, tenants and senders. These shards are far apart, so that their tiles are closed at different
// times.
const crowds = 8

// crowded returns a longer name that lies in one of a few shards.
func crowded(tenant string, kind series.Kind, name string) string {
	key := fmt.Sprint(tenant, kind, name)
	if long, known := crowdedNames.Load(key); known {
		return long.(string)
	}
	for i := 0; ; i++ {
		long := fmt.Sprint(name, "_", i)
		shard := series.Shard(tenant, series.AppendKey(nil, kind, labels.FromStrings("__name__", long)))
		if shard%(series.Shards/crowds) == 0 {
			crowdedNames.Store(key, long)
			return long
		}
	}
}

var crowdedNames sync.Map // string to string

// pushNext pushes the first window of the outbox that is not under way, if its turn has come.
func (s *sim) pushNext(c *collector) {
	flying := 1
	if s.mistakes.pipelined {
		flying = 3
	}
	for _, p := range c.outbox[:min(flying, len(c.outbox))] {
		if !p.flies {
			p.flies = true
			s.pushTo(c, p)
		}
	}
}

func (s *sim) pushTo(c *collector, p *pushed) {
	p.try++
	try, n := p.try, c.target
	p.Again = try > 1
	bytes := entry.AppendPush(nil, &p.Push)
	patience := s.patience()
	var to *node // any
	if s.mistakes.impatient && try < 2 {
		patience, to = s.Between(20, 200), n
	}
	s.At(patience, nil, func() {
		if !p.done && p.try == try {
			s.pushAgain(c, p, to)
		}
	})
	s.ask(n, func() {
		s.push(n, bytes, func(err error) {
			leader := n.leads.Leader
			s.reply(func() {
				if !p.done && p.try == try {
					s.pushAnswered(c, p, err, leader)
				}
			})
		})
	})
}

// pushAgain pushes a window again, to the leader if one is known.
func (s *sim) pushAgain(c *collector, p *pushed, to *node) {
	if to == nil {
		to = s.anyNode()
	}
	if to != c.target {
		s.covered.retries++
	}
	c.target = to
	p.try++
	try := p.try
	s.At(s.Between(1, 200), nil, func() {
		if p.try == try {
			s.pushTo(c, p)
		}
	})
}

func (s *sim) pushAnswered(c *collector, p *pushed, err error, leader uint64) {
	var full *batch.FullError
	switch {
	case err == nil:
	case errors.As(err, &full):
		s.covered.full++
		for _, tenant := range slices.Sorted(maps.Keys(full.Samples)) {
			if full.Samples[tenant] != p.samples[tenant] {
				s.Fail("collector %d: %[2]d of %[4]d samples of tenant %[3]s are refused, want all",
					c.n, full.Samples[tenant], tenant, p.samples[tenant])
			}
			s.oracle.refused(p, tenant)
		}
	case errors.Is(err, replica.ErrNotLeader) && s.nodeOf(leader) != nil && s.nodeOf(leader) != c.target:
		s.pushAgain(c, p, s.nodeOf(leader))
		return
	default:
		s.pushAgain(c, p, nil)
		return
	}
	p.done = true
	s.covered.windows++
	s.oracle.acknowledged(p)
	c.outbox = slices.DeleteFunc(c.outbox, func(o *pushed) bool { return o == p })
	s.pushNext(c)
}

// writer sends requests of remote write, or of OTLP deltas, one at a time.
type writer struct {
	n       int
	tenant  string
	prefix  string // of its series
	series  int
	most    int   // largest request, in samples
	limit   int   // the tenant's max_series
	body    int   // size of a body, in bytes, at which the next body begins; 0 for the usual size
	behind  int64 // how old its samples are at first, in ms
	every   int64
	deltas  bool
	spoils  bool // some of its samples must be refused
	pair    entry.Pair
	rests   int64 // no request begins before this time
	last    int64 // time of its newest sample
	sent    []offered
	rewrite *rewrite.Rewriter
	doing   *request
	target  *node
}

// offered is a sample of a request. The value of a histogram is its number of observations.
type offered struct {
	name   string
	t      int64
	v      float64
	starts int64
}

// isHistogram and isGauge report the kind of a series, by its name.
func isHistogram(name string) bool { return strings.Contains(name, "histogram") }
func isGauge(name string) bool     { return strings.Contains(name, "gauge") }

type request struct {
	kind    entry.Kind
	parts   []entry.Request // in the order in which they become entries
	samples []offered
	until   int64
	try     int
	done    bool
}

// nextRequest makes a request, unless the last one is under way.
func (s *sim) nextRequest(w *writer) {
	if s.Now > s.end-quietFor {
		return
	}
	s.At(s.Between(w.every/2, w.every*3/2), nil, func() { s.nextRequest(w) })
	if w.pair != (entry.Pair{}) && s.Now >= w.rests && s.Chance(4) {
		w.rests = s.Now + s.Between(2*second, 8*second)
	}
	if w.doing != nil || s.Now < w.rests {
		return
	}
	r := &request{kind: entry.KindRequest, until: s.Now + 6*second}
	if w.deltas {
		r.kind, r.until = entry.KindDeltas, math.MaxInt64 // no time limit: unanswered deltas have unknown effects
		r.samples = s.deltasOf(w)
	} else {
		r.samples = s.samplesOf(w)
	}
	in := w.incoming(r.samples)
	bodies, o := w.rewrite.Rewrite(&in, &labelrules.Rules{})
	if o.AnyRefused() {
		s.Fail("a request is refused, although there are no rules: %+v", o)
		return
	}
	hash := seen.Hash(s.Rand.Uint64())
	for i, body := range bodies {
		part := entry.Request{Tenant: w.tenant, MaxSeries: w.limit, Pair: w.pair, Form: body.Form,
			Body: bytes.Clone(body.Bytes)}
		if w.deltas {
			part.Hash = uint64(hash.Part(i, 0))
		}
		r.parts = append(r.parts, part)
	}
	if w.deltas {
		s.oracle.offersDeltas(w.tenant, r.samples)
	} else {
		s.oracle.offers(w.tenant, r.samples)
	}
	w.sent = append(w.sent, r.samples...)
	w.doing = r
	s.writeTo(w, r)
}

// incoming returns a request with samples.
func (w *writer) incoming(samples []offered) (in write.Incoming) {
	var b remotewrite.Builder
	b.Begin(&in.Request, nil)
	for _, x := range samples {
		b.Series()
		b.Label("__name__", x.name)
		switch {
		case isHistogram(x.name):
			b.Histogram(histogramOf(x))
		default:
			if isGauge(x.name) {
				b.Type(remotewrite.GaugeType)
			}
			b.Sample(remotewrite.Sample{Time: x.t, Value: x.v, Start: x.starts})
		}
	}
	b.Finish()
	return in
}

// perValue is the sum of a histogram divided by its number of observations. By this ratio, a reader
// recognizes a histogram that is not whole.
const perValue = 3

func histogramOf(x offered) remotewrite.Histogram {
	h := remotewrite.Histogram{Time: x.t, Start: x.starts, Sum: x.v * perValue}
	h.Count.Form = remotewrite.IntegerCount
	if n := int64(x.v); !value.IsStaleNaN(x.v) && n > 0 {
		h.Count.Integer = uint64(n)
		h.PositiveSpans, h.PositiveDeltas = []remotewrite.Span{{Length: 1}}, []int64{n}
	}
	if value.IsStaleNaN(x.v) {
		h.Sum = x.v
	}
	return h
}

// deltasOf returns increments. All series have the same time, as in a sender's requests.
func (s *sim) deltasOf(w *writer) (all []offered) {
	now := base + s.Now
	for i := range w.series {
		if len(all) == w.most || !s.Chance(50) {
			continue
		}
		x := offered{name: fmt.Sprint(w.prefix, i), t: now, v: 1}
		if w.limit == 0 {
			x.name = fmt.Sprint(w.prefix, []string{"", "_gauge", "_histogram"}[i%3], i)
			x.v = float64(s.Between(1, 9))
		}
		all = append(all, x)
	}
	if len(all) == 0 {
		all = append(all, offered{name: fmt.Sprint(w.prefix, 0), t: now, v: 1})
	}
	return all
}

var stale = math.Float64frombits(value.StaleNaN)

func (s *sim) samplesOf(w *writer) (all []offered) {
	now := base + s.Now
	if w.behind > 0 { // the writer catches up 3 minutes with each request
		if w.last == 0 {
			w.last = now - w.behind
		}
		if s.Chance(50) { // small steps, so that late samples are behind samples of the same series
			w.last += s.Between(second, 20*second)
		} else {
			w.last += s.Between(60*second, 11*60*second)
		}
		now = min(now, w.last)
	}
	if w.pair != (entry.Pair{}) { // both replicas have the same samples
		now -= now % second
		for i := range w.series {
			all = append(all, offered{name: fmt.Sprint(w.prefix, i), t: now, v: float64(now/second%1000 + int64(i))})
		}
		return all
	}
	for range s.Between(1, int64(w.most)+1) {
		x := offered{name: fmt.Sprint(w.prefix, s.Rand.IntN(w.series-w.resting(now))), t: now - s.Between(0, second),
			v: float64(s.Between(0, 1000))}
		if s.Chance(20) {
			x.name = fmt.Sprint(w.prefix, "_histogram", s.Rand.IntN(w.series))
		}
		if s.Chance(4) {
			x.v = stale
		}
		switch {
		case s.Chance(10), w.behind > 0 && s.Chance(30):
			x.t = now - s.Between(0, 50*second) // late
		case w.spoils && s.Chance(5) && len(w.sent) > 0: // a second value
			x = w.sent[s.Rand.IntN(len(w.sent))]
			if x.v++; x.v != x.v {
				x.v = 1
			}
		case w.spoils && s.Chance(5):
			x.t = now - s.Between(70*second, 7200*second)
		case w.spoils && s.Chance(3):
			x.t = now + s.Between(9*60*second, 12*60*second)
		case s.Chance(10):
			x.starts = x.t - s.Between(1, 50*second)
		}
		if !slices.ContainsFunc(all, func(o offered) bool { return o.name == x.name }) {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b offered) int { return strings.Compare(a.name, b.name) })
	return all
}

// resting returns how many of a sender's last series have no samples at `now`, while the sender catches
// up. These series get samples again hours later, when the databases no longer have them in memory.
func (w *writer) resting(now int64) int {
	if begun := base - w.behind; w.behind > 0 && now > begun+3600*second && now < begun+4*3600*second {
		return w.series - 1
	}
	return 0
}

// patience returns how long a sender waits for an answer. Some wait longer than an election takes.
func (s *sim) patience() int64 {
	if s.Chance(20) {
		return s.Between(1500, 10*second)
	}
	return s.Between(200, 1500)
}

func (s *sim) writeTo(w *writer, r *request) {
	r.try++
	try, n := r.try, w.target
	s.At(s.patience(), nil, func() {
		if !r.done && r.try == try {
			s.writeAgain(w, r, nil)
		}
	})
	s.ask(n, func() {
		s.write(n, r, func(o *outcome.Outcome, err error) {
			leader := n.leads.Leader
			s.reply(func() {
				if !r.done && r.try == try {
					s.written(w, r, o, err, leader)
				}
			})
		})
	})
}

// writeAgain sends a request again, unless the sender has lost its patience.
func (s *sim) writeAgain(w *writer, r *request, to *node) {
	if s.Now > r.until && s.Now < s.calmFrom() {
		r.done, w.doing = true, nil
		return
	}
	if to == nil {
		to = s.anyNode()
	}
	if to != w.target {
		s.covered.retries++
	}
	w.target = to
	r.try++
	try := r.try
	s.At(s.Between(1, 200), nil, func() {
		if r.try == try {
			s.writeTo(w, r)
		}
	})
}

func (s *sim) written(w *writer, r *request, o *outcome.Outcome, err error, leader uint64) {
	switch {
	case err == nil:
	case errors.Is(err, replica.ErrNotLeader) && s.nodeOf(leader) != nil && s.nodeOf(leader) != w.target:
		s.writeAgain(w, r, s.nodeOf(leader))
		return
	default:
		s.writeAgain(w, r, nil)
		return
	}
	r.done, w.doing = true, nil
	s.covered.requests++
	if len(r.parts) > 1 {
		s.covered.cut++
	}
	if r.kind == entry.KindDeltas {
		s.covered.deltas++
		s.oracle.deltasWritten(s, r, *o)
		return
	}
	s.oracle.written(s, r, *o)
}

// reader reads from any node, and checks that the read finds what was acknowledged before.
type reader struct {
	n     int
	asked int
}

func (s *sim) nextRead(r *reader) {
	if s.Now > s.end-2*second {
		return
	}
	n, tenant := s.anyNode(), tenants[s.Rand.IntN(len(tenants))]
	r.asked++
	asked := r.asked
	again := func() {
		if r.asked == asked {
			r.asked++
			s.At(s.Between(10, 300), nil, func() { s.nextRead(r) })
		}
	}
	s.At(2*second, nil, again)
	check := s.oracle.question(s, tenant)
	s.ask(n, func() {
		s.barrier(n, tenant, func(err error) {
			if err == nil && r.asked == asked {
				s.covered.reads++
				check(n)
			}
			again()
		})
	})
}
