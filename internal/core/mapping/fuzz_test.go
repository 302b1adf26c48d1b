package mapping

import (
	"bytes"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/series"
)

var regexpFile = regexp.MustCompile(`(?m)^\S*freshet\.yaml:`)

// FuzzMap checks the laws of names. Whatever bytes a client sends, and whatever rule applies,
// Prometheus accepts the series, no sender can forge it, and the series does not depend on the
// order of the tags.
func FuzzMap(f *testing.F) {
	for _, s := range [][2]string{
		{"a.b", "env:prod,team:x,team:y"}, {"1\xff", "__name__:x,le:1,..name..:y"}, {"r.x", "a.b:1,a_b:2,a-b:"},
		{"r.\xff\xfe", ":,::,:::,\xff:\xff"}, {"l.z", "xle:1,x__name__:2,x:3"}, {"m.", "x:\xe2\x28\xa1,x:é"},
		{"a.bucket", "le:2.50"}, {"_bucket", "le:-inf,tag_le:1"}, {"a.bucket", "le:nan"}, {"l.bucket", "xle:0x1p-2"},
	} {
		f.Add([]byte(s[0]), []byte(s[1]), []byte("h"), uint64(1))
	}
	everything := []Rule{
		{Match: "r.*", Name: "$1", Labels: map[string]string{"x": "$1"}, GaugeMerge: "sum"},
		{Match: "m.*", Relabel: []Relabel{
			{SourceLabels: []string{"x"}, TargetLabel: "__name__"},
			{SourceLabels: []string{"x"}, Regex: text("(.*)"), TargetLabel: "${1}"},
		}},
		{Match: "l.*", Relabel: []Relabel{{Regex: text("x(.*)"), Replacement: text("${1}"), Action: "labelmap"}}},
	}
	mappers := map[model.ValidationScheme]*Mapper{
		model.LegacyValidation: newMapper(f, Config{Rules: everything, OriginLabels: []string{"pod_uid"}}, "host", "c"),
		model.UTF8Validation:   newMapper(f, Config{Rules: everything, UTF8Names: true}, "host", "c"),
	}
	f.Fuzz(func(t *testing.T, name, tags, host []byte, seed uint64) {
		parts := bytes.Split(tags, []byte(","))
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		shuffled := bytes.Join(parts, []byte(","))
		var used Output
		for scheme, m := range mappers {
			in := Input{
				Type: []dogstatsd.Type{dogstatsd.Gauge, dogstatsd.Count}[seed%2], Name: name, Tags: tags, Host: host,
				Origin: dogstatsd.Origin{External: host},
			}
			out := m.Map(&in)
			valid(t, scheme, out)
			in.Tags = shuffled
			m.MapInto(&used, &in)
			again := used
			if !labels.Equal(out.Labels(), again.Labels()) || out.Source != again.Source {
				t.Fatalf("tags %q give %s, shuffled %q give %s", tags, out.Labels(), shuffled, again.Labels())
			}
		}
	})
}

func valid(t *testing.T, scheme model.ValidationScheme, out Output) {
	t.Helper()
	if !scheme.IsValidMetricName(out.Name) || scheme == model.LegacyValidation && strings.Contains(out.Name, ":") {
		t.Fatalf("name %q", out.Name)
	}
	ls := out.Labels()
	if ls.Get(model.MetricNameLabel) != out.Name {
		t.Fatalf("the name is %q, but the labels are %s", out.Name, ls)
	}
	var names []string
	ls.Range(func(l labels.Label) {
		names = append(names, l.Name)
		if l.Name == model.MetricNameLabel {
			return
		}
		if l.Name == "le" && out.Kind == series.Counter && isBucket(out.Name) {
			// The bound must have the one spelling that Freshet writes.
			if bound, err := strconv.ParseFloat(l.Value, 64); err != nil || math.IsNaN(bound) ||
				l.Value != strconv.FormatFloat(bound, 'g', -1, 64) {
				t.Fatalf("le=%q", l.Value)
			}
			return
		}
		if l.Name == "le" || l.Name == "quantile" || strings.HasPrefix(l.Name, "__") || !scheme.IsValidLabelName(l.Name) {
			t.Fatalf("label %q", l.Name)
		}
		if l.Value == "" || !utf8.ValidString(l.Value) {
			t.Fatalf("label %q with value %q", l.Name, l.Value)
		}
	})
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Fatalf("labels %q are not sorted and unique", names)
	}
	key := out.AppendKey(nil)
	if !bytes.Equal(key, series.AppendKey(nil, out.Kind, ls)) {
		t.Fatalf("the key of %s is %q, but series.AppendKey returns another one", ls, key)
	}
	if _, back, err := series.ParseKey(key); err != nil || !labels.Equal(back, ls) {
		t.Fatalf("the key of %s is read as %s, error %v", ls, back, err)
	}
}

// Bound: 1 us of CPU and 2 allocs/op for each new context, so that 100,000 new contexts a second
// cost a tenth of a core. One allocation is for the text of the line, one for a changed name.
func BenchmarkMap(b *testing.B) {
	rules := []Rule{{Match: "exact.one"}, {Match: "exact.two"}, {Match: "debug.*", Action: "drop"}}
	for _, prefix := range []string{"a", "b", "c", "d", "e"} {
		rules = append(rules,
			Rule{Match: prefix + ".*.requests.*", Name: prefix + "_requests", Labels: map[string]string{"service": "$1"}})
	}
	rules = append(rules,
		Rule{Match: `db\.(\w+)\.time`, MatchType: "regex", Name: "db_time"},
		Rule{Match: "api.*.requests.*", Name: "api_requests", Labels: map[string]string{"service": "$1", "code": "$2"}})
	m := newMapper(b, Config{Rules: rules}, "host", "web-1")
	tags := []byte("env:production,region:eu-west-1,customer:4711,version:1.2.3")
	for _, name := range []string{"api.users.requests.200", "unmatched.by.any_rule"} {
		b.Run(name, func(b *testing.B) {
			in := Input{Type: dogstatsd.Count, Name: []byte(name), Tags: tags}
			var out Output
			b.ReportAllocs()
			for b.Loop() {
				m.MapInto(&out, &in)
			}
		})
	}
}
