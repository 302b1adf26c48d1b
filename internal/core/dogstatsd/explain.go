package dogstatsd

import (
	"bytes"
	"fmt"
	"time"
	"unicode/utf8"
)

// Explanation says what one line means, byte by byte, or where it goes wrong. It is for people, so
// its allocations do not matter. The Parser decides what a line and its fields mean and which byte
// is wrong. Explanation only cuts the line into pieces and puts these decisions into words.
type Explanation struct {
	Line   Line // the kind of the line; for a malformed line, the kind that its beginning shows
	Reason Reason
	Fields []Field // in the order of the line, up to the fault if there is one

	// Set only for a malformed line. Fault is the index of the first wrong byte, or the line's length
	// if something is missing at its end. Expected is what should be there.
	Fault    int
	Expected string

	// Set only for a well-formed line: the field that Line names is filled, and points into the line.
	Metric Metric
	Event  Event
	Check  Check
}

// Field is one piece of a line: the bytes [From, To).
type Field struct {
	From    int    `json:"from"`
	To      int    `json:"to"`
	Name    string `json:"name"`    // the kind of piece: value, rate, tag ...
	Meaning string `json:"meaning"` // what the piece says
	Ignored bool   `json:"ignored,omitempty"`
}

// WellFormed reports whether the line is accepted.
func (e *Explanation) WellFormed() bool { return e.Reason == wellFormed }

// Explain explains one line, without its line break.
func Explain(line []byte) Explanation {
	if len(line) == 0 {
		return Explanation{Line: MetricLine, Reason: NoType, Expected: "a line, such as page_views:1|c"}
	}
	var p Parser
	x := explainer{line: line}
	x.e.Line, x.e.Reason = p.parseLine(&p.Metric, line)
	if !x.e.WellFormed() {
		x.e.Fault, x.e.Expected = x.at(p.wrong), p.expected
	}
	switch x.e.Line {
	case EventLine:
		x.event(&p.Event)
	case CheckLine:
		x.check()
	default:
		x.metric(&p.Metric)
	}
	if x.e.WellFormed() {
		x.e.Metric, x.e.Event, x.e.Check = p.Metric, p.Event, p.Check
	}
	return x.e
}

// explainer walks over one line.
type explainer struct {
	line  []byte
	e     Explanation
	steps Parser // reads single fields
}

func (x *explainer) add(from, to int, name, meaning string, args ...any) {
	x.e.Fields = append(x.e.Fields, Field{From: from, To: to, Name: name, Meaning: fmt.Sprintf(meaning, args...)})
}

func (x *explainer) ignore(from, to int, name, meaning string, args ...any) {
	x.add(from, to, name, meaning, args...)
	x.e.Fields[len(x.e.Fields)-1].Ignored = true
}

// replace marks the earlier fields of a name as ignored, since a later field replaces them.
func (x *explainer) replace(name string) {
	for i := range x.e.Fields {
		if f := &x.e.Fields[i]; f.Name == name && !f.Ignored {
			f.Ignored = true
			f.Meaning += "; ignored, since a later one replaces it"
		}
	}
}

// at(piece) returns the index at which the piece begins in the line. It compares capacities, since the
// memory of the piece ends at the same byte as that of the line.
func (x *explainer) at(piece []byte) int { return cap(x.line) - cap(piece) }

// upTo returns the index of the first `c` at or after `from`, or the line's length.
func (x *explainer) upTo(from int, c byte) int {
	if i := bytes.IndexByte(x.line[from:], c); i >= 0 {
		return from + i
	}
	return len(x.line)
}

// taken reports whether the piece that ends at index `to` comes before the fault.
func (x *explainer) taken(to int) bool { return x.e.WellFormed() || to < x.e.Fault }

// metric walks name:value[:value]|type[|field].
func (x *explainer) metric(m *Metric) {
	bar := x.upTo(0, '|')
	name := min(bar, x.upTo(0, ':'))
	if name > 0 {
		x.add(0, name, "name", "the metric's name")
	}
	if m.Type == 0 {
		return // without a type, values have no meaning
	}
	x.values(m, name+1, bar)
	end := x.upTo(bar+1, '|')
	if x.taken(end) {
		x.add(bar+1, end, "type", "%s", typeMeanings[m.Type])
	}
	x.steps.Metric = Metric{Type: m.Type, Rate: 1}
	x.fields(end, func(field []byte) part {
		of, _ := x.steps.parseMetricField(&x.steps.Metric, field)
		return of
	})
}

