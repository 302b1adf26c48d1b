package sender

import (
	"net/netip"
	"strings"
	"testing"
)

func TestSender(t *testing.T) {
	for _, c := range []struct{ remote, agent, want string }{
		{"10.0.0.1:4711", "Prometheus/3.5.0", "10.0.0.1 (Prometheus/3.5.0)"},
		{"[::ffff:10.0.0.1]:4711", "", "10.0.0.1"},
		{"[2001:db8::1]:80", "x", "2001:db8::1 (x)"},
		{"@", "curl/8", "curl/8"},
		{"", "", "unknown"},
		{"10.0.0.1:1", strings.Repeat("x", 5000), "10.0.0.1 (" + strings.Repeat("x", maxAgent) + ")"},
	} {
		if got := Of(c.remote, c.agent); got.String() != c.want || got.Clone() != got {
			t.Errorf("%s %.20s: %s", c.remote, c.agent, got)
		}
	}
	for want, s := range map[string]Sender{
		"10.0.0.1:4711":  {Addr: netip.MustParseAddrPort("10.0.0.1:4711")},
		"10.0.0.1":       Sender{Addr: netip.MustParseAddrPort("10.0.0.1:4711")}.Host(),
		"pid=7,uid=1000": {PID: 7, UID: 1000},
		"pid=0,uid=1000": {UID: 1000},
	} {
		if got := s.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	remote, agent := "10.0.0.1:4711", "Prometheus/3.5.0"
	if n := testing.AllocsPerRun(100, func() { Of(remote, agent) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
