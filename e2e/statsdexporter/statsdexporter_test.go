package statsdexporter_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	theirs "github.com/prometheus/statsd_exporter/pkg/mapper"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	ours "github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/mapping/statsdexporter"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

var update = flag.Bool("update", false, "rewrite the converted files in testdata")

// pair is statsd_exporter's mapper with a file, and our mapper with the converted file.
type pair struct {
	theirs theirs.MetricMapper
	ours   *ours.Mapper
	text   statsdexporter.Conversion
}

func newPair(t testing.TB, file string) *pair {
	t.Helper()
	p := &pair{}
	if err := p.theirs.InitFromYAMLString(file); err != nil {
		t.Fatalf("statsd_exporter refuses the file: %v\n%s", err, file)
	}
	var err error
	if p.text, err = statsdexporter.Convert([]byte(file)); err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	if p.ours, err = ours.New(load(t, p.text.Text), labels.EmptyLabels()); err != nil {
		t.Fatalf("%v\n%s", err, p.text.Text)
	}
	return p
}

// load reads a converted file as the program reads its configuration.
func load(t testing.TB, text string) ours.Config {
	t.Helper()
	file := t.TempDir() + "/freshet.yaml"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	type root struct {
		DogStatsD  settings.DogStatsD  `yaml:"dogstatsd"`
		Mapping    ours.Config         `yaml:"mapping"`
		Aggregator settings.Aggregator `yaml:"aggregator"`
	}
	schema := conf.New("X", root{DogStatsD: settings.DefaultDogStatsD(), Aggregator: settings.DefaultAggregator()})
	c, err := schema.Load(file, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c.Mapping
}

// line is one measurement with a tag.
type line struct {
	kind       theirs.MetricType
	typ        dogstatsd.Type
	name       string
	key, value string // the tag's
}

func (l line) String() string { return fmt.Sprintf("%s %s %s:%s", l.kind, l.name, l.key, l.value) }

// theirSeries does what statsd_exporter does around its mapper: it adds labels by honor_labels, and
// escapes the name last.
func (p *pair) theirSeries(l line) string {
	m, mapped, present := p.theirs.GetMapping(l.name, l.kind)
	scale := 1.0
	if l.typ == dogstatsd.Timing {
		scale = 1. / 1000
	}
	set := map[string]string{l.key: l.value}
	if !present {
		return series(theirs.EscapeMetricName(l.name), set, scale)
	}
	if m.Action == theirs.ActionTypeDrop || m.Name == "" {
		return "dropped"
	}
	for name, value := range mapped {
		if _, given := set[name]; !given || !m.HonorLabels {
			set[name] = value
		}
	}
	if m.Scale.Set {
		scale *= m.Scale.Val
	}
	return series(theirs.EscapeMetricName(m.Name), set, scale)
}

func (p *pair) ourSeries(l line) string {
	out := p.ours.Map(&ours.Input{Type: l.typ, Name: []byte(l.name), Tags: []byte(l.key + ":" + l.value)})
	if out.Drop {
		return "dropped"
	}
	set := out.Labels().Map()
	delete(set, model.MetricNameLabel)
	return series(out.Name, set, out.Scale)
}

func series(name string, set map[string]string, scale float64) string {
	var b strings.Builder
	b.WriteString(name)
	for _, label := range slices.Sorted(maps.Keys(set)) {
		if set[label] != "" { // Prometheus treats an empty label as absent
			fmt.Fprintf(&b, " %s=%q", label, set[label])
		}
	}
	fmt.Fprintf(&b, " *%.6g", scale)
	return b.String()
}

// foreseen reports whether the notes of the conversion say that our rules may map this line, although
// statsd_exporter does not.
func (p *pair) foreseen(l line) bool {
	_, _, present := p.theirs.GetMapping(l.name, l.kind)
	return !present && slices.ContainsFunc(p.text.Notes, func(n statsdexporter.Note) bool {
		return strings.Contains(n.Text, "may leave without a mapping")
	})
}

var lineTypes = []line{
	{kind: theirs.MetricTypeCounter, typ: dogstatsd.Count},
	{kind: theirs.MetricTypeGauge, typ: dogstatsd.Gauge},
	{kind: theirs.MetricTypeObserver, typ: dogstatsd.Timing},
	{kind: theirs.MetricTypeObserver, typ: dogstatsd.Histogram},
	{kind: theirs.MetricTypeObserver, typ: dogstatsd.Distribution},
}

// words returns the parts of names and labels that occur in a file, and some other words.
func words(file string) []string {
	all := regexp.MustCompile(`[A-Za-z][A-Za-z0-9_]*`).FindAllString(file, -1)
	all = append(all, "x", "7up", "a-b", "é")
	slices.Sort(all)
	return slices.Compact(all)
}

// generate makes lines whose names resemble the patterns of a file.
func generate(r *rand.Rand, file string, n int) (lines []line) {
	words := words(file)
	var patterns []string
	for _, m := range regexp.MustCompile(`(?m)match: *["']?([^"'\n]+)`).FindAllStringSubmatch(file, -1) {
		patterns = append(patterns,
			regexp.MustCompile(`\\.|[()|^$]|\?P?<?\w*>?`).ReplaceAllStringFunc(m[1], func(s string) string {
				if s == `\.` {
					return "."
				}
				return ""
			}))
	}
	word := func() string { return words[r.IntN(len(words))] }
	for range n {
		l := lineTypes[r.IntN(len(lineTypes))]
		parts := strings.Split(patterns[r.IntN(len(patterns))], ".")
		for i := range parts {
			if strings.ContainsAny(parts[i], "*+[") || parts[i] == "" || r.IntN(8) == 0 {
				parts[i] = word()
			}
		}
		l.name = strings.Join(parts, ".")
		l.key, l.value = word(), word()
		if strings.ContainsAny(l.key, "-é7") || l.key == "le" || l.key == "quantile" {
			l.key = "zone"
		}
		lines = append(lines, l)
	}
	return lines
}

// For realistic files, both mappers give a line the same name, labels and unit. The files, their
// conversions and the notes are in testdata.
func TestSameSeries(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p := newPair(t, string(text))
		compareText(t, strings.TrimSuffix(name, ".yml")+".freshet.yaml", p.text.Text)
		mapped := 0
		for _, l := range generate(rand.New(rand.NewPCG(1, 1)), string(text), 20_000) {
			want := p.theirSeries(l)
			if got := p.ourSeries(l); got != want && !p.foreseen(l) {
				t.Fatalf("%s: %s\nstatsd_exporter: %s\nfreshet:         %s", name, l, want, got)
			}
			if _, _, present := p.theirs.GetMapping(l.name, l.kind); present {
				mapped++
			}
		}
		if mapped < 5000 {
			t.Errorf("%s: only %d lines have a mapping, so this test shows little", name, mapped)
		}
	}
}

