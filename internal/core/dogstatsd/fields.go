package dogstatsd

import "bytes"

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

	unknownPart // a field of this or a later part is skipped
	badExemplarPart
	badTimePart
	badPriorityPart
	badAlertPart
)

// parseMetricField reads one optional field and returns its kind. Fields come in any order, and the
// last field of a kind wins. An unknown field must never cost the sample, since newer clients send
// to older servers.
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

// MinRate is the smallest sampling rate. So a value counts for at most a billion values, and no client
// leaves out that many by sampling. Without this bound one line could make a counter so large that a
// float64 cannot hold every whole number.
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

// parseTimestamp reads |T. Only counts and gauges may have a timestamp: the values of a timer or a
// set cannot join a distribution that is already written.
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

// expectedTime describes a valid time. The last number in the text is MaxTime.
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

// parseField reads a field that every kind of line may have, and returns its kind. For any other
// field it returns unknownPart.
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

// cut splits `b` at the first `sep`, which belongs to neither part. `more` reports whether `b` has a
// `sep`.
func cut(b []byte, sep byte) (head, rest []byte, more bool) {
	if i := bytes.IndexByte(b, sep); i >= 0 {
		return b[:i], b[i+1:], true
	}
	return b, nil, false
}

// cutShort does the same as cut. It is quicker if the head has a byte or two, since a loop is then
// quicker than a call of IndexByte.
func cutShort(b []byte, sep byte) (head, rest []byte, more bool) {
	for i, c := range b {
		if c == sep {
			return b[:i], b[i+1:], true
		}
	}
	return b, nil, false
}

// cutLine splits a datagram after its first line. The line break belongs to neither part.
func cutLine(packet []byte) (line, rest []byte) {
	line, rest, _ = cut(packet, '\n')
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, rest
}
