package dogstatsd

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// read parses a datagram and describes the result: each line, then the counts. It leaves out
// fields with default values.
func read(packet string) string { return readPacket(new(Parser), []byte(packet)) }

func readPacket(p *Parser, packet []byte) string {
	p.Malformed, p.UnknownFields, p.BadFields = [NumReasons]uint64{}, 0, 0
	p.Reset(packet)
	var out []string
	for line := p.Next(); line != End; line = p.Next() {
		out = append(out, lineText(p, line))
	}
	return strings.Join(append(out, countsText(p)...), "; ")
}

func lineText(p *Parser, line Line) string {
	switch line {
	case EventLine:
		return eventText(&p.Event)
	case CheckLine:
		return checkText(&p.Check)
	}
	return metricText(&p.Metric)
}

func countsText(p *Parser) (out []string) {
	for r, n := range p.Malformed {
		if n > 0 {
			out = append(out, fmt.Sprintf("%d malformed %s", n, Reason(r)))
		}
	}
	if p.UnknownFields > 0 {
		out = append(out, fmt.Sprintf("%d unknown", p.UnknownFields))
	}
	if p.BadFields > 0 {
		out = append(out, fmt.Sprintf("%d bad", p.BadFields))
	}
	return out
}

var typeNames = [...]string{"none", "count", "gauge", "timing", "histogram", "distribution", "set", "buckets"}

func metricText(m *Metric) string {
	s := fmt.Sprintf("%s %s", typeNames[m.Type], m.Name)
	for _, v := range m.Values {
		s += fmt.Sprintf(" %v", v)
	}
	s += optional(" =", m.Set)
	if m.Rate != 1 {
		s += fmt.Sprintf(" @%v", m.Rate)
	}
	if m.Relative {
		s += " relative"
	}
	if x := &m.Exemplar; x.Trace != nil {
		s += fmt.Sprintf(" x=%s,%v,%d", x.Trace, x.Value, x.Time)
	}
	return s + commonText(m.Time, nil, m.Tags, &m.Origin)
}

func eventText(e *Event) string {
	return fmt.Sprintf("event %q %q", e.Title, e.Text) + optional(" key=", e.Key) + optional(" priority=", e.Priority) +
		optional(" source=", e.Source) + optional(" alert=", e.Alert) + commonText(e.Time, e.Host, e.Tags, &e.Origin)
}

func checkText(c *Check) string {
	return fmt.Sprintf("check %s %d", c.Name, c.Status) + optional(" message=", c.Message) +
		commonText(c.Time, c.Host, c.Tags, &c.Origin)
}

func commonText(unix int64, host, tags []byte, o *Origin) string {
	s := ""
	if unix != 0 {
		s = fmt.Sprintf(" time=%d", unix)
	}
	return s + optional(" host=", host) + optional(" #", tags) + optional(" container=", o.Container) +
		optional(" inode=", o.Inode) + optional(" external=", o.External) + optional(" card=", o.Cardinality)
}

func optional(name string, value []byte) string {
	if len(value) == 0 {
		return ""
	}
	return name + string(value)
}

type readCase struct{ name, in, want string }

func runRead(t *testing.T, cases []readCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := read(c.in); got != c.want {
				t.Errorf("%q\ngot  %s\nwant %s", c.in, got, c.want)
			}
		})
	}
}

func TestMetricLine(t *testing.T) {
	runRead(t, []readCase{
		{"a count", "page.views:1|c", "count page.views 1"},
		{"a gauge", "fuel:0.5|g", "gauge fuel 0.5"},
		{"a timing", "t:320|ms", "timing t 320"},
		{"a histogram", "h:1.25|h", "histogram h 1.25"},
		{"a distribution", "d:3e2|d", "distribution d 300"},
		{"a set keeps its value as it came", "u:Jo 5|s", "set u =Jo 5"},
		{"a negative count is a count", "a:-3|c", "count a -3"},
		{"a timing may be negative", "a:-0.5|ms", "timing a -0.5"},
		{"names are taken as they come", "a b/ü-1:2|c", "count a b/ü-1 2"},

		{"text of another protocol", "hello", "1 malformed no_type"},
		{"a name and a value without a type", "a:1", "1 malformed no_type"},
		{"a name without a value", "a|c", "1 malformed no_value"},
		{"a colon behind the bar belongs to a field", "a|c|#k:v", "1 malformed no_value"},
		{"an empty value", "a:|c", "1 malformed no_value"},
		{"an empty value of a set", "a:|s", "1 malformed no_value"},
		{"an empty name", ":1|c", "1 malformed empty_name"},
		{"an empty type", "a:1|", "1 malformed unknown_type"},
		{"a type in capitals is another type", "a:1|C", "1 malformed unknown_type"},
		{"a type that only begins like one", "a:1|cc", "1 malformed unknown_type"},
		{"a meter of some StatsD dialects", "a:1|m", "1 malformed unknown_type"},
		{"a space is not trimmed", "a: 1|c", "1 malformed bad_value"},
		{"no value is read before the type is known", "a:x|?", "1 malformed unknown_type"},
	})
}

