package dogstatsd

import (
	"bytes"
	"fmt"
	"iter"
	"strconv"
	"time"
	"unicode/utf8"
)

// Explanation says what one line means, byte by byte, or where it goes wrong. It
// is for people and allocates at will; what a line becomes is the Parser's word
// alone, and fuzzing holds that the two agree.
type Explanation struct {
	Line   Line // what the line is, or was begun as
	Reason Reason
	Fields []Field // in the order of the line, up to the fault if there is one

	// Of a malformed line: the byte at which it goes wrong, which is the line's
	// length if something is missing at its end, and what should be there.
	Fault    int
	Expected string

	// One of these is filled, by Line, if the line is well-formed. They point into
	// the line.
	Metric Metric
	Event  Event
	Check  Check
}

// Field is one piece of a line, [From, To).
type Field struct {
	From    int    `json:"from"`
	To      int    `json:"to"`
	Name    string `json:"name"`    // what it is: value, rate, tag ...
	Meaning string `json:"meaning"` // what it says
	Ignored bool   `json:"ignored,omitempty"`
}

// WellFormed reports whether the line is taken.
func (e *Explanation) WellFormed() bool { return e.Reason == wellFormed }

// Lines walks the lines of a datagram that the Parser looks at.
func Lines(packet []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(packet) > 0 {
			var line []byte
			line, packet = cutLine(packet)
			if len(line) > 0 && !yield(line) {
				return
			}
		}
	}
}

// cutLine splits a datagram behind its first line, which comes without its line
// break.
func cutLine(packet []byte) (line, rest []byte) {
	line, rest, _ = cut(packet, '\n')
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, rest
}

// Explain explains one line, without its line break.
func Explain(line []byte) Explanation {
	e, _ := explain(line)
	return e
}

// explain also returns what its own walk over the line found, for the fuzz test
// that holds it to the parser.
func explain(line []byte) (Explanation, Reason) {
	if len(line) == 0 {
		return Explanation{Line: MetricLine, Reason: NoType, Expected: "a line, such as page_views:1|c"}, NoType
	}
	var p Parser
	x := explainer{line: line, e: &Explanation{}}
	x.e.Line, x.e.Reason = p.parseLine(&p.Metric, line)
	x.m.Rate = 1
	var found Reason
	switch x.e.Line {
	case EventLine:
		found = x.event()
	case CheckLine:
		found = x.check()
	default:
		found = x.metric()
	}
	if x.e.WellFormed() {
		x.e.Metric, x.e.Event, x.e.Check = p.Metric, p.Event, p.Check
		x.values()
	}
	return *x.e, found
}

// explainer walks over one line with the steps of the parser.
type explainer struct {
	line []byte
	e    *Explanation
	m    Metric // for the parser's steps
}

func (x *explainer) add(from, to int, name, meaning string, args ...any) {
	x.e.Fields = append(x.e.Fields, Field{From: from, To: to, Name: name, Meaning: fmt.Sprintf(meaning, args...)})
}

func (x *explainer) ignore(from, to int, name, meaning string, args ...any) {
	x.add(from, to, name, meaning, args...)
	x.e.Fields[len(x.e.Fields)-1].Ignored = true
}

// replace notes that a further field takes the place of those before it.
func (x *explainer) replace(name string) {
	for i := range x.e.Fields {
		if f := &x.e.Fields[i]; f.Name == name && !f.Ignored {
			f.Ignored = true
			f.Meaning += "; ignored, since one further on takes its place"
		}
	}
}

// fault notes where the line goes wrong.
func (x *explainer) fault(at int, reason Reason, expected string, args ...any) Reason {
	x.e.Fault, x.e.Expected = at, fmt.Sprintf(expected, args...)
	return reason
}

// upTo returns the index of the first c at or behind from, or the line's length.
func (x *explainer) upTo(from int, c byte) int {
	if i := bytes.IndexByte(x.line[from:], c); i >= 0 {
		return from + i
	}
	return len(x.line)
}

// expectedType lists the types of a metric.
const expectedType = "a type: c, g, ms, h, d, s or nh"

