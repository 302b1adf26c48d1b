package promapi

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"

	"github.com/freshet-io/freshet/internal/lib/turns"
)

// Memory is how much memory all queries together may take if the configuration sets no
// limit.
type Memory struct {
	Bytes int64
	Of    string // source of Bytes, for errors: "a quarter of the memory of the cgroup"
	// Process is how many bytes the process may have, whatever the configuration allows queries.
	// When the heap comes near this limit, the largest query is ended. 0 turns the limit off.
	Process int64
}

// lane has the queue and the resources for one kind of work. The number of slots bounds how many
// processors this kind of work uses at once. Work takes a share of the lane's memory first and then
// a slot, and gives the slot back first. So work that holds a slot never waits for memory.
type lane struct {
	name   string
	slots  *turns.Shares
	memory *turns.Shares
	count  int64  // number of slots
	share  int64  // bytes of memory for one piece of work
	atOnce string // for errors: how many pieces of work run at once, and by which setting
	raise  string // for errors: the setting to raise

	// When the turn of some work is over, the work continues in the lane that the field `then` points
	// to. If `then` is the same lane, waiting work of another tenant goes first. If `turn` is 0, turns
	// do not end.
	turn time.Duration
	then *lane
	// larger is the lane where a query that needs more than its share begins again. It may be nil.
	larger *lane

	engine     *promql.Engine // nil if the lane uses none
	maxSamples int            // samples that the engine holds at once
	inKey      bool           // whether query.max_samples, not the memory, bounds the samples
	waited     prometheus.Observer
}

// lanes are the lanes of all work that reads.
type lanes struct {
	short   *lane // queries that are expected to be quick
	long    *lane // other queries
	own     *lane // Freshet's own queries, such as the probe
	lookup  *lane // series, labels, exemplars and remote read
	answers *turns.Shares
	total   int64
	of      string
}

const (
	// shortTurn is how long a short query may run in its lane; a dashboard query of some hundred
	// series takes less. Work of another tenant waits at most this long behind it.
	shortTurn = 100 * time.Millisecond
	// longTurn is how long a query runs before it lets other tenants' queries run. A query that
	// takes less is as fast as on an idle server. If queries of ten tenants compete, each query
	// runs for one second in ten.
	longTurn = time.Second
	// passTime is how much longer than its turn a query may take to reach the next series, where it
	// can give its slot back. A function of a long range, a subquery or an aggregation may compute
	// for minutes before that. If the query takes longer, other tenants get one more slot. The
	// query that gets the slot already had its memory while it waited, so the total memory does not
	// grow.
	passTime = 250 * time.Millisecond
	// shortSteps is the most steps of a range query that begins as a short one.
	shortSteps = 100

	ownSlots = 2 // one tenant may have at most one slot
)

// Shares of all memory, in sixteenths: for each lane, and for answers that clients have not
// read yet.
const (
	longPart    = 6
	lookupPart  = 4
	answersPart = 4
	shortPart   = 1
	ownPart     = 1
)

// Bytes in memory.
const (
	sampleBytes = 16  // a sample in the engine
	seriesBytes = 512 // a series without its labels: positions of its chunks, and the answer's list
	valueBytes  = 64  // a label's value in a set and a list
	// readBytes is the memory of a sample in an answer to remote read that is not streamed: 36 bytes in
	// a list that grew, 18 as protobuf, and 21 in a buffer to compress into.
	readBytes = 75
	// lookupShare is the largest share of a look-up, enough for some 20,000 series. A server with
	// more memory has more slots, not larger shares.
	lookupShare = 16 << 20
	mostLookups = 10
)

// concurrency returns how many long queries run at once. Half of the processors are left to
// work that cannot wait: writes, and short queries.
func (c Config) concurrency() int64 {
	if c.MaxConcurrency > 0 {
		return int64(c.MaxConcurrency)
	}
	return int64(max(1, runtime.GOMAXPROCS(0)/2))
}

// newLanes divides the memory and processors that the configuration allows. Each lane has memory
// for one more piece of work than it has slots. No tenant can take all memory of a lane, because
// the last share is reserved for another tenant.
func newLanes(cfg Config, machine Memory) *lanes {
	l := &lanes{total: int64(cfg.MaxMemory), of: "query.max_memory"}
	if l.total == 0 {
		l.total, l.of = machine.Bytes, machine.Of+"; query.max_memory overrides it"
	}
	n := cfg.concurrency()
	sixteenth := l.total / 16
	l.long = newLane("long", n, n, n+1, longPart*sixteenth, cfg.MaxWaiting)
	l.short = newLane("short", n+1, n, n+2, shortPart*sixteenth, cfg.MaxWaiting)
	l.own = newLane("own", ownSlots, ownSlots-1, ownSlots+1, ownPart*sixteenth, cfg.MaxWaiting)
	lookups := min(max(lookupPart*sixteenth/lookupShare, 2), mostLookups)
	l.lookup = newLane("lookup", lookups, lookups-1, lookups, lookupPart*sixteenth, cfg.MaxWaiting)
	l.answers = turns.New(answersPart*sixteenth, answersPart*sixteenth/2, 0)

	l.long.atOnce = fmt.Sprintf("%d long queries run at once (query.max_concurrency)", n)
	l.short.atOnce = fmt.Sprintf("%d short queries run at once (one more than query.max_concurrency)", n+1)
	l.own.atOnce = fmt.Sprintf("%d queries of Freshet's own run at once", ownSlots)
	l.lookup.atOnce = fmt.Sprintf("%d requests for series, labels, exemplars or remote read run at once (by "+
		"query.max_memory, at most %d)", lookups, mostLookups)
	for _, of := range l.all() {
		of.raise = "query.max_concurrency if there are processors for it"
	}
	l.lookup.raise = "query.max_memory if there is memory for it"

	l.long.turn, l.long.then = longTurn, l.long
	l.short.turn, l.short.then, l.short.larger = shortTurn, l.long, l.long
	l.own.turn, l.own.then, l.own.larger = longTurn, l.own, l.long
	return l
}

