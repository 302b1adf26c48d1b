// Package connections bounds the connections of all TCP servers of a process together. The bound is
// below the process' limit of descriptors, so the process can open data files even when clients hold all
// connections.
package connections

import (
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// addressShare bounds the connections of one address: one in addressShare connections stays free for
// other addresses. So a client with too many connections never locks out an operator elsewhere. A proxy
// in front of all clients still has three quarters of the connections.
const addressShare = 4

const (
	// unreadTime is how long a client may take to read the next unreadBytes of its answer, unless
	// the answer has its own deadline. Without this limit, a connection whose client reads nothing
	// would never be idle, and would keep its place.
	unreadTime  = time.Minute
	unreadBytes = 64 << 10
)

// complaint is the minimum time between two log lines about too many connections.
const complaint = time.Minute

// Reasons why a connection is closed.
const (
	reasonIdle    = "idle"    // idle the longest when another connection came
	reasonFull    = "full"    // a new connection, while requests run on all others
	reasonAddress = "address" // a new connection, while requests run on all others of its address

	reasonUnread = "unread" // the client does not read the answer
)

// Options configure a Bound. All fields are needed.
type Options struct {
	Most     int    // connections at once
	Why      string // for the log: the origin of Most, and the setting to raise
	Registry prometheus.Registerer
	Logger   *slog.Logger
}

// Bound counts and bounds the connections of all servers. It is safe for concurrent use.
type Bound struct {
	Options
	closed *prometheus.CounterVec

	mu         sync.Mutex
	conns      map[*conn]struct{}
	addresses  map[netip.Addr]int
	complained time.Time
}

// New makes a Bound.
func New(o Options) *Bound {
	b := &Bound{Options: o, conns: map[*conn]struct{}{}, addresses: map[netip.Addr]int{}}
	b.closed = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "freshet_http_closed_connections_total",
		Help: "HTTP and gRPC connections that were closed, by reason. idle: at the limit of connections, a new " +
			"connection took the place of the one that was idle the longest; full: at the limit, a new connection was " +
			"closed because all others had a request; address: a new connection was closed because its address " +
			"already had three quarters of the limit; unread: the client read nothing of an answer for a minute. " +
			"Rising: a client opens " +
			"connections and keeps them, or http.max_connections, or the limit of open files, is too low."},
		[]string{"reason"})
	for _, reason := range []string{reasonIdle, reasonFull, reasonAddress, reasonUnread} {
		b.closed.WithLabelValues(reason)
	}
	o.Registry.MustRegister(b.closed,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_http_connections",
			Help: "Open HTTP and gRPC connections."}, func() float64 {
			b.mu.Lock()
			defer b.mu.Unlock()
			return float64(len(b.conns))
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "freshet_http_connections_limit",
			Help: "Limit of open HTTP and gRPC connections: http.max_connections, or fewer if the limit of open " +
				"files, less those for data, does not allow as many.",
		},
			func() float64 { return float64(b.Most) }))
	return b
}

// Serve counts a server's connections. The server must accept them from the listener that Serve
// returns.
func (b *Bound) Serve(server *http.Server, l net.Listener) net.Listener {
	server.ConnState = note
	return listener{l, b}
}

// note records a change of state of a server's connection.
func note(c net.Conn, state http.ConnState) {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok { // a TLS connection
		c = secure.NetConn()
	}
	own, ok := c.(*conn)
	switch {
	case !ok:
	case state == http.StateActive:
		own.idle.Store(0)
	default:
		own.idle.Store(time.Now().UnixNano())
	}
}

// listener is a listener that counts its connections.
type listener struct {
	net.Listener
	bound *Bound
}

// Accept implements net.Listener. It closes connections beyond the bound.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if own := l.bound.admit(c); own != nil {
			return own, nil
		}
		_ = c.Close() // admit has counted it
	}
}

// conn is one connection.
type conn struct {
	net.Conn
	bound   *Bound
	address netip.Addr
	idle    atomic.Int64 // when the connection became idle, Unix nanoseconds; 0 during a request
	timed   atomic.Bool  // the server set a write deadline
}

