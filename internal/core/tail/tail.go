// Package tail selects the lines that a person wants to see from the datagrams that arrive, and
// describes them. Callers supply the datagrams and the stored names, and show the lines.
package tail

import (
	"bytes"
	"iter"
	"net/netip"
	"slices"
	"unicode/utf8"

	"github.com/freshet-io/freshet/internal/core/capture"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/sender"
)

// Filter selects lines: a line must match all fields. Every line matches the zero value.
type Filter struct {
	Name      string       // glob of a metric's or check's name, as sent or as stored, or of an event's title
	Tags      []string     // globs of whole tags, "env:prod*"; each must match one
	From      netip.Prefix // of the sender's address
	PID, UID  *int32       // of the sender
	Malformed bool         // only malformed lines
}

// Line is one line as it arrived.
type Line struct {
	Time     int64    `json:"time"` // Unix nanoseconds
	Listener string   `json:"listener"`
	Sender   string   `json:"sender,omitempty"` // address, or pid and uid
	Type     string   `json:"type,omitempty"`   // counter, gauge, timing, histogram, distribution, set, event or check
	Name     string   `json:"name,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	Text     string   `json:"line"`
	Bytes    []byte   `json:"bytes,omitempty"` // only if the line is not UTF-8, which Text in JSON cannot show

	// For a malformed line: the reason, the offset of the first wrong byte, and what was expected
	// there.
	Malformed string `json:"malformed,omitempty"`
	At        int    `json:"at,omitempty"`
	Expected  string `json:"expected,omitempty"`
}

// Stored returns the names that a context's series have in PromQL. There are none if a rule drops
// the context.
type Stored func(in *mapping.Input) []string

// Selector finds the lines that pass a filter. It belongs to one goroutine.
type Selector struct {
	filter Filter
	stored Stored
	parser dogstatsd.Parser
	line   Line
	input  mapping.Input // of the line

	known map[string]bool // by context: whether one of its stored names is wanted
	key   []byte          // key of known; its memory is reused
}

// maxKnown bounds the contexts that a Selector remembers, at about 200 bytes each.
const maxKnown = 10_000

// New returns a Selector for filter. The name of a line may match as sent or as stored.
func New(filter Filter, stored Stored) *Selector {
	return &Selector{filter: filter, stored: stored, known: map[string]bool{}}
}

// Forget forgets the stored names. They change when rules are reloaded, and when the owner of a
// name changes.
func (s *Selector) Forget() { clear(s.known) }

// Lines yields the lines of d that pass. A line is valid until the next one.
func (s *Selector) Lines(d *capture.Datagram) iter.Seq[*Line] {
	return func(yield func(*Line) bool) {
		if !s.filter.sender(d.Sender) {
			return
		}
		for text := range dogstatsd.Lines(d.Data) {
			if s.passes(text) && !yield(s.describe(d, text)) {
				return
			}
		}
	}
}

func (f *Filter) sender(s sender.Sender) bool {
	if f.From.IsValid() && !f.From.Contains(s.Addr.Addr()) {
		return false
	}
	known := s.PID != 0 || s.UID != 0
	return (f.PID == nil || known && *f.PID == s.PID) && (f.UID == nil || known && *f.UID == s.UID)
}

// passes reports whether a line passes the filter, and describes the line in s.line. There, Type is
// empty if the line is malformed.
func (s *Selector) passes(text []byte) bool {
	p := &s.parser
	p.Reset(text)
	var name, tags []byte
	var in *mapping.Input // nil if the line has no series
	switch s.line = (Line{}); p.Next() {
	case dogstatsd.MetricLine:
		s.line.Type, name, tags = typeName(p.Metric.Type), p.Metric.Name, p.Metric.Tags
		s.input = mapping.Input{Type: p.Metric.Type, Name: name, Tags: tags, Origin: p.Metric.Origin}
		in = &s.input
	case dogstatsd.CheckLine:
		s.line.Type, name, tags = "check", p.Check.Name, p.Check.Tags
		s.input = mapping.Input{Check: true, Name: name, Tags: tags, Host: p.Check.Host, Origin: p.Check.Origin}
		in = &s.input
	case dogstatsd.EventLine:
		s.line.Type, name, tags = "event", p.Event.Title, p.Event.Tags
	default:
		name, tags = guess(text)
	}
	if s.filter.Malformed && s.line.Type != "" || !s.named(name, in) {
		return false
	}
	for _, glob := range s.filter.Tags {
		found := false
		for tag := range dogstatsd.Tags(tags) {
			found = found || match(glob, tag)
		}
		if !found {
			return false
		}
	}
	s.line.Name = string(name)
	for tag := range dogstatsd.Tags(tags) {
		s.line.Tags = append(s.line.Tags, string(tag))
	}
	return true
}

// named reports whether the name of a line is wanted, as sent or as stored. `in` is nil if the
// line has no series.
func (s *Selector) named(name []byte, in *mapping.Input) bool {
	if s.filter.Name == "" || match(s.filter.Name, name) {
		return true
	}
	if in == nil {
		return false
	}
	// The stored name depends on all fields of a line except its values. The number and length before
	// each field separate the fields in the key.
	s.key = append(s.key[:0], byte(in.Type))
	for i, field := range [...][]byte{in.Name, in.Tags, in.Host, in.Origin.Container, in.Origin.Inode, in.Origin.External,
		in.Origin.Cardinality} {
		if len(field) > 0 {
			s.key = append(append(s.key, byte(i), byte(len(field)>>8), byte(len(field))), field...)
		}
	}
	wanted, known := s.known[string(s.key)]
	if !known {
		wanted = slices.ContainsFunc(s.stored(in), func(stored string) bool { return match(s.filter.Name, []byte(stored)) })
		if len(s.known) == maxKnown {
			clear(s.known)
		}
		s.known[string(s.key)] = wanted
	}
	return wanted
}

// guess returns the probable name and tags of a malformed line, so that filters work on it,
// too.
func guess(text []byte) (name, tags []byte) {
	name, _, _ = bytes.Cut(text, []byte(":"))
	name, _, _ = bytes.Cut(name, []byte("|"))
	if _, rest, ok := bytes.Cut(text, []byte("|#")); ok {
		tags, _, _ = bytes.Cut(rest, []byte("|"))
	}
	return name, tags
}

func typeName(t dogstatsd.Type) string {
	switch t {
	case dogstatsd.Count:
		return "counter"
	case dogstatsd.Gauge:
		return "gauge"
	case dogstatsd.Timing:
		return "timing"
	case dogstatsd.Histogram:
		return "histogram"
	case dogstatsd.Distribution:
		return "distribution"
	case dogstatsd.Buckets:
		return "buckets"
	}
	return "set"
}

// describe completes s.line for a line that passes the filter.
func (s *Selector) describe(d *capture.Datagram, text []byte) *Line {
	l := &s.line
	l.Time, l.Listener, l.Text = d.Time, d.Network+"://"+d.Address, string(text)
	if !utf8.Valid(text) {
		l.Bytes = bytes.Clone(text)
	}
	if d.Sender != (sender.Sender{}) {
		l.Sender = d.Sender.String()
	}
	if l.Type == "" {
		e := dogstatsd.Explain(text)
		l.Malformed, l.At, l.Expected = e.Reason.String(), e.Fault, e.Expected
	}
	return l
}

// match reports whether `text` matches `glob`: * stands for any bytes, ? for one.
func match(glob string, text []byte) bool {
	star, mark := -1, 0 // index of the last *, and of the text after the bytes that it matched
	g, t := 0, 0
	for t < len(text) {
		switch {
		case g < len(glob) && glob[g] == '*':
			star, mark = g, t
			g++
		case g < len(glob) && (glob[g] == '?' || glob[g] == text[t]):
			g++
			t++
		case star >= 0: // let the last * match one more byte
			mark++
			g, t = star+1, mark
		default:
			return false
		}
	}
	for g < len(glob) && glob[g] == '*' {
		g++
	}
	return g == len(glob)
}
