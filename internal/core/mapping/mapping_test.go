package mapping

import (
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/series"
)

func newMapper(t testing.TB, c Config, constant ...string) *Mapper {
	t.Helper()
	m, err := New(c, labels.FromStrings(constant...))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func count(name, tags string) *Input {
	return &Input{Type: dogstatsd.Count, Name: []byte(name), Tags: []byte(tags)}
}

func gauge(name, tags string) *Input {
	return &Input{Type: dogstatsd.Gauge, Name: []byte(name), Tags: []byte(tags)}
}

func TestKinds(t *testing.T) {
	m := newMapper(t, Config{})
	for typ, want := range map[dogstatsd.Type]series.Kind{
		dogstatsd.Count: series.Counter, dogstatsd.Gauge: series.Gauge, dogstatsd.Timing: series.Timer,
		dogstatsd.Histogram: series.Timer, dogstatsd.Distribution: series.Timer, dogstatsd.Set: series.Set,
	} {
		if got := m.Map(&Input{Type: typ, Name: []byte("a")}).Kind; got != want {
			t.Errorf("type %d: got a %s, want a %s", typ, got, want)
		}
	}
	if got := m.Map(&Input{Check: true, Name: []byte("a")}).Kind; got != series.Check {
		t.Errorf("check: got a %s", got)
	}
}

// TestManual covers most cases of names; these are the cases that Markdown cannot show.
func TestNames(t *testing.T) {
	legacy, utf8 := newMapper(t, Config{}), newMapper(t, Config{UTF8Names: true})
	for _, c := range []struct {
		why        string
		name, tags string
		want       string
		wantUTF8   string
	}{
		{"a valid name stays", "abc_09Z", "k_09Z:v", `abc_09Z{k_09Z="v"}`, `abc_09Z{k_09Z="v"}`},
		{"dots need the option", "a.b", "c.d:e.f", `a_b{c_d="e.f"}`, `a.b{"c.d"="e.f"}`},
		{"a character is one underscore, however many bytes", "a日b", "", `a_b`, `a日b`},
		{"bytes that are no character are one underscore each", "a\xff\xfeb", "", `a__b`, "a\uFFFDb"},
		{"bytes that are no character, in a key", "a", "k\xff:v", `a{k_="v"}`, "a{\"k\uFFFD\"=\"v\"}"},
		{"bytes that are no character, in a value", "a", "k:v\xff\xfew", "a{k=\"v\uFFFDw\"}", "a{k=\"v\uFFFDw\"}"},
		{"two broken values become one, and are given once", "a", "k:\xff,k:\xfe", "a{k=\"\uFFFD\"}", "a{k=\"\uFFFD\"}"},
		{"digits", "1.2", "3:4", `_1_2{_3="4"}`, `1.2{"3"="4"}`},
		{"commas alone are no tags", "a", ",,", `a`, `a`},
		{"spaces belong to the key", "a", "b:1, c:2", `a{_c="2", b="1"}`, `a{" c"="2", b="1"}`},
		{"a lone colon", "a", ":", `a{_="true"}`, `a{":"="true"}`},
		{"an empty value adds nothing to others", "a", "k:,k:v", `a{k="v"}`, `a{k="v"}`},
		{"a bare tag is a value like others", "a", "k,k:v", `a{k="true,v"}`, `a{k="true,v"}`},
		{"upper case is not le", "a", "LE:1", `a{LE="1"}`, `a{LE="1"}`},
		{"a name that becomes reserved by losing its dots", "a", "..x:1", `a{tag___x="1"}`, `a{"..x"="1"}`},
		{"a forged name joins nothing", "a", "__name__:b,tag___name__:c", `a{tag___name__="b,c"}`, `a{tag___name__="b,c"}`},
		{"quotes and line breaks are text", "a", "k:\"}\n", `a{k="\"}\n"}`, `a{k="\"}\n"}`},
	} {
		in := count(c.name, c.tags)
		if got := show(legacy.Map(in)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.why, got, c.want)
		}
		if got := show(utf8.Map(in)); got != c.wantUTF8 {
			t.Errorf("%s, utf8_names: got %s, want %s", c.why, got, c.wantUTF8)
		}
	}
}

