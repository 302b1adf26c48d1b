// Package client sends metrics from inside a service to Freshet, or to any other DogStatsD
// server.
//
//	c, err := client.New("127.0.0.1:8125")
//	...
//	defer c.Close()
//	c.Count("requests", 1, "route:/checkout", "code:200")
//	c.Timing("request.time", time.Since(start), "route:/checkout")
//
// The client aggregates values and sends them once a second: a count as one sum, a gauge as its last
// value, and a set as its distinct members. It sends timings, histograms and distributions with many
// values in one line. A call takes well below a microsecond, makes no system call and waits for no other
// goroutine. It allocates nothing if its series (kind, name and tags) is known. A call of a new series
// may wait for up to a millisecond, while idle series are removed from the table.
//
// Give the tags of a gauge in the same order everywhere. For the client, the same tags in another order
// are another series. The server treats the two as one series, and chance decides which of the two
// values comes last.
//
// # What happens to each call
//
// While the server cannot be reached, or does not read, values stay in the client and are aggregated
// further; nothing queues up. Afterwards counts arrive in full, but with the time of their arrival. The
// client repeats a packet only if the kernel refused it, so the server never counts a value twice. A
// packet that the kernel accepted counts as sent, although the client cannot know whether it arrives:
// a server that dies with datagrams in its queue loses them, and nobody notices losses of UDP on the
// network. On the loopback interface, the kernel reports at once that no server listens. To find that
// out, each flush over UDP to that interface begins with an empty line.
//
// Memory is bounded (Options.MaxSeries, MaxValues, MaxBytes). Beyond the bounds, the client folds
// counts, timings and sets of new series into one series per metric, with the tag
// client_overflow:true, and refuses new gauges, set members and events. If a series has more than
// MaxValues values in a flush, the client sends a random sample of the values with its rate, so that
// the server computes the right count. When there are many series, unused series make room for new
// ones. Stats counts each of these cases. The client also reports its losses to the server, as all
// DogStatsD clients do, under datadog.dogstatsd.client; `freshet ledger` shows them.
//
// # Names and tags
//
// The client replaces bytes that the protocol uses as separators by '_': in a name '|', ':' and line
// breaks, in a tag '|', ',' and line breaks, and in a set member '|' and line breaks. A call with such
// bytes is slower, and Stats counts it. Empty tags are left out. The client refuses an empty name, a
// value that is not finite, a negative count, and a line that does not fit into a packet.
package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure a client. The zero value suits most services.
type Options struct {
	Prefix    string   // put before every name; end it with a dot if you want one: "shop."
	Tags      []string // added to every line
	Container string   // id of this process's container, sent as the origin of every line; if empty, none is sent

	FlushInterval time.Duration // how long values are gathered; 0 means 1s, the length of a window in Freshet's collector
	// Longest datagram or frame; 0 means 1432 for UDP, which fits an Ethernet frame, and 8192 for
	// Unix sockets.
	PacketBytes int

	MaxSeries int // series held at a time, each about 300 bytes plus its text; 0 means 10,000
	MaxValues int // values or members that a series holds between two flushes; 0 means 4096
	MaxBytes  int // memory for values and members of all series; 0 means 8 MiB

	NoTelemetry bool // do not report the client's own counts

	// OnError is called with the reason when sending begins to fail, once for each failure. The sending
	// goroutine calls it, and sends nothing until it returns. OnError must not call Flush or Close.
	OnError func(error)
}

const (
	defaultInterval  = time.Second
	defaultUDPPacket = 1432
	defaultUDSPacket = 8192
	defaultSeries    = 10_000
	defaultValues    = 4096
	defaultBytes     = 8 << 20

	minPacket    = 512
	maxPacket    = 65_507 // payload of a UDP datagram over IPv4
	minInterval  = 10 * time.Millisecond
	maxEvents    = 256              // events and checks that may wait
	closeWait    = time.Second      // how long Close waits for unsent packets
	telemetryGap = 10 * time.Second // between reports of the client's own counts, as in other clients
)

