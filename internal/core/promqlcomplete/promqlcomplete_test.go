package promqlcomplete

import (
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// server has some names, and remembers for what it was asked.
type server struct{ asked []string }

func (s *server) Metrics(prefix string) []string {
	s.asked = append(s.asked, "metrics "+prefix)
	return []string{"http_errors_total", "http_requests_total", "my.metric", "ratio"}
}

func (s *server) Labels(selectors ...string) []string {
	s.asked = append(s.asked, "labels of "+strings.Join(selectors, " "))
	return []string{"__name__", "host", "http.status", "zone"}
}

func (s *server) Values(label string, selectors ...string) []string {
	s.asked = append(s.asked, label+" of "+strings.Join(selectors, " "))
	return []string{"a.example", `b"c`, "bell\a", "web-1", "web-2"}
}

// In each text | is the cursor. The completion is written as the replaced text, a colon and the options.
func TestAt(t *testing.T) {
	for _, tt := range []struct{ name, text, want, asks string }{
		{"an empty line names the metrics", "|", `: http_errors_total http_requests_total ratio {"my.metric"}`, "metrics "},
		{"the beginning of a metric", "http_r|", "http_r: http_requests_total", "metrics http_r"},
		{"a metric or a function", "rat|", "rat: rate( ratio", "metrics rat"},
		{"a function without arguments", "pi|", "pi: pi()", "metrics pi"},
		{"an aggregation", "topk|", "topk: topk", "metrics topk"},
		{"no experiments", "limitk|", "limitk: ", "metrics limitk"},
		{"an argument", "rate(http_e|[5m])", "http_e: http_errors_total", "metrics http_e"},
		{"a metric whose name needs quotes", "my|", `my: {"my.metric"}`, "metrics my"},
		{"an operand", "ratio / http_e|", "http_e: http_errors_total", "metrics http_e"},
		{"how to match", "ratio / o|", "o: on", "metrics o"},
		{"behind what is matched", "ratio / on (host) group|", "group: group group_left group_right", "metrics group"},
		{"an operator", "ratio o|", "o: offset or", ""},
		{"an operator behind a range", "rate(ratio[5m]) un|", "un: unless", ""},
		{"a modifier of a range", "rate(ratio[5m] a|)", "a: anchored and atan2", ""},
		{"the grouping before", "sum b|", "b: by", ""},
		{"the grouping behind", "sum(ratio) w|", "w: without", ""},
		{"nothing behind a grouping", "sum by (host) r|", "r: ", ""},
		{"an offset is a duration", "ratio offset 5|", ": ", ""},
		{"a range is a duration", "ratio[5|", ": ", ""},
		{"a number", "ratio + 1|", ": ", ""},
		{"labels of the metric", "ratio{ho|", "ho: host", "labels of ratio{}"},
		{"labels that need quotes", "ratio{|", `: "http.status" __name__ host zone`, "labels of ratio{}"},
		{"labels of any metric", "{z|}", "z: zone", "labels of "},
		{"labels among those that match so far", `ratio{host="a", z|`, "z: zone", `labels of ratio{host="a",}`},
		{"a metric or label in quotes", `{"h|`, `"h: "host" "http.status" "http_errors_total" "http_requests_total"`,
			"metrics h, labels of "},
		{"values", "ratio{host=|", `: "a.example" "b\"c" "bell\a" "web-1" "web-2"`, "host of ratio{}"},
		{"the beginning of a value", `ratio{host="web|`, `"web: "web-1" "web-2"`, `host of ratio{host=~"web.*"}`},
		{"a value of which a pattern takes signs literally", `ratio{host="a.|`, `"a.: "a.example"`,
			`host of ratio{host=~"a\\..*"}`},
		{"the quote behind the cursor stays", `ratio{host="a|"}`, `"a: "a.example`, `host of ratio{host=~"a.*"}`},
		{"values in single quotes", `ratio{host='b|`, `'b: 'b"c' 'bell\a'`, `host of ratio{host=~"b.*"}`},
		{"a backquote takes what needs no escape", "ratio{host=`b|", "`b: `b\"c`", `host of ratio{host=~"b.*"}`},
		{"values among those that match so far", `ratio{zone="x",host!="web|`, `"web: "web-1" "web-2"`,
			`host of ratio{zone="x",host=~"web.*"}`},
		{"a label that needs quotes", `{"http.status"="we|`, `"we: "web-1" "web-2"`,
			`http.status of {"http.status"=~"we.*"}`},
		{"a pattern may go on", `ratio{host=~"a|`, `"a: "a\\.example`, "host of ratio{}"},
		{"a pattern's last alternative", `ratio{host=~"x|web§`, `"x|web: "x|web-1 "x|web-2`, "host of ratio{}"},
		{"a label that is called like a keyword", `ratio{by="w|`, `"w: "web-1" "web-2"`, `by of ratio{by=~"w.*"}`},
		{"labels of the metrics behind the grouping", "sum by (ho|) (rate(ratio[5m]) / http_errors_total)", "ho: host",
			"labels of ratio http_errors_total"},
		{"labels that two sides share", "a / on (host, z|) b{x=\"y\"}", "z: zone", "labels of a b"},
		{"text in a string of a function", `label_replace(ratio, "h|`, `"h: `, ""},
		{"behind a comment", "# rat|", ": ", ""},
		{"several lines", "sum(\n  rat|", "rat: rate( ratio", "metrics rat"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sign := "|"
			if strings.Contains(tt.text, "§") { // the text has a | of its own
				sign = "§"
			}
			before, after, _ := strings.Cut(tt.text, sign)
			s := new(server)
			c := At(before+after, len(before), s)
			got := before[c.Start:] + ": " + strings.Join(c.Options, " ")
			if got != tt.want || strings.Join(s.asked, ", ") != tt.asks {
				t.Errorf("%s\ngot  %s\nwant %s\nthe server was asked for %q, want %q", tt.text, got, tt.want,
					strings.Join(s.asked, ", "), tt.asks)
			}
		})
	}
}