// SetWriteDeadline implements net.Conn. The zero time makes unreadTime apply again.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.timed.Store(!t.IsZero())
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline is part of net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.timed.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

// Write is part of net.Conn.
func (c *conn) Write(b []byte) (n int, err error) {
	for first := true; err == nil && (first || len(b) > 0); first = false {
		piece := b[:min(len(b), unreadBytes)]
		ours := !c.timed.Load()
		if ours {
			_ = c.Conn.SetWriteDeadline(time.Now().Add(unreadTime)) // if this fails, Write fails, too
		}
		var wrote int
		wrote, err = c.Conn.Write(piece)
		n, b = n+wrote, b[wrote:]
		if ours && errors.Is(err, os.ErrDeadlineExceeded) {
			c.bound.closed.WithLabelValues(reasonUnread).Inc()
		}
	}
	return n, err
}

// Close is part of net.Conn.
func (c *conn) Close() error {
	c.bound.mu.Lock()
	c.bound.remove(c)
	c.bound.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite closes the sending side only, so that the client can still read the last answer.
func (c *conn) CloseWrite() error {
	if tcp, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// admit makes room for a connection and adds it. It returns nil if there is no room.
func (b *Bound) admit(c net.Conn) *conn {
	own := &conn{Conn: c, bound: b}
	own.idle.Store(time.Now().UnixNano())
	if at, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
		own.address = at.Addr().Unmap()
	}
	b.mu.Lock()
	reason, gone := b.room(own.address)
	if reason == "" || gone != nil {
		b.conns[own] = struct{}{}
		b.addresses[own.address]++
	} else {
		own = nil
	}
	complain := reason != "" && time.Since(b.complained) >= complaint
	if complain {
		b.complained = time.Now()
	}
	open := len(b.conns)
	b.mu.Unlock()
	if gone != nil {
		_ = gone.Conn.Close() // ends the server's read from the connection
	}
	if reason != "" {
		b.closed.WithLabelValues(reason).Inc()
	}
	if complain {
		b.Logger.Warn("too many connections: some are closed",
			"connections", open, "from", c.RemoteAddr(), "reason", reason, "limit", b.Why)
	}
	return own
}

// room returns the reason why there is no room for one more connection of an address, or an empty
// string if there is room. `gone` is the connection to close to make room, if any. The caller holds
// b.mu.
func (b *Bound) room(address netip.Addr) (reason string, gone *conn) {
	most := b.Most - b.Most/addressShare
	switch {
	case b.addresses[address] >= most:
		reason, gone = reasonAddress, b.idlest(func(c *conn) bool { return c.address == address })
	case len(b.conns) >= b.Most:
		greedy := 0
		for _, n := range b.addresses {
			greedy = max(greedy, n)
		}
		reason = reasonFull
		if gone = b.idlest(func(c *conn) bool { return b.addresses[c.address] == greedy }); gone == nil {
			gone = b.idlest(func(*conn) bool { return true })
		}
	}
	if gone != nil {
		b.remove(gone)
		reason = reasonIdle
	}
	return reason, gone
}

// idlest returns the connection that has been idle the longest, or nil if none is idle. It
// considers only connections for which `of` returns true. The caller holds b.mu. The search takes
// 0.2 ms for 10,000 connections.
func (b *Bound) idlest(of func(*conn) bool) (found *conn) {
	longest := int64(math.MaxInt64)
	for c := range b.conns {
		if since := c.idle.Load(); since > 0 && since < longest && of(c) {
			found, longest = c, since
		}
	}
	return found
}

// remove forgets a connection. Calling it again has no effect. The caller holds b.mu.
func (b *Bound) remove(c *conn) {
	if _, there := b.conns[c]; !there {
		return
	}
	delete(b.conns, c)
	if b.addresses[c.address]--; b.addresses[c.address] == 0 {
		delete(b.addresses, c.address)
	}
}
