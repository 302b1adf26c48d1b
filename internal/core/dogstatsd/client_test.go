package dogstatsd_test

import (
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/client"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

// The client and the parser are in two modules, each with its own code for the protocol. These
// tests check that the parser reads what a caller of the client meant.

// server keeps the packets that clients send to a Unix datagram socket.
type server struct {
	address string
	conn    *net.UnixConn
}

func listen(f *testing.F) *server {
	f.Helper()
	path := filepath.Join(f.TempDir(), "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	return &server{path, conn}
}

// take returns the packets that arrived since the last call. Once a client is closed, all of its packets
// have arrived.
func (s *server) take(t *testing.T) (packets []string) {
	t.Helper()
	const end = "end"
	mark, err := net.Dial("unixgram", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mark.Close() }()
	if _, err := mark.Write([]byte(end)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 1<<16); ; {
		n, err := s.conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if packet := string(buf[:n]); packet != end {
			packets = append(packets, packet)
			continue
		}
		return packets
	}
}

// kinds is how many kinds of metrics the client has.
const kinds = 6

var kindLetters = [kinds]string{"c", "g", "ms", "h", "d", "s"}

const leastRate = 1e-9 // the smallest rate of the client

var letterOf = map[dogstatsd.Type]string{
	dogstatsd.Count: "c", dogstatsd.Gauge: "g", dogstatsd.Timing: "ms",
	dogstatsd.Histogram: "h", dogstatsd.Distribution: "d", dogstatsd.Set: "s",
}

func malformedLines(p *dogstatsd.Parser) (n uint64) {
	for _, lines := range p.Malformed {
		n += lines
	}
	return n
}

// For any strings and numbers, the server reads exactly what the caller of the client meant, or the
// client counts the call as refused.
func FuzzClientMetrics(f *testing.F) {
	server := listen(f)
	f.Add(uint8(0), "", "name", "k:v", "bare", "member", 1.5, 1.0)
	f.Add(uint8(5), "p.", "a:1|c\nb", "x|#y,z", "", "m|s\ninjected:1|c", 0.0, 0.5)
	f.Add(uint8(2), "_", "e{1,1}:a|b", "T123", "|T5", "\r", -1e300, 1e-12)
	f.Add(uint8(3), "", "_sc|x|0", "c:ci-1", "e:it-true", ":", math.Inf(1), 0.3)
	f.Add(uint8(1), "_e", "{", "@0.5", "#", "\x00\xff", math.NaN(), 2.0)
	f.Fuzz(func(t *testing.T, kindByte uint8, prefix, name, tag1, tag2, member string, value, rate float64) {
		c, err := client.NewWithOptions(server.address,
			client.Options{Prefix: prefix, Tags: []string{"all:x"}, NoTelemetry: true, FlushInterval: time.Hour})
		if err != nil {
			return // the client refuses the prefix
		}
		k := kindLetters[kindByte%kinds]
		switch k {
		case "c":
			c.Count(name, value, tag1, tag2)
		case "g":
			c.Gauge(name, value, tag1, tag2)
		case "ms":
			c.Sampled(rate).Timing(name, time.Duration(value), tag1, tag2)
			value = float64(time.Duration(value)) / 1e6
		case "h":
			c.Sampled(rate).Histogram(name, value, tag1, tag2)
		case "d":
			c.NewDistribution(name, tag1, tag2).Record(value)
		case "s":
			c.Set(name, member, tag1, tag2)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		packets := server.take(t)
		lines := fmt.Sprint(metricsIn(t, packets))
		s := c.Stats()
		if s.Calls != 1 {
			t.Fatalf("one call is counted as %d: %+v", s.Calls, s)
		}
		if s.Sent == 0 {
			if len(packets) > 0 || s.Refused+s.Skipped != 1 {
				t.Fatalf("nothing is counted as sent, but the counts are %+v and the packets %q", s, packets)
			}
			if long := len(prefix + name + tag1 + tag2 + member); s.Refused == 1 && long < 1000 && name != "" &&
				(member != "" || k != "s") &&
				!math.IsNaN(value) && !math.IsInf(value, 0) && (value >= 0 || k != "c") {
				t.Fatalf("the client refused a valid call: %q %q %q %q %v", name, tag1, tag2, member, value)
			}
			return
		}
		wantName := meant(prefix+name, ":|\r\n")
		if strings.HasPrefix(wantName, "_e{") {
			wantName = "_e_" + wantName[3:]
		}
		tags := slices.DeleteFunc([]string{meant(tag1, ",|\r\n"), meant(tag2, ",|\r\n"), "all:x"}, func(tag string) bool {
			return tag == ""
		})
		wantValue := fmt.Sprint([]float64{value})
		if value == 0 {
			wantValue = "[0]" // not [-0]
		}
		if k == "s" {
			wantValue = meant(member, "|\r\n")
		}
		wantRate := 1.0
		if (k == "ms" || k == "h") && rate > 0 && rate < 1 {
			wantRate = max(rate, leastRate)
		}
		if want := fmt.Sprintf("[%s|%s|%s|%q|%v]", k, wantName, wantValue, tags, wantRate); lines != want {
			t.Fatalf("\n got %q\nwant %q\nfrom %q", lines, want, packets)
		}
	})
}

// meant returns s with each bad byte replaced by an underscore, as the server should read it.
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

// metricsIn returns the metrics that the server reads; it fails on any other line.
func metricsIn(t *testing.T, packets []string) (lines []string) {
	p := new(dogstatsd.Parser)
	for _, packet := range packets {
		p.Reset([]byte(packet))
		for next := p.Next(); next != dogstatsd.End; next = p.Next() {
			m := &p.Metric
			if next != dogstatsd.MetricLine || m.Time != 0 || m.Origin.Container != nil || m.Origin.External != nil ||
				m.Origin.Cardinality != nil {
				t.Fatalf("%q is not read as a plain metric: %+v", packets, m)
			}
			var tags []string
			for tag := range dogstatsd.Tags(m.Tags) {
				tags = append(tags, string(tag))
			}
			value := fmt.Sprint(m.Values)
			if m.Type == dogstatsd.Set {
				value = string(m.Set)
			}
			lines = append(lines, fmt.Sprintf("%s|%s|%s|%q|%v", letterOf[m.Type], m.Name, value, tags, m.Rate))
		}
	}
	if malformedLines(p) > 0 || p.UnknownFields > 0 {
		t.Fatalf("%v malformed, %d unknown fields in %q", p.Malformed, p.UnknownFields, packets)
	}
	return lines
}

// FuzzClientEvents does the same as FuzzClientMetrics, for events and checks.
func FuzzClientEvents(f *testing.F) {
	server := listen(f)
	f.Add(false, "title", "text", "host", "key", "source", "tag", "message", int64(5))
	f.Add(true, "a|b\n", "x\r\ny\\n", "h|t:error", "k\n_e{1,1}:a|b", "\r", "t|#,", "m:|m:\nx:1|c", int64(-1))
	f.Fuzz(func(t *testing.T, isCheck bool, title, text, host, key, source, tag, message string, unix int64) {
		c, err := client.NewWithOptions(server.address, client.Options{NoTelemetry: true, FlushInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		at := time.Time{}
		if unix != 0 {
			at = time.Unix(unix, 0)
		}
		if isCheck {
			err = c.ServiceCheck(client.ServiceCheck{
				Name: title, Status: client.Warning, Time: at, Host: host, Message: message, Tags: []string{tag},
			})
		} else {
			err = c.Event(client.Event{
				Title: title, Text: text, Time: at, Host: host, AggregationKey: key, SourceType: source, Tags: []string{tag},
			})
		}
		if closeErr := c.Close(); closeErr != nil {
			t.Fatal(closeErr)
		}
		packets := server.take(t)
		s := c.Stats()
		if s.Calls != 1 {
			t.Fatalf("one call is counted as %d: %+v", s.Calls, s)
		}
		if err != nil {
			if s.Refused != 1 || len(packets) > 0 {
				t.Fatalf("the call returned %v, but the counts are %+v and the packets %q", err, s, packets)
			}
			if title != "" && (unix == 0 || unix >= 1 && unix <= dogstatsd.MaxTime) &&
				len(title+text+host+key+source+tag+message) < 4000 {
				t.Fatal(err)
			}
			return
		}
		if s.Sent != 1 || len(packets) != 1 {
			t.Fatalf("the counts are %+v and the packets %q, want one packet", s, packets)
		}
		p := new(dogstatsd.Parser)
		p.Reset([]byte(packets[0]))
		next, e, k := p.Next(), &p.Event, &p.Check
		breaks := strings.NewReplacer("\r\n", "\n", "\r", "\n")
		field := func(s string) string { return meant(s, "|\r\n") }
		tags := meant(tag, ",|\r\n")
		var got, want string
		if isCheck {
			// The server cannot distinguish `m\:` in a message from `m:`.
			text := strings.ReplaceAll(strings.ReplaceAll(breaks.Replace(message), "\n", `\n`), "|", "_")
			got = fmt.Sprintf("%d %q %d %d %q %q %q", next, k.Name, k.Status, k.Time, k.Host, k.Tags,
				strings.ReplaceAll(string(k.Message), `m\:`, "m:"))
			want = fmt.Sprintf("%d %q %d %d %q %q %q", dogstatsd.CheckLine, meant(title, ":|\r\n"), 1, max(unix, 0), field(host),
				tags, strings.ReplaceAll(text, `m\:`, "m:"))
		} else {
			// The server reads `\n` in a text as a line break.
			meantText := func(s string) string { return dogstatsd.Unescape([]byte(breaks.Replace(s))) }
			got = fmt.Sprintf("%d %q %q %d %q %q %q %q", next, dogstatsd.Unescape(e.Title), dogstatsd.Unescape(e.Text), e.Time,
				e.Host, e.Key, e.Source, e.Tags)
			want = fmt.Sprintf("%d %q %q %d %q %q %q %q", dogstatsd.EventLine, meantText(title), meantText(text), max(unix, 0),
				field(host), field(key), field(source), tags)
		}
		if more := p.Next(); got != want || more != dogstatsd.End || malformedLines(p) > 0 || p.UnknownFields > 0 ||
			p.BadFields > 0 {
			t.Fatalf("\n got %s\nwant %s\nfrom %q, then a line of type %d; %d malformed, %d unknown fields",
				got, want, packets, more, malformedLines(p), p.UnknownFields)
		}
	})
}
