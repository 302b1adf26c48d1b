package dogstatsd

import (
	"bytes"
	"iter"
)

// Parser reads the lines of one datagram after another. The zero value is ready
// for Reset. It allocates nothing, except that what it holds grows with the largest
// datagram, by a quarter of it for marks, by its length if it is copied, and by
// Metric.Values for the longest packed line: two bytes make at most one value of
// eight. Metrics grows the values of the caller's, a malformed line those of the one
// after the last: a holder of many drops the long ones.
//
// A Parser belongs to one goroutine. What Next filled is good until the next call
// of Next or Reset, or until the datagram's memory is used again.
type Parser struct {
	Metric Metric // filled when Next returned MetricLine
	Event  Event  // filled when Next returned EventLine
	Check  Check  // filled when Next returned CheckLine

	// These only grow; Reset leaves them alone.
	Malformed     [NumReasons]uint64 // lines that gave nothing, by the first fault found
	UnknownFields uint64             // fields that are not in the protocol, skipped
	BadFields     uint64             // exemplars, and fields of events and checks, with content that makes no sense, skipped

	faults   uint64 // malformed lines, of all reasons
	fault    Reason // of the last one
	faultEnd int    // where it ends in packet
	wrong    []byte // the last malformed line from the byte on at which it goes wrong
	expected string // what should be there; empty where only Explain can say it

	packet []byte // the datagram; with marking, up to slack more bytes of no meaning
	end    int    // of the datagram in packet
	at     int    // where the next line begins
	marks  []marks
	copied []byte // a datagram without slack
}

// Reset begins a datagram. The parser reads it in place and never writes to it. It
// also reads up to 128 bytes of packet's capacity behind its length, whatever they
// are; a packet without that capacity is copied first.
func (p *Parser) Reset(packet []byte) {
	p.packet, p.at, p.end = packet, 0, len(packet)
	if marking {
		p.markAll()
	}
}

// Next reads up to the next well-formed line and says what it was. A malformed
// line is counted and skipped, so that it does not cost its neighbours. Empty
// lines are skipped; a carriage return before the line break is dropped.
func (p *Parser) Next() Line { return p.next(&p.Metric) }

// Metrics reads as Next does, but lines of metrics into dst, until it is full or
// there is another line. It returns how many they are and what comes then, which
// is MetricLine if there may be more. Whoever has many lines at hand can fetch
// what they need from memory at one time. Lines of several datagrams can be held
// together as long as their memory is: see InPlace.
func (p *Parser) Metrics(dst []Metric) (n int, next Line) {
	for n < len(dst) {
		if next = p.next(&dst[n]); next != MetricLine {
			return n, next
		}
		n++
	}
	return n, MetricLine
}

func (p *Parser) next(m *Metric) Line {
	for p.at < p.end {
		kind, reason := MetricLine, wellFormed
		if at := p.parseHead(m); at > 0 {
			reason = p.parseFields(m, at)
		} else {
			line, rest := cutLine(p.packet[p.at:p.end])
			p.at = p.end - len(rest)
			if len(line) == 0 {
				continue
			}
			kind, reason = p.parseLine(m, line)
		}
		if reason == wellFormed {
			return kind
		}
		p.Malformed[reason]++
		p.faults, p.fault, p.faultEnd = p.faults+1, reason, p.at
	}
	return End
}

// Faults is how many lines were malformed since the parser was made.
func (p *Parser) Faults() uint64 { return p.faults }

// LastFault is the last malformed line of the datagram that is being read, which must have
// one. It points into the datagram. Where it begins is looked for here, so that
// well-formed lines pay nothing for it.
func (p *Parser) LastFault() (line []byte, why Reason) {
	line = bytes.TrimSuffix(p.packet[:p.faultEnd], []byte("\n"))
	return line[bytes.LastIndexByte(line, '\n')+1:], p.fault
}

// fail notes that the line goes wrong where rest begins, and what should be there. Only
// malformed lines pay for it.
func (p *Parser) fail(reason Reason, rest []byte, expected string) Reason {
	p.wrong, p.expected = rest, expected
	return reason
}

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

// parseLine decides by the prefix: whatever is neither an event nor a check is
// a metric. "_sc" counts only with its '|', since "_scratch" is a metric's name.
func (p *Parser) parseLine(m *Metric, line []byte) (Line, Reason) {
	if line[0] == '_' {
		if rest, ok := bytes.CutPrefix(line, []byte("_e{")); ok {
			return EventLine, p.parseEvent(rest)
		}
		if rest, ok := bytes.CutPrefix(line, []byte("_sc|")); ok {
			return CheckLine, p.parseCheck(rest)
		}
	}
	return MetricLine, p.parseMetric(m, line)
}