var typeMeanings = [...]string{
	Count: "a count", Gauge: "a gauge", Timing: "a timing", Histogram: "a histogram",
	Distribution: "a distribution", Set: "a set of distinct values",
	Buckets: "values in buckets that the sender made",
}

// values walks value[:value].
func (x *explainer) values(m *Metric, from, to int) {
	switch m.Type {
	case Set:
		x.add(from, to, "value", "one distinct value")
		return
	case Buckets:
		if x.e.WellFormed() {
			x.add(from, to, "value", "%v measurements in %d buckets, %v in sum",
				m.Measurements(), len(m.Values)/2, m.Values[0]/m.Rate)
		} else if x.taken(to) {
			x.add(from, to, "value", "values by bucket")
		}
		return
	}
	for next := 0; from <= to; {
		end := min(x.upTo(from, ':'), to)
		if !x.taken(end) {
			return
		}
		if end > from {
			x.add(from, end, "value", "%s", x.value(m, next))
			next++
		}
		from = end + 1
	}
}

// value describes one value. The description depends on the rate, which comes later in the line.
func (x *explainer) value(m *Metric, i int) string {
	if !x.e.WellFormed() {
		return "a number"
	}
	v := m.Values[i]
	switch {
	case m.Type == Count && m.Rate != 1:
		return fmt.Sprintf("adds %v (%v at a rate of %v)", v/m.Rate, v, m.Rate)
	case m.Type == Count:
		return fmt.Sprintf("adds %v", v)
	case m.Relative:
		return fmt.Sprintf("has a sign: sets the gauge to %v, or with relative gauges adds %v to it", v, v)
	case m.Type == Gauge:
		return fmt.Sprintf("sets the gauge to %v", v)
	case m.Rate != 1:
		return fmt.Sprintf("a measurement of %v, counted %v times (at a rate of %v)", v, 1/m.Rate, m.Rate)
	}
	return fmt.Sprintf("a measurement of %v", v)
}

// event walks _e{<title bytes>,<text bytes>}:title|text[|field]. A part that is not empty in `e` is
// well-formed.
func (x *explainer) event(e *Event) {
	if x.e.Reason == EventHeader {
		return
	}
	const begin = len("_e{")
	comma, brace := x.upTo(begin, ','), x.upTo(begin, '}')
	titleBytes, _ := parseUint(x.line[begin:comma])
	textBytes, _ := parseUint(x.line[comma+1 : brace])
	x.add(begin, comma, "title length", "the title has %d bytes", titleBytes)
	x.add(comma+1, brace, "text length", "the text has %d bytes", textBytes)
	if x.e.Reason == EventTitle {
		return
	}
	from := brace + len("}:")
	if e.Title == nil {
		x.e.Expected = x.expectedLength(from, titleBytes, "title")
		return
	}
	end := from + len(e.Title)
	x.add(from, end, "title", "the event's title")
	from = end + 1
	if !x.e.WellFormed() {
		x.e.Expected = x.expectedLength(from, textBytes, "text")
		return
	}
	end = from + len(e.Text)
	x.add(from, end, "text", "the event's text")
	x.fields(end, x.steps.parseEventField)
}

// expectedLength says why the title or text that begins at `from` does not have the `n` bytes that
// the header announces.
func (x *explainer) expectedLength(from int, n int64, what string) string {
	has := x.line[from:x.upTo(from, '|')]
	expected := fmt.Sprintf("'|' after a %s of %d bytes; up to the next '|' or the line's end it has %d",
		what, n, len(has))
	if int64(utf8.RuneCount(has)) == n {
		expected += ": the length counts characters, but must count bytes"
	}
	return expected
}

// check walks _sc|name|status[|field].
func (x *explainer) check() {
	const begin = len("_sc|")
	bar := x.upTo(begin, '|')
	if bar > begin {
		x.add(begin, bar, "name", "the check's name")
	}
	if !x.e.WellFormed() {
		return
	}
	status := bar + 1
	x.add(status, status+1, "status", "%s", [...]string{"OK", "warning", "critical", "unknown"}[x.line[status]-'0'])
	x.fields(status+1, x.steps.parseCheckField)
}

