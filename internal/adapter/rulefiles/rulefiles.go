// Package rulefiles reads rule files in Prometheus' format, and reports everything that is wrong with
// them at once. The role ruler evaluates the rules.
package rulefiles

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/core/ruleset"
)

// Set has the groups of rule files, by the path of the file. It is not changed after Read.
type Set map[string]*rulefmt.RuleGroups

// Paths returns the paths of the files, sorted.
func (s Set) Paths() []string { return slices.Sorted(maps.Keys(s)) }

// Counts returns how many groups and rules the files have.
func (s Set) Counts() (groups, rules int) {
	for _, file := range s {
		groups += len(file.Groups)
		for _, g := range file.Groups {
			rules += len(g.Rules)
		}
	}
	return groups, rules
}

// Read reads the files that the patterns match. A pattern is a path, or a glob as in
// path/filepath.Match. A path without wildcards must exist; a glob may match nothing. The parser decides
// which expressions are allowed. `problems` has one line for each mistake in any file.
func Read(patterns []string, p parser.Parser) (s Set, problems []string) {
	s = Set{}
	for _, pattern := range patterns {
		paths, err := match(pattern)
		if err != nil {
			problems = append(problems, err.Error())
		}
		for _, path := range paths {
			if _, known := s[path]; known {
				continue
			}
			groups, wrong := readFile(path, p)
			s[path] = groups
			problems = append(problems, wrong...)
		}
	}
	return s, problems
}

// ReadTenants reads the files of each tenant, by the patterns of each.
func ReadTenants(patterns map[string][]string, p parser.Parser) (all map[string]Set, problems []string) {
	all = map[string]Set{}
	for _, tenant := range slices.Sorted(maps.Keys(patterns)) {
		set, wrong := Read(patterns[tenant], p)
		all[tenant] = set
		problems = append(problems, wrong...)
	}
	return all, problems
}

// ReadNamed is like Read, but a glob that matches nothing is a mistake, too. It is for files that a person names: a
// directory of a server may be empty, but somebody who checks no file has mistyped its name.
func ReadNamed(patterns []string, p parser.Parser) (s Set, problems []string) {
	for _, pattern := range patterns {
		if paths, err := match(pattern); err == nil && len(paths) == 0 {
			problems = append(problems, fmt.Sprintf("%s: matches no file%s; correct it", pattern, where(pattern)))
		}
	}
	s, wrong := Read(patterns, p)
	return s, append(problems, wrong...)
}

// match returns the files that a pattern matches.
func match(pattern string) ([]string, error) {
	if !strings.ContainsAny(pattern, `*?[\`) {
		if _, err := os.Stat(pattern); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: there is no such file%s; create it, or change its path", pattern, where(pattern))
		}
		return []string{filepath.Clean(pattern)}, nil
	}
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: is not a pattern; close its bracket, or write a path: %w", pattern, err)
	}
	return paths, nil
}

// where says where a relative path begins, and nothing of an absolute one. People may not know it: a service begins at
// the root, and not where its configuration is.
func where(path string) string {
	dir, err := os.Getwd()
	if filepath.IsAbs(path) || err != nil {
		return ""
	}
	return " in the working directory " + dir
}

func readFile(path string, p parser.Parser) (groups *rulefmt.RuleGroups, problems []string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, []string{err.Error()}
	}
	ignored := &warnings{} // also of a first document that cannot be read
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, p, slog.New(ignored))
	for _, err := range errs {
		for _, line := range ruleset.Lines(err) {
			problems = append(problems, path+": "+line)
		}
	}
	if ignored.any && len(errs) == 0 {
		problems = append(problems, path+": has a second YAML document, whose rules would be ignored; move them into "+
			"a file of their own, or remove the line ---")
	}
	return groups, problems
}