func (x *explainer) metric() Reason {
	bar := x.upTo(0, '|')
	colon := bytes.IndexByte(x.line[:bar], ':')
	switch {
	case colon == 0:
		if bar == len(x.line) {
			break
		}
		return x.fault(0, EmptyName, "the name of the metric")
	case colon > 0:
		x.add(0, colon, "name", "the metric's name")
	case bar > 0:
		x.add(0, bar, "name", "the metric's name")
	}
	switch {
	case bar == len(x.line):
		return x.fault(bar, NoType, "'|' and %s", expectedType)
	case colon < 0:
		return x.fault(bar, NoValue, "':' and a value before this '|'")
	case colon+1 == bar:
		return x.fault(bar, NoValue, "a value before this '|'")
	}
	end := x.upTo(bar+1, '|')
	if x.m.Type = parseType(x.line[bar+1 : end]); x.m.Type == 0 {
		return x.fault(bar+1, UnknownType, "%s", expectedType)
	}
	if reason := x.metricValues(colon+1, bar); reason != wellFormed {
		return reason
	}
	x.add(bar+1, end, "type", "%s", typeMeanings[x.m.Type])
	for end < len(x.line) {
		from := end + 1
		end = x.upTo(from, '|')
		if reason := x.metricField(from, end); reason != wellFormed {
			return reason
		}
	}
	return wellFormed
}

var typeMeanings = [...]string{
	Count: "a count", Gauge: "a gauge", Timing: "a timing", Histogram: "a histogram",
	Distribution: "a distribution", Set: "a set of distinct values",
	Buckets: "values that the sender has put into buckets",
}

// metricValues walks value[:value]. What they do depends on the rate, see values.
func (x *explainer) metricValues(from, to int) Reason {
	if x.m.Type == Set {
		x.add(from, to, "value", "one distinct value")
		return wellFormed
	}
	if x.m.Type == Buckets {
		if at, expected, reason := x.m.parseBuckets(x.line[from:to]); reason != wellFormed {
			return x.fault(from+at, reason, "%s", expected)
		}
		x.add(from, to, "value", "values by bucket")
		return wellFormed
	}
	found := false
	for at := from; at <= to; {
		end := min(x.upTo(at, ':'), to)
		if part := x.line[at:end]; len(part) > 0 {
			found = true
			switch _, reason := parseNumber(part); reason {
			case BadValue:
				return x.fault(at+decimalPrefix(part), reason, "a decimal number, such as 1, -0.5 or 1e3")
			case NotFinite:
				return x.fault(at, reason, "a number that a 64-bit float holds")
			}
			x.add(at, end, "value", "a number")
		}
		at = end + 1
	}
	if !found {
		return x.fault(to, NoValue, "a value before this '|'")
	}
	return wellFormed
}

// values says what the values of a well-formed line do.
func (x *explainer) values() {
	m, next := &x.e.Metric, 0
	for i := range x.e.Fields {
		f := &x.e.Fields[i]
		if f.Name != "value" || m.Type == Set {
			continue
		}
		if m.Type == Buckets {
			f.Meaning = fmt.Sprintf("%v measurements in %d buckets, %v in sum", m.Measurements(), len(m.Values)/2, m.Values[0]/m.Rate)
			continue
		}
		v := m.Values[next]
		next++
		switch {
		case m.Type == Count && m.Rate != 1:
			f.Meaning = fmt.Sprintf("adds %v (%v at a rate of %v)", v/m.Rate, v, m.Rate)
		case m.Type == Count:
			f.Meaning = fmt.Sprintf("adds %v", v)
		case m.Relative:
			f.Meaning = fmt.Sprintf("has a sign: sets the gauge to %v, or with relative gauges adds %v to it", v, v)
		case m.Type == Gauge:
			f.Meaning = fmt.Sprintf("sets the gauge to %v", v)
		case m.Rate != 1:
			f.Meaning = fmt.Sprintf("a measurement of %v, counted %v times (at a rate of %v)", v, 1/m.Rate, m.Rate)
		default:
			f.Meaning = fmt.Sprintf("a measurement of %v", v)
		}
	}
}

// metricField walks one optional field, as parseMetricField reads it.
func (x *explainer) metricField(from, to int) Reason {
	field := x.line[from:to]
	if len(field) > 0 {
		switch field[0] {
		case '#':
			x.tags(from, to)
			return wellFormed
		case '@':
			return x.rate(from, to)
		case 'T':
			return x.timestamp(from, to)
		case 'x':
			if x.m.hasExemplar(field) {
				x.exemplar(from, to)
				return wellFormed
			}
		}
	}
	x.common(from, to)
	return wellFormed
}

// exemplar walks "x:trace,value,time", of which the last valid one counts.
func (x *explainer) exemplar(from, to int) {
	if expected := x.m.parseExemplar(x.line[from+len("x:") : to]); expected != "" {
		x.ignore(from, to, "exemplar", "an exemplar without %s: ignored", expected)
		return
	}
	e := &x.m.Exemplar
	x.replace("exemplar")
	x.add(from, to, "exemplar", "an exemplar: trace %s has a measurement of %v, at %s", e.Trace, e.Value,
		time.UnixMilli(e.Time).UTC().Format("2006-01-02T15:04:05.000Z"))
}