// parseMetric reads name:value[:value]|type[|field].
func (p *Parser) parseMetric(m *Metric, line []byte) Reason {
	bar := bytes.IndexByte(line, '|')
	if bar < 0 {
		return p.fail(NoType, line[len(line):], "'|' and "+expectedType)
	}
	colon := bytes.IndexByte(line[:bar], ':')
	switch {
	case colon < 0:
		return p.fail(NoValue, line[bar:], "':' and a value before this '|'")
	case colon == 0:
		return p.fail(EmptyName, line, "the name of the metric")
	case colon+1 == bar:
		return p.fail(NoValue, line[bar:], expectedValue)
	}
	*m = Metric{Name: line[:colon], Values: m.Values[:0], Rate: 1, rare: true}
	raw := line[colon+1 : bar]

	field, rest, more := cutShort(line[bar+1:], '|')
	if m.Type = parseType(field); m.Type == 0 {
		return p.fail(UnknownType, field, expectedType)
	}
	if m.Type == Set {
		m.Set = raw
	} else if m.Type == Buckets {
		if reason := p.parseBuckets(m, raw); reason != wellFormed {
			return reason
		}
	} else if reason := p.parseValues(m, raw); reason != wellFormed {
		return reason
	}
	for more {
		field, rest, more = cut(rest, '|')
		if _, reason := p.parseMetricField(m, field); reason != wellFormed {
			return reason
		}
	}
	return wellFormed
}

const (
	expectedType  = "a type: c, g, ms, h, d, s or nh"
	expectedValue = "a value before this '|'"
)

func parseType(b []byte) Type {
	switch string(b) {
	case "c":
		return Count
	case "g":
		return Gauge
	case "ms":
		return Timing
	case "h":
		return Histogram
	case "d":
		return Distribution
	case "s":
		return Set
	case "nh":
		return Buckets
	}
	return 0
}

// parseValues reads value[:value]. Empty parts are skipped, as the Agent does;
// if there is nothing else the line has no value. One value that is no number
// costs the line: which of the others are meant cannot be known.
func (p *Parser) parseValues(m *Metric, raw []byte) Reason {
	if v, ok := parseShort(raw); ok { // one short value, as nearly always: no search for ':'
		m.Values = append(m.Values, v)
		m.Relative = m.Type == Gauge && isSigned(raw)
		return wellFormed
	}
	rest := raw
	for more := true; more; {
		var value []byte
		if value, rest, more = cut(rest, ':'); len(value) == 0 {
			continue
		}
		v, reason := parseNumber(value)
		if reason == NotFinite {
			return p.fail(reason, value, "a number that a 64-bit float holds")
		}
		if reason != wellFormed {
			return p.fail(reason, value[decimalPrefix(value):], "a decimal number, such as 1, -0.5 or 1e3")
		}
		if len(m.Values) == 0 {
			m.Relative = m.Type == Gauge && isSigned(value)
		}
		m.Values = append(m.Values, v)
	}
	if len(m.Values) == 0 {
		return p.fail(NoValue, raw[len(raw):], expectedValue)
	}
	return wellFormed
}

// part is what an optional field is taken for.
type part uint8

const (
	tagsPart part = iota
	ratePart
	timestampPart
	exemplarPart
	containerPart
	externalPart
	cardinalityPart
	eventTimePart
	checkTimePart
	hostPart
	keyPart
	priorityPart
	sourcePart
	alertPart
	messagePart

	unknownPart // this and what follows says nothing and is skipped
	badExemplarPart
	badTimePart
	badPriorityPart
	badAlertPart
)

// parseMetricField reads one optional field and says what it was. Fields come in any
// order and the last of a kind wins. One that is not known must never cost the sample:
// newer clients speak to older servers.
func (p *Parser) parseMetricField(m *Metric, field []byte) (part, Reason) {
	if len(field) > 0 {
		switch field[0] {
		case '#':
			m.Tags = field[1:]
			return tagsPart, wellFormed
		case '@':
			return ratePart, p.parseRate(m, field[1:])
		case 'T':
			return timestampPart, p.parseTimestamp(m, field)
		case 'x':
			if m.hasExemplar(field) {
				if expected := m.parseExemplar(field[len("x:"):]); expected != "" {
					p.BadFields++
					return badExemplarPart, wellFormed
				}
				return exemplarPart, wellFormed
			}
		}
	}
	return p.parseOrigin(&m.Origin, field), wellFormed
}

// parseOrigin reads a field that every kind of line may have, or counts it as unknown.
func (p *Parser) parseOrigin(o *Origin, field []byte) part {
	of := o.parseField(field)
	if of == unknownPart {
		p.UnknownFields++
	}
	return of
}

