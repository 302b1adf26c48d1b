package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
)

// The names of the networks, as in package net. The constant guess stands for a Unix socket of unknown
// type.
const (
	udp      = "udp"
	unixgram = "unixgram"
	unix     = "unix"
	guess    = "unix or unixgram"
)

const defaultPort = "8125"

// address is the destination of packets.
type address struct{ network, at string }

func (a address) String() string {
	switch a.network {
	case udp:
		return "udp://" + a.at
	case unixgram:
		return "unixgram://" + a.at
	case unix:
		return "unixstream://" + a.at
	}
	return "unix://" + a.at
}

// schemes are the schemes that other clients use.
var schemes = []struct{ prefix, network string }{
	{"udp://", udp}, {"unixgram://", unixgram}, {"unixstream://", unix}, {"unix://", guess},
}

func parseAddress(s string) (address, error) {
	if s == "" {
		s = fromEnvironment()
	}
	network, at := udp, s
	for _, scheme := range schemes {
		if rest, ok := strings.CutPrefix(s, scheme.prefix); ok {
			network, at = scheme.network, rest
		}
	}
	switch {
	case strings.HasPrefix(s, "/"):
		network = guess
	case strings.Contains(at, "://"):
		return address{},
			fmt.Errorf("address %q: must begin with udp://, unix://, unixgram:// or unixstream://, or be host:port", s)
	}
	if network != udp {
		if at == "" {
			return address{}, fmt.Errorf("address %q: has no path", s)
		}
		return address{network, at}, nil
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil { // no port, or an IPv6 address without brackets
		if _, ipErr := netip.ParseAddr(at); ipErr != nil && strings.ContainsAny(at, ":[]") {
			return address{}, fmt.Errorf("address %q: %w", s, err)
		}
		host, port = at, defaultPort
	}
	if host == "" && port == "" || strings.ContainsAny(host, "/ ") {
		return address{}, fmt.Errorf("address %q: must be host:port, or a path beginning with /", s)
	}
	return address{udp, net.JoinHostPort(host, port)}, nil
}

// fromEnvironment returns the address that other clients would use.
func fromEnvironment() string {
	if url := os.Getenv("DD_DOGSTATSD_URL"); url != "" {
		return url
	}
	host, port := os.Getenv("DD_AGENT_HOST"), os.Getenv("DD_DOGSTATSD_PORT")
	if host == "" {
		host = "127.0.0.1"
	}
	if port == "" || strings.Contains(host, "://") {
		return host
	}
	return net.JoinHostPort(host, port)
}

func (a address) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialWait}
	if a.network != guess {
		return dialer.DialContext(ctx, a.network, a.at)
	}
	conn, err := dialer.DialContext(ctx, unixgram, a.at)
	if errors.Is(err, syscall.EPROTOTYPE) {
		conn, err = dialer.DialContext(ctx, unix, a.at)
	}
	return conn, err
}

const (
	dialWait   = time.Second
	writeWait  = 100 * time.Millisecond // after this time, check whether Close was called
	stuckAfter = 5 * time.Second        // then replace a socket that accepts nothing: a new server may own its file
	nameAge    = time.Minute            // after this time, look the host up again: UDP does not notice a new address
	answerWait = 10 * time.Millisecond  // how long to wait for another host's answer to a probe
)

// frameHead is the size of the head of a frame on a stream: the length of the payload in four bytes,
// little-endian. Packets leave room for it.
const frameHead = 4

// probe is an empty line. Over UDP it shows whether a server listens.
var probe = []byte("\n")

// socket is the connection of a client. The flusher owns it, and connects when it has packets to send
// and the connection is missing or broken.
type socket struct {
	to   address
	dial func(context.Context) (net.Conn, error)

	conn     net.Conn  // nil if there is none
	dialed   time.Time // the time when conn was made
	took     time.Time // the time when conn was made, or last accepted a packet
	stream   bool
	loopback bool // UDP within this host: a refusal comes before the next write
	written  int  // bytes of the current frame that the stream has accepted

	asks   bool // a probe precedes the next packet
	down   bool // the server's host said that there is no listener
	probes int  // probes sent since the flusher last read this count
}

// startFlush must be called before the packets of a flush are written.
func (s *socket) startFlush() {
	s.asks = s.loopback
	s.took = time.Now()
}

// write hands over a packet. The memory before the packet has room for a frame's head. If write returns
// an error, the server does not get the packet. On a stream this also holds for parts that were written
// earlier, since the server ignores an incomplete frame. EMSGSIZE is permanent; all other errors may go
// away.
func (s *socket) write(ctx context.Context, packet []byte) error {
	now := time.Now()
	if err := s.connect(ctx, now); err != nil {
		return err
	}
	if err := s.conn.SetWriteDeadline(now.Add(writeWait)); err != nil {
		return s.broken(err)
	}
	if s.asks && s.to.network == udp {
		if err := s.ask(); err != nil {
			return s.broken(err)
		}
	}
	if !s.stream {
		if _, err := s.conn.Write(packet[frameHead:]); err != nil {
			return s.broken(err)
		}
		s.took, s.down = now, false
		return nil
	}
	binary.LittleEndian.PutUint32(packet, uint32(len(packet)-frameHead))
	n, err := s.conn.Write(packet[s.written:])
	if n > 0 {
		s.took = now
	}
	if s.written += n; s.written == len(packet) {
		s.written = 0
		return nil
	}
	return s.broken(err)
}

// ask sends a probe. If no server listens, the host refuses the probe, and the next write fails without
// sending its packet. If the refusal of an earlier packet has already arrived, ask itself fails.
func (s *socket) ask() error {
	if _, err := s.conn.Write(probe); err != nil {
		return err
	}
	s.probes++
	s.asks = false
	if s.down && !s.loopback {
		time.Sleep(answerWait)
	}
	return nil
}

// connect makes a connection if there is none, or if the present one is due for replacement.
func (s *socket) connect(ctx context.Context, now time.Time) error {
	if s.conn != nil && !s.named(now) {
		return nil
	}
	conn, err := s.dial(ctx)
	if err != nil {
		if s.conn != nil { // keep the old connection
			s.dialed = now
			return nil
		}
		return err
	}
	s.hangUp()
	s.conn, s.dialed, s.took = conn, now, now
	s.stream = conn.RemoteAddr().Network() == unix
	if to, ok := conn.RemoteAddr().(*net.UDPAddr); ok {
		s.loopback = to.IP.IsLoopback()
	}
	s.asks = s.loopback || s.down
	return nil
}

// named reports whether it is time to look up the host's name again.
func (s *socket) named(now time.Time) bool {
	if s.to.network != udp || now.Sub(s.dialed) < nameAge {
		return false
	}
	_, err := netip.ParseAddrPort(s.to.at)
	return err != nil
}

// broken decides after an error whether to keep the connection.
func (s *socket) broken(err error) error {
	switch {
	case errors.Is(err, syscall.EMSGSIZE):
	case errors.Is(err, os.ErrDeadlineExceeded):
		if time.Since(s.took) > stuckAfter {
			s.hangUp()
		}
	default:
		s.down = errors.Is(err, syscall.ECONNREFUSED)
		s.hangUp()
	}
	return err
}

func (s *socket) hangUp() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.conn, s.written = nil, 0
}

// transport returns the kind of socket by the name that other clients use for it.
func (s *socket) transport() string {
	switch {
	case s.to.network == udp:
		return "udp"
	case s.stream || s.to.network == unix:
		return "uds-stream"
	}
	return "uds"
}
