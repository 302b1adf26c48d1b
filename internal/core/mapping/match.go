package mapping

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// match reports whether r matches a raw name, and appends the name and the texts of its
// wildcards or groups to captures.
func (r *rule) match(raw string, captures []string) ([]string, bool) {
	captures = append(captures, raw)
	if r.regex != nil {
		at := r.regex.FindStringSubmatchIndex(raw)
		if at == nil {
			return nil, false
		}
		for i := 2; i < len(at); i += 2 {
			if at[i] < 0 { // a group that matched nothing
				captures = append(captures, "")
				continue
			}
			captures = append(captures, raw[at[i]:at[i+1]])
		}
		return captures, true
	}
	more := true
	for _, want := range r.glob {
		if !more {
			return nil, false
		}
		var part string
		part, raw, more = strings.Cut(raw, ".")
		if want == "*" {
			captures = append(captures, part)
		} else if want != part {
			return nil, false
		}
	}
	return captures, !more
}

// parseGlob splits a pattern into its parts. It returns nil if the pattern has no wildcard.
func parseGlob(pattern string) ([]string, error) {
	if !strings.Contains(pattern, "*") {
		return nil, nil
	}
	parts := strings.Split(pattern, ".")
	for _, p := range parts {
		if p != "*" && strings.Contains(p, "*") {
			return nil, fmt.Errorf("part %q mixes * with text, but * must be a whole part between dots", p)
		}
	}
	return parts, nil
}

// template is text with references to captures.
type template []templatePart

type templatePart struct {
	text  string
	group int // the capture to insert; 0 is the whole name; -1 means that the part is text
}

func (t template) expand(captures []string) string {
	if len(t) == 1 {
		return t[0].expand(captures)
	}
	var b strings.Builder
	for _, p := range t {
		b.WriteString(p.expand(captures))
	}
	return b.String()
}

func (p templatePart) expand(captures []string) string {
	if p.group < 0 {
		return p.text
	}
	return captures[p.group]
}

// reference is $$, $1, ${1} or ${name}. $1_total is the first capture and then the text _total.
// Go's Expand would look for a capture called 1_total, which users do not expect.
var reference = regexp.MustCompile(`\$(?:\$|[0-9]+|\{[A-Za-z0-9_]+\})`)

// parseTemplate reads s, which may refer to captures by number, or by name as listed in `groups`.
// Capture 0 is the whole name.
func parseTemplate(s string, groups []string) (template, error) {
	var t template
	text := func(s string) error {
		if strings.Contains(s, "$") {
			return errors.New("a $ refers to nothing; write $1, ${1} or, for a dollar sign, $$")
		}
		if s != "" {
			t = append(t, templatePart{text: s, group: -1})
		}
		return nil
	}
	at := 0
	for _, ref := range reference.FindAllStringIndex(s, -1) {
		if err := text(s[at:ref[0]]); err != nil {
			return nil, err
		}
		at = ref[1]
		which := strings.Trim(s[ref[0]+1:ref[1]], "{}")
		if which == "$" {
			t = append(t, templatePart{text: "$", group: -1})
			continue
		}
		group, err := strconv.Atoi(which)
		if err != nil {
			group = len(groups)
			for i, name := range groups {
				if name == which {
					group = i
				}
			}
		}
		if group >= len(groups) {
			return nil, fmt.Errorf("$%s refers to nothing: match has %d wildcards or groups", which, len(groups)-1)
		}
		t = append(t, templatePart{group: group})
	}
	if err := text(s[at:]); err != nil {
		return nil, err
	}
	return t, nil
}
