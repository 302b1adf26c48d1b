package conf

import (
	"cmp"
	"fmt"
	"strings"
)

// loader is the state of one load: where each value came from, and what was wrong.
type loader struct {
	file     string
	env      string            // prefix of variables
	keys     []string          // the paths of all keys and sections
	renamed  map[string]string // maps former paths to the present paths
	origins  map[string]origin // origin of each value, by path
	failed   map[string]bool   // paths whose value could not be read; they hold the default
	problems Problems
}

// add appends a problem: the value at `path` is wrong.
func (l *loader) add(path, text string) {
	if l.failed[path] {
		return // the default that stands in for a broken value is not the user's mistake
	}
	l.problems = append(l.problems, l.problem(path, text))
}

// fail adds the problem of a value that could not be read. Later problems of this value are left
// out.
func (l *loader) fail(path, text string) {
	l.add(path, text)
	l.failed[path] = true
}

// problem makes a problem that names the origin of the value at `path`. A path without an origin,
// such as a missing key of an element, takes the origin of the element.
func (l *loader) problem(path, text string) Problem {
	from, known := l.origins[path]
	for outer := path; !known && outer != ""; from, known = l.origins[outer] {
		outer = outer[:max(strings.LastIndexAny(outer, ".["), 0)]
	}
	p := Problem{Key: path, Text: text, line: from.line, value: oneLine(from.value), where: cmp.Or(from.name, path)}
	if from.line > 0 {
		p.where = fmt.Sprintf("%s:%d: %s", l.file, from.line, path)
	}
	return p
}
