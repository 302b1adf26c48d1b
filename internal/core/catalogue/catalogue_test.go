package catalogue

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/freshet-io/freshet/internal/core/series"
)

// claim makes a claim of a few words: "counter x", or "classic timer x". The
// raw name is the name unless given.
func claim(words string, raw ...string) *Claim {
	words, classic := strings.CutPrefix(words, "classic ")
	kind, name, _ := strings.Cut(words, " ")
	c := &Claim{Tenant: "t", Name: name, Raw: []byte(name), Classic: classic}
	for k := series.Counter; k.Valid(); k++ {
		if k.String() == kind {
			c.Kind = k
		}
	}
	if len(raw) > 0 {
		c.Raw = []byte(raw[0])
	}
	return c
}

// The table of docs/names.md and what follows from it.
func TestKindsUnderOneName(t *testing.T) {
	for _, c := range []struct {
		why    string
		claims []string
		want   []string // name, and "<" with the owner's name and kind if a conflict is told
	}{
		{"one kind has the name", []string{"counter x", "counter x"}, []string{"x", "x"}},
		{"another is put beside it, told once", []string{"counter latency", "gauge latency", "gauge latency", "counter latency"},
			[]string{"latency", "latency_gauge <latency counter", "latency_gauge", "latency"}},
		{"each kind by itself", []string{"set x", "gauge x", "check x", "timer x", "counter x"},
			[]string{"x", "x_gauge <x set", "x_check <x set", "x_timer <x set", "x_counter <x set"}},
		{"the name beside is another kind's too", []string{"counter x", "counter x_gauge", "gauge x"},
			[]string{"x", "x_gauge", "x_gauge_gauge <x counter"}},
		{"what was put aside is not another's of its kind", []string{"counter x", "gauge x", "gauge x_gauge"},
			[]string{"x", "x_gauge <x counter", "x_gauge_gauge <x_gauge gauge"}},
		{"nor the other way round", []string{"gauge x_gauge", "counter x", "gauge x"},
			[]string{"x_gauge", "x", "x_gauge_gauge <x counter"}},
		{"classic buckets own three more names", []string{"classic timer x", "counter x_count", "counter x_sum", "gauge x_bucket", "gauge x"},
			[]string{"x", "x_count_counter <x timer", "x_sum_counter <x timer", "x_bucket_gauge <x timer", "x_gauge <x timer"}},
		{"a timer too", []string{"classic timer x", "timer x_sum"}, []string{"x", "x_sum_timer <x timer"}},
		{"native ones do not", []string{"timer x", "counter x_count"}, []string{"x", "x_count"}},
		{"one of the three is taken", []string{"counter x_count", "classic timer x"}, []string{"x_count", "x_timer <x_count counter"}},
		{"a native timer that becomes classic by a reload", []string{"timer x", "classic timer x", "counter x_count"},
			[]string{"x", "x", "x_count_counter <x timer"}},
		{"and cannot, under its own name", []string{"timer x", "counter x_count", "classic timer x", "timer x"},
			[]string{"x", "x_count", "x_timer <x_count counter", "x_timer"}},
		{"a classic one that becomes native keeps its names", []string{"classic timer x", "timer x", "counter x_count"},
			[]string{"x", "x", "x_count_counter <x timer"}},
	} {
		cat := New(100)
		for i, words := range c.claims {
			name, report := cat.Resolve(0, claim(words))
			got := name
			if report.Event == KindConflict {
				got += fmt.Sprintf(" <%s %s", report.Owner.Name, report.Owner.Kind)
			} else if report.Event != Nothing {
				t.Errorf("%s: %s: %s", c.why, words, report.Event)
			}
			if got != c.want[i] {
				t.Errorf("%s: %s is stored as %s, want %s", c.why, words, got, c.want[i])
			}
		}
	}
}