// Client sends metrics. Its methods are safe for concurrent use. A nil *Client accepts
// everything and sends nothing.
type Client struct {
	options Options
	seed    uint64
	tags    string // added to a line with tags, from Options.Tags and Container
	tagless string // added to a line without tags

	table    atomic.Pointer[table]
	mu       sync.Mutex // held while the table changes
	overflow int        // number of overflow series in the table
	closed   atomic.Bool

	limits limits
	events events
	counts counts

	early    chan struct{} // asks for an early flush
	flushes  chan chan struct{}
	closing  chan struct{}   // Close closes it
	patience context.Context // ends when Close stops waiting
	giveUp   context.CancelFunc
	done     chan struct{} // closed when the client's goroutine has ended
	close    sync.Once
	closeErr error // final once done is closed
	lastErr  atomic.Pointer[error]
}

// Discard is a client that accepts all calls and sends nothing, for tests and for services whose
// metrics are turned off.
var Discard *Client

// New returns a client with the default options, sending to
//
//	host:port, udp://host:port  UDP; without a port, the port is 8125
//	unixgram:///path            a Unix datagram socket
//	unixstream:///path          a Unix stream socket, where each packet follows its length
//	unix:///path, /path         a Unix datagram socket, or else a Unix stream socket
//
// If address is empty, the environment decides, as for other clients: DD_DOGSTATSD_URL, or
// DD_AGENT_HOST and DD_DOGSTATSD_PORT, or else 127.0.0.1:8125. No other variable is read.
//
// The server may start later. New starts one goroutine, which Close ends.
func New(address string) (*Client, error) { return NewWithOptions(address, Options{}) }

// NewWithOptions does the same as New, with options.
func NewWithOptions(address string, o Options) (*Client, error) {
	to, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	if err := o.complete(to.network); err != nil {
		return nil, fmt.Errorf("client to %s: %w", to, err)
	}
	return start(o, &socket{to: to, dial: to.dial}), nil
}

// complete fills in the defaults, and returns an error if an option is invalid.
func (o *Options) complete(network string) error {
	packet := defaultUDSPacket
	if network == udp {
		packet = defaultUDPPacket
	}
	setDefault(&o.FlushInterval, defaultInterval)
	setDefault(&o.PacketBytes, packet)
	setDefault(&o.MaxSeries, defaultSeries)
	setDefault(&o.MaxValues, defaultValues)
	setDefault(&o.MaxBytes, defaultBytes)
	switch {
	case o.FlushInterval < minInterval:
		return fmt.Errorf("option FlushInterval = %v: must be at least %v", o.FlushInterval, minInterval)
	case o.PacketBytes < minPacket || o.PacketBytes > maxPacket:
		return fmt.Errorf("option PacketBytes = %d: must be from %d to %d", o.PacketBytes, minPacket, maxPacket)
	case o.MaxSeries < 1 || o.MaxValues < 1 || o.MaxBytes < 1:
		return fmt.Errorf("options MaxSeries = %d, MaxValues = %d, MaxBytes = %d: none may be negative",
			o.MaxSeries, o.MaxValues, o.MaxBytes)
	case strings.ContainsAny(o.Prefix, notInNames) || strings.HasPrefix(o.Prefix, eventMark):
		return fmt.Errorf("option Prefix = %q: must hold no ':', '|' or line break, nor begin with %q", o.Prefix, eventMark)
	case strings.ContainsAny(o.Container, notInTags):
		return fmt.Errorf("option Container = %q: must hold no ',', '|' or line break", o.Container)
	}
	bytes := len(o.Prefix) + len(o.Container)
	for _, tag := range o.Tags {
		if tag == "" || strings.ContainsAny(tag, notInTags) {
			return fmt.Errorf("option Tags: %q: must not be empty, nor hold a ',', '|' or line break", tag)
		}
		bytes += 1 + len(tag)
	}
	if bytes > o.PacketBytes/2 {
		return fmt.Errorf("options Prefix, Tags and Container have %d bytes: together they may have at most half of "+
			"PacketBytes (%d)", bytes, o.PacketBytes)
	}
	return nil
}

func setDefault[T comparable](v *T, to T) {
	var none T
	if *v == none {
		*v = to
	}
}

