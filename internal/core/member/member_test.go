package member

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/recentseries"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/rewrite"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// base is when the log of the tests begins, in Unix milliseconds.
const base = 1_795_228_020_000

const group = 7

var config = tile.Config{
	CounterTTL: time.Hour, GaugeTTL: 30 * time.Second, CheckTTL: time.Hour, UpDownTTL: 24 * time.Hour,
}

// logOf makes a log from a seed. It has windows of three collectors with repeats; boundaries for some or
// all shards, some of them repeated; requests and deltas of two tenants, one of them with an HA pair;
// events; entries that say what backends have; and empty entries. The first entry has index 2.
func logOf(t testing.TB, seed uint64, entries int) (all [][]byte) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	now := int64(base)
	var writer batch.Writer
	var sequence [3]uint64
	var last entry.List                 // of the last windows
	again := map[string]entry.Request{} // deltas that may come again
	var events entry.Events             // events that may come again
	for range entries {
		now += rnd.Int64N(2500)
		e := entry.Entry{Group: group, Shape: 1}
		tenant := []string{"one", "two"}[rnd.IntN(2)]
		if rnd.IntN(10) == 0 { // some tenants find no place
			tenant = fmt.Sprint("more", rnd.IntN(6))
		}
		places := 2 + rnd.IntN(4)
		switch n := rnd.IntN(24); {
		case n >= 20:
			e.Kind, e.Request = entry.KindDeltas, deltasOf(t, rnd, tenant, now)
			if rnd.IntN(4) == 0 && again[tenant].Body != nil {
				e.Request = again[tenant]
				e.Request.Arrival = now
			}
			again[tenant] = e.Request
		case n == 0 && rnd.IntN(2) == 0:
			e.Kind = entry.KindForwarded
			e.Forwarded = entry.AppendForwarded(nil, tenant, 1+rnd.Uint64N(uint64(1+len(all))))
		case n == 0:
			all = append(all, nil)
			continue
		case n == 1:
			if rnd.IntN(4) > 0 || events.Tenant == "" {
				one := event.Event{Time: now, Title: fmt.Sprint("event ", len(all))}
				events = entry.Events{Tenant: tenant, Hash: rnd.Uint64(), List: entry.List{}.Append(one.AppendDated(nil))}
			}
			events.Arrival, events.Retention, events.MaxEvents, events.MaxTenants = now, 60_000, 10, places
			e.Kind, e.Events = entry.KindEvents, events
		case n == 3 && len(all)%2 == 0:
			e.Kind, e.Names = entry.KindNames, namesOf(rnd, tenant, now, places)
		case n == 2:
			e.Kind, e.Shape = entry.KindRequest, 2
			e.Request = requestOf(t, rnd, tenant, now)
		case n < 6:
			e.Kind, e.Boundary = entry.KindBoundary, entry.Boundary{
				End: now - now%10_000 - 10_000*rnd.Int64N(2), CounterTTL: 3_600_000, GaugeTTL: 30_000 + 10_000*rnd.Int64N(3),
				CheckTTL: 60_000, UpDownTTL: 600_000, Timed: 60_000,
			}
			for shard := range uint16(series.Shards) {
				if n < 5 || rnd.IntN(2) == 0 {
					e.Boundary.Shards.Add(shard)
				}
			}
			if rnd.IntN(4) == 0 {
				e.Boundary.Full = entry.List{}.AppendText("one")
			}
			if e.Boundary.Shards == (entry.Shards{}) {
				e.Boundary.Shards.Add(1)
			}
		case n < 12:
			e.Kind, e.Request = entry.KindRequest, requestOf(t, rnd, tenant, now)
		default:
			e.Kind, e.Windows.Clock = entry.KindWindows, now
			for producer := range uint64(3) {
				if rnd.IntN(3) == 0 {
					continue
				}
				sequence[producer]++
				writer.Begin(batch.Header{Tenant: []byte(tenant), Producer: producer, Incarnation: 1,
					Sequence: sequence[producer], Second: now/1000 - rnd.Int64N(4), Birth: now * 1e6})
				for range 1 + rnd.IntN(5) {
					inc := incrementOf(rnd, now)
					writer.Add(series.Shard(tenant, inc.Key), &inc)
				}
				var batches entry.List
				for _, b := range writer.End() {
					batches = batches.Append(b.Bytes)
				}
				e.Windows.Pushes = e.Windows.Pushes.Append(entry.AppendPush(nil,
					&entry.Push{Producer: producer, Incarnation: 1, Sequence: sequence[producer], Shape: 1, Batches: batches}))
			}
			if rnd.IntN(8) == 0 { // the last incarnation of a producer
				e.Windows.Pushes = e.Windows.Pushes.Append(LeaveOf(entry.Push{Producer: rnd.Uint64N(3), Shape: 1}))
			}
			if rnd.IntN(4) == 0 { // a repeat
				e.Windows.Pushes = append(e.Windows.Pushes, last...)
			}
			last = e.Windows.Pushes
		}
		e.Windows.MaxTenants, e.Request.MaxTenants = places, places
		all = append(all, e.Append(nil))
	}
	return all
}

