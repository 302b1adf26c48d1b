package dogstatsd

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// seeds holds lines that cover the grammar; the fuzzers mutate and join them.
var seeds = []string{
	"a.b:1|c", "a:1:2::3|d|@0.5|#k:v,x|T7", "a:-5|g|#", "a:+.5e-3|g|c:abc", "u:x:y|s|@0",
	"t:12.345678|ms|c:ci-1,in-2|e:it-true,cn-w,pu-1|card:low",
	"a:nan|c", "a:1e999|h", "a:0x1p0|c", "a:1_0|c", ":1|c", "a|c", "a:|c", "a:1|", "a:1|c|@0", "a:1|c|T0", "a:1|h|T5",
	"a:1|c|zz||c",
	"_e{5,4}:title|text|d:1|h:w|k:k|p:low|s:s|t:error|#a|c:x", "_e{1,0}:a|", "_e{0,1}:|b", "_e{1,9}:a|b", "_e{1,1:a|b",
	"_e{1,1}:a|b|p:x|t:|d:0",
	"_sc|db|2|d:1|h:w|#a|c:in-4|m:no\\nm\\:", "_sc||0", "_sc|db|9", "_sc|db", "_scratch:1|c", "\r", "a:1|c\r",
	"a:1", "a:1|c|#t\r",
	"a.name.that.is.as.long.as.names.get.where.people.write.packages.into.them:123.456789|ms|@0.25|" +
		"#env:prod,region:eu-1,instance:i-123,status:200,version:1.2.3|c:x",
	"checkout.service17.http_request.time:123.456789|ms|@0.5|#env:prod,region:eu-1,instance:i-123,status:200",
	"a:99999999.99999999|g|#k:v", "a:1|m|#k:v", "a:1|}|#k:v", "a:1|c|}|#k:v",
	"a:h3,1.75,0;-31,2,0,1;-20,4|nh|#k:v", "a:h-4,-1,2.5;n7,1;9,1e3|nh|@0.5|c:x", "a:h8,0,1|nh",
	"a:h0,1,0;1024,1;-99999,1|nh", "a:h3,1,0|nh",
	"a:h9,1,0;1,1|nh", "a:h3,nan,0;1,1|nh", "a:h3,1,-1;1,1|nh", "a:h3,1,0;8192,1,1|nh", "a:h3,1,0;1|nh|T5", "a:1|nh",
	"a:h3,1,0;+1,1|nh|T5",
	"a:1|d|x:4bf92f3577b34da6a3ce929d0e0e4736,0.25,1763680000123|#k:v", "a:h3,1,0;1,1|nh|x:0F,-1e3,1\r",
	"a:1|ms|x:0|x:,1,2|x:g,1,2|x:0,nan,2|x:0,1,0|x:0,1,9000000000001", "a:1|c|x:0,1,2", "a:1|s|x:0,1,2",
}

func addSeeds(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Add([]byte(strings.Join(seeds, "\n")))
	f.Add([]byte(strings.Join(seeds, "\r\n") + "\n\n"))
}

// FuzzParser checks these laws: every line is exactly one of metric, event, check, malformed or
// empty; results are inside the datagram or its copy; the datagram is not written to; the promises
// of Metric and LastFault hold.
func FuzzParser(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, packet []byte) {
		before := bytes.Clone(packet)
		lines, empty := 0, 0
		for l := range strings.SplitSeq(string(packet), "\n") {
			lines++
			if l == "" || l == "\r" {
				empty++
			}
		}
		var p Parser
		p.Reset(packet)
		taken := 0
		held := p.packet[:p.end]
		for line := p.Next(); line != End; line = p.Next() {
			taken++
			switch line {
			case MetricLine:
				m := &p.Metric
				checkMetric(t, m)
				checkInside(t, held, m.Name, m.Tags, m.Set)
				checkOrigin(t, held, &m.Origin)
				checkExemplar(t, held, m)
			case EventLine:
				e := &p.Event
				checkInside(t, held, e.Title, e.Text, e.Host, e.Key, e.Priority, e.Source, e.Alert, e.Tags)
				checkOrigin(t, held, &e.Origin)
			case CheckLine:
				c := &p.Check
				checkInside(t, held, c.Name, c.Host, c.Message, c.Tags)
				checkOrigin(t, held, &c.Origin)
			default:
				t.Fatalf("Next returned %d", line)
			}
		}
		for _, n := range p.Malformed {
			taken += int(n)
		}
		if taken+empty != lines {
			t.Errorf("of %d lines %d are empty and %d accepted or malformed, want the same sum", lines, empty, taken)
		}
		checkLastFault(t, &p, held)
		if !bytes.Equal(packet, before) {
			t.Error("the datagram was written to")
		}
	})
}