// The length of the name varies, so that the end of a block falls into each field of a line in
// turn.
func TestLengths(t *testing.T) {
	for n := range 3 * blockSize {
		name, tags := strings.Repeat("n", n+1), strings.Repeat("t", n+1)
		for _, in := range []string{
			name + ":12.5|ms|@0.5|#" + tags + "\nb:1|c",
			"a:1|c|#" + tags + "|@0.5|c:x\nb:1|c",
			"a:" + tags + "|s|#" + name,
			"a:1|g|e:" + tags + "|#" + name + "\r\nb:1|c",
			name + ":1|cc\nb:1|c",
			"b:1|c\n" + name + ":1",
		} {
			if got, want := readPacket(used(), followed([]byte(in), "|c|#a:b\nb:1")), reference(in); got != want {
				t.Errorf("%q\ngot  %s\nwant %s", in, got, want)
			}
		}
	}
}

func TestPackedValues(t *testing.T) {
	runRead(t, []readCase{
		{"values share type, rate and tags (v1.1)", "a:1:2:3|d|@0.5|#k:v", "distribution a 1 2 3 @0.5 #k:v"},
		{"every type but sets packs", "a:1:2|c\nb:1:2|g\nc:1:2|ms\nd:1:2|h",
			"count a 1 2; gauge b 1 2; timing c 1 2; histogram d 1 2"},
		{"empty parts are skipped", "a:21::22|h", "histogram a 21 22"},
		{"empty parts at the ends too", "a::1:|c", "count a 1"},
		{"nothing but empty parts", "a:::|c", "1 malformed no_value"},
		{"one bad part costs the line: the meaning of the others is unknown", "a:1:x:3|c", "1 malformed bad_value"},
		{"one part that is not finite costs the line", "a:1:nan|c", "1 malformed not_finite"},
		{"a set does not pack: its value may hold colons", "u:fe80::1|s", "set u =fe80::1"},
		{"a set's value may be a colon", "u::|s", "set u =:"},
		{"values of one line do not stay for the next", "a:1:2|c\nb:3|c\nu:x|s", "count a 1 2; count b 3; set u =x"},
	})
}

func TestValue(t *testing.T) {
	runRead(t, []readCase{
		{"NaN would poison every sum it joins", "a:NaN|g", "1 malformed not_finite"},
		{"NaN in any case and with a sign", "a:nan|c\na:+NAN|c", "2 malformed not_finite"},
		{"infinities in all spellings", "a:inf|g\na:-Inf|g\na:+INFINITY|g", "3 malformed not_finite"},
		{"a number beyond float64 would be infinite", "a:1e309|c\na:-1e999|c", "2 malformed not_finite"},
		{"a number too small is 0", "a:1e-999|g", "gauge a 0"},
		{"points without a digit on one side", "a:.5:5.|h", "histogram a 0.5 5"},
		{"exponents", "a:1e3:1E+3:1.5e-3|h", "histogram a 1000 1000 0.0015"},
		{"17 digits keep the nearest float64", "a:0.30000000000000004|g", "gauge a 0.30000000000000004"},
		{"a mantissa beyond 2^53 is rounded once, not twice", "a:67239236932.855763|g", "gauge a 6.723923693285577e+10"},
		{"20 digits, which a uint64 would wrap to 0", "a:18446744073709551616|c", "count a 1.8446744073709552e+19"},
		{"minus zero is a number", "a:-0|c", "count a -0"},
		{"numbers of any length", "a:1" + strings.Repeat("0", 30) + "|c", "count a 1e+30"},
		{"a sign alone", "a:-|c", "1 malformed bad_value"},
		{"a point alone", "a:.|c", "1 malformed bad_value"},
		{"an exponent without digits", "a:1e|c", "1 malformed bad_value"},
		{"two points", "a:1.2.3|c", "1 malformed bad_value"},
		{"a hexadecimal number, which Go would take", "a:0x10p0|c", "1 malformed bad_value"},
		{"underscores, which Go takes in source", "a:1_000|c", "1 malformed bad_value"},
		{"a decimal comma", "a:1,5|c", "1 malformed bad_value"},
		{"digits that are not ASCII", "a:٣|c", "1 malformed bad_value"},
	})
}

