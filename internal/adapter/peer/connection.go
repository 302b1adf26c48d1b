package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/freshet-io/freshet/internal/adapter/peer/wire"
)

const (
	redial      = time.Second            // longest pause before another dial, and longest time of a dial
	firstRedial = 100 * time.Millisecond // pause after the first failure
	refusedWait = time.Second            // pause before a stream is opened again to a node that refused it
	brokenWait  = 50 * time.Millisecond  // pause before a stream is opened again after another failure

	// ackEvery is the number of batches that one acknowledgement is for. It is a part of the protocol. An
	// acknowledgement of each batch would wake both processes once more for each entry.
	ackEvery = 16

	unanswered = 256 // batches of a stream that may wait for their acknowledgements
)

// connection is one of the two connections to a node.
type connection struct {
	name  string // one of the constants entries and urgent
	peers *Peers
	node  *node
	queue *queue
	cc    *grpc.ClientConn

	mu        sync.Mutex
	connected bool
	refused   bool      // the node refuses its stream
	since     time.Time // when the result of ready last changed
	last      string    // the text of the last error

	sentBytes, sentMessages, dials, full, late prometheus.Counter
}

func (p *Peers) newConnection(n *node, name string, room int) (*connection, error) {
	m := p.metrics
	c := &connection{
		name: name, peers: p, node: n, queue: newQueue(room), since: time.Now(),
		sentBytes: m.sentBytes.WithLabelValues(n.name, name), sentMessages: m.sentMessages.WithLabelValues(n.name, name),
		dials: m.dials.WithLabelValues(n.name, name),
		full:  m.dropped.WithLabelValues(n.name, name, droppedFull),
		late:  m.dropped.WithLabelValues(n.name, name, droppedLate),
	}
	right := func(who Identity) error {
		if want := (Identity{Name: n.name}); who != want {
			return fmt.Errorf("at %[2]s is %[1]s, not %[3]s; correct cluster.nodes", who, n.address, want)
		}
		return nil
	}
	var err error
	// With passthrough, the dialer resolves the name at each dial.
	c.cc, err = grpc.NewClient("passthrough:///"+n.address,
		grpc.WithTransportCredentials(&clientTLS{credentials.NewTLS(p.Credentials.config(right)), c}),
		grpc.WithContextDialer(c.dial), grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(2*window),
		grpc.WithWriteBufferSize(writeBuffer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxFrame), grpc.MaxCallSendMsgSize(maxFrame),
			grpc.ForceCodecV2(wire.Codec)),
		// gRPC sends pings at most every 10 s. The kernel probes every 2 s: see dial. Timeout is also
		// the TCP_USER_TIMEOUT of the connection.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: userTimeout, PermitWithoutStream: true,
		}),
		// The connection itself has less time: see dial. The handshake with a busy node may take longer.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: userTimeout, Backoff: backoff.Config{
			BaseDelay: firstRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: redial,
		}}),
	)
	if err != nil {
		return nil, fmt.Errorf("node %s at %s: %w", n.name, n.address, err)
	}
	return c, nil
}

func (c *connection) dial(ctx context.Context, address string) (net.Conn, error) {
	c.dials.Inc()
	d := net.Dialer{Timeout: redial, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: pingEvery, Interval: time.Second, Count: 3,
	}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		c.failed(err)
	}
	return conn, err
}

// clientTLS records for Health why a handshake fails, because gRPC reports that only to callers.
type clientTLS struct {
	credentials.TransportCredentials
	c *connection
}

// ClientHandshake is called for each new connection.
func (t *clientTLS) ClientHandshake(ctx context.Context, name string, raw net.Conn) (
	net.Conn, credentials.AuthInfo, error,
) {
	under := &held{Conn: raw}
	conn, info, err := t.TransportCredentials.ClientHandshake(ctx, name, under)
	if err != nil {
		t.c.failed(err)
		return nil, nil, err
	}
	return &watched{&whole{conn, under}, t.c}, info, nil
}

// Clone returns a copy.
func (t *clientTLS) Clone() credentials.TransportCredentials {
	return &clientTLS{t.TransportCredentials.Clone(), t.c}
}