func (x *explainer) rate(from, to int) Reason {
	if x.m.Type == Gauge || x.m.Type == Set {
		x.ignore(from, to, "rate", "a sampling rate, which %s does not have: ignored", typeMeanings[x.m.Type])
		return wellFormed
	}
	raw := x.line[from+1 : to]
	if reason := x.m.parseRate(raw); reason != wellFormed {
		at := from + 1
		if _, why := parseNumber(raw); why == BadValue {
			at += decimalPrefix(raw)
		}
		return x.fault(at, reason, "a sampling rate from 1e-9 to 1")
	}
	x.replace("rate")
	x.add(from, to, "rate", "a sampling rate: each value stands for %v", 1/x.m.Rate)
	return wellFormed
}

func (x *explainer) timestamp(from, to int) Reason {
	raw := x.line[from+1 : to]
	switch reason := x.m.parseTimestamp(raw); reason {
	case TimestampType:
		return x.fault(from, reason, "no timestamp: only counts and gauges have one")
	case BadTimestamp:
		at := from + 1
		if n := countDigits(raw); n < len(raw) {
			at += n
		}
		return x.fault(at, reason, "whole Unix seconds, 1 to %d", int64(MaxTime))
	}
	x.replace("timestamp")
	x.add(from, to, "timestamp", "the value's own time, in Unix seconds")
	return wellFormed
}

// tags walks "#tag,tag".
func (x *explainer) tags(from, to int) {
	x.replace("tag")
	found := false
	for at := from + 1; at <= to; {
		end := min(x.upTo(at, ','), to)
		if tag := x.line[at:end]; len(tag) > 0 {
			found = true
			if key, value, ok := bytes.Cut(tag, []byte(":")); !ok || len(key) == 0 {
				x.add(at, end, "tag", "a bare tag: its value is true")
			} else if len(value) == 0 {
				x.add(at, end, "tag", "a tag with an empty value: no label %s", key)
			} else {
				x.add(at, end, "tag", "a tag: %s = %s", key, value)
			}
		}
		at = end + 1
	}
	if !found {
		x.ignore(from, to, "tags", "no tags")
	}
}

// common walks the fields that every kind of line has, and those that none has.
func (x *explainer) common(from, to int) {
	field := x.line[from:to]
	var o Origin
	switch {
	case !o.parseField(field):
		x.ignore(from, to, "unknown", "not a field of the protocol: ignored")
	case bytes.HasPrefix(field, []byte("c:")):
		x.replace("origin")
		x.add(from, to, "origin", "where it comes from: container %q, cgroup inode %q", o.Container, o.Inode)
	case bytes.HasPrefix(field, []byte("e:")):
		x.replace("external data")
		external := ParseExternal(o.External)
		x.add(from, to, "external data", "where it comes from, as the cluster said: container %q, pod %q", external.Container, external.Pod)
	default:
		x.replace("cardinality")
		meaning := "which origin labels the sender wants; only none changes anything"
		if string(o.Cardinality) == "none" {
			meaning = "the sender wants no origin labels"
		}
		x.add(from, to, "cardinality", "%s", meaning)
	}
}

// decimalPrefix is how far b can be read as a decimal number: the index of the
// first byte that is wrong, or its length if more is missing.
func decimalPrefix(b []byte) int {
	i := len(b) - len(skipSign(b))
	whole := countDigits(b[i:])
	i += whole
	fraction := 0
	if i < len(b) && b[i] == '.' {
		fraction = countDigits(b[i+1:])
		i += 1 + fraction
	}
	if whole+fraction == 0 || i == len(b) || b[i] != 'e' && b[i] != 'E' {
		return i
	}
	i++
	i += len(b[i:]) - len(skipSign(b[i:]))
	return i + countDigits(b[i:])
}

// event walks _e{<title bytes>,<text bytes>}:title|text[|field].
func (x *explainer) event() Reason {
	const begin = len("_e{")
	comma := begin + countDigits(x.line[begin:])
	switch {
	case comma == begin:
		return x.fault(comma, EventHeader, "the length of the title in bytes")
	case comma == len(x.line) || x.line[comma] != ',':
		return x.fault(comma, EventHeader, "',' and the length of the text in bytes")
	}
	brace := comma + 1 + countDigits(x.line[comma+1:])
	if brace == comma+1 {
		return x.fault(brace, EventHeader, "the length of the text in bytes")
	}
	if rest := x.line[brace:]; !bytes.HasPrefix(rest, []byte("}:")) {
		at := brace
		if len(rest) > 0 && rest[0] == '}' {
			at++
		}
		return x.fault(at, EventHeader, "'}:' before the title")
	}
	titleBytes, _ := parseUint(x.line[begin:comma])
	textBytes, _ := parseUint(x.line[comma+1 : brace])
	x.add(begin, comma, "title length", "the title has %d bytes", titleBytes)
	x.add(comma+1, brace, "text length", "the text has %d bytes", textBytes)
	if titleBytes == 0 {
		return x.fault(begin, EventTitle, "a title of at least one byte")
	}
	title := brace + len("}:")
	bar, ok := x.lengthFits(title, titleBytes, "title", false)
	if !ok {
		return EventLength
	}
	x.add(title, bar, "title", "the event's title")
	end, ok := x.lengthFits(bar+1, textBytes, "text", true)
	if !ok {
		return EventLength
	}
	x.add(bar+1, end, "text", "the event's text")
	for end < len(x.line) {
		from := end + 1
		end = x.upTo(from, '|')
		x.eventField(from, end)
	}
	return wellFormed
}

