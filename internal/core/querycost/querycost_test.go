package querycost

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/sender"
)

const begin = 1_700_000_000 // Unix seconds

func asker(i int) Asker {
	return AskerOf(sender.Of(fmt.Sprintf("10.0.%d.%d:99", i>>8, i&255), "Grafana/12"), "ab12", fmt.Sprint(i))
}

func (t *Table) ask(now int64, tenant, text string, from Asker, running time.Duration) {
	q := &Query{Tenant: tenant, Text: text, Range: time.Hour, Step: 15 * time.Second, Asker: from}
	t.End(now, t.Begin(now, q), q,
		&Cost{Running: running, Waited: time.Second, Samples: 1000, Series: 10, Failed: running == 0})
}

// The costliest query comes first, with its askers and its longest example. Queries that differ only in
// values share a row. Tenants have separate rows.
func TestCosts(t *testing.T) {
	table := New()
	for second := int64(0); second < 120; second++ {
		table.ask(begin+second, "a", fmt.Sprintf(`sum(rate(x{pod="p%d"}[%ds]))`, second, second), asker(3),
			100*time.Millisecond)
		table.ask(begin+second, "b", `sum(rate(x{pod="p"}[5m]))`, asker(1), time.Millisecond)
	}
	table.ask(begin+119, "a", `sum( rate(x{pod='long'}[9m]))`, asker(7), 5*time.Second)
	table.ask(begin+119, "a", "up", asker(7), 0)
	table.Begin(begin+119, &Query{Tenant: "c", Text: "waits"})
	got := table.Report(begin+119, 10)
	if len(got) != 4 || got[0].Tenant != "a" || got[0].Query != "sum(rate(x{pod=?}[?]))" || got[1].Tenant != "b" ||
		got[2].Query != "waits" || got[2].Active != 1 {
		t.Fatalf("%+v", got)
	}
	// The table counts the last 70 s: the current step, and the six steps before it.
	r := got[0]
	if r.Queries != 71 || r.Failed != 0 || r.Running < 11.9 || r.Running > 12.1 || r.Waited != 71 || r.Samples != 71_000 ||
		r.Series != 710 {
		t.Errorf("%+v", r)
	}
	if r.Longest != 5 || r.Example != `sum( rate(x{pod='long'}[9m]))` || r.Range != 3600 || r.Step != 15 {
		t.Errorf("%+v", r)
	}
	if want := []string{"10.0.0.3 (Grafana/12), dashboard ab12, panel 3",
		"10.0.0.7 (Grafana/12), dashboard ab12, panel 7"}; !slices.Equal(r.Askers, want) {
		t.Errorf("asked by %q", r.Askers)
	}
	if got[3].Failed != 1 {
		t.Errorf("%+v", got[3])
	}
	if got := table.Report(begin+119+Span+step, 10); len(got) != 1 || got[0].Query != "waits" {
		t.Errorf("a minute later: %+v", got)
	}
}

// Askers of long ago are forgotten, together with their times. This also holds while others ask the
// same query, and when new askers need room.
func TestWhoAskedLongAgoIsForgotten(t *testing.T) {
	table := New()
	for i := range maxAskers {
		table.ask(begin, "a", "up", asker(i), 1000*time.Second)
	}
	for i := range int64(50) {
		table.ask(begin+99_000+i, "a", "up", asker(100), 10*time.Second)
	}
	got := table.Report(begin+99_050, 1)[0]
	if want := []string{asker(100).String()}; got.Queries != 50 || got.Longest != 10 || !slices.Equal(got.Askers, want) {
		t.Errorf("%+v", got)
	}
}

// When the longest query is forgotten, the table knows the next longest of the last minute.
func TestLongestOfTheLastMinute(t *testing.T) {
	table := New()
	for i, running := range []time.Duration{9 * time.Second, 5 * time.Second, time.Second} {
		table.ask(begin+int64(i)*30, "a", fmt.Sprintf("rate(x[%dm])", i), asker(i), running)
	}
	for at, want := range map[int64]struct {
		example string
		longest float64
	}{60: {"rate(x[0m])", 9}, 80: {"rate(x[1m])", 5}, 110: {"rate(x[2m])", 1}} {
		if got := table.Report(begin+at, 1)[0]; got.Example != want.example || got.Longest != want.longest {
			t.Errorf("%d s: %+v", at, got)
		}
	}
}

