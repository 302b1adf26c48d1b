package mapping

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// The manual is the specification: every example row of docs/names.md must be right for the
// configuration of its section.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("../../../docs/names.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for section := range strings.SplitSeq(string(text), "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		m := newMapper(t, configOf(t, section))
		for _, row := range rowsAfter(section, "| Type | Name | Tags | Series |") {
			examples++
			typ, check := types[row[0]], row[0] == "check"
			if typ == 0 && !check {
				t.Errorf("%s: %q is not a type", title, row[0])
				continue
			}
			out := m.Map(&Input{Type: typ, Check: check, Name: []byte(row[1]), Tags: []byte(row[2])})
			if got := show(out); got != row[3] {
				t.Errorf("%s: %s %s: the manual says %s, got %s", title, row[1], row[2], row[3], got)
			}
		}
	}
	if examples < 20 {
		t.Errorf("found only %d examples: has the table changed its form?", examples)
	}
}

var types = map[string]dogstatsd.Type{
	"c": dogstatsd.Count, "g": dogstatsd.Gauge, "ms": dogstatsd.Timing,
	"h": dogstatsd.Histogram, "d": dogstatsd.Distribution, "s": dogstatsd.Set,
}

// configOf reads the YAML block of a section as the program would. If there is no block, it returns
// the default.
func configOf(t *testing.T, section string) Config {
	_, block, _ := strings.Cut(section, "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	c, err := load(t, block)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// load reads the text of a configuration file.
func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	file := t.TempDir() + "/freshet.yaml"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	type root struct {
		Mapping Config `yaml:"mapping"`
	}
	read, err := conf.New("FRESHET", root{}).Load(file, func(string) (string, bool) { return "", false })
	return read.Mapping, err
}

var cell = regexp.MustCompile("^`(.*)`$")

func rowsAfter(section, header string) (rows [][4]string) {
	_, after, _ := strings.Cut(section, header+"\n")
	for i, line := range strings.Split(after, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		var row [4]string
		for j, text := range strings.SplitN(strings.Trim(line, "|"), "|", 4) {
			row[j] = cell.ReplaceAllString(strings.TrimSpace(text), "$1")
		}
		if i > 0 { // line 0 is the line of dashes
			rows = append(rows, row)
		}
	}
	return rows
}

// show writes a series as people write it: name{a="b", c="d"}.
func show(out Output) string {
	if out.Drop {
		return "dropped"
	}
	ls := out.Labels()
	return strings.TrimSuffix(ls.Get(model.MetricNameLabel)+
		labels.NewBuilder(ls).Del(model.MetricNameLabel).Labels().String(), "{}")
}