// The value of each bucket is the middle of the bucket.
func TestBuckets(t *testing.T) {
	runRead(t, []readCase{
		{"sum, zeros, runs of buckets", "a:h0,7.5,2;1,3,0,4;-2,1|nh|#k:v",
			"buckets a 7.5 0 2 1.414213562373095 3 5.65685424949238 4 0.17677669529663687 1 #k:v"},
		{"a finer schema", "a:h3,1,0;8,5|nh", "buckets a 1 1.9152065613971474 5"},
		{"a coarser schema", "a:h-4,1,0;1,5|nh", "buckets a 1 256 5"},
		{"negative values, by absolute value", "a:h0,-3,0;n1,2|nh", "buckets a -3 -1.414213562373095 2"},
		{"only zeros", "a:h0,0,3|nh", "buckets a 0 0 3"},
		{"counts may be weights", "a:h0,1,0;0,0.25|nh|@0.5", "buckets a 1 0.7071067811865475 0.25 @0.5"},
		{"the bucket of the largest number", "a:h0,1,0;1024,1|nh\na:h-4,1,0;64,1|nh\na:h8,1,0;262144,1|nh",
			"buckets a 1 1.2711610061536462e+308 1; buckets a 1 7.022238808055922e+305 1; buckets a 1 " +
				"1.7952610589941693e+308 1"},
		{"below the smallest number", "a:h0,1,0;-1100,1|nh", "buckets a 1 0 1"},
		{"a carriage return belongs to the line end", "a:h0,0,3|nh\r", "buckets a 0 0 3"},
		{"no values", "a:h3,0,0|nh\na:h3,0,0;1,0|nh", "2 malformed no_value"},
		{"an empty value", "a:|nh", "1 malformed no_value"},
		{"other fields as in a distribution", "a:h0,0,3|nh|c:x|zz", "buckets a 0 0 3 container=x; 1 unknown"},
		{"a time is refused", "a:h0,0,3|nh|T5", "1 malformed timestamp_type"},
		{"beyond the largest number",
			"a:h0,1,0;1025,1|nh\na:h0,1,0;1024,1,1|nh\na:h0,1,0;999999999,1|nh\na:h0,1,0;9999999999,1|nh",
			"4 malformed bad_histogram"},
		{"far below the smallest", "a:h0,1,0;-999999999,1|nh", "1 malformed bad_histogram"},
		{"schemas that do not exist", "a:h9,1,0;1,1|nh\na:h-5,1,0;1,1|nh\na:h,1,0;1,1|nh\na:h1.5,1,0;1,1|nh",
			"4 malformed bad_histogram"},
		{"a sum that is not a number", "a:h0,nan,0;1,1|nh\na:h0,1e999,0;1,1|nh\na:h0,,0;1,1|nh", "3 malformed bad_histogram"},
		{"counts that are not valid numbers",
			"a:h0,1,-1;1,1|nh\na:h0,1,0;1,-1|nh\na:h0,1,0;1,inf|nh\na:h0,1,0;1,1,|nh\na:h0,1,x|nh", "5 malformed bad_histogram"},
		{"parts that are missing", "a:h0|nh\na:h0,1|nh\na:h0,1,1;|nh\na:h0,1,1;1|nh\na:h0,1,1;n|nh\na:0,1,1|nh",
			"6 malformed bad_histogram"},
		{"a packed value", "a:h0,0,3:h0,0,3|nh\na:5|nh", "2 malformed bad_histogram"},
	})
}

func TestRelativeGauge(t *testing.T) {
	runRead(t, []readCase{
		{"a sign marks a StatsD gauge as relative", "a:+5|g\na:-5|g", "gauge a 5 relative; gauge a -5 relative"},
		{"no sign, a value", "a:5|g", "gauge a 5"},
		{"the first value decides for a packed line", "a:+5:3|g\na:3:+5|g\na::-1|g",
			"gauge a 5 3 relative; gauge a 3 5; gauge a -1 relative"},
		{"a sign on other types is only a sign", "a:+5|c", "count a 5"},
	})
}

