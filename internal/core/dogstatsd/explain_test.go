package dogstatsd

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// show formats an explanation: each field's name with the text of its bytes, and a caret where
// the line goes wrong.
func (e *Explanation) show(line string) string {
	var out []string
	for _, f := range e.Fields {
		text := fmt.Sprintf("%s %s: %s", f.Name, line[f.From:f.To], f.Meaning)
		if f.Ignored && !strings.Contains(f.Meaning, "ignored") {
			text += " (ignored)"
		}
		out = append(out, text)
	}
	if !e.WellFormed() {
		out = append(out, fmt.Sprintf("%s at %d: %s", e.Reason, e.Fault, e.Expected))
	}
	return strings.Join(out, "\n")
}

func TestExplain(t *testing.T) {
	for _, c := range []struct{ why, line, want string }{
		{"a plain counter", "hits:1|c", "name hits: the metric's name\nvalue 1: adds 1\ntype c: a count"},
		{"a rate multiplies the count", "hits:3|c|@0.5",
			"name hits: the metric's name\nvalue 3: adds 6 (3 at a rate of 0.5)\ntype c: a count\nrate @0.5: " +
				"a sampling rate: each value stands for 2"},
		{"packed values are separate, empty ones are skipped", "t:1::2|ms|#a:b,canary,x:",
			"name t: the metric's name\nvalue 1: a measurement of 1\nvalue 2: a measurement of 2\ntype ms: a timing\n" +
				"tag a:b: a tag: a = b\ntag canary: a bare tag: its value is true\ntag x:: a tag with an empty value: no label x"},
		{"buckets are measurements", "t:h3,1.5,1;-7,2,3|nh|@0.5",
			"name t: the metric's name\nvalue h3,1.5,1;-7,2,3: 12 measurements in 3 buckets, 3 in sum\ntype nh: " +
				"values in buckets that the sender made\n" +
				"rate @0.5: a sampling rate: each value stands for 2"},
		{"a rate on a gauge is ignored", "g:-5|g|@0.1",
			"name g: the metric's name\nvalue -5: has a sign: sets the gauge to -5, or with relative gauges adds -5 to " +
				"it\ntype g: a gauge\n" +
				"rate @0.1: a sampling rate, which a gauge does not have: ignored"},
		{"the last of two fields wins, and an unknown field is ignored", "u:a:b|s|#x|zz|#y|c:ci-1,in-2|card:none|e:cn-web",
			"name u: the metric's name\nvalue a:b: one distinct value\ntype s: a set of distinct values\n" +
				"tag x: a bare tag: its value is true; ignored, since a later one replaces it\n" +
				"unknown zz: not a field of the protocol: ignored\ntag y: a bare tag: its value is true\n" +
				"origin c:ci-1,in-2: the origin of the line: container \"1\", cgroup inode \"2\"\ncardinality card:none: " +
				"the sender wants no origin labels\n" +
				"external data e:cn-web: the origin of the line, as set by the cluster: container \"web\", pod \"\""},
		{"an exemplar, or why it is malformed", "t:1|d|x:0f,1,2|x:ab,2.5,1656581400123|x:xyz,1,2|x:ab,one,2|x:ab,1",
			"name t: the metric's name\nvalue 1: a measurement of 1\ntype d: a distribution\n" +
				"exemplar x:0f,1,2: an exemplar: trace 0f has a measurement of 1, at 1970-01-01T00:00:00.002Z; ignored, " +
				"since a later one replaces it\n" +
				"exemplar x:ab,2.5,1656581400123: an exemplar: trace ab has a measurement of 2.5, at 2022-06-30T09:30:00.123Z\n" +
				"exemplar x:xyz,1,2: an exemplar without a trace id of 1 to 32 hexadecimal digits: ignored\n" +
				"exemplar x:ab,one,2: an exemplar without a value after the trace id, a decimal number: ignored\n" +
				"exemplar x:ab,1: an exemplar without a time after the value, whole Unix milliseconds: ignored"},
		{"a count has no exemplar", "hits:1|c|x:ab,1,2",
			"name hits: the metric's name\nvalue 1: adds 1\ntype c: a count\nunknown x:ab,1,2: " +
				"not a field of the protocol: ignored"},
		{"an event", "_e{2,3}:ab|c\\n|p:low|d:7|t:x",
			"title length 2: the title has 2 bytes\ntext length 3: the text has 3 bytes\ntitle ab: " +
				"the event's title\ntext c\\n: the event's text\n" +
				"priority p:low: the priority\ntimestamp d:7: the event's time, in Unix seconds\n" +
				"alert t:x: \"x\" is none of [error warning info success]: ignored"},
		{"a check", "_sc|db|2|h:w|m:slow",
			"name db: the check's name\nstatus 2: critical\nhost h:w: the host of the event or check\nmessage m:slow: a " +
				"message, which is not stored"},
	} {
		e := Explain([]byte(c.line))
		if got := e.show(c.line); got != c.want {
			t.Errorf("%s: %s\ngot\n%s\nwant\n%s", c.why, c.line, got, c.want)
		}
	}
}