// checkLastFault reads the last malformed line again, alone. It must be a line of the datagram, and
// malformed for the same reason.
func checkLastFault(t *testing.T, p *Parser, held []byte) {
	if malformed(p) == 0 {
		return
	}
	line, why := p.LastFault()
	checkInside(t, held, line)
	var alone Parser
	alone.Reset(bytes.Clone(line))
	if alone.Next() != End || alone.Malformed[why] != 1 || malformed(&alone) != 1 {
		t.Errorf("%q is malformed for the reason %v, but for %v when it is read alone", line, why, alone.Malformed)
	}
}

// malformed returns how many lines were malformed.
func malformed(p *Parser) (all uint64) {
	for _, n := range p.Malformed {
		all += n
	}
	return all
}

func checkMetric(t *testing.T, m *Metric) {
	switch {
	case m.Type < Count || m.Type > Buckets:
		t.Errorf("type %d", m.Type)
	case len(m.Name) == 0:
		t.Error("empty name")
	case (m.Type == Set) != (len(m.Values) == 0) || (m.Type == Set) != (len(m.Set) > 0):
		t.Errorf("type %d with %d values and set value %q", m.Type, len(m.Values), m.Set)
	case !(m.Rate > 0 && m.Rate <= 1) || math.IsInf(1/m.Rate, 0):
		t.Errorf("rate %v", m.Rate)
	case m.Time < 0 || m.Time*1000/1000 != m.Time:
		t.Errorf("time %d", m.Time)
	}
	if m.Type == Buckets {
		if len(m.Values) < 3 || len(m.Values)%2 != 1 {
			t.Errorf("a line of buckets has %d numbers", len(m.Values))
		}
		for i := 2; i < len(m.Values); i += 2 {
			if m.Values[i] <= 0 {
				t.Errorf("a bucket has %v values", m.Values[i])
			}
		}
	}
	for _, v := range m.Values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("value %v", v)
		}
	}
}

func checkExemplar(t *testing.T, packet []byte, m *Metric) {
	x := &m.Exemplar
	checkInside(t, packet, x.Trace)
	switch {
	case len(x.Trace) == 0:
		if x.Value != 0 || x.Time != 0 {
			t.Errorf("exemplar without a trace is not zero: %+v", x)
		}
	case !m.Type.Timer() || len(x.Trace) > MaxTrace || math.IsNaN(x.Value) || math.IsInf(x.Value, 0) || x.Time < 1 ||
		x.Time > 1000*MaxTime:
		t.Errorf("type %d with the exemplar %+v", m.Type, x)
	}
}

func checkOrigin(t *testing.T, packet []byte, o *Origin) {
	e := ParseExternal(o.External)
	checkInside(t, packet, o.Container, o.Inode, o.External, o.Cardinality, e.Container, e.Pod)
}

func checkInside(t *testing.T, packet []byte, spans ...[]byte) {
	low := uintptr(unsafe.Pointer(unsafe.SliceData(packet)))
	for _, s := range spans {
		at := uintptr(unsafe.Pointer(unsafe.SliceData(s)))
		if len(s) > 0 && (at < low || at+uintptr(len(s)) > low+uintptr(len(packet))) {
			t.Errorf("%q lies outside the datagram", s)
		}
		if bytes.IndexByte(s, '\n') >= 0 {
			t.Errorf("%q extends beyond its line", s)
		}
	}
}

// FuzzParserAgainstReference compares the parser with a slow and plain one. The datagram is copied
// first, or lies before memory that looks like its continuation, or comes after other datagrams, or is
// read line by line without marks.
func FuzzParserAgainstReference(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, packet []byte) {
		want := reference(string(packet))
		for _, way := range []struct {
			name string
			got  string
		}{
			{"copied", readPacket(new(Parser), slices.Clip(packet))},
			{"in place before a line", readPacket(new(Parser), followed(packet, "|c|#a:b\nb:1"))},
			{"in place before a number", readPacket(new(Parser), followed(packet, "5"))},
			{"after other datagrams", readPacket(used(), followed(packet, "\n"))},
			{"without marks", readLines(packet)},
		} {
			if way.got != want {
				t.Errorf("%s: %q\ngot  %s\nwant %s", way.name, packet, way.got, want)
			}
		}
	})
}

