package statsdexporter

import (
	"cmp"
	"slices"
	"strings"
)

// kinds is a set of the metric types that statsd_exporter knows.
type kinds uint8

const (
	counter kinds = 1 << iota
	gauge
	observer
	allKinds = counter | gauge | observer
)

// kindsOf returns the types that a mapping's match_metric_type allows.
func kindsOf(m *mapping) kinds {
	switch m.MatchMetricType {
	case "counter":
		return counter
	case "gauge":
		return gauge
	case "observer":
		return observer
	}
	return allKinds
}

// ranked is a mapping, and the kinds to which it applies.
type ranked struct {
	index    int // index of the mapping in the file
	kinds    kinds
	priority int // for globs only: the lowest priority wins
}

// order returns the mappings in such an order that the first match is the mapping that
// statsd_exporter applies. It also returns the indexes of mappings that statsd_exporter never
// applies.
//
// statsd_exporter tries globs before regular expressions. Of the globs that match, the first in the
// file wins. With glob_disable_ordering the most specific glob wins, compared from left to right.
// statsd_exporter finds globs by a table of states, which has two effects that are not in its
// manual. A pattern that is given twice keeps its first mapping, but gets the place of the last. A
// pattern that is the beginning of an earlier one (a.b after a.b.c) is never found.
func order(f *file) (all []ranked, dead []int) {
	for _, kind := range []kinds{counter, gauge, observer} {
		all = append(all, rankGlobs(f, kind)...)
	}
	slices.SortStableFunc(all, func(a, b ranked) int {
		if f.Defaults.GlobDisableOrdering {
			if c := bySpecificity(f.Mappings[a.index].Match, f.Mappings[b.index].Match); c != 0 {
				return c
			}
		}
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.index, b.index))
	})
	all = join(all)
	for i := range f.Mappings {
		if f.Mappings[i].MatchType == "regex" {
			all = append(all, ranked{index: i, kinds: kindsOf(&f.Mappings[i])})
		} else if !slices.ContainsFunc(all, func(r ranked) bool { return r.index == i }) {
			dead = append(dead, i)
		}
	}
	return all, dead
}

// rankGlobs returns the globs that apply to one kind.
func rankGlobs(f *file, kind kinds) (all []ranked) {
	states := map[string]int{} // by pattern, and by beginning of a pattern: index in `all`, or -1
	priority := -1
	for i := range f.Mappings {
		m := &f.Mappings[i]
		if m.MatchType == "regex" {
			continue
		}
		priority++
		if kindsOf(m)&kind == 0 {
			continue
		}
		for end := range len(m.Match) {
			if m.Match[end] == '.' {
				if _, known := states[m.Match[:end]]; !known {
					states[m.Match[:end]] = -1
				}
			}
		}
		switch at, known := states[m.Match]; {
		case !known:
			states[m.Match] = len(all)
			all = append(all, ranked{i, kind, priority})
		case at >= 0:
			all[at].priority = priority
		}
	}
	return all
}

// bySpecificity compares two patterns part by part: text comes before *. Patterns of different
// lengths never match the same name.
func bySpecificity(a, b string) int {
	pa, pb := strings.Split(a, "."), strings.Split(b, ".")
	if c := cmp.Compare(len(pa), len(pb)); c != 0 {
		return c
	}
	for i := range pa {
		if c := cmp.Compare(wild(pa[i]), wild(pb[i])); c != 0 {
			return c
		}
	}
	return 0
}

func wild(part string) int {
	if part == "*" {
		return 1
	}
	return 0
}

// join merges adjacent entries that are the same mapping for several kinds.
func join(all []ranked) (joined []ranked) {
	for _, r := range all {
		if n := len(joined); n > 0 && joined[n-1].index == r.index {
			joined[n-1].kinds |= r.kinds
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// shadowed finds names to which statsd_exporter may apply no mapping although a pattern matches:
// with glob_disable_ordering it prefers text to *, and backtracks only in some cases. It returns an
// example of such a name for each pattern, by the mapping's index.
func shadowed(f *file) map[int]string {
	examples := map[int]string{}
	if !f.Defaults.GlobDisableOrdering {
		return examples
	}
	for _, kind := range []kinds{counter, gauge, observer} {
		inForce := rankGlobs(f, kind)
		for _, r := range inForce {
			for i := range f.Mappings {
				if other := &f.Mappings[i]; other.regex == nil && kindsOf(other)&kind != 0 {
					if name := f.deadEnd(inForce, f.Mappings[r.index].Match, other.Match); name != "" {
						examples[r.index] = name
					}
				}
			}
		}
	}
	return examples
}

// deadEnd returns a name that matches `pattern`, but for which statsd_exporter finds nothing if it
// follows the text of another pattern first.
func (f *file) deadEnd(inForce []ranked, pattern, other string) string {
	parts, along := strings.Split(pattern, "."), strings.Split(other, ".")
	for i := range min(len(parts), len(along)) {
		if parts[i] == "*" && along[i] != "*" {
			name := slices.Clone(parts)
			name[i] = along[i]
			if !slices.ContainsFunc(inForce,
				func(r ranked) bool { return begins(f.Mappings[r.index].Match, along[:i+1], name) }) {
				return strings.ReplaceAll(strings.Join(name, "."), "*", "x")
			}
		}
		if parts[i] != along[i] {
			break
		}
	}
	return ""
}

// begins reports whether a pattern begins with the parts in `with`, and matches `name`, which is a
// pattern itself: its * is taken for some text that only a * matches.
func begins(pattern string, with, name []string) bool {
	parts := strings.Split(pattern, ".")
	if len(parts) != len(name) || !slices.Equal(parts[:len(with)], with) {
		return false
	}
	for i := range parts {
		if parts[i] != "*" && parts[i] != name[i] {
			return false
		}
	}
	return true
}
