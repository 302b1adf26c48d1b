// Package sender identifies the sender of a datagram or a request, as far as a socket or a
// request tells.
package sender

import (
	"fmt"
	"net/netip"
	"strings"
)

// maxAgent is how many bytes of a user agent are kept.
const maxAgent = 100

// Sender is an address, a process that writes to a Unix socket, or a host with a program that sends
// requests. It is comparable, so it can be a map's key. It is zero if the sender is unknown or is
// Freshet itself.
type Sender struct {
	// Addr is the sender's address, for UDP and for requests. An IPv4 address is never in IPv6 form,
	// and there is no zone. A UDP address can be forged. Port 0 stands for all ports of a host, since
	// one program has many connections.
	Addr netip.AddrPort

	// PID and UID identify the process behind a Unix socket. The kernel vouches for them. PID is 0 for
	// a process outside our PID namespace, and for a datagram that was queued before the socket was
	// watched.
	PID, UID int32

	Agent string // User-Agent of a request, cut to maxAgent bytes; empty if it has none
}

// Of returns the sender of a request with a remote address and a User-Agent, behind no proxy. It allocates nothing. The
// sender's text belongs to the request: Clone the sender to keep it.
func Of(remote, agent string) Sender {
	at, _ := netip.ParseAddrPort(remote) // a Unix socket has no address
	return Sender{Addr: netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), 0), Agent: agent[:min(len(agent), maxAgent)]}
}

// Clone returns the Sender with its own copy of the text.
func (s Sender) Clone() Sender {
	s.Agent = strings.Clone(s.Agent)
	return s
}

// Host returns the Sender that stands for all ports of the sender's host.
func (s Sender) Host() Sender { return Sender{Addr: netip.AddrPortFrom(s.Addr.Addr(), 0)} }

// Address returns the address, without a port if it stands for a host, or "" if there is none.
func (s Sender) Address() string {
	switch {
	case !s.Addr.IsValid():
		return ""
	case s.Addr.Port() == 0:
		return s.Addr.Addr().String()
	}
	return s.Addr.String()
}

// String returns the sender as text for people: 10.0.0.1 (Prometheus/3.5.0), or 10.0.0.1:4711,
// or pid=7,uid=1000.
func (s Sender) String() string {
	switch {
	case s == Sender{}:
		return "unknown"
	case s.Agent == "" && !s.Addr.IsValid():
		return fmt.Sprintf("pid=%d,uid=%d", s.PID, s.UID)
	case s.Agent == "":
		return s.Address()
	case !s.Addr.IsValid():
		return s.Agent
	}
	return s.Address() + " (" + s.Agent + ")"
}
