package rulefiles

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// write writes files into a directory, which becomes the working directory.
func write(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

const good = "groups: [{name: g, rules: [{record: a, expr: sum(b)}, {alert: C, expr: a > 1, for: 5m}]}]"

func TestReadFindsFiles(t *testing.T) {
	write(t, map[string]string{"r/a.yaml": good, "r/b.yaml": good, "r/c.txt": "not read", "d.yaml": ""})
	for _, c := range []struct {
		why      string
		patterns []string
		want     []string
	}{
		{"a path", []string{"r/b.yaml"}, []string{"r/b.yaml"}},
		{"a glob", []string{"r/*.yaml"}, []string{"r/a.yaml", "r/b.yaml"}},
		{"a file that two patterns match is read once", []string{"r/*.yaml", "./r/a.yaml"}, []string{"r/a.yaml", "r/b.yaml"}},
		{"a glob may match nothing", []string{"none/*.yaml"}, nil},
		{"an empty file has no rules", []string{"d.yaml"}, []string{"d.yaml"}},
		{"nothing", nil, nil},
	} {
		s, problems := Read(c.patterns, parser.NewParser(parser.Options{}))
		if !slices.Equal(s.Paths(), c.want) || len(problems) > 0 {
			t.Errorf("%s: Read(%q) reads %q with problems %q, want %q", c.why, c.patterns, s.Paths(), problems, c.want)
		}
	}
	s, _ := Read([]string{"r/*.yaml"}, parser.NewParser(parser.Options{}))
	if groups, rules := s.Counts(); groups != 2 || rules != 4 {
		t.Errorf("%d groups and %d rules, want 2 and 4", groups, rules)
	}
}

// A user who mistypes a name must not be told that the files are fine.
func TestAGlobThatAPersonNamesMatches(t *testing.T) {
	write(t, map[string]string{"r/a.yaml": good})
	p := parser.NewParser(parser.Options{})
	if s, problems := ReadNamed([]string{"r/*.yaml"}, p); len(s) != 1 || len(problems) > 0 {
		t.Errorf("reads %q with problems %q, want one file and no problem", s.Paths(), problems)
	}
	s, problems := ReadNamed([]string{"r/*.yaml", "no*.yaml", "/nonexistent/*"}, p)
	if len(s) != 1 || len(problems) != 2 || !strings.HasPrefix(problems[0], "no*.yaml: matches no file in the working ") ||
		!strings.HasPrefix(problems[1], "/nonexistent/*: matches no file; ") {
		t.Errorf("reads %q with problems %q, want one file, and a problem for each glob without one", s.Paths(), problems)
	}
}

// A user who fixes one mistake must not meet the next one only after another reload.
func TestReadReportsAllMistakesAtOnce(t *testing.T) {
	write(t, map[string]string{
		"expr.yaml": "groups:\n- name: g\n  rules:\n  - {record: a, expr: sum(}\n  - {alert: B, expr: b, for: 1m}\n" +
			"  - {record: '', expr: c}\n",
		"field.yaml":    "groups:\n- name: g\n  rulez: []\n  intervall: 5s\n",
		"template.yaml": "groups:\n- name: g\n  rules:\n  - {alert: A, expr: a, annotations: {x: '{{ nope }}'}}\n",
		"twice.yaml":    "groups:\n- {name: g, rules: []}\n- {name: g, rules: []}\n",
		"second.yaml":   good + "\n---\n" + good + "\n",
		"good.yaml":     good,
	})
	dir, err := os.Getwd() // the reader of the message may be in another directory than the service
	if err != nil {
		t.Fatal(err)
	}
	patterns := []string{"*.yaml", "gone.yaml", "/nonexistent/gone.yaml", "[.yaml"}
	_, problems := Read(patterns, parser.NewParser(parser.Options{}))
	for _, want := range []string{
		`expr.yaml: 4:`, `expr.yaml: 6:`, // the lines
		`field.yaml: line 3: field rulez not found`, `field.yaml: line 4: field intervall not found`,
		`template.yaml: `, `twice.yaml: groupname: "g" is repeated`, `second.yaml: has a second YAML document`,
		`gone.yaml: there is no such file in the working directory ` + dir + `; create it`,
		`/nonexistent/gone.yaml: there is no such file; create it`, `[.yaml: is not a pattern`,
	} {
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, want) }) {
			t.Errorf("no problem begins with %q:\n%s", want, strings.Join(problems, "\n"))
		}
	}
	for _, p := range problems {
		if strings.Contains(p, "\n") || strings.HasPrefix(p, "good.yaml") {
			t.Errorf("problem %q", p)
		}
	}
}