// namesOf returns claims of a few names by several kinds. The tenant has room for six names.
func namesOf(rnd *rand.Rand, tenant string, now int64, places int) entry.Names {
	e := entry.Names{Clock: now, MaxNames: 6, MaxTenants: places, Unused: 300_000, CounterTTL: 20_000, GaugeTTL: 10_000,
		CheckTTL: 5000, UpDownTTL: 40_000}
	for range 1 + rnd.IntN(4) {
		c := entry.Claim{Tenant: tenant, Kind: byte(1 + rnd.IntN(int(series.LastKind))), Name: fmt.Sprint("n", rnd.IntN(5))}
		if series.Kind(c.Kind) == series.Timer {
			c.Buckets = []string{"", "1", "1,2"}[rnd.IntN(3)]
		}
		e.Claims = e.Claims.Append(entry.AppendClaim(nil, &c))
	}
	return e
}

func incrementOf(rnd *rand.Rand, now int64) batch.Increment {
	kind := []series.Kind{series.Counter, series.Gauge, series.UpDown}[rnd.IntN(3)]
	inc := batch.Increment{
		Key:     series.AppendKey(nil, kind, labels.FromStrings("__name__", fmt.Sprint(kind, rnd.IntN(6)))),
		Samples: 1 + rnd.Uint32N(3), Value: float64(rnd.IntN(100)),
	}
	if kind == series.Gauge {
		inc.At = now * 1e6
	}
	return inc
}

// deltasOf returns deltas of some series that windows also have, and of other series. Some of the series
// have another kind.
func deltasOf(t testing.TB, rnd *rand.Rand, tenant string, now int64) entry.Request {
	var in write.Incoming
	var b remotewrite.Builder
	b.Begin(&in.Request, nil)
	for range 1 + rnd.IntN(3) {
		b.Series()
		if rnd.IntN(2) == 0 {
			b.Label("__name__", fmt.Sprint(series.Counter, rnd.IntN(6)))
		} else {
			b.Label("__name__", fmt.Sprint("d", rnd.IntN(40)))
			if rnd.IntN(2) == 0 {
				b.Type(remotewrite.GaugeType)
			}
		}
		b.Sample(remotewrite.Sample{Time: now - rnd.Int64N(20_000), Value: float64(rnd.IntN(5))})
	}
	b.Finish()
	r := bodyOf(t, &in, tenant, now)
	r.MaxSeries, r.Hash = 20, rnd.Uint64()
	if tenant == "two" && rnd.IntN(2) == 0 {
		r.Pair = entry.Pair{Cluster: "c", Replica: fmt.Sprint(rnd.IntN(2)), Timeout: 5000}
	}
	return r
}

func bodyOf(t testing.TB, in *write.Incoming, tenant string, now int64) entry.Request {
	var w rewrite.Rewriter
	bodies, o := w.Rewrite(in, &labelrules.Rules{})
	if len(bodies) != 1 || o.AnyRefused() {
		t.Fatal(len(bodies), o)
	}
	return entry.Request{Tenant: tenant, Arrival: now, Window: 60_000, MaxSeries: 5,
		Form: bodies[0].Form, Body: bytes.Clone(bodies[0].Bytes)}
}