func TestAddedLabels(t *testing.T) {
	all := []string{"container_id", "pod_uid", "container_name"}
	origin := dogstatsd.Origin{Container: []byte("abc"), External: []byte("it-false,cn-web,pu-77")}
	private := origin
	private.Cardinality = []byte("none")
	for _, c := range []struct {
		why      string
		origin   []string
		constant []string
		in       Input
		want     string
	}{
		{"constant labels are added", nil, []string{"host", "web-1", "dc", "x"}, Input{}, `a{dc="x", host="web-1"}`},
		{"but the sender's label wins", nil, []string{"host", "web-1"}, Input{Tags: []byte("host:db-1")}, `a{host="db-1"}`},
		{"the sender's empty label means no label", nil, []string{"host", "web-1"}, Input{Tags: []byte("host:")}, `a`},
		{"a check's host", nil, []string{"host", "web-1"}, Input{Check: true, Host: []byte("db-1")}, `a{host="db-1"}`},
		{"a check's host and a tag, as a key given twice",
			nil, nil, Input{Check: true, Host: []byte("h2"), Tags: []byte("host:h1")}, `a{host="h1,h2"}`},
		{"origin is no label by default", nil, nil, Input{Origin: origin}, `a`},
		{"origin labels", all, nil, Input{Origin: origin}, `a{container_id="abc", container_name="web", pod_uid="77"}`},
		{"only the listed ones", all[1:2], nil, Input{Origin: origin}, `a{pod_uid="77"}`},
		{"card:none", all, nil, Input{Origin: private}, `a`},
		{"the sender's own before its origin", all[:1], nil, Input{Origin: origin, Tags: []byte("container_id:mine")},
			`a{container_id="mine"}`},
		{"origin before constant", all[:1], []string{"container_id", "const"}, Input{Origin: origin},
			`a{container_id="abc"}`},
		{"the id of a container that says only the inode of its cgroup", all[:1], nil,
			Input{Origin: dogstatsd.Origin{Inode: []byte("4026")}, Pod: &Pod{ContainerID: "abc"}}, `a{container_id="abc"}`},
		{"nothing known of the origin", all, nil, Input{Origin: dogstatsd.Origin{External: []byte("pu-,cn-")}}, `a`},
	} {
		m := newMapper(t, Config{OriginLabels: c.origin}, c.constant...)
		c.in.Name = []byte("a")
		if !c.in.Check {
			c.in.Type = dogstatsd.Count
		}
		if got := show(m.Map(&c.in)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.why, got, c.want)
		}
		if got := m.OriginLabels(); got != (len(c.origin) > 0) {
			t.Errorf("%s: OriginLabels() = %v", c.why, got)
		}
	}
}

// What Kubernetes knows of a pod becomes labels, as far as the client wants them. What the client says comes first.
func TestPodLabels(t *testing.T) {
	pod := &Pod{Name: "shop-0", Namespace: "web", UID: "u-1", Container: "shop", ContainerID: "xyz",
		Labels: map[string]string{"app": "s", "b": ""}}
	all := Config{OriginLabels: []string{"container_id", "pod_uid", "container_name", "pod_name", "kube_namespace"},
		PodLabels: map[string]string{"app": "application", "b": "empty", "c": "missing"}}
	const low = `a{application="s", container_name="shop", kube_namespace="web"`
	for _, c := range []struct {
		why, cardinality, external string
		config                     Config
		pod                        *Pod
		want                       string
	}{
		{"all", "", "", all, pod, `a{application="s", container_id="abc", container_name="shop", kube_namespace="web", ` +
			`pod_name="shop-0", pod_uid="u-1"}`},
		{"those of a workload", "low", "", all, pod, low + `}`},
		{"those of a pod", "orchestrator", "", all, pod, low + `, pod_name="shop-0", pod_uid="u-1"}`},
		{"none", "none", "", all, pod, `a`},
		{"the client's own", "", "cn-mine,pu-u-2", all, pod, `a{application="s", container_id="abc", container_name="mine", ` +
			`kube_namespace="web", pod_name="shop-0", pod_uid="u-2"}`},
		{"no pod is known", "", "", all, nil, `a{container_id="abc"}`},
		{"only the listed ones", "", "", Config{PodLabels: map[string]string{"app": "app"}}, pod, `a{app="s"}`},
		{"none is listed", "", "", Config{}, pod, `a`},
	} {
		m := newMapper(t, c.config)
		in := Input{Type: dogstatsd.Count, Name: []byte("a"), Pod: c.pod, Origin: dogstatsd.Origin{Container: []byte("abc"),
			External: []byte(c.external), Cardinality: []byte(c.cardinality)}}
		if got := show(m.Map(&in)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.why, got, c.want)
		}
	}
	if _, err := New(Config{PodLabels: map[string]string{"app": "a-b"}}, labels.EmptyLabels()); err == nil ||
		!strings.Contains(err.Error(), "mapping.pod_labels.app") {
		t.Errorf("a label that no series can have: %v", err)
	}
}

