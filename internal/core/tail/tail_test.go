package tail

import (
	"fmt"
	"net/netip"
	"path"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/capture"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/sender"
)

const datagram = "page_views:1|c|#env:prod,page:/home\n" +
	"cpu:0.5|g|#env:test\n" +
	"page_views:oops|c|#env:prod\n" +
	"_sc|db.up|0|#env:prod\n" +
	"_e{6,2}:deploy|v7|#env:prod\n" +
	"nothing"

func ptr(n int32) *int32 { return &n }

func TestFilter(t *testing.T) {
	udp := sender.Sender{Addr: netip.MustParseAddrPort("10.1.2.3:5000")}
	unix := sender.Sender{PID: 7}
	for _, tt := range []struct {
		name   string
		filter Filter
		sender sender.Sender
		want   string // type and name of each line
	}{
		{"everything", Filter{}, udp, "counter page_views, gauge cpu,  page_views, check db.up, event deploy,  nothing"},
		{"a name", Filter{Name: "page_views"}, udp, "counter page_views,  page_views"},
		{"a stored name", Filter{Name: "db_up"}, udp, "check db.up"},
		{"a stored name that a rule has chosen", Filter{Name: "load"}, udp, "gauge cpu"},
		{"the name as sent still works", Filter{Name: "cpu"}, udp, "gauge cpu"},
		{"a glob of stored names", Filter{Name: "*_up"}, udp, "check db.up"},
		{"a glob of names", Filter{Name: "d*"}, udp, "check db.up, event deploy"},
		{"a tag, whatever its value has", Filter{Tags: []string{"page:*me"}}, udp, "counter page_views"},
		{"all of several tags", Filter{Tags: []string{"env:prod", "page:*"}}, udp, "counter page_views"},
		{"malformed lines", Filter{Malformed: true}, udp, " page_views,  nothing"},
		{"malformed lines with a tag", Filter{Malformed: true, Tags: []string{"env:*"}}, udp, " page_views"},
		{"a network", Filter{Name: "cpu", From: netip.MustParsePrefix("10.1.0.0/16")}, udp, "gauge cpu"},
		{"another network", Filter{From: netip.MustParsePrefix("10.2.0.0/16")}, udp, ""},
		{"a network, when the sender has no address", Filter{From: netip.MustParsePrefix("10.2.0.0/16")}, unix, ""},
		{"a process", Filter{Name: "cpu", PID: ptr(7), UID: ptr(0)}, unix, "gauge cpu"},
		{"another process", Filter{PID: ptr(8)}, unix, ""},
		{"root, when the sender's user is unknown", Filter{UID: ptr(0)}, udp, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for l := range New(tt.filter, storedNames(t)).Lines(&capture.Datagram{Sender: tt.sender, Data: []byte(datagram)}) {
				got = append(got, l.Type+" "+l.Name)
			}
			if got := strings.Join(got, ", "); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// storedNames returns a Stored that applies one mapping rule.
func storedNames(t testing.TB) Stored {
	t.Helper()
	mapper, err := mapping.New(mapping.Config{Rules: []mapping.Rule{{Match: "cpu", Name: "load"}}}, labels.EmptyLabels())
	if err != nil {
		t.Fatal(err)
	}
	return func(in *mapping.Input) []string {
		out := mapper.Map(in)
		return []string{out.Name}
	}
}

// Rules may choose a name by a tag, so the Selector asks Stored for each context. It asks once for a
// context, and again only after Forget.
func TestStoredNamesAreAskedOnce(t *testing.T) {
	asked := map[string]int{}
	s := New(Filter{Name: "a_home"}, func(in *mapping.Input) []string {
		asked[string(in.Tags)]++
		return []string{"a_" + strings.TrimPrefix(string(in.Tags), "page:")}
	})
	d := capture.Datagram{Data: []byte("a:1|c|#page:home\na:1|c|#page:cart\na:2|c|#page:home\na:2|c|#page:cart")}
	for round := 1; round <= 2; round++ {
		var got []string
		for l := range s.Lines(&d) {
			got = append(got, l.Text)
		}
		if want := "a:1|c|#page:home a:2|c|#page:home"; strings.Join(got, " ") != want || asked["page:home"] != round ||
			asked["page:cart"] != round {
			t.Errorf("lines %q, want %q; calls of Stored by context: %v", got, want, asked)
		}
		s.Forget()
	}
	for i := range 3 * maxKnown {
		d.Data = fmt.Appendf(d.Data[:0], "a:1|c|#page:%d", i)
		for range s.Lines(&d) {
		}
		if len(s.known) > maxKnown {
			t.Fatalf("%d contexts are remembered, want at most maxKnown", len(s.known))
		}
	}
}

func TestMalformedIsExplained(t *testing.T) {
	d := capture.Datagram{Time: 5, Network: "udp", Address: "127.0.0.1:8125", Data: []byte("a:oops|c|#k:v")}
	for l := range New(Filter{}, nil).Lines(&d) {
		if l.Malformed != "bad_value" || l.At != 2 || l.Expected == "" || l.Text != string(d.Data) ||
			l.Listener != "udp://127.0.0.1:8125" || l.Sender != "" || len(l.Tags) != 1 {
			t.Errorf("%+v", l)
		}
		return
	}
	t.Error("no line")
}

// Law: without the special characters of paths, globs match as in package path.
func FuzzMatch(f *testing.F) {
	f.Add("a*b?c", "axxbyc")
	f.Add("*", "")
	f.Add("*a*a*", "banana")
	f.Fuzz(func(t *testing.T, glob, text string) {
		if strings.ContainsAny(glob+text, `[]\/`) {
			return
		}
		for _, s := range glob + text {
			if s > 127 { // ? is a byte here and a rune in package path
				return
			}
		}
		want, err := path.Match(glob, text)
		if err != nil {
			return
		}
		if got := match(glob, []byte(text)); got != want {
			t.Errorf("match(%q, %q) = %v", glob, text, got)
		}
	})
}

// Bound: 300 ns for a line that does not match. A filter then keeps up with 3 million lines a
// second on its own core. Lines that match are few, since a person reads them.
func BenchmarkSelector(b *testing.B) {
	d := capture.Datagram{Data: []byte("page_views:1|c|#env:prod,page:home,host:web-1")}
	s := New(Filter{Name: "cpu*"}, storedNames(b))
	b.ReportAllocs()
	for b.Loop() {
		for range s.Lines(&d) {
			b.Fatal("passed")
		}
	}
}
