package server

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/role/collector"
)

// socketWarnings returns warnings about kernel settings that will cost packets.
func (s *server) socketWarnings() (all []string) {
	for _, l := range s.collector.Listening() {
		all = append(all, l.Warnings...)
	}
	return all
}

func (s *server) listening() answer.Listening {
	sockets := s.collector.Listening()
	return answer.Listening{
		PID: os.Getpid(), Operator: s.operatorPath(), HTTP: s.http[0].addr(), OTLPGRPC: s.otlp.addr(),
		DogStatsDUDP:      first(sockets, "udp").Address,
		DogStatsDUnixgram: absolute(first(sockets, "unixgram").Address),
		DogStatsDUnix:     absolute(first(sockets, "unix").Address),
	}
}

// listeningTold serializes writes of listening.json. It drops writes before the server announces
// itself, since the file tells programs that the server is ready.
type listeningTold struct {
	mu        sync.Mutex
	announced bool
}

// first is called when the server announces itself. It writes the file.
func (t *listeningTold) first(write func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.announced = true
	return write()
}

// again is called after a reload. It writes the file once more, but writes nothing before the
// announcement, since there is no file to correct.
func (t *listeningTold) again(write func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.announced {
		return nil
	}
	return write()
}

// writeListening writes listening.json. listeningTold calls it.
func (s *server) writeListening() error {
	text, err := json.MarshalIndent(s.listening(), "", "  ")
	if err != nil {
		return err
	}
	if err := s.replace(answer.ListeningFile, append(text, '\n')); err != nil {
		return fmt.Errorf("write the addresses: %w", err)
	}
	return nil
}

const noListening = "listening.json cannot be written: programs cannot look up the server's addresses"

// first returns the first socket of a network, or the zero value if there is none.
func first(sockets []collector.Listening, network string) collector.Listening {
	for _, l := range sockets {
		if l.Network == network {
			return l
		}
	}
	return collector.Listening{}
}

// listeningOf returns only the addresses of one tenant. Samples that are sent to another tenant's
// address would be stored for that tenant.
func listeningOf(tenant string, servers httpServers, otlp string, sockets []collector.Listening) answer.Listening {
	l := answer.Listening{PID: os.Getpid()}
	if servers[0].tenant == tenant { // OTLP over gRPC serves http.tenant
		l.OTLPGRPC = otlp
	}
	for _, h := range servers {
		if h.tenant == tenant {
			l.HTTP = h.addr()
			break
		}
	}
	sockets = slices.DeleteFunc(sockets, func(s collector.Listening) bool { return s.Tenant != tenant })
	l.DogStatsDUDP = first(sockets, "udp").Address
	l.DogStatsDUnixgram = absolute(first(sockets, "unixgram").Address)
	l.DogStatsDUnix = absolute(first(sockets, "unix").Address)
	return l
}

// httpURL returns the URL at which this node answers gateways. It is empty until the server listens. If
// the server listens on all interfaces, the URL has the host at which the other nodes reach this node.
func (s *server) httpURL() string {
	h := s.httpAt.Load()
	if h == nil {
		return ""
	}
	host, port, err := net.SplitHostPort(h.addr())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		own, _ := s.config.Cluster.Address(s.config.Cluster.Node)
		host = hostOf(own)
	} else if named := hostOf(h.address); named != "" && net.ParseIP(named) == nil {
		host = named // the certificate is for this name
	}
	return h.scheme + "://" + net.JoinHostPort(host, port)
}