func text(s string) Optional { return Optional{Text: s, Given: true} }

func TestRules(t *testing.T) {
	regex := func(r Rule) Rule { r.MatchType = "regex"; return r }
	for _, c := range []struct {
		why   string
		rules []Rule
		in    *Input
		rule  int
		want  string
	}{
		{"the first match wins, though a later one is exact",
			[]Rule{{Match: "a.*", Name: "glob"}, {Match: "a.b", Name: "exact"}}, count("a.b", ""), 0, "glob"},
		{"the first match wins, though an earlier one is exact",
			[]Rule{{Match: "a.b", Name: "exact"}, {Match: "a.*", Name: "glob"}}, count("a.b", ""), 0, "exact"},
		{"exact rules of one name differ by kind",
			[]Rule{{Match: "a", MetricType: "gauge", Name: "g"}, {Match: "a", MetricType: "counter", Name: "c"}}, count("a", ""),
			1, "c"},
		{"a rule for another kind is passed over",
			[]Rule{{Match: "*", MetricType: "set", Name: "s"}, regex(Rule{Match: ".*", Name: "r"})}, count("a", ""), 1, "r"},
		{"no rule", []Rule{{Match: "b"}}, count("a.b", ""), -1, "a_b"},
		{"a rule without a name keeps it", []Rule{{Match: "a.b", Labels: map[string]string{"x": "y"}}}, count("a.b", ""), 0,
			`a_b{x="y"}`},
		{"a glob has as many parts as the name", []Rule{{Match: "*.b"}, {Match: "*.*.*"}}, count("a.b.c.d", ""), -1,
			"a_b_c_d"},
		{"a part may be empty", []Rule{{Match: "a.*.c", Name: "n", Labels: map[string]string{"x": "$1"}}},
			count("a..c", "x:was"), 0, "n"},
		{"dots in a glob are dots", []Rule{{Match: "a.*"}}, count("axb", ""), -1, "axb"},
		{"a regex is anchored", []Rule{regex(Rule{Match: "b|c"})}, count("abc", ""), -1, "abc"},
		{"a group that took no part is empty", []Rule{regex(Rule{Match: "a(b)?(c)", Name: "n$1$2"})}, count("ac", ""), 0,
			"nc"},
		{"the raw name is matched, not what becomes of it", []Rule{{Match: "a_b", Name: "n"}}, count("a.b", ""), -1, "a_b"},
		{"digits end a reference", []Rule{{Match: "*.*", Name: "n_$2_$1"}}, count("x.y", ""), 0, "n_y_x"},
		{"the text of a reference is made valid",
			[]Rule{regex(Rule{Match: "(.*)", Name: "$1", Labels: map[string]string{"v": "$1"}})}, count("\xff-é{", ""), 0,
			"____{v=\"\uFFFD-é{\"}"},
		{"a rule's label overrides", []Rule{{Match: "a", Labels: map[string]string{"x": "rule"}}}, count("a", "x:sender"), 0,
			`a{x="rule"}`},
		{"an empty label removes", []Rule{{Match: "a", Labels: map[string]string{"x": ""}}}, count("a", "x:sender"), 0, `a`},
		{"dropped first, then set", []Rule{{Match: "a", DropLabels: []string{"x"}, Labels: map[string]string{"x": "rule"}}},
			count("a", "x:sender"), 0, `a{x="rule"}`},
		{"a label that is not there", []Rule{{Match: "a", DropLabels: []string{"x"}}}, count("a", "y:1"), 0, `a{y="1"}`},
		{"dropped", []Rule{{Match: "a", Action: "drop"}}, count("a", ""), 0, "dropped"},

		{"relabel may rename, and what it makes is valid",
			[]Rule{{Match: "a", Relabel: []Relabel{{SourceLabels: []string{"x"}, TargetLabel: "__name__"}}}},
			count("a", "x:1.b"), 0, `_1_b{x="1.b"}`},
		{"a name that relabel takes away stays",
			[]Rule{{Match: "a", Relabel: []Relabel{{Regex: text("x"), Action: "labelkeep"}}}}, count("a", "x:1,y:2"), 0,
			`a{x="1"}`},
		{"scratch labels end with the rule",
			[]Rule{{
				Match: "a",
				Relabel: []Relabel{
					{SourceLabels: []string{"x"}, TargetLabel: "__tmp"}, {SourceLabels: []string{"__tmp"}, TargetLabel: "y"},
				},
			}},
			count("a", "x:1"), 0, `a{x="1", y="1"}`},
		{"relabel forges no bucket",
			[]Rule{{Match: "a", Relabel: []Relabel{{Regex: text("x(.*)"), Replacement: text("${1}"), Action: "labelmap"}}}},
			count("a", "xle:1,x-:2"), 0, `a{_="2", tag_le="1", x_="2", xle="1"}`},
		{"an empty replacement removes",
			[]Rule{{Match: "a", Relabel: []Relabel{{TargetLabel: "x", Replacement: text("")}}}}, count("a", "x:1"), 0, `a`},
		{"an empty separator is none",
			[]Rule{{Match: "a", Relabel: []Relabel{{SourceLabels: []string{"x", "y"}, Separator: text(""), TargetLabel: "z"}}}},
			count("a", "x:1,y:2"), 0, `a{x="1", y="2", z="12"}`},
		{"keep", []Rule{{Match: "a", Relabel: []Relabel{{SourceLabels: []string{"x"}, Regex: text("1"), Action: "keep"}}}},
			count("a", "x:2"), 0, "dropped"},
	} {
		out := newMapper(t, Config{Rules: c.rules}).Map(c.in)
		if got := show(out); got != c.want || out.Rule != c.rule {
			t.Errorf("%s: got %s by rule %d, want %s by rule %d", c.why, got, out.Rule, c.want, c.rule)
		}
		if !out.Drop && out.Name != out.Labels().Get(model.MetricNameLabel) {
			t.Errorf("%s: Name is %q", c.why, out.Name)
		}
	}
}