func compareText(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs from the output of the conversion; rewrite the file with -update\n%s", name, got)
	}
}

// Both mappers agree on random files of overlapping globs. Which glob statsd_exporter chooses depends
// on order, kinds and repetition in ways that its manual does not describe.
func TestSameSeriesOfAnyGlobs(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	compared, foreseen := 0, 0
	for range 400 {
		var b strings.Builder
		unordered := r.IntN(2) == 0
		fmt.Fprintf(&b, "defaults:\n  glob_disable_ordering: %v\nmappings:\n", unordered)
		for i := range 1 + r.IntN(7) {
			fmt.Fprintf(&b, "  - match: %q\n    name: r%d_$1\n    labels: {rule: \"%d\", all: \"$0-${2}\", both: \"$1.${2}\"}\n",
				randomGlob(r, 4), i, i)
			if kind := r.IntN(6); kind < 3 {
				fmt.Fprintf(&b, "    match_metric_type: %s\n", []string{"counter", "gauge", "observer"}[kind])
			}
			if r.IntN(5) == 0 {
				b.WriteString("    action: drop\n")
			}
		}
		p := newPair(t, strings.ReplaceAll(b.String(), "r%d_$1", "r"))
		for range 300 {
			l := lineTypes[r.IntN(len(lineTypes))]
			l.name, l.key, l.value = strings.ReplaceAll(randomGlob(r, 4), "*", "z"), "zone", "eu"
			want, got := p.theirSeries(l), p.ourSeries(l)
			if compared++; got == want {
				continue
			}
			if !p.foreseen(l) {
				t.Fatalf("%s\nstatsd_exporter: %s\nfreshet:         %s\n%s\n%s", l, want, got, b.String(), p.text.Text)
			}
			foreseen++
		}
	}
	t.Logf("%d lines compared; %d of them differ as the notes say", compared, foreseen)
}

