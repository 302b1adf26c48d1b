package statsdexporter

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
)

// template is a name or a label's value while it is converted between the notations of
// statsd_exporter and Freshet.
type template struct {
	parts []templatePart
	lost  []string // references to captures that do not exist, which statsd_exporter removes
	// garbled is set if statsd_exporter confuses the references, so that no template has the same
	// result.
	garbled bool
}

type templatePart struct {
	text  string
	group int // -1 for text
}

func (t *template) text(s string) {
	if s != "" {
		t.parts = append(t.parts, templatePart{s, -1})
	}
}

// String writes the template in our notation.
func (t *template) String() string {
	var b strings.Builder
	for i, p := range t.parts {
		switch {
		case p.group < 0:
			b.WriteString(strings.ReplaceAll(p.text, "$", "$$"))
		case i+1 < len(t.parts) && t.parts[i+1].group < 0 && isDigit(t.parts[i+1].text[0]):
			fmt.Fprintf(&b, "${%d}", p.group)
		default:
			fmt.Fprintf(&b, "$%d", p.group)
		}
	}
	return b.String()
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// globReference is a reference in a glob's templates as statsd_exporter reads it. It matches all of
// $1_total, which refers to no capture.
var globReference = regexp.MustCompile(`\$\{?([a-zA-Z0-9_\$]+)\}?`)

// globTemplate reads a template as statsd_exporter does for a glob: it replaces the text of each
// reference by a verb of a format, wherever the text occurs.
func globTemplate(s string, captures int) (t template) {
	const verb = "\x00"
	format := s
	var groups []int
	for _, ref := range globReference.FindAllStringSubmatch(s, -1) {
		if group, err := strconv.Atoi(ref[1]); err == nil && group <= captures {
			format = strings.ReplaceAll(format, ref[0], verb)
			groups = append(groups, group)
		} else {
			format = strings.ReplaceAll(format, ref[0], "")
			t.lost = append(t.lost, ref[0])
		}
	}
	texts := strings.Split(format, verb)
	t.garbled = len(texts)-1 != len(groups) || len(groups) > 0 && strings.Contains(format, "%")
	for i, text := range texts {
		t.text(text)
		if i < min(len(groups), len(texts)-1) {
			t.parts = append(t.parts, templatePart{group: groups[i]})
		}
	}
	return t
}

// regexReference is a reference in the templates of a regular expression, as
// package regexp expands it.
var regexReference = regexp.MustCompile(`\$(?:\$|\w+|\{\w+\})`)

// regexTemplate reads a template as package regexp does. It adds `shift` to group numbers: 1 if the
// whole expression was put into a group, else 0.
func regexTemplate(s string, re *regexp.Regexp, shift int) (t template) {
	at := 0
	for _, ref := range regexReference.FindAllStringIndex(s, -1) {
		t.text(s[at:ref[0]])
		at = ref[1]
		name := strings.Trim(s[ref[0]+1:ref[1]], "{}")
		if name == "$" {
			t.text("$")
			continue
		}
		group, err := strconv.Atoi(name)
		if err != nil || len(name) > 1 && name[0] == '0' {
			group = re.SubexpIndex(name)
		}
		if group < 0 || group > re.NumSubexp() {
			t.lost = append(t.lost, s[ref[0]:ref[1]])
			continue
		}
		t.parts = append(t.parts, templatePart{group: group + shift})
	}
	t.text(s[at:])
	return t
}

// anchored returns an expression that matches a whole name if s matches any part of the name. It
// has the same groups as s. If `whole` is set, an added first group is the part that s matches. Names have
// no line breaks, so . is any character.
func anchored(s string, whole bool) (expr string, shift int) {
	re, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return s, 0 // cannot happen: s was compiled before
	}
	front, back := ".*?", ".*"
	if reachesFront(re) {
		front = ""
	}
	if reachesBack(re) {
		back = ""
	}
	switch {
	case front == "" && back == "":
		return s, 0
	case whole:
		return front + "(" + s + ")" + back, 1
	case strings.Contains(s, "|"):
		return front + "(?:" + s + ")" + back, 0
	}
	return front + s + back, 0
}

// reachesFront reports whether each match of re begins where the name begins, because re begins
// with ^, .* or .+.
func reachesFront(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginText:
		return true
	case syntax.OpConcat, syntax.OpCapture:
		return reachesFront(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus:
		return anyByte(re.Sub[0])
	}
	return false
}

// reachesBack reports whether each match of re ends where the name ends.
func reachesBack(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEndText:
		return true
	case syntax.OpConcat, syntax.OpCapture:
		return reachesBack(re.Sub[len(re.Sub)-1])
	case syntax.OpStar, syntax.OpPlus:
		return anyByte(re.Sub[0]) && re.Flags&syntax.NonGreedy == 0
	}
	return false
}

func anyByte(re *syntax.Regexp) bool {
	return re.Op == syntax.OpAnyChar || re.Op == syntax.OpAnyCharNotNL
}