func TestRulesBeyondLabels(t *testing.T) {
	m := newMapper(t, Config{Rules: []Rule{
		{Match: "plain"},
		{Match: "timer", Scale: 0.001, Unit: "seconds", Help: "How long.", Buckets: []float64{1, 2}},
		{Match: "fine", NativeSchema: text("-1"), MaxBuckets: 20, Name: "fine"},
		{Match: "renamed", Relabel: []Relabel{{TargetLabel: "__name__", Replacement: text("other")}}},
	}})
	as := func(name string, kind dogstatsd.Type) Output { return m.Map(&Input{Type: kind, Name: []byte(name)}) }

	for _, name := range []string{"unmatched", "plain"} {
		if out := as(name, dogstatsd.Count); out.Policy != &series.DefaultPolicy || out.Scale != 1 || out.Named {
			t.Errorf("%s: got %+v, want the defaults", name, out)
		}
	}
	out := as("timer", dogstatsd.Timing)
	if out.Scale != 0.001 || out.Unit != "seconds" || out.Help != "How long." || len(out.Policy.Bounds) != 2 {
		t.Errorf("timer: got %+v", out)
	}
	if got := as("timer", dogstatsd.Set).Scale; got != 1 {
		t.Errorf("a set of numbers is scaled by %v, although its values are only counted", got)
	}
	if got := m.Map(&Input{Check: true, Name: []byte("timer")}).Scale; got != 1 {
		t.Errorf("a status is scaled by %v", got)
	}
	out = as("fine", dogstatsd.Timing)
	if p := out.Policy; p.Schema != -1 || p.MaxBuckets != 20 || p.Bounds != nil || !out.Named {
		t.Errorf("metric \"fine\": got %+v, policy %+v", out, p)
	}
	if !as("renamed", dogstatsd.Count).Named {
		t.Error("a name that relabelling chose is not Named")
	}
	if _, err := series.ParsePolicy(series.AppendPolicy(nil, out.Policy)); err != nil {
		t.Error(err)
	}
}

