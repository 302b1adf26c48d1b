package group

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/otlp"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/rewrite"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// log applies the proposed entries to a member. The first entries get its `errors`, one each. An entry
// is not applied if it gets an error, unless the error says that the answer was lost.
type log struct {
	t       *testing.T
	member  *member.Member
	stores  *stores
	errors  []error
	entries int
	last    *entry.Entry
	counted uint64 // samples of deltas in tiles
	told    told
}

func newLog(t *testing.T, errors ...error) *log {
	s := &stores{t: t, have: map[string]map[int64]float64{}}
	return &log{t: t, member: member.New(0, &tile.Config{CounterTTL: time.Hour}), stores: s, errors: errors}
}

func (l *log) Write(ctx context.Context, e *entry.Entry) (o *outcome.Outcome, err error) {
	if len(l.errors) > 0 {
		if err, l.errors = l.errors[0], l.errors[1:]; err != nil && !errors.Is(err, member.ErrLost) {
			return nil, err
		}
	}
	e.Shape, e.Request.Arrival = 1, arrival // as the leader sets them
	l.entries++
	l.last = e
	done, failure := l.member.Apply(l.member.Index()+1, e.Append(nil))
	if failure != nil {
		l.t.Fatal(failure)
	}
	tellApplied(&l.told, &done)
	for _, f := range done.Windows.Folded {
		l.counted += f.Samples
	}
	o = done.Outcome
	for _, w := range l.member.Work() {
		var all []*write.Request
		for _, r := range w.Requests {
			if err := r.Decode(); err != nil {
				l.t.Fatal(err)
			}
			all = append(all, &r.Write)
		}
		if err := l.stores.WriteRequests(ctx, w.Tenant, w.State, all); err != nil {
			l.t.Fatal(err)
		}
		o = &all[0].Outcome
		all[0].Described = append(all[0].Described, write.Description{Metric: "m"})
		l.member.Done(w)
		tellStored(&l.told, w)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// told lists the calls of its methods.
type told []string

func (t *told) Families(tenant string, families []remotewrite.Family) {
	for _, f := range families {
		*t = append(*t, fmt.Sprintf("%s family %s", tenant, f.Name))
	}
}

func (t *told) Series(tenant, name string, _ *remotewrite.Request, _ remotewrite.Metadata) {
	*t = append(*t, fmt.Sprintf("%s series %s", tenant, name))
}

func (t *told) NewTotal(tenant string, ls labels.Labels, from sender.Sender, refused bool) {
	*t = append(*t, fmt.Sprintf("%s total %s of %s, refused: %v", tenant, ls, from.Agent, refused))
}

func (t *told) Elected(tenant, cluster, replica string) {
	*t = append(*t, fmt.Sprintf("%s elected %s %s", tenant, cluster, replica))
}

func (t *told) Came(r *write.Request) {
	*t = append(*t, fmt.Sprintf("%s came from %s", r.Tenant, r.Sender.Agent))
}

// arrival is when all requests come, in Unix milliseconds.
const arrival = 1_795_228_020_000

// incoming returns a request with samples of each named series, 1 s apart.
func incoming(samples int, names ...string) *write.Request {
	r := &write.Request{Request: new(remotewrite.Request), Tenant: "a", Arrival: arrival, Window: time.Minute,
		Sender: sender.Sender{Agent: "curl"}, Terms: &write.Terms{Rules: labelrules.Rules{}}, Hash: 7}
	var b remotewrite.Builder
	b.Begin(r.Request, nil)
	for _, name := range names {
		b.Series()
		b.Label("__name__", name)
		for i := range samples {
			b.Sample(remotewrite.Sample{Time: r.Arrival - int64(samples-i)*1000, Value: float64(i)})
		}
	}
	b.Family("family", "help", "", remotewrite.CounterType)
	b.Finish()
	return r
}

// The outcome of a request is the sum of its entries' outcomes and of the samples that the rules drop.
func TestARequestOfManyEntries(t *testing.T) {
	l := newLog(t)
	r := incoming(150_000, "a", "b", "dropped")
	r.Terms.Rules.Relabel, _ = mapping.CompileRelabel([]mapping.Relabel{{SourceLabels: []string{"__name__"},
		Regex: mapping.Optional{Text: "dropped", Given: true}, Action: "drop"}})
	if err := NewRequests(l).Push(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if o := &r.Outcome; o.Written.Samples != 300_000 || o.Dropped.Samples != 150_000 || o.AnyRefused() ||
		r.Copies != (outcome.Counts{}) || l.entries < 3 {
		t.Errorf("%d entries, outcome %+v, want at least 3, with 300000 samples written and 150000 dropped",
			l.entries, r.Outcome)
	}
	text := strings.Join(l.told, "\n")
	if !strings.Contains(text, "a family family") || !strings.Contains(text, "a series m") {
		t.Errorf("told:\n%s", text)
	}
}

// A group may take the decoded request if the entry has the body as the sender sent it. If rules have changed
// the request, the members must decode the entry.
func TestOnlyAnUnchangedRequestIsOffered(t *testing.T) {
	for _, label := range []string{"", "dropped"} {
		l := newLog(t)
		sent := write.NewIncoming()
		if err := sent.DecodeV1(v1Of(t, "a", "dropped")); err != nil {
			t.Fatal(err)
		}
		r := incoming(1)
		r.Request, r.Compressed = &sent.Request, snappy.Encode(nil, v1Of(t, "a", "dropped"))
		r.Offer = &write.Offer{Request: sent}
		if label != "" {
			r.Terms.Rules.Relabel, _ = mapping.CompileRelabel([]mapping.Relabel{{SourceLabels: []string{"__name__"},
				Regex: mapping.Optional{Text: label, Given: true}, Action: "drop"}})
		}
		if err := NewRequests(l).Push(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if offered := l.last.Request.Offer != nil; offered != (label == "") {
			t.Errorf("with %q dropped by the rules, the request is offered: %v", label, offered)
		}
	}
}

// v1Of returns a body of remote write 1.0 with a sample of each name.
func v1Of(t *testing.T, names ...string) []byte {
	t.Helper()
	var m prompb.WriteRequest
	for _, name := range names {
		m.Timeseries = append(m.Timeseries, prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: name}},
			Samples: []prompb.Sample{{Value: 1, Timestamp: arrival}}})
	}
	body, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// The log decides which replica of a pair is taken. Samples dropped by the log and by the rules are
// counted separately.
func TestAPairInTheLog(t *testing.T) {
	l := newLog(t)
	for i, c := range []struct {
		replica string
		dropped int
	}{{"1", 0}, {"2", 2}, {"1", 0}, {strings.Repeat("2", maxPair), 0}} {
		r := incoming(1, "a", "b")
		r.Pair = write.Pair{Cluster: "c", Replica: c.replica, Timeout: time.Minute}
		if err := NewRequests(l).Push(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if o := &r.Outcome; r.Copies.Samples != c.dropped || o.Dropped.Samples != c.dropped ||
			o.Written.Samples != 2-c.dropped {
			t.Errorf("request %d: %+v", i+1, r.Outcome)
		}
	}
	if n := strings.Count(strings.Join(l.told, "\n"), "a elected c 1"); n != 1 {
		t.Errorf("told:\n%s", strings.Join(l.told, "\n"))
	}
}

// A request without series and metadata has no entry, so its tenant does not count for
// store.max_tenants.
func TestAnEmptyRequestHasNoEntry(t *testing.T) {
	l := newLog(t)
	q := NewRequests(l)
	for _, push := range []func(context.Context, *write.Request) error{q.Push, q.PushDeltas} {
		r := incoming(0)
		r.Families, r.Compressed = nil, []byte{0} // snappy's form of no bytes
		if err := push(t.Context(), r); err != nil || r.Outcome != (outcome.Outcome{}) || l.entries > 0 {
			t.Errorf("%d entries, %s, %v", l.entries, r.Outcome.Text(), err)
		}
	}
}

// When the leader changes, a request goes on at the next leader. It counts once, even if the last
// leader's answer was lost.
func TestTheLeaderChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, deltas := range []bool{false, true} {
			l := newLog(t, replica.ErrNotLeader, member.ErrLost, replica.ErrNotLeader)
			q, r := NewRequests(l), incoming(3, "a")
			push := q.Push
			if deltas {
				push = q.PushDeltas
			}
			if err := push(t.Context(), r); err != nil || r.Outcome.Written.Samples != 3 {
				t.Errorf("%v: %+v", err, r.Outcome)
			}
			if deltas && l.counted != 3 {
				t.Errorf("%d samples count", l.counted)
			}
			if totals := strings.Count(strings.Join(l.told, "\n"), "total"); deltas != (totals == 1) {
				t.Errorf("told:\n%s", strings.Join(l.told, "\n"))
			}
		}
	})
}

