// Package sender says who sends to us or asks us, as far as a socket or a request tells.
package sender

import (
	"fmt"
	"net/netip"
	"strings"
)

// maxAgent is how much of a user agent is kept, in bytes.
const maxAgent = 100

// Sender is an address, or a process that writes to a Unix socket, or a host and a program on
// it that sends requests. It is comparable, so that it can be a map's key. It is zero if nobody
// knows, and for what Freshet sends itself.
type Sender struct {
	// Addr is the address of UDP and of requests, IPv4 as such and without a zone. Anybody can
	// forge that of UDP. Port 0 stands for all ports of a host: one program has many connections.
	Addr netip.AddrPort

	// The process, of Unix sockets, as the kernel vouches for it. PID is 0 for a process outside
	// our PID namespace, and for a datagram that was queued before the socket was watched.
	PID, UID int32

	Agent string // User-Agent of a request, cut; empty if it gave none
}

// Of is the sender of a request with a remote address and a User-Agent. It allocates nothing. Its
// text is the request's: Clone keeps it for longer.
func Of(remote, agent string) Sender {
	at, _ := netip.ParseAddrPort(remote) // a Unix socket has none
	return Sender{Addr: netip.AddrPortFrom(at.Addr().Unmap(), 0), Agent: agent[:min(len(agent), maxAgent)]}
}

// Clone is a Sender with memory of its own.
func (s Sender) Clone() Sender {
	s.Agent = strings.Clone(s.Agent)
	return s
}

// Host stands for all ports of the sender's host.
func (s Sender) Host() Sender { return Sender{Addr: netip.AddrPortFrom(s.Addr.Addr(), 0)} }

// Address is the address, without a port if it stands for a host, or "" if there is none.
func (s Sender) Address() string {
	switch {
	case !s.Addr.IsValid():
		return ""
	case s.Addr.Port() == 0:
		return s.Addr.Addr().String()
	}
	return s.Addr.String()
}

// String is the sender as people call it: 10.0.0.1 (Prometheus/3.5.0), or 10.0.0.1:4711, or
// pid=7,uid=1000.
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