func TestRawNamesThatMeet(t *testing.T) {
	cat := New(100)
	for _, step := range []struct {
		why, raw string
		named    bool
		want     Event
	}{
		{"the first has the name", "a.b", false, Nothing},
		{"and may come again", "a.b", false, Nothing},
		{"another is told", "a_b", false, NameCollision},
		{"once", "a_b", false, Nothing},
		{"a third is told too", "a-b", false, NameCollision},
		{"a rule that gives the name asked for it", "a:b", true, Nothing},
		{"which does not silence others", "a:b", false, NameCollision},
	} {
		in := claim("counter a_b", step.raw)
		in.Named = step.named
		name, report := cat.Resolve(0, in)
		if name != "a_b" || report.Event != step.want {
			t.Errorf("%s: %q is stored as %s: %s", step.why, step.raw, name, report.Event)
		}
		if report.Event == NameCollision && report.Owner.Raw != "a.b" {
			t.Errorf("%s: met %q", step.why, report.Owner.Raw)
		}
	}
}

func TestTenantsShareNothing(t *testing.T) {
	cat := New(1)
	other := claim("gauge x")
	other.Tenant = "u"
	cat.Resolve(0, claim("counter x"))
	if name, report := cat.Resolve(0, other); name != "x" || report.Event != Nothing {
		t.Errorf("got %s, %s", name, report.Event)
	}
}

func TestBound(t *testing.T) {
	cat := New(2)
	for i, c := range []struct {
		words string
		name  string
		want  Event
	}{
		{"counter a", "a", Nothing},
		{"counter b", "b", Nothing},
		{"counter c", "c", Full},
		{"counter c", "c", Full}, // every time, since it is not known
		{"gauge a", "a_gauge", Full},
		{"counter a", "a", Nothing},
	} {
		if name, report := cat.Resolve(0, claim(c.words)); name != c.name || report.Event != c.want {
			t.Errorf("%d: %s: got %s, %s", i, c.words, name, report.Event)
		}
	}
	// Collisions have the same bound.
	told := 0
	for i := range 10 {
		if _, report := cat.Resolve(0, claim("counter a", fmt.Sprint(i))); report.Event == NameCollision {
			told++
		}
	}
	if told != 2 {
		t.Errorf("%d collisions are remembered", told)
	}
	if got := len(cat.Metadata("t")); got != 2 {
		t.Errorf("%d names are remembered", got)
	}
}

// Owners outlive restarts, whoever comes first afterwards; and each restart
// tells of a conflict again.
func TestRestart(t *testing.T) {
	story := []string{"counter x", "gauge x", "gauge x_gauge", "timer y", "counter y_count", "classic timer y", "classic timer z"}
	before := New(100)
	want := map[string]string{}
	for range 2 { // the native y goes with the classic one, once there is that
		for _, words := range story {
			want[words], _ = before.Resolve(0, claim(words))
		}
	}
	saved := before.Dirty()
	slices.Reverse(story)
	for range 2 { // in any order
		slices.Reverse(saved)
		slices.Reverse(story)
		after := New(100)
		if refused := after.Load(saved); refused != 0 {
			t.Fatalf("%d entries refused", refused)
		}
		if len(after.Dirty()) != 0 {
			t.Error("what was loaded is saved again")
		}
		var told []string
		for _, words := range story {
			name, report := after.Resolve(0, claim(words))
			if name != want[words] {
				t.Errorf("%s was stored as %s, and is as %s now", words, want[words], name)
			}
			if report.Event == KindConflict {
				told = append(told, name)
			}
		}
		slices.Sort(told)
		if !slices.Equal(told, []string{"x_gauge", "x_gauge_gauge", "y_timer"}) {
			t.Errorf("conflicts told after the restart: %q", told)
		}
		if name, _ := after.Resolve(0, claim("counter z_sum")); name != "z_sum_counter" {
			t.Errorf("z was classic, but %s is free", name)
		}
	}
}

