// Package sender says who sends or asks over HTTP, as far as a request tells. Who sends
// datagrams is core/top's and core/limit's: their sockets know processes.
package sender

import (
	"net/netip"
	"strings"
)

// maxAgent is how much of a user agent is kept, in bytes.
const maxAgent = 100

// Sender is a host and a program on it. Ports tell nothing: one program has many
// connections.
type Sender struct {
	Addr  netip.Addr // zero if nobody knows, as for what Freshet sends itself
	Agent string     // its User-Agent, cut; empty if it gave none
}

// Of makes a Sender of a request's remote address and User-Agent. It allocates nothing, and
// its text is the request's: who keeps it for longer calls Clone.
func Of(remote, agent string) Sender {
	at, _ := netip.ParseAddrPort(remote) // a Unix socket has none
	return Sender{Addr: at.Addr().Unmap(), Agent: agent[:min(len(agent), maxAgent)]}
}

// Clone is a Sender with memory of its own.
func (s Sender) Clone() Sender {
	s.Agent = strings.Clone(s.Agent)
	return s
}

// String is the sender as people call it: 10.0.0.1 (Prometheus/3.5.0).
func (s Sender) String() string {
	switch {
	case s == Sender{}:
		return "unknown"
	case s.Agent == "":
		return s.Addr.String()
	case !s.Addr.IsValid():
		return s.Agent
	}
	return s.Addr.String() + " (" + s.Agent + ")"
}