// fields walks the optional fields from index `at` on, and calls `step` to read each.
func (x *explainer) fields(at int, step func(field []byte) part) {
	for at < len(x.line) {
		from := at + 1
		if at = x.upTo(from, '|'); !x.taken(at) {
			return
		}
		x.field(step(x.line[from:at]), from, at)
	}
}

// partTexts has the name of each part, and its meaning if the meaning does not depend on the field.
var partTexts = [...]struct{ name, meaning string }{
	ratePart:        {"rate", ""},
	timestampPart:   {"timestamp", "the value's own time, in Unix seconds"},
	exemplarPart:    {"exemplar", ""},
	containerPart:   {"origin", ""},
	externalPart:    {"external data", ""},
	cardinalityPart: {"cardinality", ""},
	eventTimePart:   {"timestamp", "the event's time, in Unix seconds"},
	checkTimePart:   {"timestamp", "the status' time, in Unix seconds"},
	hostPart:        {"host", "the host of the event or check"},
	keyPart:         {"key", "the aggregation key"},
	priorityPart:    {"priority", "the priority"},
	sourcePart:      {"source", "the source type"},
	alertPart:       {"alert", "the alert type"},
	messagePart:     {"message", "a message, which is not stored"},
	unknownPart:     {"unknown", "not a field of the protocol"},
	badExemplarPart: {"exemplar", ""},
	badTimePart:     {"timestamp", ""},
	badPriorityPart: {"priority", ""},
	badAlertPart:    {"alert", ""},
}

// field explains one optional field, given the part that the parser read. If several fields have the
// same name, the last one counts.
func (x *explainer) field(of part, from, to int) {
	field, name := x.line[from:to], partTexts[of].name
	switch {
	case of == tagsPart:
		x.replace("tag")
		x.tags(from, to)
	case of >= unknownPart || of == ratePart && !x.steps.Metric.Type.sampled():
		x.ignore(from, to, name, "%s: ignored", x.meaning(of, field))
	default:
		x.replace(name)
		x.add(from, to, name, "%s", x.meaning(of, field))
	}
}

// meaning describes an optional field, which the parser read as the part `of`.
func (x *explainer) meaning(of part, field []byte) string {
	var o Origin
	o.parseField(field)
	m := &x.steps.Metric
	_, value := cutField(field)
	switch of {
	case ratePart:
		if !m.Type.sampled() {
			return "a sampling rate, which " + typeMeanings[m.Type] + " does not have"
		}
		return fmt.Sprintf("a sampling rate: each value stands for %v", 1/m.Rate)
	case exemplarPart:
		at := time.UnixMilli(m.Exemplar.Time).UTC().Format("2006-01-02T15:04:05.000Z")
		return fmt.Sprintf("an exemplar: trace %s has a measurement of %v, at %s", m.Exemplar.Trace, m.Exemplar.Value, at)
	case badExemplarPart:
		return "an exemplar without " + m.parseExemplar(value)
	case containerPart:
		return fmt.Sprintf("the origin of the line: container %q, cgroup inode %q", o.Container, o.Inode)
	case externalPart:
		e := ParseExternal(o.External)
		return fmt.Sprintf("the origin of the line, as set by the cluster: container %q, pod %q", e.Container, e.Pod)
	case cardinalityPart:
		if string(o.Cardinality) == "none" {
			return "the sender wants no origin labels"
		}
		return "which origin labels the sender wants"
	case badTimePart:
		return fmt.Sprintf("not whole Unix seconds from 1 to %d", int64(MaxTime))
	case badPriorityPart:
		return fmt.Sprintf("%q is none of %s", value, priorities)
	case badAlertPart:
		return fmt.Sprintf("%q is none of %s", value, alerts)
	}
	return partTexts[of].meaning
}

// tags walks "#tag,tag".
func (x *explainer) tags(from, to int) {
	found := false
	for tag := range Tags(x.line[from+1 : to]) {
		found = true
		at := x.at(tag)
		if key, value, ok := bytes.Cut(tag, []byte(":")); !ok || len(key) == 0 {
			x.add(at, at+len(tag), "tag", "a bare tag: its value is true")
		} else if len(value) == 0 {
			x.add(at, at+len(tag), "tag", "a tag with an empty value: no label %s", key)
		} else {
			x.add(at, at+len(tag), "tag", "a tag: %s = %s", key, value)
		}
	}
	if !found {
		x.ignore(from, to, "tags", "no tags")
	}
}
