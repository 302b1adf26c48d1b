package client

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

// Whatever strings and numbers are handed in, the server reads what was meant and nothing
// else, or the call is counted as refused.
func FuzzMetrics(f *testing.F) {
	f.Add(uint8(0), "", "name", "k:v", "bare", "member", 1.5, 1.0)
	f.Add(uint8(5), "p.", "a:1|c\nb", "x|#y,z", "", "m|s\ninjected:1|c", 0.0, 0.5)
	f.Add(uint8(2), "_", "e{1,1}:a|b", "T123", "|T5", "\r", -1e300, 1e-12)
	f.Add(uint8(3), "", "_sc|x|0", "c:ci-1", "e:it-true", ":", math.Inf(1), 0.3)
	f.Add(uint8(1), "_e", "{", "@0.5", "#", "\x00\xff", math.NaN(), 2.0)
	f.Fuzz(func(t *testing.T, kindByte uint8, prefix, name, tag1, tag2, member string, value, rate float64) {
		o := Options{Prefix: prefix, Tags: []string{"all:x"}, NoTelemetry: true, FlushInterval: time.Hour}
		if o.complete(udp) != nil {
			return // the client would not begin
		}
		w := &wire{network: udp}
		c := start(o, &socket{to: address{network: udp, at: "192.0.2.1:1"}, dial: w.dial})
		k := kind(kindByte) % event
		switch k {
		case count:
			c.Count(name, value, tag1, tag2)
		case gauge:
			c.Gauge(name, value, tag1, tag2)
		case timing:
			c.Sampled(rate).Timing(name, time.Duration(value), tag1, tag2)
			value = float64(time.Duration(value)) / 1e6
		case histogram:
			c.Sampled(rate).Histogram(name, value, tag1, tag2)
		case distribution:
			c.NewDistribution(name, tag1, tag2).Record(value)
		case set:
			c.Set(name, member, tag1, tag2)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		packets := w.take()
		lines := fmt.Sprint(metricsIn(t, packets))
		s := checkStats(t, c, 1)
		if s.Sent == 0 {
			if len(packets) > 0 || s.Refused+s.Skipped != 1 {
				t.Fatalf("%+v, and %q", s, packets)
			}
			if long := len(prefix + name + tag1 + tag2 + member); s.Refused == 1 && long < 1000 && name != "" && (member != "" || k != set) &&
				!math.IsNaN(value) && !math.IsInf(value, 0) && (value >= 0 || k != count) {
				t.Fatalf("refused: %q %q %q %q %v", name, tag1, tag2, member, value)
			}
			return
		}
		wantName := meant(prefix+name, ":|\r\n")
		if strings.HasPrefix(wantName, "_e{") {
			wantName = "_e_" + wantName[3:]
		}
		tags := slices.DeleteFunc([]string{meant(tag1, ",|\r\n"), meant(tag2, ",|\r\n"), "all:x"}, func(tag string) bool { return tag == "" })
		wantValue := fmt.Sprint([]float64{value})
		if value == 0 {
			wantValue = "[0]" // not [-0]
		}
		if k == set {
			wantValue = meant(member, "|\r\n")
		}
		wantRate := 1.0
		if (k == timing || k == histogram) && rate > 0 && rate < 1 {
			wantRate = max(rate, leastRate)
		}
		if want := fmt.Sprintf("[%s|%s|%s|%q|%v]", kindLetters[k], wantName, wantValue, tags, wantRate); lines != want {
			t.Fatalf("\n got %q\nwant %q\n of %q", lines, want, packets)
		}
	})
}

// meant is what becomes of a string.
func meant(s, bad string) string {
	var b []byte
	for i := range len(s) {
		if strings.IndexByte(bad, s[i]) >= 0 {
			b = append(b, '_')
		} else {
			b = append(b, s[i])
		}
	}
	return string(b)
}

// metricsIn is what the server reads, which must be metrics alone.
func metricsIn(t *testing.T, packets []string) (lines []string) {
	p := new(dogstatsd.Parser)
	for _, packet := range packets {
		p.Reset([]byte(packet))
		for next := p.Next(); next != dogstatsd.End; next = p.Next() {
			m := &p.Metric
			if next != dogstatsd.MetricLine || m.Time != 0 || m.Origin.Container != nil || m.Origin.External != nil || m.Origin.Cardinality != nil {
				t.Fatalf("%q is read as something else: %+v", packets, m)
			}
			var tags []string
			for tag := range dogstatsd.Tags(m.Tags) {
				tags = append(tags, string(tag))
			}
			value := fmt.Sprint(m.Values)
			if m.Type == dogstatsd.Set {
				value = string(m.Set)
			}
			lines = append(lines, fmt.Sprintf("%s|%s|%s|%q|%v", typeNames[m.Type], m.Name, value, tags, m.Rate))
		}
	}
	if malformedLines(p) > 0 || p.UnknownFields > 0 {
		t.Fatalf("%v malformed, %d unknown fields in %q", p.Malformed, p.UnknownFields, packets)
	}
	return lines
}

// The same for events and checks.
func FuzzEvents(f *testing.F) {
	f.Add(false, "title", "text", "host", "key", "source", "tag", "message", int64(5))
	f.Add(true, "a|b\n", "x\r\ny\\n", "h|t:error", "k\n_e{1,1}:a|b", "\r", "t|#,", "m:|m:\nx:1|c", int64(-1))
	f.Fuzz(func(t *testing.T, isCheck bool, title, text, host, key, source, tag, message string, unix int64) {
		w := &wire{network: unixgram}
		o := Options{NoTelemetry: true}
		if err := o.complete(w.network); err != nil {
			t.Fatal(err)
		}
		c := start(o, &socket{to: address{network: w.network}, dial: w.dial})
		at := time.Time{}
		if unix != 0 {
			at = time.Unix(unix, 0)
		}
		var err error
		if isCheck {
			err = c.ServiceCheck(ServiceCheck{Name: title, Status: Warning, Time: at, Host: host, Message: message, Tags: []string{tag}})
		} else {
			err = c.Event(Event{Title: title, Text: text, Time: at, Host: host, AggregationKey: key, SourceType: source, Tags: []string{tag}})
		}
		if closeErr := c.Close(); closeErr != nil {
			t.Fatal(closeErr)
		}
		packets := w.take()
		s := checkStats(t, c, 1)
		if err != nil {
			if s.Refused != 1 || len(packets) > 0 {
				t.Fatalf("%v, and %+v, %q", err, s, packets)
			}
			if title != "" && (unix == 0 || unix >= 1 && unix <= dogstatsd.MaxTime) && len(title+text+host+key+source+tag+message) < 4000 {
				t.Fatal(err)
			}
			return
		}
		if s.Sent != 1 || len(packets) != 1 {
			t.Fatalf("%+v, %q", s, packets)
		}
		p := new(dogstatsd.Parser)
		p.Reset([]byte(packets[0]))
		next, e, k := p.Next(), &p.Event, &p.Check
		breaks := strings.NewReplacer("\r\n", "\n", "\r", "\n")
		field := func(s string) string { return meant(s, "|\r\n") }
		tags := meant(tag, ",|\r\n")
		var got, want string
		if isCheck {
			// A message with `m\:` in it cannot be told from one with `m:`.
			text := strings.ReplaceAll(strings.ReplaceAll(breaks.Replace(message), "\n", `\n`), "|", "_")
			got = fmt.Sprintf("%d %q %d %d %q %q %q", next, k.Name, k.Status, k.Time, k.Host, k.Tags, strings.ReplaceAll(string(k.Message), `m\:`, "m:"))
			want = fmt.Sprintf("%d %q %d %d %q %q %q", dogstatsd.CheckLine, meant(title, ":|\r\n"), 1, max(unix, 0), field(host), tags, strings.ReplaceAll(text, `m\:`, "m:"))
		} else {
			meantText := func(s string) string { return dogstatsd.Unescape([]byte(breaks.Replace(s))) } // a text with `\n` in it is taken for a line break
			got = fmt.Sprintf("%d %q %q %d %q %q %q %q", next, dogstatsd.Unescape(e.Title), dogstatsd.Unescape(e.Text), e.Time, e.Host, e.Key, e.Source, e.Tags)
			want = fmt.Sprintf("%d %q %q %d %q %q %q %q", dogstatsd.EventLine, meantText(title), meantText(text), max(unix, 0), field(host), field(key), field(source), tags)
		}
		if more := p.Next(); got != want || more != dogstatsd.End || malformedLines(p) > 0 || p.UnknownFields > 0 || p.BadFields > 0 {
			t.Fatalf("\n got %s\nwant %s\nof %q, and then %d, %d malformed, %d unknown fields", got, want, packets, more, malformedLines(p), p.UnknownFields)
		}
	})
}