func requestOf(t testing.TB, rnd *rand.Rand, tenant string, now int64) entry.Request {
	var in write.Incoming
	var b remotewrite.Builder
	b.Begin(&in.Request, nil)
	for range 1 + rnd.IntN(3) {
		b.Series()
		b.Label("__name__", fmt.Sprint("r", rnd.IntN(8)))
		b.Sample(remotewrite.Sample{Time: now - now%10_000 - 10_000*rnd.Int64N(12), Value: float64(rnd.IntN(5))})
	}
	b.Finish()
	r := bodyOf(t, &in, tenant, now)
	if tenant == "two" && rnd.IntN(2) == 0 {
		r.Pair = entry.Pair{Cluster: "c", Replica: fmt.Sprint(rnd.IntN(2)), Timeout: 5000}
	}
	return r
}

// stores are the stores of one member. They keep the first value of each series and time.
type stores struct {
	tiles    map[string]float64 // by tenant, width, series and time
	requests map[string]float64
	events   []string // with their tenants
	reached  uint64   // the last entry with events that are stored
}

func newStores() *stores {
	return &stores{tiles: map[string]float64{}, requests: map[string]float64{}}
}

// take puts the tiles or requests of w into the stores, and sets the requests' outcomes. The outcomes
// depend on w.State and on stored samples.
func (s *stores) take(t testing.TB, w *Work) {
	for _, e := range w.Events {
		if e.Index <= s.reached { // comes again after a restart
			continue
		}
		s.reached = e.Index
		for part := range e.List.All() {
			s.events = append(s.events, fmt.Sprintf("%d %s %q", e.Index, e.Tenant, part))
		}
	}
	for width := range tile.Width(tile.NumWidths) {
		for _, x := range w.Samples(width) {
			key := fmt.Sprint(w.Tenant, width, x.Series.Labels, x.T)
			if before, has := s.tiles[key]; has && before != x.V && !(before != before && x.V != x.V) {
				t.Errorf("%s: stored %v, want %v as before", key, x.V, before)
			}
			s.tiles[key] = x.V
		}
	}
	for _, r := range w.Requests {
		if err := r.Decode(); err != nil {
			t.Fatal(err)
		}
		w.State.Recent.Advance(r.Write.Arrival)
		o := &r.Write.Outcome
		for i := range r.Write.Series {
			one := &r.Write.Series[i]
			for _, x := range r.Write.Samples(one) {
				part := outcome.Counts{Samples: 1}
				key := fmt.Sprint(w.Tenant, string(r.Write.Key(one)), x.Time)
				before, has := s.requests[key]
				switch {
				case has && before != x.Value:
					o.Refuse(outcome.Duplicate, part)
				case !has && x.Time < w.State.Newest-r.Write.Window.Milliseconds():
					o.Refuse(outcome.TooOld, part)
				default:
					s.requests[key] = x.Value
					w.State.Recent.Note(recentseries.Hash(1<<63 | xxhash.Sum64String(key)))
					w.State.Newest = max(w.State.Newest, x.Time)
					o.Written.Add(part)
				}
			}
		}
	}
	if w.State != nil {
		w.State.Requests += uint64(len(w.Requests))
	}
}

// run is a member that applied a log.
type run struct {
	member   *Member
	stores   *stores
	applied  map[uint64]string // by index
	outcomes map[uint64]outcome.Outcome
	noted    map[string]uint64 // by tenant: the entry up to which its stores have all closed tiles
	stored   map[string]uint64 // by tenant: the entry up to which its store has all requests, as the notes say
	notes    [][]byte          // of requests
	taken    map[*Work]bool    // work that the stores took, and Done did not get yet
}

func newRun() *run {
	return &run{member: New(group, &config), stores: newStores(), applied: map[uint64]string{},
		outcomes: map[uint64]outcome.Outcome{}, noted: map[string]uint64{}, stored: map[string]uint64{},
		taken: map[*Work]bool{}}
}

// apply applies an entry, and gives all work to the stores.
func (r *run) apply(t testing.TB, index uint64, data []byte) {
	done, err := r.member.Apply(index, data)
	if err != nil {
		t.Fatal(err)
	}
	r.note(t, index, done)
}

func (r *run) note(t testing.TB, index uint64, done Applied) {
	if done.Outcome != nil {
		o := *done.Outcome
		o.First = outcome.Example{} // its cause differs after a restart
		if before, known := r.outcomes[index]; known && !reflect.DeepEqual(before, o) {
			t.Errorf("entry %d: its outcome is %+v, and was %+v before a restart", index, o, before)
		}
		r.outcomes[index] = o
	}
	text := fmt.Sprint(done.Kind, done.Moved, done.Closed.Samples, done.Closed.Duplicates, done.Windows.Pushes)
	for _, tenant := range slices.Sorted(maps.Keys(done.Windows.Folded)) {
		text += fmt.Sprint(" ", tenant, *done.Windows.Folded[tenant])
	}
	r.applied[index] = text
}

