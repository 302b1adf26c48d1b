package cli

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/adapter/rulefiles"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
)

// onServer is what a server answers.
const onServer = `[
{"name": "same", "file": "/etc/rules.yaml", "interval": 60, "limit": 0, "rules": [
	{"type": "recording", "name": "a:sum", "query": "sum(a)", "labels": {"site": "x"}, "health": "ok"}]},
{"name": "changed", "file": "/etc/rules.yaml", "interval": 60, "limit": 0, "rules": [
	{"type": "alerting", "name": "Slow", "query": "a > 1", "duration": 60, "keepFiringFor": 0, "labels": {},
		"annotations": {"summary": "slow"}},
	{"type": "alerting", "name": "Twice", "query": "a > 1", "duration": 0, "labels": {}, "annotations": {}},
	{"type": "alerting", "name": "Twice", "query": "a > 2", "duration": 0, "labels": {}, "annotations": {}},
	{"type": "recording", "name": "b", "query": "a", "labels": {}},
	{"type": "recording", "name": "c", "query": "a", "labels": {}},
	{"type": "alerting", "name": "Old", "query": "a > 3", "duration": 0, "labels": {}, "annotations": {}}]},
{"name": "old", "file": "/etc/rules.yaml", "interval": 60, "rules": [{"type": "recording", "name": "d", "query": "a"}]},
{"name": "other", "file": "/etc/other.yaml", "interval": 60, "rules": [{"type": "recording", "name": "e", "query": "a"}]}
]`

func TestRulesDiff(t *testing.T) {
	file := fileOf(t, `
groups:
- name: same
  labels: {site: x}
  rules: [{record: "a:sum", expr: " sum ( a ) "}]
- name: changed
  interval: 30s
  limit: 5
  query_offset: 10s
  rules:
  - {alert: Slow, expr: a > 2, for: 5m, keep_firing_for: 1m, labels: {severity: page}, annotations: {summary: "slow!"}}
  - {alert: Twice, expr: a > 1}
  - {alert: Twice, expr: a > 4}
  - {record: c, expr: a}
  - {record: b, expr: a}
  - {alert: New, expr: a > 3}
- name: new
  rules: [{alert: First, expr: a}, {record: f, expr: a}]
`)
	p := parser.NewParser(parser.Options{})
	set, problems := rulefiles.Read([]string{file}, p)
	var there []comparedGroup
	if err := json.Unmarshal([]byte(onServer), &there); err != nil || problems != nil {
		t.Fatal(err, problems)
	}
	there[1].Offset = 30
	d, err := diffRules(set, there, p)
	if err != nil {
		t.Fatal(err)
	}
	var out, notes bytes.Buffer
	if err := d.print(terminal.View{Out: &out, Notes: &notes}); err != nil {
		t.Fatal(err)
	}
	want := `~ group changed of /etc/rules.yaml
    ~ interval: 1m -> 30s
    ~ limit: 0 -> 5
    ~ query_offset: 30s -> 10s
    ~ alert Slow: expr: a > 1 -> a > 2
    ~ alert Slow: for: 1m -> 5m
    ~ alert Slow: keep_firing_for: 0s -> 1m
    ~ alert Slow: labels: {} -> {severity="page"}
    ~ alert Slow: annotations: {summary="slow"} -> {summary="slow!"}
    ~ alert Twice: expr: a > 2 -> a > 4
    + alert New
    - alert Old
    ~ order of the rules
+ group new of /etc/rules.yaml
    + alert First
    + record f
- group old of /etc/rules.yaml
    - record d
`
	if out.String() != want || !strings.Contains(notes.String(), "not compared: /etc/other.yaml") {
		t.Errorf("got:\n%s%s\nwant:\n%s", &out, &notes, want)
	}
}

// A file is compared with the server's file of its path, or with the only one of its name.
func TestSameFile(t *testing.T) {
	for _, c := range []struct {
		path   string
		server []string
		want   string
	}{
		{"/a/r.yaml", []string{"/a/r.yaml", "/b/r.yaml"}, "/a/r.yaml"},
		{"r.yaml", []string{"r.yaml", "/b/r.yaml"}, "r.yaml"},
		{"/new/r.yaml", []string{"/a/r.yaml", "/a/s.yaml"}, "/a/r.yaml"},
		{"/new/r.yaml", []string{"/a/r.yaml", "/b/r.yaml"}, ""},
		{"/new/r.yaml", nil, ""},
	} {
		files := map[string]map[string]comparedGroup{}
		for _, f := range c.server {
			files[f] = map[string]comparedGroup{}
		}
		if got := sameFile(c.path, files); got != c.want {
			t.Errorf("%s among %s is %q, want %q", c.path, c.server, got, c.want)
		}
	}
}

func TestRulesDiffWithoutAChange(t *testing.T) {
	file := fileOf(t, `groups: [{name: g, rules: [{record: a, expr: b}]}]`)
	p := parser.NewParser(parser.Options{})
	set, _ := rulefiles.Read([]string{file}, p)
	d, err := diffRules(set, []comparedGroup{{Name: "g", File: file, Interval: 60,
		Rules: []comparedRule{{Type: "recording", Name: "a", Query: "b"}}}}, p)
	var out, notes bytes.Buffer
	if err := d.print(terminal.View{Out: &out, Notes: &notes}); err != nil {
		t.Fatal(err)
	}
	if err != nil || len(d.Groups) > 0 || notes.String() != "nothing would change\n" || out.Len() > 0 {
		t.Errorf("%+v, error %v, prints %q", d, err, notes.String())
	}
	lines := diffRuleLists([]comparedRule{{Name: "\x1b[2J"}}, nil)
	out.Reset()
	err = rulesDiff{Groups: []groupDiff{{Name: "g", Change: "changed", Lines: lines}}}.print(terminal.View{Out: &out})
	if err != nil || slices.Contains(out.Bytes(), '\x1b') {
		t.Errorf("a rule's name can control the terminal: %q, error %v", &out, err)
	}
}
