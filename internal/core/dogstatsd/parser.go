package dogstatsd

import (
	"bytes"
	"iter"
)

// Parser reads the lines of one datagram after another. The zero value is ready for Reset. It
// does not allocate, except to grow its buffers: marks to a quarter of the largest datagram, the
// copy to its length, and Metric.Values to the longest packed line, where two bytes make at most
// one value of eight. Metrics grows the Values of the caller's metrics, and a malformed line
// those of the metric after the last: a caller that holds many should drop the long ones.
//
// A Parser belongs to one goroutine. What Next filled is valid until the next call of Next or
// Reset, or until the datagram's memory is reused.
type Parser struct {
	Metric Metric // filled when Next returned MetricLine
	Event  Event  // filled when Next returned EventLine
	Check  Check  // filled when Next returned CheckLine

	// These only grow; Reset does not clear them.
	Malformed     [NumReasons]uint64 // lines without a result, by their first fault
	UnknownFields uint64             // fields that are unknown to the protocol, skipped
	BadFields     uint64             // exemplars, and fields of events and checks, with invalid content, skipped

	faults   uint64 // malformed lines, of all reasons
	fault    Reason // of the last malformed line
	faultEnd int    // where it ends in packet
	wrong    []byte // the last malformed line, from its first wrong byte on
	expected string // what should be there; empty if only Explain can tell

	packet []byte // the datagram; with marking, up to slack more bytes without meaning
	end    int    // of the datagram in packet
	at     int    // where the next line begins
	marks  []marks
	copied []byte // copy of a datagram without slack
}

// Reset begins a datagram. The parser reads it in place and never writes to it. It may also read
// up to 128 bytes of packet's capacity after its length, whatever they are; a packet without that
// capacity is copied first.
func (p *Parser) Reset(packet []byte) {
	p.packet, p.at, p.end = packet, 0, len(packet)
	if marking {
		p.markAll()
	}
}

// Next reads up to the next well-formed line and returns what it was. A malformed line is counted
// and skipped, so that it does not cost its neighbours. Empty lines are skipped; a carriage
// return before the line break is dropped.
func (p *Parser) Next() Line { return p.next(&p.Metric) }

// Metrics reads lines of metrics into dst, until dst is full or there is another kind of line. It
// returns how many it read and what comes next: MetricLine if there may be more. A caller with
// many lines at hand can then fetch all that it needs from memory at once. Lines of several
// datagrams can be held together as long as the datagrams' memory is: see InPlace.
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

// Faults returns how many lines were malformed since the parser was made.
func (p *Parser) Faults() uint64 { return p.faults }

// LastFault returns the last malformed line of the current datagram, which must have one. It
// points into the datagram. LastFault searches for the line's beginning itself, so well-formed
// lines pay nothing for it.
func (p *Parser) LastFault() (line []byte, why Reason) {
	line = bytes.TrimSuffix(p.packet[:p.faultEnd], []byte("\n"))
	return line[bytes.LastIndexByte(line, '\n')+1:], p.fault
}

// fail notes the fault: rest begins with the first wrong byte, and expected says what should be
// there. Only malformed lines pay for it.
func (p *Parser) fail(reason Reason, rest []byte, expected string) Reason {
	p.wrong, p.expected = rest, expected
	return reason
}

// Lines walks the lines of a datagram in the Parser's way.
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

// cutLine splits a datagram after its first line. The line break belongs to neither part.
func cutLine(packet []byte) (line, rest []byte) {
	line, rest, _ = cut(packet, '\n')
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, rest
}

// parseLine decides by the prefix: anything that is neither an event nor a check is a metric.
// "_sc" counts only with its '|', since "_scratch" is a metric's name.
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

// parseValues reads value[:value]. It skips empty parts, as the Agent does; if there are only
// empty parts, the line has no value. One value that is not a number costs the line: the meaning
// of the others is unknown.
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

// part is the meaning of an optional field.
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

	unknownPart // from here on the field says nothing and is skipped
	badExemplarPart
	badTimePart
	badPriorityPart
	badAlertPart
)

// parseMetricField reads one optional field and returns which one it was. Fields come in any
// order and the last of a kind wins. An unknown field must never cost the sample: newer clients
// send to older servers.
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

// MinRate is the smallest sampling rate: a value stands for at most a billion, more than any
// client leaves out. Without this bound one line could take a counter beyond the whole numbers
// that a float64 holds.
const MinRate = 1e-9

// parseRate reads |@. Gauges and sets are not sampled, so their rate is ignored without a check.
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

// parseTimestamp reads |T. Only counts and gauges may have one: values of a timer or a set cannot
// join a distribution that is already written.
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

// hasExemplar reports whether a field is an exemplar. Only measurements have exemplars; in other
// types the field is unknown.
func (m *Metric) hasExemplar(field []byte) bool {
	return m.Type.Timer() && bytes.HasPrefix(field, []byte("x:"))
}

// parseExemplar reads <trace id>,<value>,<Unix milliseconds>. If something is wrong, it returns
// what should be there and keeps the previous exemplar: a bad trace is not worth losing the
// values.
func (m *Metric) parseExemplar(b []byte) (expected string) {
	trace, b, _ := cut(b, ',')
	number, b, _ := cut(b, ',')
	if !IsTrace(trace) {
		return "a trace id of 1 to 32 hexadecimal digits"
	}
	value, reason := parseNumber(number)
	if reason != wellFormed {
		return "a value after the trace id, a decimal number"
	}
	t, ok := parseUint(b)
	if !ok || t < 1 || t > MaxTime*1000 {
		return "a time after the value, whole Unix milliseconds"
	}
	m.Exemplar = Exemplar{trace, value, t}
	return ""
}

// parseField reads a field that every kind of line may have, and returns which one it was, if
// any.
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

// parseLocal reads the part after "c:": a container id alone (v1.2), or one or more of ci-, cid-
// and in- (v1.4). In a list, items without a prefix are ignored.
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

// cut splits b at the first sep, which belongs to neither part; more reports whether there was
// one.
func cut(b []byte, sep byte) (head, rest []byte, more bool) {
	if i := bytes.IndexByte(b, sep); i >= 0 {
		return b[:i], b[i+1:], true
	}
	return b, nil, false
}

// cutShort is cut for a head of a byte or two, where a loop is quicker than calling IndexByte.
func cutShort(b []byte, sep byte) (head, rest []byte, more bool) {
	for i, c := range b {
		if c == sep {
			return b[:i], b[i+1:], true
		}
	}
	return b, nil, false
}