func (r *run) done(t testing.TB, w *Work) {
	for _, x := range w.Tiles {
		if x.Index <= r.noted[w.Tenant] {
			t.Errorf("a tile of tenant %s that entry %d closed is written again", w.Tenant, x.Index)
		}
	}
	if !r.taken[w] {
		r.stores.take(t, w)
	}
	delete(r.taken, w)
	for _, x := range w.Requests {
		if x.Index <= r.stored[w.Tenant] {
			t.Errorf("request %d of tenant %s is looked up, though a note has it", x.Index, w.Tenant)
		}
		if before, known := r.outcomes[x.Index]; known && !reflect.DeepEqual(before, x.Write.Outcome) {
			t.Errorf("entry %d: its outcome is %+v, and was %+v before a restart", x.Index, x.Write.Outcome, before)
		}
		r.outcomes[x.Index] = x.Write.Outcome
	}
	if w.Events != nil {
		r.member.Done(w)
		return
	}
	if note := r.member.Done(w); w.Requests != nil {
		r.notes = append(r.notes, note)
		r.stored[w.Tenant] = w.Requests[len(w.Requests)-1].Index
	}
	r.noted[w.Tenant] = max(r.noted[w.Tenant], r.member.VisibleTiles(w.Tenant))
}

// drain gives all work to the stores.
func (r *run) drain(t testing.TB) {
	for all := r.member.Work(); len(all) > 0; all = r.member.Work() {
		for _, w := range all {
			r.done(t, w)
		}
	}
	for _, name := range r.member.Tenants() {
		sum := r.member.requestsBytes + r.member.tilesBytes
		if w := r.member.Waiting(name); w.Bytes != 0 || w.RequestsBytes != 0 || sum != 0 {
			t.Fatalf("all work is done, but tenant %s still waits for %+v, and all tenants for %d bytes", name, w, sum)
		}
	}
}

// state returns the bytes of a drained member's state.
func (r *run) state() string {
	b := r.member.AppendGroup(nil)
	for number := range uint16(series.Shards) {
		b, _, _ = r.member.AppendShard(b, number)
	}
	for _, name := range r.member.Tenants() {
		if r.member.tenants[name].written > 0 {
			b = r.member.AppendTenant(append(b, name...), name, r.member.Index())
			b = r.member.tenants[name].state.Append(b) // with the changes that are not final yet
		}
	}
	return string(b)
}

// checkpoint is a saved state. Its sections have been saved one after the other.
type checkpoint struct {
	base    uint64
	group   []byte
	shards  map[uint16]section
	tenants map[string][]byte
	last    []byte // the decisions
}

type section struct {
	index uint64
	bytes []byte
}

// plainly(t, log) returns a run of the log without any fault.
func plainly(t testing.TB, log [][]byte) *run {
	r := newRun()
	for i, data := range log {
		r.apply(t, uint64(i)+2, data)
		r.drain(t)
	}
	return r
}

// faultily(t, log, seed) returns a run of the log with faults: the stores take work late and in any
// order of tenants, sections are saved over many entries, and the member is restored from them.
func faultily(t testing.TB, log [][]byte, seed uint64) (r *run, restarts, requeued, notes int) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	r = newRun()
	var under []*Work
	var saved, saving *checkpoint
	index := uint64(2)
	for index < uint64(len(log))+2 {
		switch rnd.IntN(12) {
		case 0:
			under = append(under, r.member.Work()...)
		case 1:
			if len(under) > 0 {
				i := rnd.IntN(len(under))
				if rnd.IntN(2) == 0 && !r.taken[under[i]] {
					r.stores.take(t, under[i])
					r.taken[under[i]] = true
					continue
				}
				r.done(t, under[i])
				under = slices.Delete(under, i, i+1)
			}
		case 2:
			if saving == nil && index > 2 {
				saving = &checkpoint{base: r.member.Index(), group: r.member.AppendGroup(nil),
					shards: map[uint16]section{}, tenants: map[string][]byte{}}
				for _, name := range r.member.Tenants() {
					saving.tenants[name] = nil
				}
			}
		case 3, 4:
			if saving != nil && r.save(rnd, saving) {
				saved, saving = saving, nil
			}
		case 5:
			if rnd.IntN(20) > 0 || saved == nil {
				continue
			}
			restarts++
			again, counted := r.restore(t, rnd, saved)
			requeued, notes = requeued+again, notes+counted
			under, saving = nil, nil
			index = r.member.Index() + 1
		default:
			r.apply(t, index, log[index-2])
			index++
		}
	}
	for _, w := range under {
		r.done(t, w)
	}
	r.drain(t)
	return r, restarts, requeued, notes
}