// Both mappers agree on repeated and shortened patterns, whose effects statsd_exporter's manual does
// not describe. Each case shows one effect.
func TestOrder(t *testing.T) {
	for _, c := range []struct {
		why      string
		patterns []string // of the rules r0, r1 ...
		name     string
		want     string
	}{
		{"the first rule wins", []string{"*", "a"}, "a", "r0"},
		{"a repeated pattern keeps its rule and moves to its last place", []string{"a", "*", "a"}, "a", "r1"},
		{"a pattern repeated at once keeps its place", []string{"a", "a", "*"}, "a", "r0"},
		{"the beginning of an earlier pattern is never found", []string{"a.b.c", "a.b"}, "a.b", "a_b"},
		{"the beginning of a later pattern is found", []string{"a.b", "a.b.c"}, "a.b", "r0"},
	} {
		var b strings.Builder
		b.WriteString("mappings:\n")
		for i, pattern := range c.patterns {
			fmt.Fprintf(&b, "- {match: '%s', name: r%d}\n", pattern, i)
		}
		p := newPair(t, b.String())
		l := line{kind: theirs.MetricTypeCounter, typ: dogstatsd.Count, name: c.name, key: "zone", value: "eu"}
		want := c.want + ` zone="eu" *1`
		if theirs, ours := p.theirSeries(l), p.ourSeries(l); theirs != want || ours != want {
			t.Errorf("%s: statsd_exporter gives %s, Freshet gives %s, want %s", c.why, theirs, ours, want)
		}
	}
}

func randomGlob(r *rand.Rand, longest int) string {
	parts := make([]string, 1+r.IntN(longest))
	for i := range parts {
		parts[i] = []string{"a", "b", "*"}[r.IntN(3)]
	}
	return strings.Join(parts, ".")
}

func TestNotes(t *testing.T) {
	for _, c := range []struct{ why, file, want string }{
		{"a file without notes", "mappings:\n- {match: a.*, name: b, labels: {xx: $1}}", ""},
		{"a ttl of one mapping", "mappings:\n- {match: a, name: b, ttl: 1m}", "2: ttl: 1m0s has no equivalent"},
		{"summaries", "mappings:\n- {match: a, name: b, observer_type: summary}", "2: a summary becomes a native histogram"},
		{"summaries by default", "defaults: {observer_type: summary}", "0: defaults.observer_type: summaries become"},
		{"observers are summaries by default", "mappings:\n- {match: a, name: b, match_metric_type: observer}",
			"2: a summary becomes"},
		{"both histograms",
			"mappings:\n- {match: a, name: b, observer_type: histogram, histogram_options: " +
				"{native_histogram_bucket_factor: 1.1}}",
			"2: native_histogram_bucket_factor"},
		{"an invalid scale", "mappings:\n- {match: a, name: b, scale: -1}", "2: scale: -1 is left out"},
		{"a reserved label", "mappings:\n- {match: a, name: b, labels: {le: x}}", "2: the label le is left out"},
		{"buckets counted by a client", "mappings:\n- {match: a.*, name: b_bucket, labels: {le: $1}}", ""},
		{"a percent sign", "mappings:\n- {match: a.*, name: b, labels: {xx: '$1 %'}}",
			"2: statsd_exporter garbles the label xx"},
		{"invalid buckets",
			"mappings:\n- {match: a, name: b, match_metric_type: observer, observer_type: histogram, histogram_options: " +
				"{buckets: [2, 1]}}",
			"2: the server refuses this rule until it is corrected: buckets[1] is not above"},
		{"a short ttl", "defaults: {ttl: 3s}", "0: defaults.ttl: 3s is shorter"},
		{"no backtracking",
			"defaults: {glob_disable_ordering: true}\nmappings:\n- {match: a.*.c, name: b}\n- {match: a.b.d, name: c}",
			"3: takes names such as a.b.c"},
	} {
		got, err := statsdexporter.Convert([]byte(c.file))
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		var notes []string
		for _, n := range got.Notes {
			notes = append(notes, fmt.Sprintf("%d: %s", n.Line, n.Text))
		}
		if joined := strings.Join(notes, "\n"); len(notes) > 1 || !strings.HasPrefix(joined, c.want) ||
			(c.want == "") != (joined == "") {
			t.Errorf("%s: got %q, want %q", c.why, joined, c.want)
		}
		if !strings.Contains(c.want, "the server refuses") {
			load(t, got.Text)
		}
	}
}

