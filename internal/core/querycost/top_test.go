package querycost

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// queriesOf returns the texts of a Top in its order.
func queriesOf(t Top) (texts string) {
	for _, r := range t.Queries {
		texts += r.Query + " "
	}
	return strings.TrimSpace(texts)
}

// The last hour is known by time, by number, by the longest query and by samples. A tenant sees its own queries, and an
// empty name stands for all tenants.
func TestTop(t *testing.T) {
	table := New()
	for i := range int64(100) {
		table.ask(begin+30*i, "a", "often", asker(1), 10*time.Millisecond)
	}
	table.ask(begin+10, "a", "long", asker(2), 900*time.Millisecond)
	for i := range int64(3) {
		table.ask(begin+20+i, "a", "costly", asker(3), 800*time.Millisecond)
	}
	q := &Query{Tenant: "a", Text: "many_samples"}
	table.End(begin, table.Begin(begin, q), q, &Cost{Running: time.Millisecond, Samples: 1e9})
	table.ask(begin, "b", "foreign", asker(4), time.Hour)
	for by, want := range map[Order]string{
		ByTime: "costly often", ByCount: "often costly", ByLongest: "long costly", BySamples: "many_samples often",
	} {
		top := table.Top(begin+3000, "a")
		top.Cut(by, 2)
		if got := queriesOf(top); got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
		all := top.Others.Queries
		for _, r := range top.Queries {
			all += r.Queries
		}
		if all != 105 || top.Others.Expressions != 2 || top.Others.Dropped != 0 {
			t.Errorf("by %s the list has %d queries, want 105; others: %+v", by, all, top.Others)
		}
	}
	if all := table.Top(begin+3000, ""); len(all.Queries) != 5 {
		t.Errorf("all tenants have asked %s", queriesOf(all))
	}
	if later := table.Top(begin+3000+Hour+hourStep, ""); len(later.Queries) != 0 || later.Others != (Rest{}) {
		t.Errorf("an hour later: %+v", later)
	}
}

// A query under way shows since when it runs, in how many steps, and whether it waits. It is gone at its end.
func TestActive(t *testing.T) {
	table := New()
	at := time.Unix(begin, 250e6)
	ranged := &Query{
		Tenant: "a", Text: `rate(x{a="b"}[5m])`, Range: time.Hour, Step: time.Minute, Begun: at, Asker: asker(1),
	}
	instant := &Query{Tenant: "a", Text: "x", Begun: at.Add(-time.Second)}
	lookup := &Query{Tenant: "b", Text: "series x", Lookup: true, Begun: at.Add(time.Second)}
	runs := table.Begin(begin, ranged)
	runs.HasTurn()
	table.Begin(begin, instant)
	table.Begin(begin, lookup)
	top := table.Top(begin, "")
	top.Cut(ByTime, 2)
	want := []Active{
		{Tenant: "a", Query: "x", Begun: begin - 0.75, Waiting: true, Steps: 1, Asker: "unknown"},
		{Tenant: "a", Query: `rate(x{a="b"}[5m])`, Begun: begin + 0.25, Range: 3600, Step: 60, Steps: 61,
			Asker: "10.0.0.1 (Grafana/12), dashboard ab12, panel 1"},
	}
	if !slices.Equal(top.Active, want) || top.MoreActive != 1 {
		t.Errorf("%+v and %d more, want %+v and 1 more", top.Active, top.MoreActive, want)
	}
	if of := table.Top(begin, "b").Active; len(of) != 1 || of[0].Steps != 0 {
		t.Errorf("a look-up is %+v", of)
	}
	table.End(begin, runs, ranged, &Cost{})
	if of := table.Top(begin, "a").Active; len(of) != 1 || of[0].Query != "x" {
		t.Errorf("after the end of a query: %+v", of)
	}
}

