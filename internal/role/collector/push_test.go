package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/series"
)

// No sample is lost if the aggregator refuses windows for a while. The flusher pushes the refused window
// again, unchanged, and meanwhile the open window grows.
func TestARefusedWindowComesAgain(t *testing.T) {
	f := newFixture(t, nil).start(t)
	f.aggregator.refuse(errors.New("disk full"))
	conn := dial(t, "udp", f.address("udp"))
	sent := 0
	begun := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	// Wait until a window was refused and three more seconds have passed. Then the second window waits
	// behind the first, and the third stays open beyond its second.
	var refusedAt time.Time
	for refusedAt.IsZero() || time.Since(refusedAt) < 3500*time.Millisecond {
		if <-tick.C; time.Since(begun) > patience {
			t.Fatal("no window was pushed")
		}
		if refusedAt.IsZero() && len(f.aggregator.refusals()) > 0 {
			refusedAt = time.Now()
		}
		send(t, conn, "a:1|c")
		sent++
	}
	f.aggregator.refuse(nil)
	await(t, "all that was sent", func() bool { return f.aggregator.totals()[`counter {__name__="a"}`] == float64(sent) })
	f.stop()

	refused := f.aggregator.refusals()
	windows := f.aggregator.taken()
	if slices.Max(refused) != 1 || windows[0].sequence != 1 {
		t.Errorf("windows %v were refused, and window %d was accepted first, want window 1 for both",
			refused, windows[0].sequence)
	}
	stretched := false
	for i, w := range windows[1:] {
		if w.sequence != windows[i].sequence+1 || w.second <= windows[i].second {
			t.Errorf("window %d of second %d follows window %d of second %d, want the next number and a later second",
				w.sequence, w.second, windows[i].sequence, windows[i].second)
		}
		stretched = stretched || w.birth/1e9 < w.second
	}
	if !stretched {
		t.Error("no window grew while the aggregator refused")
	}
	if got := f.aggregator.totals()[`counter {__name__="a"}`]; got != float64(sent) {
		t.Errorf("counted %v, sent %d", got, sent)
	}
	if got := f.metric(t, "push_errors_total"); got != float64(len(refused)) {
		t.Errorf("push_errors_total = %v, want %d", got, len(refused))
	}
	if got := f.metric(t, "unsent_samples_total"); got != 0 {
		t.Errorf("unsent_samples_total = %v, want 0", got)
	}
}

// Two kinds under one name are two series with two names. The conflict is logged once, and neither
// kind is folded into the other.
func TestTrapTwoKindsUnderOneNameAreKeptApart(t *testing.T) {
	f := newFixture(t, nil).start(t)
	conn := dial(t, "udp", f.address("udp"))
	for i := range 20 { // several contexts of each kind, so that each context is resolved
		send(t, conn, fmt.Sprintf("x:1|c|#n:%d\nx:5|g|#n:%[1]d\nx:7|ms|#n:%[1]d\nother:1|c", i))
	}
	await(t, "all packets", func() bool { return f.aggregator.totals()[`counter {__name__="other"}`] == 20 })
	got := f.aggregator.totals()
	for i := range 20 {
		for series, want := range map[string]float64{`counter {__name__="x"`: 1, `gauge {__name__="x_gauge"`: 5,
			`timer {__name__="x_timer"`: 1} {
			if name := fmt.Sprintf(`%s, n="%d"}`, series, i); got[name] != want {
				t.Errorf("%s = %v, want %v", name, got[name], want)
			}
		}
	}
	if len(got) != 61 {
		t.Errorf("%d series, want 61", len(got))
	}
	for _, told := range []string{
		`msg="two kinds have the same name; they are stored under different names" ` +
			`tenant=default metric=x kind=gauge name=x owner_kind=counter ` +
			`stored_as=x_gauge`,
		`msg="two kinds have the same name; they are stored under different names" ` +
			`tenant=default metric=x kind=timer name=x owner_kind=counter ` +
			`stored_as=x_timer`,
	} {
		if n := f.logs.count(told); n != 1 {
			t.Errorf("the conflict is logged %d times, want once: %s", n, told)
		}
	}
}