// If a mapping turns counters into the buckets of a classic histogram, the converted mapping does so
// in Freshet, too.
func TestBucketsOfCounters(t *testing.T) {
	for _, honor := range []string{"", ", honor_labels: true"} {
		p := newPair(t, "mappings:\n- {match: a.*, match_metric_type: counter, name: b_bucket, labels: {le: $1}"+honor+"}")
		for _, l := range []line{
			{theirs.MetricTypeCounter, dogstatsd.Count, "a.5", "x", "y"},
			{theirs.MetricTypeCounter, dogstatsd.Count, "a.+Inf", "le", "7"},
		} {
			if got, want := p.ourSeries(l), p.theirSeries(l); got != want {
				t.Errorf("%v%s: got %s, want %s", l, honor, got, want)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"mappings: 7", "line 1: `7` cannot stand here"},
		{"mappings:\n- {match: a, nmae: b}", "line 2: unknown key nmae; did you mean name?"},
		{"mapping: []", "line 1: unknown key mapping; did you mean mappings?"},
		{"mappings:\n- {match: a}", `line 2: mapping "a": name = ""`},
		{"mappings:\n- {match: a.b*, name: b}", "match is not a glob"},
		{"mappings:\n- {match: '(', match_type: regex, name: b}", "missing closing"},
		{"mappings:\n- {match: a, name: b, action: keep}", `action = "keep"`},
		{"mappings:\n- {match: a, name: b, labels: {a-b: c}}", "labels.a-b"},
		{"defaults: {observer_type: gauge}", "defaults.observer_type"},
	} {
		if _, err := statsdexporter.Convert([]byte(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngot %v, want %s", c.file, err, c.want)
		}
		if err := (&theirs.MetricMapper{}).InitFromYAMLString(c.file); err == nil {
			t.Errorf("statsd_exporter accepts this file, but the conversion refuses it:\n%s", c.file)
		}
	}
}

// FuzzConvert checks that every converted file is a valid configuration of the program, unless a note
// says otherwise.
func FuzzConvert(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yml")
	for _, name := range files {
		if text, err := os.ReadFile(name); err == nil {
			f.Add(string(text))
		}
	}
	f.Add("mappings:\n- {match: a.*, name: b, help: \"it's\\n\\u2028:\", labels: {xx: '$1$$#%', null: ~}}")
	f.Add("mappings:\n- {match: '(a|b.*', match_type: regex, name: b}\n- {match: '(?i)a|b.*', match_type: " +
		"regex, name: b$0}")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := statsdexporter.Convert([]byte(text))
		if err == nil &&
			!slices.ContainsFunc(c.Notes,
				func(n statsdexporter.Note) bool { return strings.HasPrefix(n.Text, "is refused until") }) {
			load(t, c.Text)
		}
	})
}