// A rule turns the counters that it matches into up/down counters, and leaves other kinds as they
// are.
func TestUpDown(t *testing.T) {
	m := newMapper(t, Config{Rules: []Rule{{Match: "open", UpDown: true, Name: "open_now", Scale: 10}, {Match: "hits"}}})
	as := func(name string, kind dogstatsd.Type) Output { return m.Map(&Input{Type: kind, Name: []byte(name)}) }
	if out := as("open", dogstatsd.Count); out.Kind != series.UpDown || out.Name != "open_now" || out.Scale != 10 ||
		out.Source != 0 {
		t.Errorf("a count: %+v", out)
	}
	for _, out := range []Output{as("open", dogstatsd.Gauge), as("open", dogstatsd.Timing), as("hits", dogstatsd.Count),
		as("other", dogstatsd.Count)} {
		if out.Kind == series.UpDown {
			t.Errorf("%+v", out)
		}
	}
	if !m.UpDown() || newMapper(t, Config{Rules: []Rule{{Match: "hits"}}}).UpDown() {
		t.Error("UpDown() does not report whether any rule sets updown")
	}
}

// Clients send values of type ms in milliseconds, and values of types h and d in any unit. So a
// rule that turns milliseconds into seconds must be able to leave h and d alone.
func TestTimings(t *testing.T) {
	m := newMapper(t, Config{Rules: []Rule{
		{Match: "x", MetricType: "timing", Scale: 0.001},
		{Match: "x", MetricType: "timer", Scale: 10},
	}})
	for typ, want := range map[dogstatsd.Type]float64{
		dogstatsd.Timing: 0.001, dogstatsd.Histogram: 10, dogstatsd.Distribution: 10, dogstatsd.Count: 1,
	} {
		if got := m.Map(&Input{Type: typ, Name: []byte("x")}).Scale; got != want {
			t.Errorf("type %d: scale %v, want %v", typ, got, want)
		}
	}
}

// A tile adds up the values of a gauge's sources. So each source must have a number of its own,
// which is the same in every process.
func TestSource(t *testing.T) {
	m := newMapper(t, Config{Rules: []Rule{
		{Match: "sum", DropLabels: []string{"host", "worker"}, GaugeMerge: "sum"},
		{Match: "last", DropLabels: []string{"worker"}},
		{Match: "by.*", Name: "together", GaugeMerge: "max"},
	}}, "host", "web-1")
	one, two := m.Map(gauge("sum", "worker:1,q:a")), m.Map(gauge("sum", "worker:2,q:a"))
	if !labels.Equal(one.Labels(), two.Labels()) || one.Source == two.Source || one.Source == 0 || two.Source == 0 {
		t.Errorf("two workers: got %s from source %x and %s from %x, want the same labels from two sources",
			one.Labels(), one.Source, two.Labels(), two.Source)
	}
	if again := m.Map(gauge("sum", "q:a,worker:1")); again.Source != one.Source {
		t.Error("another order of tags makes another source")
	}
	if one.Source != 0x236c0204a409281b {
		t.Errorf("source %#x: journals on disk hold another number for this source", one.Source)
	}
	if a, b := m.Map(gauge("by.a", "")), m.Map(gauge("by.b", "")); a.Source == b.Source {
		t.Error("two metrics that a rule merges have the same source")
	}
	if out := m.Map(gauge("last", "worker:1")); out.Source != 0 {
		t.Error("a gauge has a source, although only its last value counts")
	}
	if out := m.Map(count("sum", "worker:1")); out.Source != 0 {
		t.Error("a counter has a source, although its increments add up without one")
	}
}