// deltas returns a request of OTLP with n points that are increments of 1, too large for one entry. Other
// settings make other labels of it.
func deltas(t *testing.T, s otlp.Settings, n int) *write.Request {
	m := pmetric.NewMetrics()
	resource := m.ResourceMetrics().AppendEmpty()
	resource.Resource().Attributes().PutStr("cluster", strings.Repeat("c", 300))
	sum := resource.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	sum.SetName("requests")
	sum.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	for i := range n {
		p := sum.Sum().DataPoints().AppendEmpty()
		p.SetIntValue(1)
		p.SetTimestamp(pcommon.NewTimestampFromTime(time.UnixMilli(arrival)))
		p.Attributes().PutStr("client", fmt.Sprintf("%06d%s", i, strings.Repeat("x", 500)))
	}
	r := incoming(0)
	var to, increments remotewrite.Builder
	to.Begin(new(remotewrite.Request), nil)
	increments.Begin(r.Request, nil)
	if _, err := otlp.Convert(m, s, &to, &increments, func(int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return r
}

// clients returns how many clients of deltas have no total, and how many have more than one. It does not
// look at the first thousand if some of them may be dropped.
func (l *log) clients(n int, dropped bool) (missing, twice int) {
	totals := map[string]int{}
	for _, text := range l.told {
		if _, client, ok := strings.Cut(text, `client="`); ok {
			totals[client[:6]]++
		}
	}
	for i := range n {
		if dropped && i < 1000 {
			continue
		}
		switch totals[fmt.Sprintf("%06d", i)] {
		case 0:
			missing++
		case 1:
		default:
			twice++
		}
	}
	return missing, twice
}

// Rules may make a part of deltas larger than an entry. Each of its entries counts: none is a repeat of another one.
func TestAPartOfManyEntries(t *testing.T) {
	const points = 20
	l := newLog(t)
	q := NewRequests(l)
	q.rewriters.New = func() any { return rewrite.Sized(2000, 3000) }
	r := deltas(t, otlp.Settings{Strategy: otlptranslator.UnderscoreEscapingWithSuffixes}, points)
	if err := q.PushDeltas(t.Context(), r); err != nil || r.Outcome.Written.Samples != points || l.entries < points/4 {
		t.Fatalf("%d entries, outcome %+v, error %v", l.entries, r.Outcome, err)
	}
	if missing, twice := l.clients(points, false); missing+twice > 0 {
		t.Errorf("%d points are missing, and %d count twice", missing, twice)
	}
}

// A request of deltas that was counted in part comes again after a reload, with fewer series and other
// labels. The parts were numbered after the rules: the first part of the repeat had series that the first
// try had never sent, and they were answered as written and did not count. Parts are of the points as
// received, so the repeat counts all points that are missing, each once.
func TestRulesChangeBetweenTwoTries(t *testing.T) {
	const points = 6000
	plain := otlp.Settings{Strategy: otlptranslator.UnderscoreEscapingWithSuffixes}
	promoted := plain
	promoted.Promote = []string{otlp.All}
	relabel := func(r *write.Request, rule mapping.Relabel) {
		r.Terms.Rules.Relabel, _ = mapping.CompileRelabel([]mapping.Relabel{rule})
	}
	// Of the first thousand clients, 900 are dropped.
	drop := mapping.Relabel{SourceLabels: []string{"client"},
		Regex: mapping.Optional{Text: "000([1-9]).*", Given: true}, Action: "drop"}
	long := mapping.Relabel{SourceLabels: []string{"client"}, TargetLabel: "twice",
		Regex: mapping.Optional{Text: "(.*)", Given: true}, Replacement: mapping.Optional{Text: "$1$1", Given: true}}
	for _, c := range []struct {
		why           string
		settings      otlp.Settings // of the second try
		first, second *mapping.Relabel
	}{
		{"the same rules", plain, nil, nil},
		{"a rule that drops series", plain, nil, &drop},
		{"a rule less", plain, &long, nil},
		{"a rule that makes labels longer", plain, nil, &long},
		{"another label of each series", promoted, nil, nil},
	} {
		for written := range 8 { // parts that are written before the first try ends
			if testing.Short() && written%3 != 1 {
				continue
			}
			l := newLog(t, append(make([]error, written), member.ErrFull)...)
			q := NewRequests(l)
			first, second := deltas(t, plain, points), deltas(t, c.settings, points)
			if c.first != nil {
				relabel(first, *c.first)
			}
			if c.second != nil {
				relabel(second, *c.second)
			}
			if err := q.PushDeltas(t.Context(), first); errors.Is(err, member.ErrFull) != (len(l.errors) == 0) {
				t.Fatalf("%s: %d entries: %v", c.why, l.entries, err)
			}
			l.errors = nil
			if err := q.PushDeltas(t.Context(), second); err != nil {
				t.Fatal(err)
			}
			o := second.Outcome
			if all := o.Written.Samples + o.Dropped.Samples; all != points || o.AnyRefused() {
				t.Errorf("%s, %d parts written before: outcome %+v", c.why, written, o)
			}
			if missing, twice := l.clients(points, c.second == &drop); missing+twice > 0 {
				t.Errorf("%s, %d parts written before: %d points are missing, and %d count twice",
					c.why, written, missing, twice)
			}
		}
	}
}

// A request waits for a leader only as long as its context allows. Other errors end it at once.
func TestRequestsWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var away []error
		for range 1000 {
			away = append(away, replica.ErrNotLeader)
		}
		err := NewRequests(newLog(t, away...)).Push(ctx, incoming(1, "a"))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, replica.ErrNotLeader) {
			t.Error(err)
		}
		l := newLog(t, member.ErrFull)
		if err := NewRequests(l).Push(t.Context(), incoming(1, "a")); !errors.Is(err, member.ErrFull) || l.entries > 0 {
			t.Error(err)
		}
	})
}

