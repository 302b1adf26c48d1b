// Package connections bounds the connections of all TCP servers of a process together, below
// its limit of descriptors: files that keep data must still open when clients have taken all
// that they may.
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

// peerShare is the part of the connections that one address may have, as a divisor of what
// it leaves: three of four, so that a client with too many never keeps out an operator
// elsewhere. A proxy in front of everybody still has most.
const peerShare = 4

const (
	// unreadTime is how long a client may leave the next unreadBytes of its answer where
	// they are, unless the answer has a deadline of its own. A connection whose client reads
	// nothing is never idle, so that nobody could have its place.
	unreadTime  = time.Minute
	unreadBytes = 64 << 10
)

// complaint is how often the log says that there are too many.
const complaint = time.Minute

// Reasons why a connection is closed.
const (
	reasonIdle = "idle" // nobody asked on it the longest, and another came
	reasonFull = "full" // on all the others somebody asks
	reasonPeer = "peer" // on all the others of its address somebody asks

	reasonUnread = "unread" // its client takes no answer
)

// Options is what a Bound is made of. All fields are needed.
type Options struct {
	Most     int    // connections at once
	Why      string // where Most comes from, and what to raise: for the log
	Registry prometheus.Registerer
	Logger   *slog.Logger
}

// Bound is the connections of all servers. It is safe for concurrent use.
type Bound struct {
	Options
	closed *prometheus.CounterVec

	mu         sync.Mutex
	conns      map[*conn]struct{}
	peers      map[netip.Addr]int
	complained time.Time
}

// New makes a Bound.
func New(o Options) *Bound {
	b := &Bound{Options: o, conns: map[*conn]struct{}{}, peers: map[netip.Addr]int{}}
	b.closed = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "freshet_http_closed_connections_total",
		Help: "Connections of HTTP and gRPC that were closed since there were as many as there may be, by reason: idle, nobody asked on it for the longest, and another took its place; full, a new one, when somebody asked on each; peer, a new one, when its address had three quarters of them; and, however many there are, unread, its client took nothing of an answer for a minute. Rising: a client opens connections and keeps them, or http.max_connections, or the limit of open files, is too low."}, []string{"reason"})
	for _, reason := range []string{reasonIdle, reasonFull, reasonPeer, reasonUnread} {
		b.closed.WithLabelValues(reason)
	}
	o.Registry.MustRegister(b.closed,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_http_connections", Help: "Open connections of HTTP and gRPC."}, func() float64 {
			b.mu.Lock()
			defer b.mu.Unlock()
			return float64(len(b.conns))
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_http_connections_limit", Help: "How many there may be: http.max_connections, or what the limit of open files leaves beside files that keep data."},
			func() float64 { return float64(b.Most) }))
	return b
}

// Serve makes the connections of a server count. It returns the listener from which the
// server must take them.
func (b *Bound) Serve(server *http.Server, l net.Listener) net.Listener {
	server.ConnState = note
	return listener{l, b}
}

// note is told by a server what becomes of a connection.
func note(c net.Conn, state http.ConnState) {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok { // of TLS
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

// listener is a listener whose connections count.
type listener struct {
	net.Listener
	bound *Bound
}

// Accept is part of net.Listener. A connection for which there is no room is closed.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if own := l.bound.admit(c); own != nil {
			return own, nil
		}
		_ = c.Close() // the counter says so
	}
}

// conn is one connection.
type conn struct {
	net.Conn
	bound *Bound
	peer  netip.Addr
	idle  atomic.Int64 // Unix nanoseconds since when nobody asks; 0 while somebody does
	timed atomic.Bool  // what is written has a deadline of somebody else's
}

// SetWriteDeadline is part of net.Conn. The zero time leaves it to us.
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
			_ = c.Conn.SetWriteDeadline(time.Now().Add(unreadTime)) // fails if it is closed, as Write will
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

// CloseWrite lets a server end its side first, so that the client reads the last answer.
func (c *conn) CloseWrite() error {
	if tcp, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// admit makes room for a connection, nil if there is none.
func (b *Bound) admit(c net.Conn) *conn {
	own := &conn{Conn: c, bound: b}
	own.idle.Store(time.Now().UnixNano())
	if at, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
		own.peer = at.Addr().Unmap()
	}
	b.mu.Lock()
	reason, gone := b.room(own.peer)
	if reason == "" || gone != nil {
		b.conns[own] = struct{}{}
		b.peers[own.peer]++
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
		_ = gone.Conn.Close() // its server finds out
	}
	if reason != "" {
		b.closed.WithLabelValues(reason).Inc()
	}
	if complain {
		b.Logger.Warn("connections are closed: there are as many as there may be", "connections", open, "from", c.RemoteAddr(), "reason", reason, "limit", b.Why)
	}
	return own
}

// room says why there is no room for one more connection of a peer, empty if there is, and
// takes one out that may make room, if any. It needs b.mu.
func (b *Bound) room(peer netip.Addr) (reason string, gone *conn) {
	most := b.Most - b.Most/peerShare
	switch {
	case b.peers[peer] >= most:
		reason, gone = reasonPeer, b.idlest(func(c *conn) bool { return c.peer == peer })
	case len(b.conns) >= b.Most:
		greedy := 0
		for _, n := range b.peers {
			greedy = max(greedy, n)
		}
		reason = reasonFull
		if gone = b.idlest(func(c *conn) bool { return b.peers[c.peer] == greedy }); gone == nil {
			gone = b.idlest(func(*conn) bool { return true })
		}
	}
	if gone != nil {
		b.remove(gone)
		reason = reasonIdle
	}
	return reason, gone
}

// idlest is the connection on which nobody asked for the longest, of some; nil if somebody
// asks on each. It needs b.mu, and takes 0.2 ms for 10,000.
func (b *Bound) idlest(of func(*conn) bool) (found *conn) {
	longest := int64(math.MaxInt64)
	for c := range b.conns {
		if since := c.idle.Load(); since > 0 && since < longest && of(c) {
			found, longest = c, since
		}
	}
	return found
}

// remove forgets a connection, once. It needs b.mu.
func (b *Bound) remove(c *conn) {
	if _, there := b.conns[c]; !there {
		return
	}
	delete(b.conns, c)
	if b.peers[c.peer]--; b.peers[c.peer] == 0 {
		delete(b.peers, c.peer)
	}
}