// In each malformed line the caret is at the byte that a person would fix.
func TestExplainPointsAtTheFault(t *testing.T) {
	for _, c := range []struct{ line, caret, reason string }{
		{"page views", "          ^", "no_type"},
		{"a:1", "   ^", "no_type"},
		{":1|c", "^", "empty_name"},
		{"a|c", " ^", "no_value"},
		{"a:|c", "  ^", "no_value"},
		{"a:::|c", "    ^", "no_value"},
		{"a:1|x", "    ^", "unknown_type"},
		{"a:1|", "    ^", "unknown_type"},
		{"price:1,5|g", "       ^", "bad_value"},
		{"a:1:0x10|c", "     ^", "bad_value"},
		{"a:1e|c", "    ^", "bad_value"},
		{"a:2:nan|c", "    ^", "not_finite"},
		{"a:3,1,0|nh", "  ^", "bad_histogram"},
		{"a:h9,1,0|nh", "   ^", "bad_histogram"},
		{"a:h3|nh", "    ^", "bad_histogram"},
		{"a:h3,x,0|nh", "     ^", "bad_histogram"},
		{"a:h3,1|nh", "      ^", "bad_histogram"},
		{"a:h3,1,-2|nh", "       ^", "bad_histogram"},
		{"a:h3,1,0|nh", "        ^", "no_value"},
		{"a:h3,1,0;x,1|nh", "         ^", "bad_histogram"},
		{"a:h3,1,0;-8|nh", "           ^", "bad_histogram"},
		{"a:h3,1,0;n8,1,x|nh", "              ^", "bad_histogram"},
		{"a:h3,1,0;1,1;9999,1|nh", "             ^", "bad_histogram"},
		{"a:1|c|@10", "       ^", "bad_rate"},
		{"a:1|c|@0,5", "        ^", "bad_rate"},
		{"a:1|c|T1700000000.5", "                 ^", "bad_timestamp"},
		{"a:1|c|T0", "       ^", "bad_timestamp"},
		{"a:1|ms|T7", "       ^", "timestamp_type"},
		{"_e{x,1}:a|b", "   ^", "event_header"},
		{"_e{1;1}:a|b", "    ^", "event_header"},
		{"_e{1,}:a|b", "     ^", "event_header"},
		{"_e{1,1}}:a|b", "       ^", "event_header"},
		{"_e{0,1}:|b", "   ^", "event_title"},
		{"_e{3,1}:ab|b", "           ^", "event_length"},
		{"_e{2,9}:ab|b", "            ^", "event_length"},
		{"_sc||0", "    ^", "empty_name"},
		{"_sc|db", "      ^", "check_status"},
		{"_sc|db|OK", "       ^", "check_status"},
		{"_sc|db|22", "        ^", "check_status"},
	} {
		e := Explain([]byte(c.line))
		if got := strings.Repeat(" ", e.Fault) + "^"; e.Reason.String() != c.reason || got != c.caret || e.Expected == "" {
			t.Errorf("\n%s\n%s  %s: %s\n%s  want: %s", c.line, got, e.Reason, e.Expected, c.caret, c.reason)
		}
	}
	if e := Explain([]byte("a:1|c|T0")); !strings.HasSuffix(e.Expected, fmt.Sprint("1 to ", MaxTime)) {
		t.Errorf("the explanation does not state the latest time: %s", e.Expected)
	}
	if e := Explain([]byte("_e{4,1}:größe|b")); !strings.Contains(e.Expected, "has 7") {
		t.Errorf("the explanation does not state the length in bytes: %s", e.Expected)
	}
	if e := Explain([]byte("_e{5,1}:größe|b")); !strings.Contains(e.Expected, "counts characters") {
		t.Errorf("the explanation does not mention clients that count characters: %s", e.Expected)
	}
}

