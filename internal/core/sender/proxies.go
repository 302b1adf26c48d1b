package sender

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Unix names the peers at a Unix socket.
const Unix = "unix"

// Proxies are the peers whose headers X-Forwarded-For are trusted. The zero value has none.
type Proxies struct {
	networks []netip.Prefix // no IPv4 address is in IPv6 form
	unix     bool
}

// Add adds the peers that a text names: an address, a network, or Unix.
func (p *Proxies) Add(text string) error {
	if text == Unix {
		p.unix = true
		return nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		at, err := netip.ParseAddr(text)
		if err != nil || at.Zone() != "" {
			return fmt.Errorf("must be an address such as 10.0.0.9, a network such as 10.0.0.0/24, or %s", Unix)
		}
		network = netip.PrefixFrom(at, at.BitLen())
	}
	if whole := network.Masked(); network != whole { // meant as one address, perhaps
		return fmt.Errorf("is an address within a network; set it to %v for one address, or to %v for all of the network",
			network.Addr(), whole)
	}
	if network.Addr().Is4In6() {
		network = netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-96)
	}
	p.networks = append(p.networks, network)
	return nil
}

// Sender returns the sender of a request. `remote` is the address of its peer, `unix` says that the peer is at a Unix
// socket, and `forwarded` has the headers X-Forwarded-For. The sender is the peer, unless the peer is trusted and names
// another sender. The sender's text belongs to the request, as in Of.
func (p *Proxies) Sender(remote string, unix bool, forwarded []string, agent string) Sender {
	s := Of(remote, agent)
	if len(forwarded) == 0 || unix && !p.unix || !unix && !p.trust(s.Addr.Addr()) {
		return s
	}
	if at, ok := p.origin(forwarded); ok {
		s.Addr = netip.AddrPortFrom(at, 0)
	}
	return s
}

// origin returns the last address in the headers that is not trusted. Each proxy appends the address of its peer, so
// a client can forge only what stands before that address. If all addresses are trusted, origin returns the first one.
// It reports false if it finds something else than an address.
func (p *Proxies) origin(forwarded []string) (at netip.Addr, ok bool) {
	for _, list := range slices.Backward(forwarded) {
		for end := len(list); end >= 0; {
			begin := strings.LastIndexByte(list[:end], ',') + 1
			if at, ok = parse(list[begin:end]); !ok || !p.trust(at) {
				return at, ok
			}
			end = begin - 1
		}
	}
	return at, ok
}

// parse reads an address, with or without a port.
func parse(text string) (at netip.Addr, ok bool) {
	text = strings.TrimSpace(text)
	at, err := netip.ParseAddr(text)
	if err != nil {
		var withPort netip.AddrPort
		withPort, err = netip.ParseAddrPort(text)
		at = withPort.Addr()
	}
	return at.Unmap().WithZone(""), err == nil
}

func (p *Proxies) trust(at netip.Addr) bool {
	return slices.ContainsFunc(p.networks, func(n netip.Prefix) bool { return n.Contains(at) })
}