// The error of a request says whether a part of it may be written. That is so if the answer to a try was
// lost, or if an earlier part was written. A request that has no time left does not try again.
func TestTheFateOfARequest(t *testing.T) {
	const many = 150_000 // samples of a series, in more than one entry
	late := fmt.Errorf("%w: %w", replica.ErrNotLeader, context.DeadlineExceeded)
	for _, c := range []struct {
		why      string
		samples  int
		errors   []error
		entries  int
		mayCount bool
	}{
		{"refused", 1, []error{member.ErrFull}, 0, false},
		{"refused by the next leader", 1, []error{replica.ErrNotLeader, member.ErrFull}, 0, false},
		{"out of time", 1, []error{late}, 0, false},
		{"lost, and then refused", 1, []error{member.ErrLost, member.ErrFull}, 1, true},
		{"unknown to the proposer", 1, []error{fmt.Errorf("%w: %w", member.ErrUnknown, member.ErrLost)}, 1, true},
		{"the second part refused", many, []error{nil, member.ErrFull}, 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLog(t, c.errors...)
			err := NewRequests(l).Push(t.Context(), incoming(c.samples, "a", "b"))
			if err == nil || errors.Is(err, member.ErrUnknown) != c.mayCount || l.entries != c.entries || len(l.errors) > 0 {
				t.Errorf("%s: %v; %d entries", c.why, err, l.entries)
			}
		})
	}
}