// FuzzExplain checks that an explanation has the values, tags and fields that the parser reads from
// the whole line, and that every offset is within the line.
func FuzzExplain(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, packet []byte) {
		var p Parser
		p.Reset(packet)
		var malformed [NumReasons]uint64
		for line := range Lines(packet) {
			e := Explain(line)
			checkFields(t, line, &e)
			if !e.WellFormed() {
				malformed[e.Reason]++
				if e.Expected == "" || e.Fault < 0 || e.Fault > len(line) {
					t.Errorf("%q: the fault at %d is outside of the line, or the expected text %q is empty",
						line, e.Fault, e.Expected)
				}
				continue
			}
			if next := p.Next(); next != e.Line {
				t.Fatalf("%q: explained as %d, parsed as %d", line, e.Line, next)
			}
			switch e.Line {
			case MetricLine:
				if got, want := metricText(&e.Metric), metricText(&p.Metric); got != want {
					t.Errorf("%q: explained %s, parsed %s", line, got, want)
				}
				checkMetricFields(t, line, &e)
			case EventLine:
				if got, want := eventText(&e.Event), eventText(&p.Event); got != want {
					t.Errorf("%q: explained %s, parsed %s", line, got, want)
				}
				checkTags(t, line, &e, e.Event.Tags)
			case CheckLine:
				if got, want := checkText(&e.Check), checkText(&p.Check); got != want {
					t.Errorf("%q: explained %s, parsed %s", line, got, want)
				}
				checkTags(t, line, &e, e.Check.Tags)
			}
		}
		if p.Next() != End || p.Malformed != malformed {
			t.Errorf("%q: malformed lines: parsed %v, explained %v", packet, p.Malformed, malformed)
		}
	})
}

// checkFields checks that fields are in order, do not overlap and are within the line.
func checkFields(t *testing.T, line []byte, e *Explanation) {
	at := 0
	for _, f := range e.Fields {
		if f.From < at || f.To < f.From || f.To > len(line) || f.Name == "" || f.Meaning == "" {
			t.Errorf("%q: the field %+v is incomplete or outside of the rest of the line, which begins at %d",
				line, f, at)
		}
		at = f.To
	}
}

// spans returns the bytes of all fields with this name, except ignored ones.
func (e *Explanation) spans(line []byte, name string) (all [][]byte) {
	for _, f := range e.Fields {
		if f.Name == name && !f.Ignored {
			all = append(all, line[f.From:f.To])
		}
	}
	return all
}

func checkMetricFields(t *testing.T, line []byte, e *Explanation) {
	var m Metric
	m.Rate = 1
	for _, raw := range e.spans(line, "value") {
		if e.Metric.Type == Set {
			m.Set = raw
		} else if e.Metric.Type == Buckets {
			_ = new(Parser).parseBuckets(&m, raw)
		} else if v, reason := parseNumber(raw); reason == wellFormed {
			m.Values = append(m.Values, v)
		}
	}
	for _, raw := range e.spans(line, "rate") {
		m.Rate, _ = parseNumber(raw[1:])
	}
	for _, raw := range e.spans(line, "timestamp") {
		m.Time, _ = parseUnix(raw[1:])
	}
	for _, raw := range e.spans(line, "exemplar") {
		_ = m.parseExemplar(raw[len("x:"):])
	}
	name := bytes.Join(e.spans(line, "name"), []byte("+"))
	if !slices.Equal(m.Values, e.Metric.Values) || !bytes.Equal(m.Set, e.Metric.Set) || m.Rate != e.Metric.Rate ||
		m.Time != e.Metric.Time || !reflect.DeepEqual(m.Exemplar, e.Metric.Exemplar) || !bytes.Equal(name, e.Metric.Name) {
		t.Errorf("%q: the fields give the name %q and %+v, the parser gives %+v", line, name, m, e.Metric)
	}
	checkTags(t, line, e, e.Metric.Tags)
}

func checkTags(t *testing.T, line []byte, e *Explanation, raw []byte) {
	if got, want := e.spans(line, "tag"), slices.Collect(Tags(raw)); !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("%q: the fields have the tags %q, the parser reads %q", line, got, want)
	}
}