// Two DogStatsD names that become one Prometheus name are one series. The collision is logged once.
func TestCollisionsAreTold(t *testing.T) {
	f := newFixture(t, nil).start(t)
	conn := dial(t, "udp", f.address("udp"))
	for i := range 20 {
		send(t, conn, fmt.Sprintf("a.b:1|c|#n:%d\na_b:2|c|#n:%[1]d\na-b:4|c|#n:%[1]d", i))
	}
	total := func() (sum float64) {
		for _, v := range f.aggregator.totals() {
			sum += v
		}
		return sum
	}
	await(t, "all packets", func() bool { return total() == 140 })
	if got := len(f.aggregator.totals()); got != 20 {
		t.Errorf("%d series, want 20", got)
	}
	for _, other := range []string{"a_b", "a-b"} {
		told := "where their labels are the same, they are one series\" tenant=default " +
			"metric=" + other + " other_metric=a.b name=a_b"
		if n := f.logs.count(told); n != 1 {
			t.Errorf("%s: the collision is logged %d times, want once", other, n)
		}
	}
}

// The owner of a name is saved before the first batch with it is pushed. Otherwise, after a
// crash, another kind could come first and own the series' name.
func TestNamesAreSavedBeforeTheirFirstBatch(t *testing.T) {
	f := newFixture(t, nil)
	l := f.listeners()[0]
	pushes := 0
	f.aggregator.before = func() {
		pushes++
		if !f.catalogueFile.has("a") || pushes > 1 && !f.catalogueFile.has("b_gauge") {
			t.Errorf(
				"before push %d, the saved names are %v, want the names in its batches", pushes, f.catalogueFile.saved)
		}
	}
	l.Packet([]byte("a:1|c"), second*1e9)
	f.flush(t, l, (second+1)*1e9)
	l.Packet([]byte("a:1|c\nb:1|c\nb:1|g"), (second+1)*1e9)
	f.flush(t, l, (second+2)*1e9)
	if pushes != 2 {
		t.Fatalf("%d pushes, want 2", pushes)
	}
}

// Names that could not be saved are saved with the next window. Samples do not wait for that, since an
// unsaved name matters only after a restart.
func TestNamesThatWereNotSavedAreSavedLater(t *testing.T) {
	f := newFixture(t, nil)
	l := f.listeners()[0]
	f.catalogueFile.err = errors.New("disk full")
	for i := range int64(2) {
		l.Packet([]byte("a:1|c"), (second+i)*1e9)
		f.flush(t, l, (second+i+1)*1e9)
	}
	if got := f.aggregator.totals()[`counter {__name__="a"}`]; got != 2 || f.catalogueFile.has("a") {
		t.Fatalf("counted %v, want 2 as sent; saved names %v, want none", got, f.catalogueFile.saved)
	}
	if f.logs.count("disk full") != 2 {
		t.Error("the cause is not logged")
	}
	f.catalogueFile.err = nil
	l.Packet([]byte("a:1|c"), (second+2)*1e9)
	f.flush(t, l, (second+3)*1e9)
	if !f.catalogueFile.has("a") {
		t.Error("name a is still not saved")
	}
}

// A name that was given back is removed from the file by the next write that succeeds, before the file
// gets another owner of the name.
func TestNamesThatWereGivenBackAreNotSaved(t *testing.T) {
	now := int64(second)
	f := newFixture(t, func(o *Options) {
		o.Catalogue = catalogue.New(1)
		o.Catalogue.KeepFor(func(series.Kind) time.Duration { return time.Minute })
		o.Now = func() time.Time { return time.Unix(now, 0) }
	})
	l := f.listeners()[0]
	count := func(line string) {
		l.Packet([]byte(line), now*1e9)
		now++
		f.flush(t, l, now*1e9)
	}
	count("a:1|c")
	now += 120
	f.catalogueFile.err = errors.New("disk full")
	count("b:1|c")
	if !f.catalogueFile.has("a") || f.logs.count("disk full") != 2 {
		t.Fatalf(
			"the saved names are %v, want the name a among them, and the cause logged twice", f.catalogueFile.saved)
	}
	f.catalogueFile.err = nil
	count("b:1|c")
	if f.catalogueFile.has("a") || !f.catalogueFile.has("b") {
		t.Errorf("saved names %v, want b alone", f.catalogueFile.saved)
	}
	if got := f.metric(t, "given_back_names_total"); got != 1 {
		t.Errorf("given_back_names_total is %v, want 1", got)
	}
}