func TestLoadRefusesWhatCannotBe(t *testing.T) {
	cat := New(100)
	good := Entry{Tenant: "t", Name: "x", Base: "x", Kind: series.Timer, Classic: true}
	bad := []Entry{
		good,                                // twice
		{Tenant: "t", Name: "y", Base: "y"}, // no kind
		{Tenant: "t", Kind: series.Counter}, // no name
		{Tenant: "t", Name: "x_sum", Base: "x_sum", Kind: series.Gauge}, // the timer's
	}
	if refused := cat.Load(append([]Entry{good}, bad...)); refused != len(bad) {
		t.Errorf("%d refused, want %d", refused, len(bad))
	}
}

func TestDirty(t *testing.T) {
	const hour = 3_600_000
	cat := New(100)
	names := func(entries []Entry) (out []string) {
		for _, e := range entries {
			out = append(out, e.Name)
		}
		return out
	}
	expect := func(why string, want ...string) {
		t.Helper()
		if got := names(cat.Dirty()); !slices.Equal(got, want) {
			t.Errorf("%s: %q to save, want %q", why, got, want)
		}
	}
	cat.Resolve(0, claim("counter b"))
	cat.Resolve(0, claim("counter a"))
	entries := cat.Dirty()
	if !slices.Equal(names(entries), []string{"a", "b"}) {
		t.Errorf("new names: %q to save", names(entries))
	}
	expect("all is saved")
	cat.MarkDirty(append(entries[:1:1], Entry{Tenant: "t", Name: "unknown"}))
	expect("one could not be saved", "a")
	cat.Resolve(hour-1, claim("counter a"))
	expect("seen again, within the hour")
	cat.Resolve(hour, claim("counter a"))
	expect("seen again, after it", "a")
	cat.Touch(hour, "t", "b")
	cat.Touch(hour, "t", "unknown")
	expect("touched", "b")
	cat.Touch(0, "t", "b")
	expect("the clock went back")
	in := claim("counter a")
	in.Unit, in.Help = "seconds", "help"
	cat.Resolve(hour, in)
	expect("a reload brought a unit", "a")
	cat.Resolve(hour, claim("counter a"))
	expect("a claim without one leaves it")
	if e := cat.Metadata("t")[0]; e.Unit != "seconds" || e.Help != "help" || e.Kind != series.Counter || e.LastSeen != hour {
		t.Errorf("metadata %+v", e)
	}
	cat.Resolve(hour, claim("classic timer c"))
	cat.Dirty()
	cat.Resolve(hour, claim("timer c"))
	expect("nothing new")
}

func TestForget(t *testing.T) {
	cat := New(3)
	cat.Resolve(10, claim("counter x", "x.old"))
	cat.Resolve(10, claim("counter x", "x"))
	cat.Resolve(20, claim("gauge x"))
	cat.Resolve(10, claim("classic timer h"))
	gone := cat.Forget(20)
	if len(gone) != 2 || gone[0].Name != "h" || gone[1].Name != "x" {
		t.Fatalf("forgot %+v", gone)
	}
	for _, e := range cat.Dirty() {
		if e.Name != "x_gauge" {
			t.Errorf("%s is forgotten, and is to be saved", e.Name)
		}
	}
	if name, _ := cat.Resolve(30, claim("gauge x")); name != "x_gauge" {
		t.Errorf("the gauge changed its name to %s because the counter ended", name)
	}
	if name, report := cat.Resolve(30, claim("counter h_count")); name != "h_count" || report.Event != Nothing {
		t.Errorf("h is forgotten, but its h_count is not: %s, %s", name, report.Event)
	}
	if name, report := cat.Resolve(30, claim("counter x", "x.old")); name != "x" || report.Event != Nothing {
		t.Errorf("a forgotten counter comes again as %s, %s", name, report.Event)
	}
	if _, report := cat.Resolve(30, claim("counter x", "x")); report.Event != NameCollision {
		t.Errorf("raw names were not forgotten with the name: %s", report.Event)
	}
	if _, report := cat.Resolve(30, claim("counter y")); report.Event != Full {
		t.Errorf("the fourth of three names: %s", report.Event)
	}
}