// When the table is full, the expressions that cost the least in the last hour make room. Their costs stay in the
// sums of their tenant, for as long as they would have stayed in the list, and the number of dropped ones is known.
func TestTheLeastCostlyMakeRoom(t *testing.T) {
	table := New()
	name := func(i int) string { return "m" + strings.Repeat("y", i) }
	for i := range maxRows {
		table.ask(begin, "a", name(i), asker(1), time.Duration(i+1)*time.Second)
	}
	if top := table.Top(begin, "a"); top.Others.Dropped != 0 || len(top.Queries) != maxRows {
		t.Fatalf("%d rows, others %+v", len(top.Queries), top.Others)
	}
	table.ask(begin+600, "b", "new", asker(2), time.Second)
	top := table.Top(begin+600, "a")
	var running float64
	for i := 1; i <= dropAtOnce; i++ {
		running += float64(i)
	}
	if want := (Rest{dropAtOnce, dropAtOnce, running, dropAtOnce * 1000, dropAtOnce}); top.Others != want {
		t.Errorf("others are %+v, want %+v", top.Others, want)
	}
	listed := strings.Fields(queriesOf(top))
	if slices.Contains(listed, name(dropAtOnce-1)) || !slices.Contains(listed, name(dropAtOnce)) {
		t.Error("a costly query made room for another, or a cheap one did not")
	}
	if b := table.Top(begin+600, "b"); b.Others != (Rest{}) {
		t.Errorf("tenant b is told what tenant a asked: %+v", b.Others)
	}
	if later := table.Top(begin+Hour+hourStep, "a").Others; later.Queries != 0 || later.Dropped != dropAtOnce {
		t.Errorf("an hour after the queries, and less after they made room: %+v", later)
	}
	if later := table.Top(begin+600+Hour+hourStep, "a").Others; later != (Rest{}) {
		t.Errorf("an hour later: %+v", later)
	}
}

// Law: whatever is cut and added, each query is counted once. A row that is among the first in any order is there.
func TestSumOfTops(t *testing.T) {
	node := func(of int) *Table {
		table := New()
		for i := range 60 {
			text := "m" + strings.Repeat("y", i)
			table.ask(begin, "a", text, asker(of), time.Duration((i*7+of*13)%60)*time.Millisecond)
		}
		table.ask(begin, "a", "same", asker(of), time.Duration(of)*time.Minute)
		return table
	}
	var sum Top
	for of := 1; of <= 3; of++ {
		top := node(of).Top(begin, "a")
		top.CutAll(5)
		if len(top.Queries) > 5*len(Orders) {
			t.Errorf("%d rows", len(top.Queries))
		}
		sum.Add(&top)
	}
	sum.Cut(ByTime, 3)
	queries, running := sum.Others.Queries, sum.Others.Running
	for _, r := range sum.Queries {
		queries, running = queries+r.Queries, running+r.Running
	}
	if queries != 3*61 || running < 360+3*1.77-0.01 || running > 360+3*1.77+0.01 {
		t.Errorf("%d queries, which ran for %v s", queries, running)
	}
	same := sum.Queries[0]
	if same.Query != "same" || same.Queries != 3 || same.Longest != 180 || same.Running != 360 || len(same.Askers) != 3 {
		t.Errorf("%+v", same)
	}
}

// An order is one of four words.
func TestParseOrder(t *testing.T) {
	if o, err := ParseOrder(""); o != ByTime || err != nil {
		t.Error(o, err)
	}
	if o, err := ParseOrder("samples"); o != BySamples || err != nil {
		t.Error(o, err)
	}
	if _, err := ParseOrder("cost"); err == nil || !strings.Contains(err.Error(), "sort = cost: is not one of") {
		t.Error(err)
	}
}

// Others merge into the same steps as rows, and a step that is too old makes no newer one smaller.
func TestRingsMerge(t *testing.T) {
	var a, b ring[int]
	*a.at(100, 10) = 1
	*b.at(100, 10) = 2
	*b.at(30, 10) = 4 // the slot of 100
	*b.at(50, 10) = 8
	a.merge(&b, func(sum, of *int) { *sum += *of })
	var got []int
	a.recent(109, 10, func(v *int) {
		if *v != 0 {
			got = append(got, *v)
		}
	})
	slices.Sort(got)
	if want := []int{1, 8}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
