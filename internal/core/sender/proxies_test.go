package sender

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// trusting returns Proxies with the given peers.
func trusting(t testing.TB, texts ...string) *Proxies {
	t.Helper()
	p := new(Proxies)
	for _, text := range texts {
		if err := p.Add(text); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// "|" separates headers.
func TestSenderBehindProxies(t *testing.T) {
	for _, c := range []struct{ why, trusted, remote, forwarded, want string }{
		{"a proxy names its client", "10.0.0.9", "10.0.0.9:80", "192.0.2.1", "192.0.2.1"},
		{"a proxy in a network", "10.0.0.0/24", "10.0.0.9:80", "192.0.2.1", "192.0.2.1"},
		{"a proxy with an address of IPv6", "2001:db8::/32", "[2001:db8::1]:80", "192.0.2.1", "192.0.2.1"},
		{"a peer in IPv6 form", "10.0.0.9", "[::ffff:10.0.0.9]:80", "::ffff:192.0.2.1", "192.0.2.1"},
		{"a setting in IPv6 form", "::ffff:10.0.0.0/120", "10.0.0.9:80", "192.0.2.1", "192.0.2.1"},
		{"a peer with a zone", "fe80::1", "[fe80::1%eth0]:80", "fe80::2%eth1", "fe80::2"},
		{"addresses with ports", "10.0.0.9", "10.0.0.9:80", "192.0.2.1:4711", "192.0.2.1"},
		{"an address of IPv6 with a port", "10.0.0.9", "10.0.0.9:80", "[2001:db8::7]:4711", "2001:db8::7"},

		{"a forged header from a peer that is not trusted", "10.0.0.9", "192.0.2.1:80", "198.51.100.1", "192.0.2.1"},
		{"nobody is trusted", "", "10.0.0.9:80", "198.51.100.1", "10.0.0.9"},
		{"a client forges, and the proxy appends", "10.0.0.9", "10.0.0.9:80", "198.51.100.1, 192.0.2.1", "192.0.2.1"},
		{"a client forges a trusted address", "10.0.0.9", "10.0.0.9:80", "198.51.100.1, 10.0.0.9, 192.0.2.1", "192.0.2.1"},
		{"a client forges what is no address", "10.0.0.9", "10.0.0.9:80", "<b>,, 192.0.2.1", "192.0.2.1"},
		{"a client forges a header of its own", "10.0.0.9", "10.0.0.9:80", "198.51.100.1|192.0.2.1", "192.0.2.1"},

		{"two proxies, both trusted", "10.0.0.9 10.0.0.8", "10.0.0.9:80", "192.0.2.1,10.0.0.8", "192.0.2.1"},
		{"two proxies and two headers", "10.0.0.9 10.0.0.8", "10.0.0.9:80", "192.0.2.1|10.0.0.8", "192.0.2.1"},
		{"the first of two is not trusted", "10.0.0.9", "10.0.0.9:80", "192.0.2.1, 10.0.0.8", "10.0.0.8"},
		{"a client in the network of the proxies", "10.0.0.0/24", "10.0.0.9:80", "10.0.0.7, 10.0.0.8", "10.0.0.7"},

		{"no header", "10.0.0.9", "10.0.0.9:80", "", "10.0.0.9"},
		{"a name", "10.0.0.9", "10.0.0.9:80", "unknown", "10.0.0.9"},
		{"no address at the end", "10.0.0.9", "10.0.0.9:80", "192.0.2.1, ", "10.0.0.9"},
		{"a name behind a trusted address", "10.0.0.9 10.0.0.8", "10.0.0.9:80", "unknown, 10.0.0.8", "10.0.0.9"},

		{"a Unix socket", "unix", "@", "192.0.2.1", "192.0.2.1"},
		{"a Unix socket that is not trusted", "0.0.0.0/0 ::/0", "@", "192.0.2.1", ""},
		{"an address, where only the Unix socket is trusted", "unix", "10.0.0.9:80", "192.0.2.1", "10.0.0.9"},
	} {
		var headers []string
		if c.forwarded != "" {
			headers = strings.Split(c.forwarded, "|")
		}
		s := trusting(t, strings.Fields(c.trusted)...).Sender(c.remote, c.remote == "@", headers, "agent")
		if s.Address() != c.want || s.Agent != "agent" {
			t.Errorf("%s: the sender is %s, want %s", c.why, s, c.want)
		}
	}
}

func TestProxiesProblems(t *testing.T) {
	const form = "must be an address such as 10.0.0.9, a network such as 10.0.0.0/24, or unix"
	for text, want := range map[string]string{
		"":             form,
		"gateway":      form,
		"10.0.0.9:80":  form,
		"10.0.0.0/33":  form,
		"fe80::1%eth0": form,
		"10.0.0.9/24": "is an address within a network; set it to 10.0.0.9 for one address, or to 10.0.0.0/24 for all of " +
			"the network",
	} {
		if err := new(Proxies).Add(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestProxiesAllocateNothing(t *testing.T) {
	p, forwarded := trusting(t, "10.0.0.0/24"), []string{"198.51.100.1, 192.0.2.1, 10.0.0.8"}
	if n := testing.AllocsPerRun(100, func() { p.Sender("10.0.0.9:80", false, forwarded, "agent") }); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}

// FuzzProxies checks laws for any header. An address that a trusted proxy appends is the sender's, whatever stands
// before it. A peer that is not trusted is the sender itself.
func FuzzProxies(f *testing.F) {
	f.Add("198.51.100.1, 10.0.0.8", uint32(1))
	f.Add("unknown,[::1]:9,", uint32(7))
	p := trusting(f, "10.0.0.0/8")
	f.Fuzz(func(t *testing.T, header string, host uint32) {
		client := netip.AddrFrom4([4]byte{192, byte(host >> 16), byte(host >> 8), byte(host)})
		got := p.Sender("10.0.0.9:80", false, []string{header, fmt.Sprint(client)}, "")
		if got.Addr.Addr() != client {
			t.Errorf("behind %q the sender is %s, want %s", header, got, client)
		}
		if got := p.Sender(fmt.Sprint(client, ":80"), false, []string{header}, ""); got.Addr.Addr() != client {
			t.Errorf("with a forged header %q the sender is %s, want %s", header, got, client)
		}
		if at := p.Sender("10.0.0.9:80", false, []string{header}, "").Addr.Addr(); at.Is4In6() || at.Zone() != "" {
			t.Errorf("the sender is %s, want neither the form of IPv6 nor a zone", at)
		}
	})
}