// A timer that was put aside to become classic stays there when what it left
// behind is forgotten.
func TestForgetHalfOfATimer(t *testing.T) {
	cat := New(100)
	cat.Resolve(10, claim("timer y"))
	cat.Resolve(20, claim("counter y_count"))
	cat.Resolve(20, claim("classic timer y"))
	if gone := cat.Forget(20); len(gone) != 1 || gone[0].Name != "y" {
		t.Fatalf("forgot %+v", gone)
	}
	if name, _ := cat.Resolve(20, claim("timer y")); name != "y_timer" {
		t.Errorf("new series are stored as %s", name)
	}
}

// Listeners resolve at the same time; whoever is first, each kind has one name
// and no two share one.
func TestConcurrent(t *testing.T) {
	cat := New(1000)
	kinds := []string{"counter", "gauge", "timer", "set", "check"}
	got := make([]map[string]string, 8)
	var wg sync.WaitGroup
	for i := range got {
		got[i] = map[string]string{}
		wg.Go(func() {
			for n := range 100 {
				words := fmt.Sprintf("%s m%d", kinds[(n+i)%len(kinds)], n/len(kinds))
				got[i][words], _ = cat.Resolve(int64(n), claim(words))
			}
			cat.Dirty()
			cat.Metadata("t")
		})
	}
	wg.Wait()
	kindOf := map[string]string{}
	for _, one := range got {
		for words, name := range one {
			if other, taken := kindOf[name]; taken && other != words {
				t.Errorf("%s and %s are both %s", words, other, name)
			}
			kindOf[name] = words
			if again, _ := cat.Resolve(0, claim(words)); again != name {
				t.Errorf("%s was %s and is %s", words, name, again)
			}
		}
	}
}

// FuzzResolve holds the laws of names: each claim keeps the name that it was
// given, and no two claims that are different store anything under one name.
func FuzzResolve(f *testing.F) {
	f.Add([]byte("\x01a\x02a\x03a\x83a\x04a_count"))
	f.Add([]byte("\x83a\x01a_gauge\x02a\x02a_gauge"))
	names := []string{"x", "x_gauge", "x_gauge_gauge", "x_timer", "x_count", "x_timer_count", "x_sum", "x_bucket_gauge"}
	f.Fuzz(func(t *testing.T, script []byte) {
		cat := New(1000)
		type who struct {
			base string
			kind series.Kind
		}
		stored := map[string]who{}
		last := map[who]string{}
		for _, b := range script {
			in := &Claim{Tenant: "t", Name: names[b&7], Kind: series.Kind(1 + (b>>3&7)%5), Classic: b&0x40 != 0}
			in.Classic = in.Classic && in.Kind == series.Timer
			name, _ := cat.Resolve(0, in)
			by := who{in.Name, in.Kind}
			for _, s := range storedNames(name, in.Classic) {
				if other, taken := stored[s]; taken && other != by {
					t.Fatalf("%v and %v both store %s", by, other, s)
				}
				stored[s] = by
			}
			if before, ok := last[by]; ok && before != name && !in.Classic {
				t.Fatalf("%v was %s and is %s", by, before, name)
			}
			last[by] = name
		}
		saved := cat.Dirty()
		if refused := New(1000).Load(saved); refused != 0 {
			t.Fatalf("%d of %d entries refused", refused, len(saved))
		}
	})
}

// Bound: 0 allocs/op and 500 ns, so that 100,000 new contexts a second cost a
// twentieth of a core.
func BenchmarkResolve(b *testing.B) {
	cat := New(DefaultMaxNames)
	for i := range DefaultMaxNames {
		cat.Resolve(0, claim(fmt.Sprintf("counter metric_number_%d", i)))
	}
	in := claim("counter metric_number_777")
	b.ReportAllocs()
	for b.Loop() {
		cat.Resolve(0, in)
	}
}

func TestKnownNamesDoNotAllocate(t *testing.T) {
	cat := New(100)
	in := claim("gauge x")
	cat.Resolve(0, claim("counter x"))
	cat.Resolve(0, in)
	if n := testing.AllocsPerRun(100, func() { cat.Resolve(0, in) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