func TestAnotherName(t *testing.T) {
	out := newMapper(t, Config{}).Map(count("a", "B:1,c:2"))
	out.Name = "a_counter"
	if got := show(out); got != `a_counter{B="1", c="2"}` || out.Name != "a_counter" {
		t.Errorf("got %s, %s", got, out.Name)
	}
}

func TestProblems(t *testing.T) {
	tooMany := make([]float64, series.MaxBounds+1)
	for i := range tooMany {
		tooMany[i] = float64(i)
	}
	for _, c := range []struct {
		why  string
		rule Rule
		want string // after "mapping.rules[1]."
	}{
		{"match is missing", Rule{}, `match: is missing; `},
		{"no such way to match", Rule{Match: "a", MatchType: "globb"},
			`match_type = "globb": is not known; set it to one of glob, regex`},
		{"* inside a part", Rule{Match: "a*.b"},
			`match = "a*.b": part "a*" mixes * with text, but * must be a whole part between dots; use match_type: regex`},
		{"not a regex", Rule{Match: "a(", MatchType: "regex"}, `match = "a(": is not a regular expression: `},
		{"no such kind", Rule{Match: "a", MetricType: "histogram"},
			`match_metric_type = "histogram": is not known; set it to one of counter, gauge, timer, timing, set, check`},
		{"no such action", Rule{Match: "a", Action: "keep"}, `action = "keep": is not known; set it to one of map, drop`},
		{"no such merge", Rule{Match: "a", GaugeMerge: "avg"},
			`gauge_merge = "avg": is not known; set it to one of last, sum, min, max`},
		{"a gauge that goes up and down", Rule{Match: "a", MetricType: "gauge", UpDown: true},
			`updown = true: is for counters only, `},
		{"a dropped metric cannot be an up/down counter",
			Rule{Match: "a", Action: "drop", UpDown: true}, `updown = true: has no meaning for a rule that drops; `},
		{"no such histogram", Rule{Match: "a", Histogram: "summary"},
			`histogram = "summary": is not known; set it to one of native, classic`},
		{"a name that is no name", Rule{Match: "a", Name: "a.b"}, `name = "a.b": would be stored as a name such as "a_b"; `},
		{"a reference to nothing", Rule{Match: "a.*", Name: "a_$2"},
			`name = "a_$2": $2 refers to nothing: match has 1 wildcards or groups`},
		{"a group of another name", Rule{Match: "(?P<x>a)", MatchType: "regex", Name: "${y}"},
			`name = "${y}": $y refers to nothing`},
		{"a reference too large for a number", Rule{Match: "a", Name: "$99999999999999999999"},
			`name = "$99999999999999999999": $99999999999999999999 refers to nothing`},
		{"a dollar sign by itself", Rule{Match: "a", Labels: map[string]string{"x": "5$"}},
			`labels.x = "5$": a $ refers to nothing; write $1, ${1} or, for a dollar sign, $$`},
		{"a label that would be a bucket", Rule{Match: "a", Labels: map[string]string{"le": "1"}},
			`labels.le = "le": no label has this name; write tag_le, `},
		{"a label that would be scratch", Rule{Match: "a", Labels: map[string]string{"__x": "1"}},
			`labels.__x = "__x": no label has this name; write tag___x, `},
		{"a label without a name", Rule{Match: "a", Labels: map[string]string{"": "1"}}, `labels. = "": a label has no name`},
		{"a series keeps its name", Rule{Match: "a", DropLabels: []string{"ok", "__name__"}},
			`drop_labels[1] = "__name__": is the metric's name, not a label; `},
		{"a name that no label can have", Rule{Match: "a", DropLabels: []string{"a.b"}},
			`drop_labels[0] = "a.b": no label has this name; write a_b, `},
		{"an unknown relabel action", Rule{Match: "a", Relabel: []Relabel{{Action: "rename"}}},
			`relabel[0].action = "rename": is not known; `},
		{"a step's regex", Rule{Match: "a", Relabel: []Relabel{{Regex: text("("), TargetLabel: "x"}}},
			`relabel[0].regex = "(": is not a regular expression: `},
		{"a step without a target", Rule{Match: "a", Relabel: []Relabel{{}}},
			`relabel[0]: relabel configuration for replace action requires 'target_label' value; `},
		{"a step that would make a bucket", Rule{Match: "a", Relabel: []Relabel{{TargetLabel: "le"}}},
			`relabel[0].target_label = "le": no label has this name; write tag_le`},
		{"a negative scale", Rule{Match: "a", Scale: -1}, `scale = -1: would make counters fall or become infinite; `},
		{"native with buckets", Rule{Match: "a", Histogram: "native", Buckets: []float64{1}},
			`buckets: a native histogram makes its own buckets; `},
		{"classic without", Rule{Match: "a", Histogram: "classic"}, `buckets: a classic histogram needs its upper bounds; `},
		{"classic with a schema", Rule{Match: "a", Buckets: []float64{1}, NativeSchema: text("1")},
			`native_schema = "1": has no meaning for a classic histogram; `},
		{"classic with a bound on native ones", Rule{Match: "a", Buckets: []float64{1}, MaxBuckets: 9},
			`max_buckets = 9: has no meaning for a classic histogram; `},
		{"buckets that go down", Rule{Match: "a", Buckets: []float64{2, 1}},
			`buckets[1] = 1: is not above the bound before it (2); `},
		{"a bucket twice", Rule{Match: "a", Buckets: []float64{1, 1}},
			`buckets[1] = 1: is not above the bound before it (1); `},
		{"too many buckets", Rule{Match: "a", Buckets: tooMany}, `buckets: has 257 bounds, and a series may have 256; `},
		{"no such schema", Rule{Match: "a", NativeSchema: text("9")},
			`native_schema = "9": is not a schema of Prometheus; set it to -4 (coarsest) to 8 (finest)`},
		{"a schema that is no number", Rule{Match: "a", NativeSchema: text("fine")},
			`native_schema = "fine": is not a schema of `},
		{"more buckets than fit", Rule{Match: "a", MaxBuckets: 65536},
			`max_buckets = 65536: is out of range; set it to 1 to 65535, or leave it out for 160`},
	} {
		_, err := New(Config{Rules: []Rule{{Match: "fine"}, c.rule}}, labels.EmptyLabels())
		if want := "mapping.rules[1]." + c.want; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v\nwant %s...", c.why, err, want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: one mistake is reported as several: %v", c.why, err)
		} else if !strings.Contains(err.Error(), ";") && !strings.Contains(err.Error(), "refers to") {
			t.Errorf("%s: the message does not say what to do: %v", c.why, err)
		}
	}
}