// followed returns `packet` in memory that continues with `text`.
func followed(packet []byte, text string) []byte {
	return append(slices.Clone(packet), strings.Repeat(text, slack)...)[:len(packet)]
}

// used returns a parser with all fields of a metric and all marks filled.
func used() *Parser {
	p := new(Parser)
	p.Reset([]byte("a:-1:2|g|@0.5|#t|T5|c:ci-1,in-2|e:x|card:low\nb:x|s|c:y\nt:1|d|x:ab,1,2"))
	for p.Next() != End {
	}
	p.Reset(bytes.Repeat([]byte("|"), 10*blockSize))
	return p
}

// readLines is like readPacket, but reads every line by parseLine.
func readLines(packet []byte) string {
	var p Parser
	var out []string
	for line := range Lines(packet) {
		if kind, reason := p.parseLine(&p.Metric, line); reason != wellFormed {
			p.Malformed[reason]++
		} else {
			out = append(out, lineText(&p, kind))
		}
	}
	return strings.Join(append(out, countsText(&p)...), "; ")
}

// FuzzMarks compares the marks with those that a loop over the bytes finds.
func FuzzMarks(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, packet []byte) {
		if !marking {
			return
		}
		var p Parser
		for range 2 { // the second round must overwrite the marks of the first
			p.Reset(followed(packet, "|:\n"))
			want := make([]marks, len(packet)/blockSize+2)
			for i, c := range packet {
				switch bit := uint64(1) << (i % blockSize); c {
				case '|', '\n':
					want[i/blockSize].ends |= bit
				case ':':
					want[i/blockSize].colons |= bit
				}
			}
			want[len(packet)/blockSize].ends |= 1 << (len(packet) % blockSize)
			if got := p.marks[:len(want)]; !slices.Equal(got, want) {
				t.Errorf("%q\ngot  %x\nwant %x", packet, got, want)
			}
		}
	})
}

// FuzzParseNumber checks that an accepted text is a decimal number and has exactly strconv's value. If
// the parser refuses a text, strconv must refuse it, too, except for the forms that only the parser
// refuses, on purpose.
func FuzzParseNumber(f *testing.F) {
	for _, s := range []string{"0", "-0", "1", "+1.5", ".5", "5.", "9007199254740993", "0.30000000000000004", "123.456789",
		"1e22", "1e-7", "1e999", "1e-999",
		"12345678", "12345678.1234567", "99999999.99999999", "1.12345678", "123456789", "0.0000001", "1234567890123456789",
		"-9999999999999999999", "0.000000000000000001", "nan", "-Infinity", "0x1p-2", "1_0", "", "-", ".", "1e", "1.2.3"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, reason := parseNumber(b)
		want, wantReason := referenceNumber(string(b))
		if reason != wantReason || math.Float64bits(got) != math.Float64bits(want) {
			t.Errorf("%q: got %v %v, want %v %v", b, got, reason, want, wantReason)
		}
		if bytes.IndexByte(b, '|') >= 0 || len(b) == 0 {
			return
		}
		behind := append(append(slices.Clone(b), '|'), "0123456789.0123456789.0"...)
		if got, ok := parsePlain((*[24]byte)(behind), len(b)); ok &&
			(wantReason != wellFormed || math.Float64bits(got) != math.Float64bits(want)) {
			t.Errorf("%q, in a line: got %v, want %v %v", b, got, want, wantReason)
		}
	})
}