// watched is a connection that records why it ends. A refusal of our certificate is recorded, too:
// it arrives with the first read.
type watched struct {
	net.Conn
	c *connection
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	switch {
	case errors.Is(err, io.EOF):
		w.c.failed(errors.New("the node closed the connection"))
	case err != nil && !errors.Is(err, net.ErrClosed):
		w.c.failed(err)
	}
	return n, err
}

func (c *connection) failed(err error) {
	err = explained(err)
	c.mu.Lock()
	c.last = err.Error()
	c.mu.Unlock()
}

// ready is true if messages can reach the node. The caller has locked mu.
func (c *connection) ready() bool { return c.connected && !c.refused }

// note calls `change`, which may change the result of ready.
func (c *connection) note(change func()) {
	c.mu.Lock()
	before := c.ready()
	change()
	changed := c.ready() != before
	if changed {
		c.since = time.Now()
	}
	c.mu.Unlock()
	if changed {
		c.peers.changed()
	}
}

// watch reconnects whenever the connection has ended, until ctx is done.
func (c *connection) watch(ctx context.Context) {
	for {
		state := c.cc.GetState()
		c.note(func() {
			if c.connected && state != connectivity.Ready && c.last == "" {
				c.last = "the connection ended"
			}
			c.connected = state == connectivity.Ready
		})
		if state == connectivity.Idle {
			c.cc.Connect()
		}
		if !c.cc.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// send sends the messages of the queue, until ctx is done.
func (c *connection) send(ctx context.Context) {
	for {
		between, more := c.queue.wait(ctx)
		if !more {
			return
		}
		err := c.streamTo(ctx, between)
		if err == nil || ctx.Err() != nil {
			continue
		}
		// If the node refuses the first message, that message would hold up all later ones.
		c.late.Add(float64(c.queue.expire(time.Now().Add(-tooLate))))
		c.failed(errors.New(status.Convert(err).Message()))
		pause := brokenWait
		if code := status.Code(err); code != codes.Unavailable && code != codes.Canceled {
			pause = refusedWait
			c.note(func() { c.refused = true })
			c.peers.Logger.Warn("another node refuses messages", "node", c.node.name, "connection", c.name,
				"error", status.Convert(err).Message())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

type stream = grpc.BidiStreamingClient[wire.Batch, wire.Ack]

// streamTo sends those messages of the queue whose sender and receiver are the members in `between`. It
// returns nil when the next message is between other members.
func (c *connection) streamTo(ctx context.Context, between ends) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := wire.NewPeerClient(c.cc)
	open := client.Urgent
	if c.name == entries {
		open = client.Entries
	}
	s, err := open(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	hello := c.peers.hello()
	hello.From, hello.To = between.from, between.to
	if err := s.Send(&wire.Batch{Hello: hello}); err != nil && err != io.EOF { // after io.EOF, Recv has the error
		return err
	}
	if _, err := s.Recv(); err != nil {
		return err
	}
	c.note(func() { c.refused = false })
	sent, ended := make(chan time.Time, unanswered/ackEvery), make(chan error, 1)
	broken, brake := context.WithCancel(ctx)
	defer brake()
	go func() {
		defer brake()
		ended <- c.answers(s, sent)
	}()
	if c.sendAll(broken, s, between, sent) {
		_ = s.CloseSend() // the node acknowledges the batches that it has, and ends the stream
	}
	// If sendAll stopped because of other members, the stream ends after the last acknowledgement.
	// Otherwise it has already failed.
	if err := <-ended; err != io.EOF {
		return err
	}
	return nil
}

// sendAll sends batches. It reports true if it stopped because of a message between other members, and
// false if the stream failed.
func (c *connection) sendAll(broken context.Context, s stream, between ends, sent chan<- time.Time) bool {
	for unacknowledged := 1; ; {
		next, more := c.queue.wait(broken)
		if !more {
			return false
		}
		now := time.Now()
		messages, size, late := c.queue.take(between, now.Add(-tooLate))
		c.late.Add(float64(late))
		if len(messages) == 0 {
			if next != between && late == 0 {
				return true
			}
			continue
		}
		if unacknowledged == ackEvery {
			select {
			case sent <- now:
			case <-broken.Done():
				return false
			}
			unacknowledged = 0
		}
		unacknowledged++
		if s.SendMsg(messages) != nil { // Recv has the error
			<-broken.Done()
			return false
		}
		c.sentBytes.Add(float64(size))
		c.sentMessages.Add(float64(len(messages)))
	}
}

// answers is the loop that reads the acknowledgements of batches. When the stream ends, it returns why.
func (c *connection) answers(s stream, sent <-chan time.Time) error {
	for {
		if _, err := s.Recv(); err != nil {
			return err
		}
		select {
		case at := <-sent:
			if c.name == urgent {
				c.node.roundTrip.Observe(time.Since(at).Seconds())
			}
		default:
			return status.Error(codes.Internal, "the node acknowledges more batches than were sent")
		}
	}
}

const (
	maxBatch    = 1 << 20  // bytes of messages in a batch, unless a single message is longer
	entriesRoom = 64 << 20 // bytes of messages with entries that wait for one node
	urgentRoom  = 4 << 20  // bytes of urgent messages that wait for one node

	// overhead is roughly the memory that a waiting message takes in addition to its bytes.
	overhead = 128

	// tooLate is the longest time that a message waits for a connection. Raft makes progress with later
	// messages, and an old message would only delay them.
	tooLate = 5 * time.Second
)

// ends are the members at both ends of a stream.
type ends struct{ from, to uint64 }

// waiting is a message that is not sent yet.
type waiting struct {
	ends
	message wire.Part
	since   time.Time
}

func (w *waiting) size() int { return w.message.Bytes + overhead }

// queue has the messages that wait for one connection. It is safe for concurrent use.
type queue struct {
	room int // bytes

	mu    sync.Mutex
	all   []waiting
	bytes int
	more  chan struct{} // has an element after messages were added
}

func newQueue(room int) *queue { return &queue{room: room, more: make(chan struct{}, 1)} }

// put adds a message, and reports whether there was room.
func (q *queue) put(w waiting) bool {
	q.mu.Lock()
	full := q.bytes+w.size() > q.room
	if !full {
		q.all = append(q.all, w)
		q.bytes += w.size()
	}
	q.mu.Unlock()
	if full {
		return false
	}
	select {
	case q.more <- struct{}{}:
	default:
	}
	return true
}

// wait waits for a message, and returns its ends. It returns false once ctx is done.
func (q *queue) wait(ctx context.Context) (ends, bool) {
	for {
		q.mu.Lock()
		if len(q.all) > 0 {
			e := q.all[0].ends
			q.mu.Unlock()
			return e, ctx.Err() == nil
		}
		q.mu.Unlock()
		select {
		case <-q.more:
		case <-ctx.Done():
			return ends{}, false
		}
	}
}

// expire removes the messages at the front of the queue that were added before `oldest`, and returns
// their number.
func (q *queue) expire(oldest time.Time) (late int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.all) > 0 && q.all[0].since.Before(oldest) {
		q.bytes -= q.all[0].size()
		q.all[0] = waiting{}
		q.all = q.all[1:]
		late++
	}
	return late
}

// take removes the first messages between the same members, up to about maxBatch bytes. It drops
// messages that were added before `oldest`, and returns the number of dropped messages as `late`.
func (q *queue) take(between ends, oldest time.Time) (batch wire.Parts, size, late int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for ; n < len(q.all); n++ {
		w := &q.all[n]
		if w.since.Before(oldest) {
			late++
		} else if w.ends != between || len(batch) > 0 && size+w.message.Bytes > maxBatch {
			break
		} else {
			size += w.message.Bytes
			batch = append(batch, w.message)
		}
		q.bytes -= w.size()
		*w = waiting{}
	}
	q.all = q.all[n:]
	if len(q.all) == 0 {
		q.all = nil // releases the array, since append would not use its front again
	}
	return batch, size, late
}