// lengthFits returns the end of a title or text that says it has n bytes, and
// whether a '|' is there, or the line's end where that may be.
func (x *explainer) lengthFits(from int, n int64, what string, last bool) (end int, ok bool) {
	rest := x.line[from:]
	end = from + int(min(n, int64(len(rest))))
	if n <= int64(len(rest)) && (last && end == len(x.line) || end < len(x.line) && x.line[end] == '|') {
		return end, true
	}
	has := rest[:x.upTo(from, '|')-from]
	expected := fmt.Sprintf("'|' behind a %s of %d bytes; up to the next '|' or the line's end it has %d", what, n, len(has))
	if int64(utf8.RuneCount(has)) == n {
		expected += ": the length counts characters, and bytes are meant"
	}
	x.fault(end, EventLength, "%s", expected)
	return end, false
}

// eventField walks one optional field, as parseEventField reads it.
func (x *explainer) eventField(from, to int) {
	key, value := cutField(x.line[from:to])
	switch key {
	case '#':
		x.tags(from, to)
	case 'd':
		x.time(from, to, value, "the event's time, in Unix seconds")
	case 'h':
		x.put(from, to, "host", "the host it is about")
	case 'k':
		x.put(from, to, "key", "the aggregation key")
	case 'p':
		x.word(from, to, value, "priority", "the priority", "normal", "low")
	case 's':
		x.put(from, to, "source", "the source type")
	case 't':
		x.word(from, to, value, "alert", "the alert type", "error", "warning", "info", "success")
	default:
		x.common(from, to)
	}
}

// check walks _sc|name|status[|field].
func (x *explainer) check() Reason {
	const begin = len("_sc|")
	bar := x.upTo(begin, '|')
	if bar == begin {
		return x.fault(begin, EmptyName, "the name of the check")
	}
	x.add(begin, bar, "name", "the check's name")
	const expected = "a status: 0 (OK), 1 (warning), 2 (critical) or 3 (unknown)"
	if bar == len(x.line) {
		return x.fault(bar, CheckStatus, "'|' and %s", expected)
	}
	from := bar + 1
	end := x.upTo(from, '|')
	status := x.line[from:end]
	if len(status) == 0 || status[0] < '0' || status[0] > '3' {
		return x.fault(from, CheckStatus, "%s", expected)
	}
	if len(status) > 1 {
		return x.fault(from+1, CheckStatus, "%s, and nothing behind it", expected)
	}
	x.add(from, end, "status", "%s", [...]string{"OK", "warning", "critical", "unknown"}[status[0]-'0'])
	for end < len(x.line) {
		from = end + 1
		end = x.upTo(from, '|')
		x.checkField(from, end)
	}
	return wellFormed
}

// checkField walks one optional field, as parseCheckField reads it.
func (x *explainer) checkField(from, to int) {
	key, value := cutField(x.line[from:to])
	switch key {
	case '#':
		x.tags(from, to)
	case 'd':
		x.time(from, to, value, "the status' time, in Unix seconds")
	case 'h':
		x.put(from, to, "host", "the host it is about")
	case 'm':
		x.put(from, to, "message", "a message, which is not stored")
	default:
		x.common(from, to)
	}
}

// put is a field of which the last counts.
func (x *explainer) put(from, to int, name, meaning string) {
	x.replace(name)
	x.add(from, to, name, "%s", meaning)
}

// time and word are fields of which the last valid one counts.
func (x *explainer) time(from, to int, value []byte, meaning string) {
	if _, ok := parseUnix(value); !ok {
		x.ignore(from, to, "timestamp", "not whole Unix seconds from 1 to %d: ignored", int64(MaxTime))
		return
	}
	x.put(from, to, "timestamp", meaning)
}

func (x *explainer) word(from, to int, value []byte, name, meaning string, words ...string) {
	for _, w := range words {
		if string(value) == w {
			x.put(from, to, name, meaning)
			return
		}
	}
	x.ignore(from, to, name, "%s is none of %s: ignored", strconv.Quote(string(value)), words)
}