func TestRate(t *testing.T) {
	runRead(t, []readCase{
		{"c, h, d and ms are sampled", "a:1|c|@0.1\na:1|h|@0.1\na:1|d|@0.1\na:1|ms|@0.1",
			"count a 1 @0.1; histogram a 1 @0.1; distribution a 1 @0.1; timing a 1 @0.1"},
		{"a rate of 1 changes nothing", "a:1|c|@1.0", "count a 1"},
		{"a rate with an exponent", "a:1|c|@5e-1", "count a 1 @0.5"},
		{"gauges and sets ignore any rate",
			"a:1|g|@0.1\na:1|s|@0\na:1|g|@x", "gauge a 1; set a =1; gauge a 1"},
		{"0 would divide by zero", "a:1|c|@0", "1 malformed bad_rate"},
		{"a negative rate", "a:1|c|@-0.5", "1 malformed bad_rate"},
		{"a value that counts for a billion", "a:1|c|@1e-9", "count a 1 @1e-09"},
		{"a value that counts for more than a client can leave out", "a:1|c|@9e-10\na:1|c|@1e-300", "2 malformed bad_rate"},
		{"a rate above 1 is impossible", "a:1|c|@1.5", "1 malformed bad_rate"},
		{"a percentage is not guessed at", "a:1|c|@10", "1 malformed bad_rate"},
		{"a rate that is not a number", "a:1|c|@NaN\na:1|c|@inf\na:1|c|@\na:1|c|@half", "4 malformed bad_rate"},
		{"a rate so small that its inverse is infinite", "a:1|c|@5e-324", "1 malformed bad_rate"},
	})
}

func TestTimestamp(t *testing.T) {
	runRead(t, []readCase{
		{"counts and gauges may have a time (v1.3)", "a:1|c|T1656581400\na:1|g|T1656581400",
			"count a 1 time=1656581400; gauge a 1 time=1656581400"},
		{"a time below 1 is an error", "a:1|c|T0\na:1|c|T-5", "2 malformed bad_timestamp"},
		{"a time that is not in whole seconds",
			"a:1|c|T1.5\na:1|c|T\na:1|c|Tomorrow\na:1|c|T+5", "4 malformed bad_timestamp"},
		{"the latest time is in the year 2255", "a:1|c|T9000000000\na:1|c|T9000000001\na:1|c|T99999999999999999999",
			"count a 1 time=9000000000; 2 malformed bad_timestamp"},
		{"milliseconds instead of seconds", "a:1|c|T1656581400000", "1 malformed bad_timestamp"},
		{"other types have no time, as in the Agent", "a:1|ms|T1656581400\na:1|h|T1\na:1|d|T1\na:1|s|T1",
			"4 malformed timestamp_type"},
	})
}

func TestFields(t *testing.T) {
	runRead(t, []readCase{
		{"tags are handed on as they came", "a:1|c|#k:v,bare,,x:y:z", "count a 1 #k:v,bare,,x:y:z"},
		{"empty tags", "a:1|c|#", "count a 1"},
		{"fields in any order", "a:1|c|T7|card:low|#k:v|e:cn-x|c:abc|@0.5",
			"count a 1 @0.5 time=7 #k:v container=abc external=cn-x card=low"},
		{"tags behind other fields are not lost", "a:1|c|c:abc|@0.5|#k:v", "count a 1 @0.5 #k:v container=abc"},
		{"the last of a kind wins", "a:1|c|#a|@0.1|T1|#b|@0.2|T2", "count a 1 @0.2 time=2 #b"},
		{"empty tags that come last win too", "a:1|c|#a|#", "count a 1"},
		{"a bad rate costs the line though a good one follows", "a:1|c|@x|@0.5", "1 malformed bad_rate"},
		{"an unknown field never costs the sample", "a:1|c|zz:9|#k:v|new", "count a 1 #k:v; 2 unknown"},
		{"an empty field is an unknown one", "a:1|c||#k:v|", "count a 1 #k:v; 2 unknown"},
		{"fields that only begin like known ones", "a:1|c|c|e|card|cardx:1|t5", "count a 1; 5 unknown"},
		{"fields of one line do not stay for the next", "a:1|c|@0.5|#k:v|T5|c:ci-x,in-1|e:y|card:low\nb:+1|g\nc:2|c",
			"count a 1 @0.5 time=5 #k:v container=x inode=1 external=y card=low; gauge b 1 relative; count c 2"},
	})
}