// save saves some more sections, and reports whether the checkpoint is whole.
func (r *run) save(rnd *rand.Rand, c *checkpoint) bool {
	for number := range uint16(series.Shards) {
		if c.shards[number].index == 0 && rnd.IntN(3) == 0 {
			b, index, _ := r.member.AppendShard(nil, number)
			c.shards[number] = section{max(index, r.member.Index()), b}
		}
	}
	whole := len(c.shards) == series.Shards
	for name, b := range c.tenants {
		if b == nil && rnd.IntN(2) == 0 {
			b = r.member.AppendTenant(nil, name, c.base)
			c.tenants[name] = b
		}
		whole = whole && b != nil
	}
	if whole {
		c.last = r.member.AppendDecisions(nil, c.base)
	}
	return whole
}

func (r *run) restore(t testing.TB, rnd *rand.Rand, c *checkpoint) (requeued, notes int) {
	m, err := Restore(group, &config, c.group)
	for number, s := range c.shards {
		if err == nil && len(s.bytes) > 0 {
			err = m.RestoreShard(number, s.index, s.bytes)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.tenants)) {
		if err == nil {
			err = m.RestoreTenant(name, c.tenants[name])
		}
	}
	if err == nil {
		err = m.RestoreDecisions(c.last)
	}
	if err != nil {
		t.Fatal(err)
	}
	if rnd.IntN(3) == 0 { // another boot, in which notes do not count
		r.notes = nil
		clear(r.stored)
		clear(r.noted)
	}
	for _, n := range r.notes {
		counts, err := m.RestoreNote(n)
		if err != nil {
			t.Fatal(err)
		}
		if counts {
			notes++
		}
	}
	m.Restored(maps.Clone(r.noted))
	for name := range c.tenants {
		requeued += m.Waiting(name).Requests
	}
	r.member = m
	return requeued, notes
}

// Whatever stores, checkpoints and restarts do, a member has the same state, the same samples and the
// same outcomes as one to which nothing happened.
func TestTheSameLogGivesTheSameMember(t *testing.T) {
	restarts, requeued, notes, events, fates := 0, 0, 0, 0, outcome.Outcome{}
	for seed := range uint64(16) {
		log := logOf(t, seed, 400)
		want := plainly(t, log)
		got, n, m, k := faultily(t, log, seed)
		restarts, requeued, notes = restarts+n, requeued+m, notes+k
		if want.state() != got.state() {
			t.Errorf("seed %d: the states differ", seed)
		}
		if !maps.EqualFunc(want.stores.tiles, got.stores.tiles, sameValue) ||
			!maps.EqualFunc(want.stores.requests, got.stores.requests, sameValue) {
			t.Errorf("seed %d: stored %d samples of tiles, want %d, and %d samples of requests, want %d", seed,
				len(got.stores.tiles), len(want.stores.tiles), len(got.stores.requests), len(want.stores.requests))
		}
		if !slices.Equal(want.stores.events, got.stores.events) {
			t.Errorf("seed %d: the event logs differ:\n%q\n%q", seed, want.stores.events, got.stores.events)
		}
		events += len(want.stores.events)
		for _, index := range slices.Sorted(maps.Keys(want.outcomes)) {
			if !reflect.DeepEqual(want.outcomes[index], got.outcomes[index]) {
				t.Errorf("seed %d, entry %d: outcome %+v, want %+v", seed, index, got.outcomes[index], want.outcomes[index])
			}
			o := want.outcomes[index]
			fates.Add(&o)
		}
	}
	if restarts < 40 || requeued < 30 || notes < 100 || fates.Written.Samples < 500 || fates.Dropped.Samples < 50 ||
		fates.Refused[outcome.TooManySeries].Samples < 50 || fates.Refused[outcome.TooManyTenants].Samples < 100 ||
		fates.Refused[outcome.Mixed].Samples < 20 || fates.Refused[outcome.TooOld].Samples < 50 ||
		fates.Refused[outcome.Duplicate].Samples < 5 || events < 100 {
		t.Errorf("too little was tried: %d restarts, %d entries that waited at a restart, %d notes, %d events, %+v",
			restarts, requeued, notes, events, fates)
	}
}

