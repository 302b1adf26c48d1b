package ruleset

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

var promQL = parser.NewParser(parser.Options{})

// A user who fixes one mistake must not meet the next one only after another request. Each has its line.
func TestAllMistakesAtOnce(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", []string{"invalid rules configuration: rule group name must not be empty"}},
		{"name: g", []string{"invalid rules configuration: rule group 'g' has no rules"}},
		{"name: [", []string{"unable to decoded rule group", "line 1"}},
		{"name: g\nrulez: []\nintervall: 5s\n", []string{"unable to decoded rule group", "line 2: field rulez not found",
			"line 3: field intervall not found"}},
		{"{name: g, rules: [{record: r, expr: x}]}\n---\n{}", []string{"second YAML document"}},
		{"name: g\ninterval: 500ms\nevaluation_delay: 1m\nquery_offset: 2m\nsource_tenants: [acme, other]\n" +
			"labels: {__name__: x}\nrules:\n- {record: r, expr: sum(}\n- {alert: '', expr: y}\n" +
			"- {alert: A, expr: x, annotations: {a: '{{ nope }}'}}\n", []string{
			"interval is 500ms, but must be at least 1s", "query_offset is 2m, but evaluation_delay", "source_tenants",
			"labels: \"__name__\"", "8:", "9:", `group "g", rule 3, "A": annotation "a"`,
		}},
		{"name: \"a\\x01b\"\nrules: [{record: r, expr: x}]", []string{"the name of the group must be UTF-8 without control"}},
		{"name: " + strings.Repeat("n", 1025) + "\nrules: [{record: r, expr: x}]",
			[]string{"has 1025 bytes, but at most 1024"}},
	} {
		_, err := Parse([]byte(c.text), "acme", promQL)
		var mistakes Mistakes
		if !errors.As(err, &mistakes) {
			t.Errorf("%.60q: error %v, want mistakes", c.text, err)
			continue
		}
		for _, want := range c.want {
			if !slices.ContainsFunc(mistakes, func(m string) bool { return strings.Contains(m, want) }) {
				t.Errorf("%.60q: no mistake has %q:\n%s", c.text, want, err)
			}
		}
	}
	for _, namespace := range []string{"a;b", "a\x00b", "\xff", strings.Repeat("n", 1025)} {
		if err := CheckNamespace(namespace); err == nil || !strings.Contains(err.Error(), "namespace") {
			t.Errorf("namespace %.40q: error %v, want one", namespace, err)
		}
	}
}

// Mimir's keys are taken, and are there when the group is read. Rules of the tenant itself are no federated rules.
func TestKeysOfMimir(t *testing.T) {
	text := "name: g\ninterval: 1m\nlimit: 3\nrules:\n    - alert: A\n      expr: x > 1\n      for: 5m\n" +
		"      keep_firing_for: 1m\n      labels:\n        a: b\n      annotations:\n        c: d\nlabels:\n    e: f\n" +
		"evaluation_delay: 2m\nsource_tenants:\n    - acme\nalign_evaluation_time_on_interval: true\n"
	g, err := Parse([]byte(text), "acme", promQL)
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(g)
	if err != nil || string(got) != text {
		t.Errorf("wrote\n%s\nfor\n%s\nerror %v", got, text, err)
	}
	if offset := g.Evaluated().QueryOffset; offset == nil || offset.String() != "2m" {
		t.Errorf("query_offset is %v, want evaluation_delay", offset)
	}
}

// Whatever a request has in its body, there is a group that can be written and read again, or there are mistakes.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "{}", "[]", "name: g", "rules: [null, {}]", "{name: g, rules: [{record: r, expr: x}]}",
		"name: g\ninterval: 1m\nrules:\n- &r {alert: A, expr: x > 1, for: 5m, labels: {a: b}}\n- *r\n- {<<: *r, alert: B}\n",
		"{name: g, rules: [{record: r, expr: x}], source_tenants: [acme], align_evaluation_time_on_interval: true}",
		"name: \"\\x00\"\nrules: [{record: !!binary gA==, expr: x}]", "--- {name: g}\n---\n", "node: {kind: 1}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		g, err := Parse(text, "acme", promQL)
		if err != nil {
			var mistakes Mistakes
			if !errors.As(err, &mistakes) || len(mistakes) == 0 || strings.Contains(strings.Join(mistakes, ""), "\n") {
				t.Fatalf("error %q", err)
			}
			return
		}
		written, err := yaml.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(written, "acme", promQL)
		if err != nil {
			t.Fatalf("%v in\n%s", err, written)
		}
		twice, err := yaml.Marshal(again)
		if err != nil || !bytes.Equal(written, twice) {
			t.Fatalf("wrote\n%s\nand then\n%s\nerror %v", written, twice, err)
		}
	})
}
