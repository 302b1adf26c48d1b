package probe

import (
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

// A probe is an ordinary line of DogStatsD. Only a line with our own mark counts as a probe.
func TestDatagram(t *testing.T) {
	at := time.UnixMicro(1_795_160_000_123_456)
	mark := NewMark(7)
	packet := mark.Datagram(at)
	var p dogstatsd.Parser
	p.Reset(packet)
	lines := make([]dogstatsd.Metric, 1)
	if n, _ := p.Metrics(lines); n != 1 || lines[0].Type != dogstatsd.Gauge || len(lines[0].Values) != 1 ||
		lines[0].Values[0] != Seconds(at) {
		t.Fatalf("%s: read %d lines, want 1; the first is %+v, want a gauge with the time of the probe",
			packet, n, lines[0])
	}
	for _, c := range []struct {
		name   string
		mark   *Mark
		packet string
		on     bool
	}{
		{"its own", mark, string(packet), true},
		{"of the process before a restart", NewMark(7), string(packet), true},
		{"of another Freshet", NewMark(8), string(packet), false},
		{"where nothing is probed", nil, string(packet), false},
		{"an application's own gauge", mark, "freshet_probe:1|g", false},
		{"cut off", mark, string(packet[:20]), false},
		{"cut off behind the mark", mark, mark.prefix, false},
		{"with a line after it", mark, string(packet) + "\nattacked:1|c", false},
		{"twice", mark, string(packet) + "\n" + string(packet), false},
		{"with a new line", mark, string(packet) + "\n", false},
		{"after a line", mark, "attacked:1|c\n" + string(packet), false},
		{"with lines before its end", mark, mark.prefix + "1.5|g\nattacked:1|c\nattacked:1.5|g", false},
		{"with a tag", mark, string(packet) + "|#attacked:yes", false},
		{"of two values", mark, mark.prefix + "1.5:2.5|g", false},
		{"without a fraction", mark, mark.prefix + "1|g", false},
		{"without a number", mark, mark.prefix + ".|g", false},
		{"negative", mark, mark.prefix + "-1.5|g", false},
		{"of another type", mark, mark.prefix + "1.5|c", false},
		{"empty", mark, "", false},
	} {
		if got := c.mark.On([]byte(c.packet)); got != c.on {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A tenant's socket has one series, across restarts.
func TestKey(t *testing.T) {
	if a, b := NewMark(7).AppendKey(nil, "a"), NewMark(7).AppendKey(nil, "a"); string(a) != string(b) {
		t.Errorf("one tenant's socket has two series, %q and %q", a, b)
	}
	if a, b := NewMark(7).AppendKey(nil, "a"), NewMark(7).AppendKey(nil, "b"); string(a) == string(b) {
		t.Errorf("two tenants have one series: %q", a)
	}
}

func TestOnAllocatesNothing(t *testing.T) {
	mark := NewMark(7)
	for _, packet := range [][]byte{[]byte("page_views:1|c|#page:home,country:de"),
		mark.Datagram(time.UnixMicro(1_795_160_000_123_456))} {
		if n := testing.AllocsPerRun(100, func() { _ = mark.On(packet) }); n != 0 {
			t.Errorf("%s: %v allocations", packet, n)
		}
	}
}