var (
	decimal   = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$`)
	notFinite = regexp.MustCompile(`^[+-]?(?i:nan|inf|infinity)$`)
	header    = regexp.MustCompile(`^_e\{([0-9]+),([0-9]+)\}:`)
	digits    = regexp.MustCompile(`^[0-9]+$`)
	exemplar  = regexp.MustCompile(`^x:([0-9a-fA-F]{1,32}),([^,]*),([0-9]+)$`)
)

func referenceNumber(s string) (float64, Reason) {
	switch {
	case notFinite.MatchString(s):
		return 0, NotFinite
	case !decimal.MatchString(s):
		return 0, BadValue
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, NotFinite
	}
	return v, wellFormed
}

var bucketLine = regexp.MustCompile(`^h([+-]?[0-9]{1,9}),([^,;]+),([^,;]+)((;n?[+-]?[0-9]{1,9}(,[^,;]+)+)*)$`)

// referenceBuckets reads the whole value of a line of buckets, and computes with numbers of any
// size.
func referenceBuckets(s string) (values []float64, reason Reason) {
	parts := bucketLine.FindStringSubmatch(s)
	if parts == nil {
		return nil, BadHistogram
	}
	schema, _ := strconv.Atoi(parts[1])
	if schema < -4 || schema > 8 {
		return nil, BadHistogram
	}
	add := func(at float64, count string) bool {
		n, reason := referenceNumber(count)
		if n > 0 {
			values = append(values, at, n)
		}
		return reason == wellFormed && n >= 0
	}
	sum, reason := referenceNumber(parts[2])
	values = append(values, sum)
	if reason != wellFormed || !add(0, parts[3]) {
		return nil, BadHistogram
	}
	for _, run := range strings.Split(parts[4], ";")[1:] {
		run, negative := strings.CutPrefix(run, "n")
		counts := strings.Split(run, ",")
		first, _ := strconv.Atoi(counts[0])
		if first < -1100*256 {
			return nil, BadHistogram
		}
		for i, count := range counts[1:] {
			power := math.Ldexp(float64(first+i), -schema)
			if power > 1024 {
				return nil, BadHistogram
			}
			at := math.Exp2((float64(first+i) - 0.5) * math.Ldexp(1, -schema))
			if negative {
				at = -at
			}
			if !add(at, count) {
				return nil, BadHistogram
			}
		}
	}
	if len(values) == 1 {
		return nil, NoValue
	}
	return values, wellFormed
}

func referenceUnix(s string) (int64, bool) {
	t, err := strconv.ParseInt(s, 10, 64)
	return t, err == nil && digits.MatchString(s) && t > 0 && t <= MaxTime
}

// outcome has what the reference parser counted.
type outcome struct {
	malformed    [NumReasons]int
	unknown, bad int
}

// reference does the same as the function read, but is written for clarity: it uses strings.Split, and
// finds faults in the parser's order.
func reference(packet string) string {
	var o outcome
	var out []string
	for line := range strings.SplitSeq(packet, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" {
			continue
		}
		text, reason := "", wellFormed
		switch {
		case strings.HasPrefix(line, "_e{"):
			text, reason = o.event(line)
		case strings.HasPrefix(line, "_sc|"):
			text, reason = o.check(line)
		default:
			text, reason = o.metric(line)
		}
		if reason != wellFormed {
			o.malformed[reason]++
		} else {
			out = append(out, text)
		}
	}
	for r, n := range o.malformed {
		if n > 0 {
			out = append(out, fmt.Sprintf("%d malformed %s", n, Reason(r)))
		}
	}
	if o.unknown > 0 {
		out = append(out, fmt.Sprintf("%d unknown", o.unknown))
	}
	if o.bad > 0 {
		out = append(out, fmt.Sprintf("%d bad", o.bad))
	}
	return strings.Join(out, "; ")
}

func (o *outcome) metric(line string) (string, Reason) {
	parts := strings.Split(line, "|")
	name, raw, hasColon := strings.Cut(parts[0], ":")
	switch {
	case len(parts) < 2:
		return "", NoType
	case !hasColon:
		return "", NoValue
	case name == "":
		return "", EmptyName
	case raw == "":
		return "", NoValue
	}
	types := map[string]Type{
		"c": Count, "g": Gauge, "ms": Timing, "h": Histogram, "d": Distribution, "s": Set, "nh": Buckets,
	}
	m := Metric{Type: types[parts[1]], Name: []byte(name), Rate: 1}
	if m.Type == 0 {
		return "", UnknownType
	}
	if m.Type == Set {
		m.Set = []byte(raw)
	} else if m.Type == Buckets {
		var reason Reason
		if m.Values, reason = referenceBuckets(raw); reason != wellFormed {
			return "", reason
		}
	} else {
		var values []string
		for _, v := range strings.Split(raw, ":") {
			if v != "" {
				values = append(values, v)
			}
		}
		if len(values) == 0 {
			return "", NoValue
		}
		for _, s := range values {
			v, reason := referenceNumber(s)
			if reason != wellFormed {
				return "", reason
			}
			m.Values = append(m.Values, v)
		}
		m.Relative = m.Type == Gauge && strings.ContainsAny(values[0][:1], "+-")
	}
	for _, field := range parts[2:] {
		switch {
		case strings.HasPrefix(field, "#"):
			m.Tags = []byte(field[1:])
		case strings.HasPrefix(field, "@"):
			if m.Type == Gauge || m.Type == Set {
				continue
			}
			rate, reason := referenceNumber(field[1:])
			if reason != wellFormed || rate > 1 || rate < 1e-9 {
				return "", BadRate
			}
			m.Rate = rate
		case strings.HasPrefix(field, "T"):
			if m.Type != Count && m.Type != Gauge {
				return "", TimestampType
			}
			unix, ok := referenceUnix(field[1:])
			if !ok {
				return "", BadTimestamp
			}
			m.Time = unix
		case strings.HasPrefix(field, "x:") && slices.Contains([]string{"ms", "h", "d", "nh"}, parts[1]):
			found := exemplar.FindStringSubmatch(field)
			if found == nil {
				o.bad++
				continue
			}
			v, reason := referenceNumber(found[2])
			ms, err := strconv.ParseInt(found[3], 10, 64)
			if reason != wellFormed || err != nil || ms < 1 || ms > 9e12 {
				o.bad++
				continue
			}
			m.Exemplar = Exemplar{Trace: []byte(found[1]), Value: v, Time: ms}
		default:
			o.origin(&m.Origin, field)
		}
	}
	return metricText(&m), wellFormed
}

func (o *outcome) event(line string) (string, Reason) {
	lengths := header.FindStringSubmatch(line)
	if lengths == nil {
		return "", EventHeader
	}
	if strings.Trim(lengths[1], "0") == "" {
		return "", EventTitle
	}
	titleLen, err1 := strconv.Atoi(lengths[1])
	textLen, err2 := strconv.Atoi(lengths[2])
	body := line[len(lengths[0]):]
	if err1 != nil || err2 != nil || titleLen > len(body) || textLen > len(body) || titleLen+1+textLen > len(body) ||
		body[titleLen] != '|' {
		return "", EventLength
	}
	e := Event{Title: []byte(body[:titleLen]), Text: []byte(body[titleLen+1:][:textLen])}
	rest := body[titleLen+1+textLen:]
	if rest != "" && rest[0] != '|' {
		return "", EventLength
	}
	for _, field := range strings.Split(rest, "|")[1:] {
		switch {
		case strings.HasPrefix(field, "#"):
			e.Tags = []byte(field[1:])
		case strings.HasPrefix(field, "h:"):
			e.Host = []byte(field[2:])
		case strings.HasPrefix(field, "k:"):
			e.Key = []byte(field[2:])
		case strings.HasPrefix(field, "s:"):
			e.Source = []byte(field[2:])
		case field == "p:normal" || field == "p:low":
			e.Priority = []byte(field[2:])
		case field == "t:error" || field == "t:warning" || field == "t:info" || field == "t:success":
			e.Alert = []byte(field[2:])
		case strings.HasPrefix(field, "p:") || strings.HasPrefix(field, "t:"):
			o.bad++
		case strings.HasPrefix(field, "d:"):
			o.time(&e.Time, field[2:])
		default:
			o.origin(&e.Origin, field)
		}
	}
	return eventText(&e), wellFormed
}

func (o *outcome) check(line string) (string, Reason) {
	parts := strings.Split(line, "|")
	if parts[1] == "" {
		return "", EmptyName
	}
	if len(parts) < 3 || len(parts[2]) != 1 || !strings.Contains("0123", parts[2]) {
		return "", CheckStatus
	}
	c := Check{Name: []byte(parts[1]), Status: parts[2][0] - '0'}
	for _, field := range parts[3:] {
		switch {
		case strings.HasPrefix(field, "#"):
			c.Tags = []byte(field[1:])
		case strings.HasPrefix(field, "h:"):
			c.Host = []byte(field[2:])
		case strings.HasPrefix(field, "m:"):
			c.Message = []byte(field[2:])
		case strings.HasPrefix(field, "d:"):
			o.time(&c.Time, field[2:])
		default:
			o.origin(&c.Origin, field)
		}
	}
	return checkText(&c), wellFormed
}

func (o *outcome) time(dst *int64, s string) {
	if t, ok := referenceUnix(s); ok {
		*dst = t
	} else {
		o.bad++
	}
}

func (o *outcome) origin(dst *Origin, field string) {
	key, value, found := strings.Cut(field, ":")
	switch {
	case found && key == "c":
		dst.Container, dst.Inode = nil, nil
		items := strings.Split(value, ",")
		for _, item := range items {
			_, id, _ := strings.Cut(item, "-")
			switch {
			case strings.HasPrefix(item, "ci-") || strings.HasPrefix(item, "cid-"):
				dst.Container = []byte(id)
			case strings.HasPrefix(item, "in-"):
				dst.Inode = []byte(id)
			case len(items) == 1:
				dst.Container = []byte(item)
			}
		}
	case found && key == "e":
		dst.External = []byte(value)
	case found && key == "card":
		dst.Cardinality = []byte(value)
	default:
		o.unknown++
	}
}