// Queries that differ only in values, spaces and comments are the same.
func TestNormal(t *testing.T) {
	for text, want := range map[string]string{
		`up`: "up",
		" sum by (job)\n(rate(http_2xx_total{job=\"a\", zone!~'b|c',x=~`\\d+`}[5m] offset 1h30m)) # why\n > 0.99e-5 ": `sum by (job) (rate(http_2xx_total{job=?,zone!~?,x=~?}[?] offset ?)) > ?-?`,
		`topk(5, x) + .5 + 0x1F + 1_000`:           `topk(?,x) + ? + ? + ?`,
		`{"my.metric", "a b"="c\"d"}`:              `{"my.metric","a b"=?}`,
		`label_replace(x, "a", "$1", "b", "(.*)")`: `label_replace(x,"a","$1","b","(.*)")`,
		`x{a="unfinished`:                          `x{a=?`,
		`x{a="\`:                                   `x{a=?`,
		`größe{a="ä"}`:                             `größe{a=?}`,
		"":                                         "",
		"#only":                                    "",
		`job:requests:rate5m @ 1700000000.5`:       `job:requests:rate5m @ ?`,
		"a\t\n #x\n+b":                             "a +b",
		`x{le=~"` + strings.Repeat("x", 100_000) + `"}`: `x{le=~?}`,
	} {
		if got := Normal(text); got != want {
			t.Errorf("Normal(%.100q) = %q, want %q", text, got, want)
		}
	}
}

// Laws for any text: the normal form is no longer than the text, and is its own normal form.
func FuzzNormal(f *testing.F) {
	for _, text := range []string{`sum(rate(x{a="b"}[5m]))`, "x # y\n+1", `{"a"='\'`, "`", `=~"`, "1..2e", "\xff\x00é9"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		form := Normal(text)
		if len(form) > len(text) || Normal(form) != form {
			t.Errorf("%q becomes %q, whose normal form is %q", text, form, Normal(form))
		}
	})
}

// For any queries, memory is bounded and each query is counted once. Rows whose queries are no
// longer asked make room.
func TestBounds(t *testing.T) {
	table := New()
	long := strings.Repeat("x", 100_000)
	for i := range maxRows + 50 {
		table.ask(begin, "a", fmt.Sprint("m", strings.Repeat("y", i), long),
			AskerOf(sender.Of("10.0.0.1:1", long), long, long), time.Second)
		table.ask(begin, "a", "same", asker(i), time.Second)
	}
	if n := len(table.rows); n > maxRows || n < maxRows-dropAtOnce {
		t.Errorf("%d rows", n)
	}
	var queries uint64
	for _, r := range table.Report(begin, maxRows+1) {
		queries += r.Queries
		long := func(by string) bool { return len(by) > 400 }
		if len(r.Query) > maxText || len(r.Example) > maxText || len(r.Askers) > maxAskers ||
			slices.ContainsFunc(r.Askers, long) {
			t.Errorf("a query of %d bytes, an example of %d bytes, want at most %d; %d askers, want at most %d",
				len(r.Query), len(r.Example), maxText, len(r.Askers), maxAskers)
		}
	}
	if queries != 2*(maxRows+50) {
		t.Errorf("%d queries", queries)
	}
	if r := table.Begin(begin+Span+2*step, &Query{Text: "new"}); r.ID == Others {
		t.Error("old queries make no room")
	}
}

// The row of a query stays for as long as the query runs.
func TestALongQueryKeepsItsRow(t *testing.T) {
	table := New()
	q := &Query{Tenant: "a", Text: "long"}
	running := table.Begin(begin, q)
	for i := range 2 * maxRows {
		table.ask(begin+int64(i), "b", strings.Repeat("x", i+1), asker(1), time.Millisecond)
	}
	now := int64(begin + 2*maxRows)
	table.End(now, running, q, &Cost{Running: time.Hour})
	if got := table.Report(now, 1); got[0].Query != "long" || got[0].Running != 3600 || got[0].Active != 0 {
		t.Errorf("%+v", got)
	}
}
