package promqladvice

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// faults are errors of the parser that do not say what to write instead, each with words that do. The words get the
// groups of the pattern.
var faults = []struct {
	pattern *regexp.Regexp
	advice  func(groups []string) string
}{
	{regexp.MustCompile(`unknown function with name "([^"]*)"`), nearestFunction},
	{regexp.MustCompile(`bad number or duration syntax|unknown unit "`), says(
		"a duration is a number with a unit of ms, s, m, h, d, w or y, such as 5m or 1h30m")},
	{regexp.MustCompile(`expected type range vector in call to function "([^"]*)", got instant vector`), says(
		"%s reads a window of time: write its length behind the selector, such as page_views[5m]")},
	{regexp.MustCompile(`expected type instant vector in .*, got range vector`), says(
		"a window such as [5m] is for a function that reads one, such as rate(page_views[5m])")},
	{regexp.MustCompile(`ranges only allowed for vector selectors`), says(
		"behind an expression, a window needs a colon and may have a step, such as [5m:10s]")},
	{regexp.MustCompile(`unexpected identifier "([^"]*)" in label matching, expected string`), says(
		`values are in quotes: "%s"`)},
	{regexp.MustCompile(`unexpected character: '([^a-zA-Z0-9_])'`), says(
		"a name with other characters is in quotes and braces: {\"page.views\"}; of DogStatsD's names, Freshet stores " +
			"page.views as page_views by default")},
}

// Fault returns what to do about an error of the parser, or "" if the error says so itself.
func Fault(message string) string {
	for _, f := range faults {
		if groups := f.pattern.FindStringSubmatch(message); groups != nil {
			return f.advice(groups[1:])
		}
	}
	return ""
}

func says(words string) func([]string) string {
	return func(groups []string) string {
		if !strings.Contains(words, "%s") {
			return words
		}
		return fmt.Sprintf(words, cut(groups[0]))
	}
}

func nearestFunction(groups []string) string {
	names := slices.Collect(maps.Keys(parser.Functions))
	for item, name := range parser.ItemTypeStr {
		if item.IsAggregator() {
			names = append(names, name)
		}
	}
	slices.Sort(names) // so that of two that are as near, always the same one is the answer
	longer := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, groups[0]) })
	if longer >= 0 && len(groups[0]) > 2 {
		return "did you mean " + names[longer] + "?"
	}
	if near := conf.Nearest(groups[0], names); near != "" {
		return "did you mean " + near + "?"
	}
	return "Tab in freshet query -i completes functions"
}
