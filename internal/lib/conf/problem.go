package conf

import (
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Key  string // dotted path; in problems of a Validator, relative to the Validator
	Text string // what is wrong and how to fix it: "exceeds width (10s); set it to 10s or less"

	where string // file, line and key, or the flag or variable
	value string
	line  int // line in the file; 0 if the value came from elsewhere
}

func (p Problem) Error() string {
	if p.value == "" {
		return p.where + ": " + p.Text
	}
	return p.where + " = " + p.value + ": " + p.Text
}

// Problems are all problems of a configuration. There is at least one.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Lines returns the problems of an error, one per line.
func Lines(err error) (all []string) {
	problems := Problems(nil)
	if !errors.As(err, &problems) {
		return strings.Split(err.Error(), "\n")
	}
	for _, p := range problems {
		all = append(all, p.Error())
	}
	return all
}

// MistakeError is a user's mistake that shows only after the configuration is loaded, such as the
// name of a file that does not exist. Retrying cannot help.
type MistakeError struct{ error }

// Mistake marks err as a MistakeError.
func Mistake(err error) error { return MistakeError{err} }

// Unwrap returns the marked error.
func (e MistakeError) Unwrap() error { return e.error }

func oneLine(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// shorten cuts a text that would make a problem longer than one readable line.
func shorten(text string) string {
	if len(text) > 80 {
		text = text[:77] + "..."
	}
	return oneLine(text)
}

// Validator is a section, or an element of a list or map, that checks its own values. The keys of
// its problems are relative to the Validator.
type Validator interface {
	Validate() []Problem
}

func renamedTo(now string) string { return "was renamed: say " + now }