// A window of more than a few megabytes is pushed in portions. Each portion has its own sequence number.
// So a repeated portion is recognized, and counts once.
func TestALargeWindowIsPushedInPortions(t *testing.T) {
	f := newFixture(t, nil)
	l := f.listeners()[0]
	const series, size = 250, portionBytes / 100 // two and a half portions
	tag := strings.Repeat("x", size)
	for i := range series {
		l.Packet(fmt.Appendf(nil, "a:%d|c|#%s%d", i, tag, i), second*1e9)
	}
	pushes := 0
	f.aggregator.before = func() {
		pushes++
		f.aggregator.refusal = nil
		if pushes == 2 {
			f.aggregator.refusal = errors.New("disk full")
		}
	}
	f.flush(t, l, (second+1)*1e9)
	taken, total, kept := f.aggregator.taken(), 0.0, 0
	for i, w := range taken {
		if w.sequence != uint64(i)+1 || w.second != second {
			t.Errorf("portion %d has sequence %d of second %d, want %d, %d", i, w.sequence, w.second, i+1, int64(second))
		}
		for _, v := range w.series {
			total += v
			kept++
		}
	}
	if len(taken) != 3 || kept != series || total != series*(series-1)/2 {
		t.Errorf("%d portions have %d series with a total of %v, want 3, %d, %d",
			len(taken), kept, total, series, series*(series-1)/2)
	}
	if refused := f.aggregator.refusals(); !slices.Equal(refused, []uint64{2}) {
		t.Errorf("portions %v were refused, want only portion 2", refused)
	}
	l.Packet([]byte("b:1|c"), (second+1)*1e9)
	f.flush(t, l, (second+2)*1e9)
	if last := f.aggregator.taken()[len(taken)]; last.sequence != 4 || len(last.series) != 1 {
		t.Errorf("the next window has sequence %d and %d series, want 4, 1", last.sequence, len(last.series))
	}
}

// The flusher reads the keys of a window. Their memory belongs to the places of the window's table. So a
// table that a reload replaces keeps its places until its last window is flushed.
func TestAReplacedTableKeepsItsPlacesUntilItIsFlushed(t *testing.T) {
	clock := time.Unix(second, 0)
	f := newFixture(t, func(o *Options) { o.Now = func() time.Time { return clock } })
	l := f.listeners()[0]
	places := func() int { // counts the places in use, after unused ones are forgotten
		later := clock.Add(time.Hour).UnixNano()
		tenant := f.Limiter.Tenant(l.terms.tenant)
		tenant.Room(later)
		return tenant.Report(later).Series
	}
	l.Packet([]byte("a:1|c\nb:1|c"), clock.UnixNano())
	other := *l.terms
	other.relativeGauges = !other.relativeGauges
	l.next.Store(&other)
	if !l.close(clock.UnixNano(), false) || l.terms != &other {
		t.Fatal("the table is not replaced")
	}
	if n := places(); n != 2 {
		t.Errorf("before the flush, %d places are in use, want 2", n)
	}
	f.flushAll(t.Context())
	if n := places(); n != 0 {
		t.Errorf("after the flush, %d places are in use, want 0", n)
	}
	if got := f.aggregator.totals(); len(got) != 2 {
		t.Errorf("counted %v", got)
	}
}

// At the end each window has one last try, however many portions it has. A stop must not take a second
// for each portion.
func TestPortionsShareTheLastTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlusher(&Options{Aggregator: waiting{}}, newProgress(), nil, 1)
		ended, end := context.WithCancel(t.Context())
		end()
		begun := time.Now()
		for range 5 {
			if err := f.pushOnce(ended, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("for a portion that the aggregator never accepts, the push returned %v, want DeadlineExceeded", err)
			}
		}
		if took := time.Since(begun); took != lastTry {
			t.Errorf("five portions took %v", took)
		}
		f.endTry()
		begun = time.Now()
		_ = f.pushOnce(ended, nil)
		if took := time.Since(begun); took != lastTry {
			t.Errorf("the next window had %v for its last try, want %v", took, lastTry)
		}
		f.endTry()
	})
}

// waiting is an aggregator that accepts nothing.
type waiting struct{}

func (waiting) Through(int64) {}

func (waiting) Push(ctx context.Context, _ []batch.Batch) error {
	<-ctx.Done()
	return ctx.Err()
}