func sameValue(a, b float64) bool { return a == b || a != a && b != b }

// A member stops at an entry that it cannot apply, whatever is wrong with the entry. If
// it skipped the entry, it would differ from the other members.
func TestAMemberStops(t *testing.T) {
	of := func(e entry.Entry) []byte { return e.Append(nil) }
	whole := entry.Entry{Kind: entry.KindRequest, Shape: 1, Group: group,
		Request: requestOf(t, rand.New(rand.NewPCG(1, 1)), "a", base)}
	whole.Request.Pair = entry.Pair{Cluster: "c", Replica: "1", Timeout: 1}
	broken := whole
	broken.Request.Body, broken.Request.Pair.Replica = []byte("no snappy"), "2"
	for name, data := range map[string][]byte{
		"no entry":      []byte("no entry"),
		"another group": of(entry.Entry{Kind: entry.KindWindows, Shape: 1, Group: group + 1}),
		"a newer version": of(entry.Entry{Kind: entry.KindVersion, Shape: 1, Group: group,
			Version: entry.Version{Format: Format + 1}}),
		"no body": of(broken),
		"a panic": of(broken), // its sender is not elected
	} {
		m := New(group, &config)
		if name == "a panic" {
			if _, err := m.Apply(1, of(whole)); err != nil {
				t.Fatal(err)
			}
		}
		before := m.Index()
		if _, err := m.Apply(2, data); !errors.Is(err, ErrEntry) || m.Index() != before {
			t.Errorf("%s: got %v, want ErrEntry; applied up to entry %d, want %d", name, err, m.Index(), before)
		}
	}
	m := New(group, &config)
	for i, index := range []uint64{5, 5, 4, 6} {
		if _, err := m.Apply(index, nil); errors.Is(err, ErrEntry) != (i == 1 || i == 2) {
			t.Errorf("entry %d: %v", index, err)
		}
	}
}

// withGauge returns a member with a gauge of tenant "one", in a tile that a boundary at base+10 s closes.
func withGauge(t *testing.T) *Member {
	m := New(group, &config)
	key := series.AppendKey(nil, series.Gauge, labels.FromStrings("__name__", "g"))
	inc := batch.Increment{Key: key, Samples: 1, Value: 3}
	var w batch.Writer
	w.Begin(batch.Header{Tenant: []byte("one"), Producer: 1, Incarnation: 1, Sequence: 1,
		Second: base / 1000, Birth: base * 1e6})
	w.Add(series.Shard("one", inc.Key), &inc)
	push := entry.AppendPush(nil, &entry.Push{Producer: 1, Shape: 1, Batches: entry.List{}.Append(w.End()[0].Bytes)})
	apply(t, m, entry.Entry{Kind: entry.KindWindows, Windows: entry.Windows{Pushes: entry.List{}.Append(push)}})
	return m
}

