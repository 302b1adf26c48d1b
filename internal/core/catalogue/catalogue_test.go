package catalogue

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/series"
)

// claim makes a claim from a few words: "counter x", "classic timer x", or "fine timer x" for a
// classic timer with other buckets. The raw name equals the name unless `raw` gives it.
func claim(words string, raw ...string) *Claim {
	buckets := ""
	for form, bounds := range map[string]string{"classic ": "1,2", "fine ": "0.1,0.2"} {
		if rest, ok := strings.CutPrefix(words, form); ok {
			words, buckets = rest, bounds
		}
	}
	kind, name, _ := strings.Cut(words, " ")
	c := &Claim{Tenant: "t", Name: name, Raw: []byte(name), Buckets: buckets}
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

// The cases are the table of docs/names.md and its consequences.
func TestKindsUnderOneName(t *testing.T) {
	for _, c := range []struct {
		why    string
		claims []string
		want   []string // a name; in a conflict also its owner: "<" if the kind differs, "~" if the form does
	}{
		{"one kind has the name", []string{"counter x", "counter x"}, []string{"x", "x"}},
		{"another kind gets another name, reported once",
			[]string{"counter latency", "gauge latency", "gauge latency", "counter latency"},
			[]string{"latency", "latency_gauge <latency counter", "latency_gauge", "latency"}},
		{"each kind by itself", []string{"set x", "gauge x", "check x", "timer x", "counter x"},
			[]string{"x", "x_gauge <x set", "x_check <x set", "x_timer <x set", "x_counter <x set"}},
		{"the first alternative name belongs to another kind too", []string{"counter x", "counter x_gauge", "gauge x"},
			[]string{"x", "x_gauge", "x_gauge_gauge <x counter"}},
		{"an alternative name is not shared, even within a kind", []string{"counter x", "gauge x", "gauge x_gauge"},
			[]string{"x", "x_gauge <x counter", "x_gauge_gauge <x_gauge gauge"}},
		{"an alternative name is not shared in the other order either", []string{"gauge x_gauge", "counter x", "gauge x"},
			[]string{"x_gauge", "x", "x_gauge_gauge <x counter"}},
		{"classic buckets own three more names",
			[]string{"classic timer x", "counter x_count", "counter x_sum", "gauge x_bucket", "gauge x"},
			[]string{"x", "x_count_counter <x timer", "x_sum_counter <x timer", "x_bucket_gauge <x timer", "x_gauge <x timer"}},
		{"nor can a timer have them", []string{"classic timer x", "timer x_sum"}, []string{"x", "x_sum_timer <x timer"}},
		{"a native histogram owns one name only", []string{"timer x", "counter x_count"}, []string{"x", "x_count"}},
		{"one of the three names of classic buckets is taken", []string{"counter x_count", "classic timer x"},
			[]string{"x_count", "x_timer <x_count counter"}},
		{"classic buckets beside native ones", []string{"timer x", "classic timer x", "classic timer x", "timer x"},
			[]string{"x", "x_classic ~x", "x_classic", "x"}},
		{"native buckets beside classic ones", []string{"classic timer x", "timer x", "timer x", "classic timer x"},
			[]string{"x", "x_native ~x", "x_native", "x"}},
		{"classic buckets beside other classic ones", []string{"classic timer x", "fine timer x", "timer x"},
			[]string{"x", "x_classic ~x", "x_native ~x"}},
		{"three forms", []string{"timer x", "classic timer x", "fine timer x"},
			[]string{"x", "x_classic ~x", "x_classic_classic ~x"}},
		{"the first alternative name belongs to another metric", []string{"timer x_classic", "timer x", "classic timer x"},
			[]string{"x_classic", "x", "x_classic_timer ~x"}},
	} {
		cat := New(100)
		for i, words := range c.claims {
			peeked, known, foreseen := cat.Peek(claim(words))
			name, report := cat.Resolve(0, claim(words))
			if told := report.Finding != Nothing; peeked != name || told && (known || foreseen != report) {
				t.Errorf("%s: %s: Peek returned %s (known %v) %+v, want %s %+v like Resolve",
					c.why, words, peeked, known, foreseen, name, report)
			}
			got := name
			if report.Finding == KindConflict {
				got += fmt.Sprintf(" <%s %s", report.Owner.Name, report.Owner.Kind)
			} else if report.Finding == FormConflict {
				got += " ~" + report.Owner.Name
			} else if report.Finding != Nothing {
				t.Errorf("%s: %s: %s", c.why, words, report.Finding)
			}
			if got != c.want[i] {
				t.Errorf("%s: %s is stored as %s, want %s", c.why, words, got, c.want[i])
			}
		}
	}
}

// Peek reports every time, even after Resolve has reported once, and changes nothing.
func TestPeek(t *testing.T) {
	cat := New(2)
	peek := func(words string, raw ...string) string {
		name, known, report := cat.Peek(claim(words, raw...))
		return fmt.Sprintf("%s %v %s %s", name, known, report.Finding, report.Owner.Raw)
	}
	for _, step := range []struct{ resolve, peek, raw, want string }{
		{"", "gauge x", "x", "x false nothing "},
		{"counter x", "counter x", "x", "x true nothing x"},
		{"", "counter x", "X", "x true name_collision x"},
		{"", "gauge x", "x", "x_gauge false kind_conflict x"},
		{"gauge x", "gauge x", "x", "x_gauge true kind_conflict x"},
		{"", "gauge x", "x", "x_gauge true kind_conflict x"},
		{"", "counter y", "y", unremembered(claim("counter y")) + " false full "},
	} {
		if step.resolve != "" {
			cat.Resolve(0, claim(step.resolve))
		}
		cat.Dirty()
		if got := peek(step.peek, step.raw); got != step.want {
			t.Errorf("%s: got %s, want %s", step.peek, got, step.want)
		}
		if dirty := cat.Dirty(); len(dirty) > 0 {
			t.Errorf("%s: Peek changed metrics: %+v", step.peek, dirty)
		}
	}
	if _, _, report := cat.Peek(&Claim{Tenant: "nobody", Name: "x", Kind: series.Set}); report != (Report{}) ||
		len(cat.tenants) != 1 {
		t.Errorf("another tenant: report %+v, want none; %d tenants, want 1", report, len(cat.tenants))
	}
}

func TestRawNamesThatMeet(t *testing.T) {
	cat := New(100)
	for _, step := range []struct {
		why, raw string
		named    bool
		want     Finding
	}{
		{"the first raw name", "a.b", false, Nothing},
		{"the first raw name again", "a.b", false, Nothing},
		{"another raw name is reported", "a_b", false, NameCollision},
		{"once", "a_b", false, Nothing},
		{"a third raw name is reported too", "a-b", false, NameCollision},
		{"a rule that chose the name wants the collision", "a:b", true, Nothing},
		{"the same raw name without a rule is reported", "a:b", false, NameCollision},
	} {
		in := claim("counter a_b", step.raw)
		in.Named = step.named
		name, report := cat.Resolve(0, in)
		if name != "a_b" || report.Finding != step.want {
			t.Errorf("%s: %q is stored as %s with the finding %s, want a_b and %s",
				step.why, step.raw, name, report.Finding, step.want)
		}
		if report.Finding == NameCollision && report.Owner.Raw != "a.b" {
			t.Errorf("%s: the report names the raw name %q, want a.b", step.why, report.Owner.Raw)
		}
	}
}

func TestTenantsShareNothing(t *testing.T) {
	cat := New(1)
	other := claim("gauge x")
	other.Tenant = "u"
	cat.Resolve(0, claim("counter x"))
	if name, report := cat.Resolve(0, other); name != "x" || report.Finding != Nothing {
		t.Errorf("gauge x of another tenant: got the name %s with the finding %s, want x and %s",
			name, report.Finding, Nothing)
	}
}

func TestBound(t *testing.T) {
	cat := New(2)
	for i, c := range []struct {
		words string
		name  string
		want  Finding
	}{
		{"counter a", "a", Nothing},
		{"counter b", "b", Nothing},
		{"counter c", "c_counter_ae2f6b70", Full},
		{"counter c", "c_counter_ae2f6b70", Full}, // reported every time, because the name is not remembered
		{"gauge a", "a_gauge_99167f96", Full},
		{"counter a", "a", Nothing},
	} {
		if name, report := cat.Resolve(0, claim(c.words)); name != c.name || report.Finding != c.want {
			t.Errorf("%d: %s: got %s, %s, want %s, %s", i, c.words, name, report.Finding, c.name, c.want)
		}
	}
	// The bound on names also applies to raw names.
	told := 0
	for i := range 10 {
		if _, report := cat.Resolve(0, claim("counter a", fmt.Sprint(i))); report.Finding == NameCollision {
			told++
		}
	}
	if told != 2 {
		t.Errorf("%d collisions are remembered, want 2", told)
	}
	if got := len(cat.Metadata("t")); got != 2 {
		t.Errorf("%d names are remembered, want 2", got)
	}
}

// Owners keep their names after a restart, whichever claim comes first. After each restart a
// conflict is reported again.
func TestRestart(t *testing.T) {
	story := []string{
		"counter x", "gauge x", "gauge x_gauge", "timer y", "classic timer y", "fine timer y", "classic timer z",
	}
	before := New(100)
	want := map[string]string{}
	for _, words := range story {
		want[words], _ = before.Resolve(0, claim(words))
	}
	saved := before.Dirty()
	slices.Reverse(story)
	for range 2 { // the order of claims must not matter
		slices.Reverse(saved)
		slices.Reverse(story)
		after := New(100)
		if refused := after.Load(saved); refused != 0 {
			t.Fatalf("%d metrics refused", refused)
		}
		if len(after.Dirty()) != 0 {
			t.Error("after Load, Dirty returned metrics, want none")
		}
		var told []string
		for _, words := range story {
			name, report := after.Resolve(0, claim(words))
			if name != want[words] {
				t.Errorf("%s was stored as %s before the restart, and is stored as %s now", words, want[words], name)
			}
			if report.Finding == KindConflict {
				told = append(told, name)
			}
		}
		slices.Sort(told)
		if !slices.Equal(told, []string{"x_gauge", "x_gauge_gauge"}) {
			t.Errorf("conflicts reported after the restart: %q, want x_gauge and x_gauge_gauge", told)
		}
		if name, _ := after.Resolve(0, claim("counter z_sum")); name != "z_sum_counter" {
			t.Errorf("the counter z_sum is stored as %s, want z_sum_counter: z is a classic timer", name)
		}
	}
}

// If an operator changes the buckets of a rule, the new series must continue the earlier ones:
// after the restart the new form takes over the name, because the old form no longer comes.
func TestChangedBucketsTakeOverTheName(t *testing.T) {
	metrics := func(words ...string) []Metric {
		cat := New(100)
		for _, w := range words {
			cat.Resolve(0, claim(w))
		}
		return cat.Dirty()
	}
	legacy := Metric{Tenant: "t", Name: "x", Base: "x", Kind: series.Timer, Classic: true}
	native := Metric{Tenant: "t", Name: "x_native", Base: "x", Kind: series.Timer}
	for _, c := range []struct {
		why    string
		before []Metric
		claims []string
		want   []string
	}{
		{"other buckets", metrics("classic timer x"), []string{"fine timer x", "fine timer x"}, []string{"x", "x"}},
		{"native becomes classic", metrics("timer x"), []string{"classic timer x", "counter x_count"},
			[]string{"x", "x_count_counter"}},
		{"classic becomes native, and the stored series keep their names",
			metrics("classic timer x"), []string{"timer x", "counter x_count"}, []string{"x", "x_count_counter"}},
		{"the old form comes after all, and gets another name",
			metrics("classic timer x"), []string{"fine timer x", "classic timer x"}, []string{"x", "x_classic"}},
		{"the old form comes, then a new form", metrics("classic timer x"), []string{"classic timer x", "fine timer x"},
			[]string{"x", "x_classic"}},
		{"a classic timer cannot have the plain name", metrics("timer x", "counter x_count"),
			[]string{"classic timer x", "timer x"}, []string{"x_timer", "x"}},
		{"a file without buckets: the first form that comes gets the name",
			[]Metric{legacy}, []string{"timer x", "classic timer x"}, []string{"x", "x_classic"}},
		{"a file without buckets: a form that has another name keeps it", []Metric{legacy, native},
			[]string{"timer x", "classic timer x"}, []string{"x_native", "x"}},
		{"the classic form comes first", []Metric{legacy}, []string{"classic timer x", "timer x"}, []string{"x", "x_native"}},
	} {
		cat := New(len(c.before) + len(c.claims))
		if refused := cat.Load(c.before); refused != 0 {
			t.Errorf("%s: %d metrics refused", c.why, refused)
		}
		for i, words := range c.claims {
			if name, _ := cat.Resolve(0, claim(words)); name != c.want[i] {
				t.Errorf("%s: %s is stored as %s, want %s", c.why, words, name, c.want[i])
			}
		}
	}
}

// Names beyond the bound are not remembered, but two metrics must never write one series. A counter
// and a timer once wrote one series, and so did two forms of a timer.
func TestUnrememberedNamesHarmNobody(t *testing.T) {
	cat := New(1)
	seen := map[string]string{}
	for _, words := range []string{
		"counter x_counter", // the only name that is remembered
		"counter x", "gauge x", "timer x", "classic timer x", "fine timer x", "set x", "check x", "timer x_timer",
		"counter x_counter_counter",
	} {
		for range 2 {
			name, _ := cat.Resolve(0, claim(words))
			for _, stored := range storedNames(name, claim(words).Buckets != "") {
				if other := seen[stored]; other != "" && other != words {
					t.Errorf("%s and %s are both stored as %s", words, other, stored)
				}
				seen[stored] = words
			}
		}
	}
}

func TestLoadRefusesWhatCannotBe(t *testing.T) {
	cat := New(100)
	good := Metric{Tenant: "t", Name: "x", Base: "x", Kind: series.Timer, Classic: true}
	bad := []Metric{
		good,                                // twice
		{Tenant: "t", Name: "y", Base: "y"}, // no kind
		{Tenant: "t", Kind: series.Counter}, // no name
		{Tenant: "t", Name: "x_sum", Base: "x_sum", Kind: series.Gauge}, // the timer's
	}
	if refused := cat.Load(append([]Metric{good}, bad...)); refused != len(bad) {
		t.Errorf("%d refused, want %d", refused, len(bad))
	}
}

func TestDirty(t *testing.T) {
	const hour = 3_600_000
	cat := New(100)
	names := func(metrics []Metric) (out []string) {
		for _, m := range metrics {
			out = append(out, m.Name)
		}
		return out
	}
	expect := func(why string, want ...string) {
		t.Helper()
		if got := names(cat.Dirty()); !slices.Equal(got, want) {
			t.Errorf("%s: Dirty returned %q, want %q", why, got, want)
		}
	}
	cat.Resolve(0, claim("counter b"))
	cat.Resolve(0, claim("counter a"))
	metrics := cat.Dirty()
	if !slices.Equal(names(metrics), []string{"a", "b"}) {
		t.Errorf("new names: Dirty returned %q, want a and b", names(metrics))
	}
	expect("all is saved")
	cat.MarkDirty(append(metrics[:1:1], Metric{Tenant: "t", Name: "unknown"}))
	expect("one could not be saved", "a")
	cat.Resolve(hour-1, claim("counter a"))
	expect("seen again, within the hour")
	cat.Resolve(hour, claim("counter a"))
	expect("seen again, after the hour", "a")
	cat.Touch(hour, "t", []byte("b"))
	cat.Touch(hour, "t", []byte("unknown"))
	expect("touched", "b")
	cat.Touch(0, "t", []byte("b"))
	expect("the clock went back")
	in := claim("counter a")
	in.Unit, in.Help = "seconds", "help"
	cat.Resolve(hour, in)
	expect("a reload brought a unit", "a")
	cat.Resolve(hour, claim("counter a"))
	expect("a claim without a unit leaves the unit")
	if m := cat.Metadata("t")[0]; m.Unit != "seconds" || m.Help != "help" || m.Kind != series.Counter ||
		m.LastSeen != hour {
		t.Errorf("metadata %+v", m)
	}
	cat.Resolve(hour, claim("classic timer c"))
	cat.Dirty()
	cat.Resolve(hour, claim("classic timer c"))
	expect("nothing new")
}

func TestForget(t *testing.T) {
	cat := New(3)
	cat.Resolve(10, claim("counter x", "x.old"))
	cat.Resolve(10, claim("counter x", "x"))
	cat.Resolve(20, claim("gauge x"))
	cat.Resolve(10, claim("classic timer h"))
	gone := cat.Forget(1<<40, 20)
	if len(gone) != 2 || gone[0].Name != "h" || gone[1].Name != "x" {
		t.Fatalf("Forget returned %+v", gone)
	}
	for _, m := range cat.Dirty() {
		if m.Name != "x_gauge" {
			t.Errorf("%s was forgotten, but is to be saved", m.Name)
		}
	}
	if name, _ := cat.Resolve(30, claim("gauge x")); name != "x_gauge" {
		t.Errorf("the gauge changed its name to %s because the counter ended", name)
	}
	if name, report := cat.Resolve(30, claim("counter h_count")); name != "h_count" || report.Finding != Nothing {
		t.Errorf("h is forgotten, but the counter h_count is stored as %s, finding %s", name, report.Finding)
	}
	if name, report := cat.Resolve(30, claim("counter x", "x.old")); name != "x" || report.Finding != Nothing {
		t.Errorf("a forgotten counter returns as %s, finding %s, want x", name, report.Finding)
	}
	if _, report := cat.Resolve(30, claim("counter x", "x")); report.Finding != NameCollision {
		t.Errorf("a forgotten name's raw name: got %s, want name_collision", report.Finding)
	}
	if _, report := cat.Resolve(30, claim("counter y")); report.Finding != Full {
		t.Errorf("a fourth name with room for three: got %s, want %s", report.Finding, Full)
	}
}

// A timer that got another name keeps it when the owner of the first name is forgotten.
func TestForgetOneFormOfATimer(t *testing.T) {
	cat := New(100)
	cat.Resolve(10, claim("timer y"))
	cat.Resolve(20, claim("classic timer y"))
	if gone := cat.Forget(1<<40, 20); len(gone) != 1 || gone[0].Name != "y" {
		t.Fatalf("Forget returned %+v", gone)
	}
	if name, _ := cat.Resolve(20, claim("classic timer y")); name != "y_classic" {
		t.Errorf("the classic timer is now stored as %s, want y_classic", name)
	}
	if name, _ := cat.Resolve(20, claim("timer y")); name != "y" {
		t.Errorf("the forgotten native timer returns as %s, want y", name)
	}
}

// Listeners resolve claims at the same time. Whichever comes first, each kind has one name, and no
// two kinds share a name.
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
				t.Errorf("%s and %s are both stored as %s", words, other, name)
			}
			kindOf[name] = words
			if again, _ := cat.Resolve(0, claim(words)); again != name {
				t.Errorf("%s is now stored as %s, want %s as before", words, again, name)
			}
		}
	}
}