func (s *lanes) all() []*lane { return []*lane{s.short, s.long, s.own, s.lookup} }

// newLane makes a lane with a number of slots. One tenant may have `slotsEach` of them. The memory,
// in bytes, is divided into as many shares as there are places.
func newLane(name string, slots, slotsEach, places, bytes int64, waiting int) *lane {
	share := bytes / places
	return &lane{
		name: name, count: slots, share: share,
		slots:  turns.New(slots, slotsEach, math.MaxInt), // the memory bounds how many wait
		memory: turns.New(bytes, (places-1)*share, waiting),
	}
}

// bound sets how many samples an engine of the lane may hold. Samples get half of the share; series
// and the rest of the evaluation get the other half.
func (l *lane) bound(maxSamples int) {
	l.maxSamples = int(max(1, l.share/2/sampleBytes))
	if maxSamples <= l.maxSamples {
		l.maxSamples, l.inKey = maxSamples, true
	}
}

// memoryError is the error of work that needs more than its share.
type memoryError struct{ text string }

func (e *memoryError) Error() string { return e.text }

// tooMany returns the error of a query that needs too many samples at once.
func (s *lanes) tooMany(l *lane) error {
	if l.inKey {
		return &memoryError{fmt.Sprintf("the query needs too many samples: more than %d at once (query.max_samples); "+
			"ask for fewer series, a shorter range or a longer step", l.maxSamples)}
	}
	return &memoryError{fmt.Sprintf("the query needs too many samples: there is memory for %d at once; %s",
		l.maxSamples, s.wayOut(l))}
}

// tooLarge returns the error of work whose series or answer take too much memory.
func (s *lanes) tooLarge(l *lane, what string) error {
	return &memoryError{fmt.Sprintf("%s more than its share of %d MiB; %s", what, l.share>>20, s.wayOut(l))}
}

func (s *lanes) wayOut(l *lane) string {
	return fmt.Sprintf("queries share %d MiB (%s), and %s: ask for fewer series, a shorter range or a longer step, "+
		"or raise query.max_memory",
		s.total>>20, s.of, l.atOnce)
}

// lanesCollector exports how many queries wait and how much memory is held, by tenant. It exports only
// tenants that wait or hold memory, so the numbers of slots and of waiting requests bound the number
// of its series.
type lanesCollector struct{ *lanes }

var (
	slotsDesc = prometheus.NewDesc("freshet_query_slots", "Queries of a lane that may run at once.", []string{"lane"}, nil)
	shareDesc = prometheus.NewDesc("freshet_query_share_bytes",
		"Memory that one query of a lane may take.", []string{"lane"}, nil)

	waitingDesc = prometheus.NewDesc("freshet_query_waiting",
		"Queries of a tenant that wait for their turn in a lane. Stays above 0: the tenant asks for more than its share, "+
			"and its own queries wait for each other.", []string{"lane", "tenant"}, nil)
	heldDesc = prometheus.NewDesc("freshet_query_held_bytes",
		"Memory set aside for queries of a tenant, by lane. Lane answers: answers that the tenant's clients have not "+
			"read yet; if it stays high, they read slowly.", []string{"lane", "tenant"}, nil)
)

func (c lanesCollector) Describe(out chan<- *prometheus.Desc) {
	out <- slotsDesc
	out <- shareDesc
	out <- waitingDesc
	out <- heldDesc
}

func (c lanesCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(v), labels...)
	}
	for _, l := range c.all() {
		gauge(slotsDesc, l.count, l.name)
		gauge(shareDesc, l.share, l.name)
		waiting := map[string]int64{}
		l.slots.Each(func(tenant string, _ int64, n int) { waiting[tenant] += int64(n) })
		l.memory.Each(func(tenant string, used int64, n int) {
			waiting[tenant] += int64(n)
			gauge(heldDesc, used, l.name, tenant)
		})
		for tenant, n := range waiting {
			gauge(waitingDesc, n, l.name, tenant)
		}
	}
	c.answers.Each(func(tenant string, used int64, _ int) { gauge(heldDesc, used, "answers", tenant) })
}