func TestCommon(t *testing.T) {
	for _, tt := range []struct {
		options []string
		want    string
	}{
		{nil, ""},
		{[]string{"rate("}, "rate("},
		{[]string{"http_errors", "http_requests"}, "http_"},
		{[]string{"zürich", "züge"}, "zü"},
		{[]string{"é", "è"}, ""}, // their first bytes are equal
	} {
		if got := (Completion{Options: tt.options}).Common(); got != tt.want {
			t.Errorf("%q begin with %q, want %q", tt.options, got, tt.want)
		}
	}
}

// A string that is offered reads as the value in PromQL.
func TestQuoted(t *testing.T) {
	for _, value := range []string{"", "web-1", `a"b`, `a'b`, "a`b", `a\b`, "bell\a\x1b[0m", "zürich\u202e", "a\xff"} {
		for _, quote := range []string{`"`, `'`, "`"} {
			text := quoted(value, quote)
			if text == "" {
				continue
			}
			if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
				t.Errorf("%q has characters that control a terminal", text)
			}
			if got := unquoted(parser.Item{Val: text}); got != value {
				t.Errorf("%s reads %q, want %q", text, got, value)
			}
		}
	}
}

// At takes any text and any cursor that a terminal can hand it.
func FuzzAt(f *testing.F) {
	for _, text := range []string{
		"", "rat", `ratio{host="we`, "a / on (", `{"`, "'", "\\", "x[", ")]}", "ratio{host=~`a|", "# c",
	} {
		f.Add(text, len(text))
	}
	f.Fuzz(func(t *testing.T, text string, cursor int) {
		if cursor < 0 || cursor > len(text) {
			return
		}
		c := At(text, cursor, new(server))
		if c.Start < 0 || c.Start > cursor {
			t.Errorf("%q: replaces from %d to the cursor at %d", text, c.Start, cursor)
		}
		for _, o := range c.Options {
			if !strings.HasPrefix(o, c.Common()) {
				t.Errorf("%q: the option %q does not begin with the common %q", text, o, c.Common())
			}
		}
	})
}