func TestExemplar(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	runRead(t, []readCase{
		{"every kind of timer may name the trace of one measurement",
			"a:1|ms|x:ab,0.25,1656581400123\na:1|h|x:ab,1,2\na:1|d|x:ab,1,2\na:h0,0,3|nh|x:ab,1,2",
			"timing a 1 x=ab,0.25,1656581400123; histogram a 1 x=ab,1,2; distribution a 1 x=ab,1,2; buckets a 0 0 3 x=ab,1,2"},
		{"packed and sampled values may have an exemplar too",
			"a:1:2|d|@0.5|x:ab,2,9", "distribution a 1 2 @0.5 x=ab,2,9"},
		{"beside other fields, in any order", "a:1|d|x:ab,1,2|#k:v|c:ci-1\nb:1|d|card:low|#k:v|x:ab,1,2\r",
			"distribution a 1 x=ab,1,2 #k:v container=1; distribution b 1 x=ab,1,2 #k:v card=low"},
		{"the last of two exemplars wins", "a:1|d|x:ab,1,2|x:cd,3,1", "distribution a 1 x=cd,3,1"},
		{"a malformed exemplar costs only itself", "a:1|d|x:ab,1,2|x:|#k:v", "distribution a 1 x=ab,1,2 #k:v; 1 bad"},
		{"a trace id has at most the length that W3C defines",
			"a:1|d|x:" + id + ",1,2\na:1|d|x:F,1,2\na:1|d|x:" + id + "0,1,2\na:1|d|x:,1,2",
			"distribution a 1 x=" + id + ",1,2; distribution a 1 x=F,1,2; distribution a 1; distribution a 1; 2 bad"},
		{"a trace id has only hexadecimal digits",
			"a:1|d|x:0123456789abcdefABCDEF,1,2\na:1|d|x:0g,1,2\na:1|d|x:0G,1,2\na:1|d|x:0-1,1,2\na:1|d|x: " +
				"1,1,2\na:1|d|x:0@,1,2",
			"distribution a 1 x=0123456789abcdefABCDEF,1,2; distribution a 1; distribution a 1; distribution a 1; " +
				"distribution a 1; distribution a 1; 5 bad"},
		{"the value is a decimal number, like the line's",
			"a:1|d|x:ab,-1.5e-3,2\na:1|d|x:ab,nan,2\na:1|d|x:ab,1e999,2\na:1|d|x:ab,,2\na:1|d|x:ab,0x1,2\na:1|d|x:ab",
			"distribution a 1 x=ab,-0.0015,2; distribution a 1; distribution a 1; distribution a 1; distribution a 1; " +
				"distribution a 1; 5 bad"},
		{"a time is whole milliseconds up to the year 2255",
			"a:1|d|x:ab,1,9000000000000\na:1|d|x:ab,1,9000000000001\na:1|d|x:ab,1,0\na:1|d|x:ab,1,-1\na:1|d|x:ab,1,1.5\n" +
				"a:1|d|x:ab,1\na:1|d|x:ab,1,",
			"distribution a 1 x=ab,1,9000000000000; distribution a 1; distribution a 1; distribution a 1; distribution a 1; " +
				"distribution a 1; distribution a 1; 6 bad"},
		{"nothing follows the time", "a:1|d|x:ab,1,2,3", "distribution a 1; 1 bad"},
		{"on other types an exemplar is an unknown field", "a:1|c|x:ab,1,2\na:1|g|x:ab,1,2\na:1|s|x:ab,1,2\na:1|c|x:",
			"count a 1; gauge a 1; set a =1; count a 1; 4 unknown"},
		{"fields that only begin like an exemplar", "a:1|d|x|xy:1|X:ab,1,2", "distribution a 1; 3 unknown"},
		{"an exemplar does not stay for the next line",
			"a:1|d|x:ab,1,2\nb:2|d\nc:3|d|@0.5", "distribution a 1 x=ab,1,2; distribution b 2; distribution c 3 @0.5"},
		{"events and checks have no exemplar", "_e{1,1}:a|b|x:ab,1,2\n_sc|db|0|x:ab,1,2", `event "a" "b"; check db 0; 2 unknown`},
	})
}

