package conf

import "strings"

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Key  string // dotted path; a Validator gives it relative to itself
	Text string // what is wrong and the way out: "exceeds width (10s); set it to 10s or less"

	where string // file, line and key, or the flag or variable
	value string
	line  int // in the file; 0 if the value came from elsewhere
}

func (p Problem) Error() string {
	if p.value == "" {
		return p.where + ": " + p.Text
	}
	return p.where + " = " + p.value + ": " + p.Text
}

// Problems is all that is wrong with a configuration: never empty.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}