// FuzzResolve checks the laws of names: each claim keeps its name, and no two different claims
// store anything under one name.
func FuzzResolve(f *testing.F) {
	f.Add([]byte("\x01a\x02a\x03a\x83a\x04a_count"))
	f.Add([]byte("\x83a\x01a_gauge\x02a\x02a_gauge"))
	names := []string{
		"x", "x_gauge", "x_gauge_gauge", "x_timer", "x_count", "x_timer_count", "x_classic", "x_bucket_gauge",
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		cat := New(1000)
		stored := map[string]owner{}
		last := map[owner]string{}
		for _, b := range script {
			in := &Claim{Tenant: "t", Name: names[b&7], Kind: series.Kind(1 + (b>>3&7)%5)}
			if in.Kind == series.Timer {
				in.Buckets = [...]string{"", "1", "1,2", "3"}[b>>6]
			}
			name, _ := cat.Resolve(0, in)
			by := in.owner()
			for _, s := range storedNames(name, in.Buckets != "") {
				if other, taken := stored[s]; taken && other != by {
					t.Fatalf("%v and %v are both stored as %s", by, other, s)
				}
				stored[s] = by
			}
			if before, ok := last[by]; ok && before != name {
				t.Fatalf("%v is now stored as %s, want %s as before", by, name, before)
			}
			last[by] = name
		}
		saved := cat.Dirty()
		if refused := New(1000).Load(saved); refused != 0 {
			t.Fatalf("%d of %d metrics refused", refused, len(saved))
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

// The series of a total may live on after its last sample. Its name then stays reserved, because
// otherwise another kind would write into the same series.
func TestForgetKeepsNamesOfSeriesThatLive(t *testing.T) {
	cat := New(3)
	cat.KeepFor(func(kind series.Kind) time.Duration {
		if kind == series.UpDown {
			return time.Hour
		}
		return time.Minute
	})
	cat.Resolve(0, &Claim{Tenant: "t", Name: "open", Raw: []byte("open"), Kind: series.UpDown})
	cat.Resolve(0, &Claim{Tenant: "t", Name: "hits", Raw: []byte("hits"), Kind: series.Counter})
	const minute = 60_000
	if gone := cat.Forget(30*minute, 20*minute); len(gone) != 1 || gone[0].Name != "hits" {
		t.Errorf("after 30 min: Forget returned %+v, want hits alone", gone)
	}
	if gone := cat.Forget(61*minute, 20*minute); len(gone) != 1 || gone[0].Name != "open" {
		t.Errorf("after 61 min: Forget returned %+v, want open alone", gone)
	}
}