func TestProblemsOutsideRules(t *testing.T) {
	_, err := New(Config{OriginLabels: []string{"pod_uid", "pod"}},
		labels.FromStrings("le", "1", "a.b", "c", "ok", "\xff"))
	want := `mapping.origin_labels[1] = "pod": is not known; set it to one of container_id, pod_uid, container_name, pod_name, kube_namespace
constant label "a.b": no label has this name; write a_b, the label that a tag of this name becomes
constant label "le": no label has this name; write tag_le, the label that a tag of this name becomes
constant label "ok" = "\xff": is not UTF-8; write the value in UTF-8`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// All problems of a file are reported at once, each with its line.
func TestProblemsInAFile(t *testing.T) {
	_, err := load(t, `
mapping:
  rules:
    - match: a*
      native_schema: 12
    - match: ok
      relabel:
        - action: drop
          regex: "["
      labels: {le: x}
`)
	if err == nil {
		t.Fatal("no error")
	}
	got := regexpFile.ReplaceAllString(err.Error(), "")
	for _, want := range []string{
		`4: mapping.rules[0].match = a*: part "a*" mixes`,
		`5: mapping.rules[0].native_schema = 12: is not a schema of`,
		`9: mapping.rules[1].relabel[0].regex = [: is not a regular`,
		`10: mapping.rules[1].labels.le = x: no label has this name`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if t.Failed() {
		t.Logf("got:\n%s", got)
	}
}