func TestOrigin(t *testing.T) {
	runRead(t, []readCase{
		{"a container id alone (v1.2)", "a:1|c|c:83c0a99c", "count a 1 container=83c0a99c"},
		{"a container id with its prefix (v1.4)", "a:1|c|c:ci-83c0", "count a 1 container=83c0"},
		{"the older prefix", "a:1|c|c:cid-83c0", "count a 1 container=83c0"},
		{"a cgroup's inode", "a:1|c|c:in-4026", "count a 1 inode=4026"},
		{"a list", "a:1|c|c:ci-83c0,in-4026", "count a 1 container=83c0 inode=4026"},
		{"a list in the other order", "a:1|c|c:in-4026,ci-83c0", "count a 1 container=83c0 inode=4026"},
		{"a list's items without a prefix are ignored",
			"a:1|c|c:83c0,in-4026\nb:1|c|c:in-4026,83c0", "count a 1 inode=4026; count b 1 inode=4026"},
		{"a later field replaces the whole list", "a:1|c|c:ci-1,in-2|c:in-3", "count a 1 inode=3"},
		{"an empty field is ignored", "a:1|c|c:", "count a 1"},
		{"external data is handed on as it came (v1.5)",
			"a:1|c|e:it-false,cn-web,pu-75a2", "count a 1 external=it-false,cn-web,pu-75a2"},
		{"cardinality is handed on as it came (v1.6)", "a:1|c|card:high\na:1|c|card:odd",
			"count a 1 card=high; count a 1 card=odd"},
	})
}

func TestEvent(t *testing.T) {
	runRead(t, []readCase{
		{"the least event", "_e{5,4}:title|text", `event "title" "text"`},
		{"all fields in any order", "_e{1,1}:a|b|#k:v|t:error|s:src|p:low|k:key|h:web1|d:1656581400|c:ci-1|e:cn-x|card:none",
			`event "a" "b" key=key priority=low source=src alert=error time=1656581400 host=web1 #k:v container=1 ` +
				`external=cn-x card=none`},
		{"lengths are bytes, not characters", "_e{5,6}:tïtl|žluť|t:info", `event "tïtl" "žluť" alert=info`},
		{"lengths that count characters are refused, not cut at a wrong place",
			"_e{4,4}:tïtl|žluť", "1 malformed event_length"},
		{"bars and colons within the lengths are text", "_e{3,5}:a|b|c|d:e|d:9", `event "a|b" "c|d:e" time=9`},
		{"line breaks come escaped and stay so", `_e{1,4}:a|b\nc`, `event "a" "b\\nc"`},
		{"text may be empty", "_e{5,0}:title|", `event "title" ""`},
		{"text may be empty before fields", "_e{5,0}:title||p:low", `event "title" "" priority=low`},
		{"a title of no bytes", "_e{0,4}:|text", "1 malformed event_title"},
		{"a title longer than the line", "_e{9,4}:title|text", "1 malformed event_length"},
		{"a text longer than the line", "_e{5,5}:title|text", "1 malformed event_length"},
		{"a text length that is too small", "_e{5,3}:title|text", "1 malformed event_length"},
		{"wrong lengths with the right sum", "_e{4,5}:title|text", "1 malformed event_length"},
		{"no bar behind the title", "_e{5,0}:title", "1 malformed event_length"},
		{"lengths beyond an int64",
			"_e{9223372036854775808,1}:a|b\n_e{1,9223372036854775808}:a|b\n_e{99999999999999999999,1}:a|b",
			"3 malformed event_length"},
		{"negative lengths", "_e{-1,4}:a|b\n_e{1,-1}:a|b", "2 malformed event_header"},
		{"one length", "_e{5}:title|text", "1 malformed event_header"},
		{"three lengths", "_e{1,1,1}:a|b", "1 malformed event_header"},
		{"lengths that are no numbers", "_e{a,b}:a|b", "1 malformed event_header"},
		{"a header that does not end", "_e{5,4:title|text\n_e{", "2 malformed event_header"},
		{"a bad optional field costs only itself", "_e{1,1}:a|b|d:soon|p:high|t:panic|h:web1",
			`event "a" "b" host=web1; 3 bad`},
		{"the last valid field wins", "_e{1,1}:a|b|d:1|d:2|d:x|t:error|t:oops", `event "a" "b" alert=error time=2; 2 bad`},
		{"a time below 1 is bad", "_e{1,1}:a|b|d:0|d:-1", `event "a" "b"; 2 bad`},
		{"a time in milliseconds is bad", "_e{1,1}:a|b|d:1656581400000", `event "a" "b"; 1 bad`},
		{"unknown fields are counted", "_e{1,1}:a|b|m:x|@0.5||zz", `event "a" "b"; 4 unknown`},
		{"a metric may begin with an underscore", "_e:1|c", "count _e 1"},
	})
}