// apply applies an entry, and returns its effect and the number of 10 s samples that it brought.
func apply(t *testing.T, m *Member, e entry.Entry) (done Applied, samples int) {
	e.Group = group
	if e.Shape == 0 {
		e.Shape = 1
	}
	done, err := m.Apply(m.Index()+1, e.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range m.Work() {
		samples += len(w.Samples(tile.Width10s))
		m.Done(w)
	}
	return done, samples
}

func boundary(end int64, full ...string) entry.Entry {
	e := entry.Entry{Kind: entry.KindBoundary, Boundary: entry.Boundary{End: end, GaugeTTL: 60_000}}
	for shard := range uint16(series.Shards) {
		e.Boundary.Shards.Add(shard)
	}
	for _, tenant := range full {
		e.Boundary.Full = e.Boundary.Full.AppendText(tenant)
	}
	return e
}

// A boundary has everything that closing depends on, and a boundary that comes again does nothing.
func TestABoundaryDecides(t *testing.T) {
	m := withGauge(t)
	for i, c := range []struct {
		end     int64
		full    []string
		samples int
		why     string
	}{
		{base + 10_000, nil, 1, "the tile has a value"},
		{base + 10_000, nil, 0, "it comes again"},
		{base, nil, 0, "it comes late"},
		{base + 20_000, []string{"two"}, 1, "the value is repeated, whatever other tenants have"},
		{base + 30_000, []string{"one"}, 0, "too much waits for its stores"},
		{base + 60_000, []string{"one"}, 0, "too much waits for its stores, at the ends of three tiles"},
		{base + 70_000, []string{"one"}, 1, "its time to live ends, and this is the marker of staleness"},
	} {
		if _, n := apply(t, m, boundary(c.end, c.full...)); n != c.samples {
			t.Errorf("boundary %d: %d samples, want %d: %s", i+1, n, c.samples, c.why)
		}
	}
}

// For each waiting tile, a section has the index of the entry that closed the tile. Without this index,
// a note might say that the tile is stored.
func TestASectionWithoutIndexes(t *testing.T) {
	m := withGauge(t)
	number := uint16(0)
	for m.shards.Of(number) == nil {
		number++
	}
	for _, c := range []struct {
		index uint64
		good  bool
	}{{2, true}, {0, false}} {
		closing := withGauge(t)
		closing.shards.CloseUpTo(number, c.index, base+10_000, &config)
		section, _, _ := closing.AppendShard(nil, number)
		if err := New(group, &config).RestoreShard(number, 2, section); (err == nil) != c.good {
			t.Errorf("a tile closed by entry %d: error %v", c.index, err)
		}
	}
}

// After a restart the entries up to a shard's section come again. Until then, the next section of the
// shard has the same index.
func TestASectionDuringAReplay(t *testing.T) {
	m := withGauge(t)
	number := uint16(0)
	for m.shards.Of(number) == nil {
		number++
	}
	shard, index, _ := m.AppendShard(nil, number)
	restored := New(group, &config)
	if err := restored.RestoreShard(number, index, shard); err != nil {
		t.Fatal(err)
	}
	again, at, _ := restored.AppendShard(nil, number)
	if restored.Index() >= index || at != index || string(again) != string(shard) {
		t.Errorf("restored at entry %d, the section has index %d, want %d and the same bytes", restored.Index(), at, index)
	}
}

// After a restart the tiles of a shard may be queued before earlier tiles of another shard. The lowest
// index decides up to which entry all tiles are stored.
func TestTilesWaitInOrder(t *testing.T) {
	one := &tenant{}
	add := func(indexes ...uint64) {
		for _, index := range indexes {
			one.addTile(Tile{1, &tile.Waiting{Index: index}})
		}
	}
	order := func() (all []uint64) {
		for _, x := range one.tiles {
			all = append(all, x.Index)
		}
		return all
	}
	add(70, 65, 70, 90)
	if got := order(); !slices.Equal(got, []uint64{65, 70, 70, 90}) || one.firstTile() != 65 {
		t.Errorf("tiles %v wait, want 65 70 70 90; the first has index %d, want 65", got, one.firstTile())
	}
	one.takeTiles()
	add(80, 75, 60)
	if got := order(); !slices.Equal(got, []uint64{65, 70, 70, 90, 60, 75, 80}) || one.firstTile() != 60 {
		t.Errorf("tiles %v wait, want 65 70 70 90 (under way), 60 75 80; the first has index %d, want 60",
			got, one.firstTile())
	}
}

// An entry that was made for shards other than those of the group does nothing, and Apply reports that.
func TestAnEntryOfAnotherShape(t *testing.T) {
	m := withGauge(t)
	e := boundary(base + 10_000)
	e.Shape = 2
	if done, n := apply(t, m, e); !done.Moved || n != 0 {
		t.Errorf("an entry of another shape: moved %v, want true; %d samples, want 0", done.Moved, n)
	}
	if done, n := apply(t, m, boundary(base+10_000)); done.Moved || n != 1 {
		t.Errorf("an entry of our shape: moved %v, want false; %d samples, want 1", done.Moved, n)
	}
}

// A reader waits until the stores of its tenant have what entries brought. Another tenant's stores do
// not hold it up.
func TestWhatIsVisible(t *testing.T) {
	m := withGauge(t)
	e := boundary(base + 10_000)
	e.Group, e.Shape = group, 1
	if _, err := m.Apply(2, e.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if one, two := m.Visible("one"), m.Visible("two"); one != 1 || two != 2 {
		t.Errorf("entries up to %d are visible for tenant \"one\" and up to %d for tenant \"two\", want 1 and 2",
			one, two)
	}
	m.Done(m.Work()[0])
	if one := m.Visible("one"); one != 2 {
		t.Errorf("all is stored, but entries up to %d are visible, want 2", one)
	}
}

// A checkpoint never waits for a store: the section of a tenant has the requests that wait, and the state
// from before the requests under way, no matter how many of these the store has.
func TestASectionWhileAStoreHangs(t *testing.T) {
	m := New(group, &config)
	index := uint64(1)
	add := func(at int64) {
		index++
		e := requestEntry(t, at)
		e.Group, e.Shape = group, shape
		if _, err := m.Apply(index, e.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	stores := newStores()
	add(base)
	work := m.Work()[0]
	stores.take(t, work)
	m.Done(work)
	stored := string(m.AppendTenant(nil, "one", index))
	add(base + 20_000)
	work = m.Work()[0]
	add(base + 40_000)
	before := string(m.AppendTenant(nil, "one", index))
	if before == stored {
		t.Error("the section does not have the requests that wait")
	}
	work.State.Recent.Advance(base)
	work.State.Recent.Note(1 << 32)
	stores.take(t, work)
	if now := string(m.AppendTenant(nil, "one", index)); now != before {
		t.Error("the section has changes of requests that are not done")
	}
	if first := string(m.AppendTenant(nil, "one", index-2)); first != stored {
		t.Error("the section has requests from after the base of the checkpoint")
	}
	m.Done(work)
	if now := string(m.AppendTenant(nil, "one", index)); now == before || now == stored {
		t.Error("the section does not have the requests that are done")
	}
	restored, err := Restore(group, &config, m.AppendGroup(nil))
	if err == nil {
		err = restored.RestoreTenant("one", []byte(before))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := string(restored.AppendTenant(nil, "one", index)); got != before {
		t.Error("a restored tenant has another section")
	}
	if w := restored.Waiting("one"); w.Requests != 2 || restored.Visible("one") != index-2 {
		t.Errorf("%+v waits, want 2 requests; entries up to %d are visible, want %d", w, restored.Visible("one"), index-2)
	}
	for n := range before {
		broken, err := Restore(group, &config, m.AppendGroup(nil))
		if err == nil {
			err = broken.RestoreTenant("one", []byte(before[:n]))
		}
		if err == nil {
			t.Errorf("the first %d of %d bytes of a section are accepted", n, len(before))
		}
	}
}

// FuzzRestoreNote checks that a malformed note changes nothing, and that after any other note the tenant
// can be saved and restored.
func FuzzRestoreNote(f *testing.F) {
	r := plainly(f, logOf(f, 1, 60))
	for _, n := range r.notes {
		f.Add(n)
		f.Add(n[:len(n)-1])
	}
	f.Fuzz(func(t *testing.T, note []byte) {
		m := New(group, &config)
		counts, err := m.RestoreNote(note)
		if err != nil && counts {
			t.Fatal("a malformed note counts")
		}
		for _, name := range m.Tenants() {
			section := m.AppendTenant(nil, name, 1)
			if err := New(group, &config).RestoreTenant(name, section); err != nil {
				t.Fatalf("the section %x cannot be read: %v", section, err)
			}
		}
		if counts, _ := m.RestoreNote(note); counts {
			t.Fatal("a note counts twice")
		}
	})
}

// FuzzRestore checks that a section of the group is either refused, or restored and saved again as a
// section that can be restored, too.
func FuzzRestore(f *testing.F) {
	r := newRun()
	for i, data := range logOf(f, 1, 100) {
		r.apply(f, uint64(i)+2, data)
	}
	f.Add(r.member.AppendGroup(nil)) // nothing was stored, so the section has events
	r.drain(f)
	f.Add(r.member.AppendGroup(nil))
	f.Fuzz(func(t *testing.T, section []byte) {
		m, err := Restore(group, &config, section)
		if err != nil {
			return
		}
		again := m.AppendGroup(nil)
		if m, err = Restore(group, &config, again); err != nil || !bytes.Equal(m.AppendGroup(nil), again) {
			t.Fatalf("%x is saved again as %x: %v", section, again, err)
		}
	})
}