// MinRate is the smallest sampling rate: a value stands for a billion at most, which is more
// than any client leaves out. Without it one line could take a counter beyond the whole
// numbers that a float64 holds.
const MinRate = 1e-9

// parseRate reads |@. Gauges and sets are not sampled, so a rate there says
// nothing and is not even looked at.
func (p *Parser) parseRate(m *Metric, b []byte) Reason {
	if !m.Type.sampled() {
		return wellFormed
	}
	rate, reason := parseNumber(b)
	if reason == BadValue {
		b = b[decimalPrefix(b):]
	}
	if reason != wellFormed || rate < MinRate || rate > 1 {
		return p.fail(BadRate, b, "a sampling rate from 1e-9 to 1")
	}
	m.Rate = rate
	return wellFormed
}

func (t Type) sampled() bool { return t != Gauge && t != Set }

// parseTimestamp reads |T. Only counts and gauges have one: the values of a
// timer or a set cannot be put into a distribution that is already written.
func (p *Parser) parseTimestamp(m *Metric, field []byte) Reason {
	if m.Type != Count && m.Type != Gauge {
		return p.fail(TimestampType, field, "no timestamp: only counts and gauges have one")
	}
	b := field[len("T"):]
	t, ok := parseUnix(b)
	if !ok {
		if n := countDigits(b); n < len(b) {
			b = b[n:]
		}
		return p.fail(BadTimestamp, b, expectedTime)
	}
	m.Time = t
	return wellFormed
}

// expectedTime ends with MaxTime.
const expectedTime = "whole Unix seconds, 1 to 9000000000"

// hasExemplar reports whether a field is an exemplar. Only measurements have them: on
// any other type it is a field that is not known.
func (m *Metric) hasExemplar(field []byte) bool {
	return m.Type.Timer() && bytes.HasPrefix(field, []byte("x:"))
}

// parseExemplar reads <trace id>,<value>,<Unix milliseconds>. If something is wrong it
// returns what should be there, and the exemplar before it stays: what a trace adds to
// the values is not worth losing them.
func (m *Metric) parseExemplar(b []byte) (expected string) {
	trace, b, _ := cut(b, ',')
	number, b, _ := cut(b, ',')
	if !IsTrace(trace) {
		return "a trace id of 1 to 32 hexadecimal digits"
	}
	value, reason := parseNumber(number)
	if reason != wellFormed {
		return "a value behind the trace id, a decimal number"
	}
	t, ok := parseUint(b)
	if !ok || t < 1 || t > MaxTime*1000 {
		return "a time behind the value, whole Unix milliseconds"
	}
	m.Exemplar = Exemplar{trace, value, t}
	return ""
}

// parseField takes the fields that every kind of line has in common and says which one
// field is, if it is one of them.
func (o *Origin) parseField(field []byte) part {
	if b, ok := bytes.CutPrefix(field, []byte("c:")); ok {
		o.parseLocal(b)
		return containerPart
	}
	if b, ok := bytes.CutPrefix(field, []byte("e:")); ok {
		o.External = b
		return externalPart
	}
	if b, ok := bytes.CutPrefix(field, []byte("card:")); ok {
		o.Cardinality = b
		return cardinalityPart
	}
	return unknownPart
}

// parseLocal reads what follows c: a container id alone (v1.2), or one or more
// of ci-, cid- and in- (v1.4). In a list, items without a prefix say nothing.
func (o *Origin) parseLocal(list []byte) {
	o.Container, o.Inode = nil, nil
	alone := bytes.IndexByte(list, ',') < 0
	for more := true; more; {
		var item []byte
		item, list, more = cut(list, ',')
		if id, ok := bytes.CutPrefix(item, []byte("ci-")); ok {
			o.Container = id
		} else if id, ok := bytes.CutPrefix(item, []byte("cid-")); ok {
			o.Container = id
		} else if id, ok := bytes.CutPrefix(item, []byte("in-")); ok {
			o.Inode = id
		} else if alone {
			o.Container = item
		}
	}
}

// cut splits b at the first sep, which belongs to neither part; more reports
// whether there was one.
func cut(b []byte, sep byte) (head, rest []byte, more bool) {
	if i := bytes.IndexByte(b, sep); i >= 0 {
		return b[:i], b[i+1:], true
	}
	return b, nil, false
}

// cutShort is cut where the head is a byte or two: a loop is done before
// IndexByte is called.
func cutShort(b []byte, sep byte) (head, rest []byte, more bool) {
	for i, c := range b {
		if c == sep {
			return b[:i], b[i+1:], true
		}
	}
	return b, nil, false
}