func TestCheck(t *testing.T) {
	runRead(t, []readCase{
		{"each status", "_sc|db|0\n_sc|db|1\n_sc|db|2\n_sc|db|3", "check db 0; check db 1; check db 2; check db 3"},
		{"all fields", "_sc|db|2|d:1656581400|h:web1|#k:v|c:in-1|e:cn-x|card:high|m:no route",
			"check db 2 message=no route time=1656581400 host=web1 #k:v inode=1 external=cn-x card=high"},
		{"the message stays escaped", `_sc|db|2|m:a\nm\:b`, `check db 2 message=a\nm\:b`},
		{"clients put the origin behind the message", "_sc|db|2|m:no route|c:abc",
			"check db 2 message=no route container=abc"},
		{"a message ends at a bar, as in the Agent", "_sc|db|2|m:a|b", "check db 2 message=a; 1 unknown"},
		{"a status out of range", "_sc|db|4\n_sc|db|-1\n_sc|db|00", "3 malformed check_status"},
		{"a status missing", "_sc|db\n_sc|db|\n_sc|db||0", "3 malformed check_status"},
		{"a name missing", "_sc||0\n_sc|", "2 malformed empty_name"},
		{"a bad optional field costs only itself", "_sc|db|0|d:soon|h:web1", "check db 0 host=web1; 1 bad"},
		{"a time in milliseconds is bad", "_sc|db|0|d:1656581400000", "check db 0; 1 bad"},
		{"unknown fields are counted", "_sc|db|0|zz:1|T5|", "check db 0; 3 unknown"},
		{"a metric may begin like a check", "_scratch.bytes:1|c\n_sc:2|g", "count _scratch.bytes 1; gauge _sc 2"},
	})
}

func TestLines(t *testing.T) {
	runRead(t, []readCase{
		{"an empty datagram", "", ""},
		{"the last line break is optional", "a:1|c\n", "count a 1"},
		{"empty lines are skipped", "\n\na:1|c\n\n\nb:2|c\n\n", "count a 1; count b 2"},
		{"Windows line ends, as the Agent takes them", "a:1|c\r\n\r\nb:2|c|#k:v\r\n_sc|db|0\r",
			"count a 1; count b 2 #k:v; check db 0"},
		{"only one carriage return belongs to the line end", "a:1|c|#k:v\r\r\n", "count a 1 #k:v\r"},
		{"bad line spares its neighbours", "a:1|c\nb:oops|c\nc:3|g", "count a 1; gauge c 3; 1 malformed bad_value"},
		{"kinds of line mix", "a:1|c\n_e{1,1}:a|b\n_sc|db|0\nb:x|s", `count a 1; event "a" "b"; check db 0; set b =x`},
		{"an event cannot extend beyond its line", "_e{1,9}:a|b\nc:1|c|#x", "count c 1 #x; 1 malformed event_length"},
		{"the parser accepts bytes that are not UTF-8", "a\xff:1|c|#\xfe", "count a\xff 1 #\xfe"},
	})
}

// The counters belong to the parser: Reset does not clear them.
func TestCountersOutliveReset(t *testing.T) {
	var p Parser
	for range 3 {
		p.Reset([]byte("bad\na:1|c|zz\n_e{1,1}:a|b|p:?"))
		for p.Next() != End {
		}
	}
	if p.Malformed[NoType] != 3 || p.UnknownFields != 3 || p.BadFields != 3 {
		t.Errorf("malformed %d, unknown %d, bad %d; want 3 of each", p.Malformed[NoType], p.UnknownFields, p.BadFields)
	}
	if p.Next() != End {
		t.Error("Next after End found a line")
	}
}

// A parser lives as long as its listener. So the memory that it keeps after a hostile datagram must
// be in proportion to the datagram.
func TestMemoryKeptIsBounded(t *testing.T) {
	packet := []byte("a" + strings.Repeat(":1", 32_766) + "|c")
	var p Parser
	for range 10 {
		p.Reset(packet)
		if p.Next() != MetricLine || len(p.Metric.Values) != 32_766 {
			t.Fatalf("read %d values", len(p.Metric.Values))
		}
	}
	if kept := 8 * cap(p.Metric.Values); kept > 6*len(packet) {
		t.Errorf("kept %d bytes, too many for a datagram of %d bytes", kept, len(packet))
	}
}