// start returns a running client. The options must be complete.
func start(o Options, s *socket) *Client {
	c := &Client{
		options: o,
		seed:    rand.Uint64(),
		limits:  limits{values: o.MaxValues},
		early:   make(chan struct{}, 1),
		flushes: make(chan chan struct{}),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	c.patience, c.giveUp = context.WithCancel(context.Background())
	c.limits.room.Store(int64(o.MaxBytes))
	c.tags, c.tagless = constantTags(o)
	c.table.Store(newTable(minTable))
	f := newFlusher(c, s)
	go f.run()
	return c
}

// constantTags returns the text added to lines with tags, and the text added to lines without tags.
func constantTags(o Options) (tags, tagless string) {
	if joined := strings.Join(o.Tags, ","); joined != "" {
		tags, tagless = ","+joined, "|#"+joined
	}
	if o.Container != "" {
		origin := "|c:ci-" + o.Container
		tags, tagless = tags+origin, tagless+origin
	}
	return tags, tagless
}

// Count adds n to a counter. A counter never decreases, so a negative n is refused. Adding 0 makes the
// counter known to the server.
func (c *Client) Count(name string, n float64, tags ...string) {
	if c == nil || !c.accepts(count, n) {
		return
	}
	for {
		s := c.find(count, 1, name, tags)
		if s == nil || s.add(n) {
			return
		}
	}
}

// Gauge sets a gauge. Each flush sends the last value.
func (c *Client) Gauge(name string, value float64, tags ...string) {
	if c == nil || !c.accepts(gauge, value) {
		return
	}
	for {
		s := c.find(gauge, 1, name, tags)
		if s == nil || s.set(value) {
			return
		}
	}
}

// Timing records how long something took. It is sent in milliseconds.
func (c *Client) Timing(name string, d time.Duration, tags ...string) {
	c.record(timing, 1, name, milliseconds(d), tags)
}

// Histogram records a value of a distribution, such as a size.
func (c *Client) Histogram(name string, value float64, tags ...string) {
	c.record(histogram, 1, name, value, tags)
}

// Distribution does the same as Histogram. Other servers use this name for histograms that can be
// merged across hosts. Freshet treats both in the same way.
func (c *Client) Distribution(name string, value float64, tags ...string) {
	c.record(distribution, 1, name, value, tags)
}

// milliseconds returns d in milliseconds, rounded once.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (c *Client) record(k kind, rate float64, name string, value float64, tags []string) {
	if c == nil || !c.accepts(k, value) {
		return
	}
	for {
		s := c.find(k, rate, name, tags)
		if s == nil || s.record(value, &c.limits) {
			return
		}
	}
}

// Set adds a member to a set. The server counts the distinct members.
func (c *Client) Set(name, member string, tags ...string) {
	if c == nil {
		return
	}
	for {
		s := c.find(set, 1, name, tags)
		if s == nil || c.insert(s, member) {
			return
		}
	}
}

// insert returns true if the call is finished: the member is in the set, or was refused.
func (c *Client) insert(s *series, member string) bool {
	switch s.insert(member, c) {
	case inserted:
	case crowded:
		c.flushEarly()
	case full:
		c.flushEarly()
		c.counts.turnAway(tooMany, set)
	case malformed:
		c.counts.turnAway(refused, set)
	case gone:
		return false
	}
	return true
}

// accepts reports whether the server would accept the value.
func (c *Client) accepts(k kind, v float64) bool {
	if math.Abs(v) <= math.MaxFloat64 && (v >= 0 || k != count) { // false for NaN
		return true
	}
	c.counts.turnAway(refused, k)
	return false
}

func (c *Client) flushEarly() {
	select {
	case c.early <- struct{}{}:
	default:
	}
}

// Flush sends the values of all earlier calls, and returns when they are sent or ctx is done.
func (c *Client) Flush(ctx context.Context) error {
	if c == nil {
		return nil
	}
	flushed := make(chan struct{})
	select {
	case c.flushes <- flushed:
	case <-c.done:
		return errClosed
	case <-ctx.Done():
		return c.stuck("flush", ctx.Err())
	}
	select {
	case <-flushed:
		return nil
	case <-c.done: // Close has sent the values meanwhile
		return c.closeErr
	case <-ctx.Done():
		return c.stuck("flush", ctx.Err())
	}
}

var errClosed = errors.New("the client is closed")

// stuck wraps an error with the reason why nothing can be sent.
func (c *Client) stuck(doing string, err error) error {
	if last := c.lastErr.Load(); last != nil && *last != nil {
		return fmt.Errorf("%s: %w: %w", doing, err, *last)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Close sends all remaining values and ends the client. If the server does not accept everything within
// a second, Close drops the rest, and its error says how much. Later calls count as unsent.
func (c *Client) Close() error {
	if c == nil {
		return nil
	}
	c.close.Do(func() {
		time.AfterFunc(closeWait, c.giveUp)
		close(c.closing)
	})
	<-c.done
	return c.closeErr
}
