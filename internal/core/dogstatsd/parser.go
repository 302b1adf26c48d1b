package dogstatsd

import (
	"bytes"
	"iter"
)

// Parser reads the lines of one datagram after another. The zero value is ready for Reset. It
// allocates only to grow its buffers. The marks take a quarter of the largest datagram's length,
// and the copy takes the whole length. Metric.Values takes at most 8 bytes for every 2 bytes of the
// longest packed line. The method Metrics grows the Values of the caller's metrics; a malformed
// line may grow the Values of the metric after the last one that was read. A caller that holds many
// metrics should drop long Values.
//
// A Parser belongs to one goroutine. What Next filled is valid until the next call of Next or
// Reset, or until the datagram's memory is reused.
type Parser struct {
	Metric Metric // filled if Next returned MetricLine
	Event  Event  // filled if Next returned EventLine
	Check  Check  // filled if Next returned CheckLine

	// These counters only grow; Reset does not clear them.
	Malformed     [NumReasons]uint64 // malformed lines, by their first fault
	UnknownFields uint64             // skipped fields that are not in the protocol
	BadFields     uint64             // invalid fields that were skipped: exemplars, and fields of events and checks

	fault    Reason // reason of the last malformed line
	faultEnd int    // where that line ends in packet
	wrong    []byte // the last malformed line, from its first wrong byte on
	expected string // what should be there; empty if only Explain can say it

	packet []byte // the datagram; if marking is set, up to `slack` meaningless bytes follow it
	end    int    // end of the datagram in packet
	at     int    // where the next line begins
	marks  []marks
	copied []byte // copy of a datagram that has no slack
}

// Reset begins a datagram. The parser reads it in place and never writes to it. It may also read,
// but does not interpret, up to 128 bytes of packet's capacity beyond the datagram. A packet
// without that capacity is copied first.
func (p *Parser) Reset(packet []byte) {
	p.packet, p.at, p.end = packet, 0, len(packet)
	if marking {
		p.markAll()
	}
}

// Next reads up to the next well-formed line and returns that line's kind. A malformed line is
// counted and skipped, so that its neighbours are not lost. Empty lines are skipped; a carriage
// return before the line break is dropped.
func (p *Parser) Next() Line { return p.next(&p.Metric) }

// Metrics reads lines of metrics into `dst`, until `dst` is full or there is another kind of line.
// It returns how many it read and what comes next: MetricLine if there may be more. With many lines
// at hand, a caller can fetch the data for all of them from memory at once. A caller may keep lines
// of several datagrams for as long as it keeps the memory of the datagrams: see InPlace.
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
		p.fault, p.faultEnd = reason, p.at
	}
	return End
}

// LastFault returns the last malformed line of the current datagram, which must have a malformed
// line. The line points into the datagram. LastFault searches for the line's beginning itself, so
// well-formed lines cost nothing extra.
func (p *Parser) LastFault() (line []byte, why Reason) {
	line = bytes.TrimSuffix(p.packet[:p.faultEnd], []byte("\n"))
	return line[bytes.LastIndexByte(line, '\n')+1:], p.fault
}

// Lines yields the lines of a datagram, split as the Parser splits them.
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

// parseLine decides by the prefix: a line that is neither an event nor a check is a metric. "_sc"
// counts only with its '|', since "_scratch" is a metric's name.
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

// parseValues reads value[:value]. Like the Agent, it skips empty parts; if all parts are empty, the
// line has no value. If one value is not a number, the whole line is malformed, since the meaning of the
// other values is then unknown.
func (p *Parser) parseValues(m *Metric, raw []byte) Reason {
	if v, ok := parseShort(raw); ok { // nearly always one short value, which needs no search for ':'
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