// The manual documents every reason that /metrics can show.
func TestReasonsAreDocumented(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/dogstatsd.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for r := range NumReasons {
		if r.String() == "" || seen[r.String()] {
			t.Errorf("reason %d is empty or repeated: %q", r, r)
		}
		seen[r.String()] = true
		if !strings.Contains(string(manual), "\n| `"+r.String()+"` |") {
			t.Errorf("docs/dogstatsd.md has no row for %s", r)
		}
	}
}

func TestTags(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"cut only at commas", "a:b,c,d:e:f", []string{"a:b", "c", "d:e:f"}},
		{"empty tags are skipped", ",a,,b,", []string{"a", "b"}},
		{"spaces belong to the tag", " a , b", []string{" a ", " b"}},
		{"nothing", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for tag := range Tags([]byte(c.in)) {
				got = append(got, string(tag))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	for tag := range Tags([]byte("a,b")) { // a caller may stop early
		if string(tag) == "b" {
			t.Error("Tags went on after break")
		}
		break
	}
}

func TestParseExternal(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"all parts", "it-true,cn-web,pu-75a2", "true web 75a2"},
		{"any order, any part", "pu-75a2,it-false", "false  75a2"},
		{"unknown items are skipped", "xx-1,cn-web,", "false web "},
		{"a bad boolean is false", "it-maybe,cn-web", "false web "},
		{"nothing", "", "false  "},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := ParseExternal([]byte(c.in))
			if got := fmt.Sprintf("%v %s %s", e.Init, e.Container, e.Pod); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestUnescape(t *testing.T) {
	if got := Unescape([]byte(`a\nb\\n m\:`)); got != "a\nb\\\n m\\:" {
		t.Errorf("event: %q", got)
	}
}

// Reading a metric, event or check of any shape allocates nothing once the first round has grown Values.
func TestNoAllocation(t *testing.T) {
	packets, _ := load(20)
	packets = append(packets,
		[]byte("a:1:2:3:0.30000000000000004:1e-9|d|@0.25|T5|#k:v\n"+
			"a:1:2|g|T1656581400|c:ci-1,in-2|e:it-true,cn-w|card:low|zz\n"+
			"a:1|d|x:4bf92f3577b34da6a3ce929d0e0e4736,0.25,1656581400123\na:1|d|x:g"),
		[]byte("_e{1,1}:a|b|#k:v|t:error|s:src|p:low|k:key|h:web1|d:1656581400|c:ci-1\n"+
			"_sc|db|2|d:1656581400|h:web1|#k:v|m:no route"),
		[]byte("hello\na:|c\na:x|c\na:nan|c\na:1|c|@2\n_e{1,x}:a|b"))
	var p Parser
	tags := 0
	allocs := testing.AllocsPerRun(10, func() {
		for _, packet := range packets {
			p.Reset(packet)
			for p.Next() != End {
				for range Tags(p.Metric.Tags) {
					tags++
				}
				tags += len(ParseExternal(p.Metric.Origin.External).Container)
			}
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// LastFault finds the last malformed line wherever it is in the datagram, whether the datagram was
// copied or read in place.
func TestLastFault(t *testing.T) {
	for _, c := range []struct {
		packet, line string
		why          Reason
		faults       uint64
	}{
		{"a:1|c\nb:x|c\nc:1|c", "b:x|c", BadValue, 1},
		{"a:1|c|@0", "a:1|c|@0", BadRate, 1},
		{"a:1|c|@0|#x:1\n", "a:1|c|@0|#x:1", BadRate, 1},
		{"broken\r\n\nb:1|c", "broken\r", NoType, 1},
		{"one\ntwo\n_e{1,1}:t|x", "two", NoType, 2},
		{"_e{1}:t|x\na:1|c", "_e{1}:t|x", EventHeader, 1},
		{"a:1|c|T0\n" + strings.Repeat("b:1|c\n", 40), "a:1|c|T0", BadTimestamp, 1},
	} {
		for _, slack := range []int{0, 256} { // the datagram is first copied, then read in place
			var p Parser
			p.Reset(append(make([]byte, 0, len(c.packet)+slack), c.packet...))
			for p.Next() != End {
			}
			if n := malformed(&p); n != c.faults {
				t.Errorf("%q: %d faults", c.packet, n)
			}
			if line, why := p.LastFault(); string(line) != c.line || why != c.why {
				t.Errorf("%q: got %q, %v; want %q, %v", c.packet, line, why, c.line, c.why)
			}
		}
	}
}
