package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/freshet-io/freshet/internal/adapter/peer/wire"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/marks"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/usage"
	"github.com/freshet-io/freshet/internal/core/watermark"
)

// patience is how long a test waits for an event that should occur at once.
const patience = 20 * time.Second

var secretOnce = sync.OnceValues(func() (*Secret, error) { return ParseSecret("a secret for all tests") })

func secret(t testing.TB) *Secret {
	t.Helper()
	s, err := secretOnce()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// heartbeat returns a message without entries.
func heartbeat(t testing.TB, from, to, commit uint64) member.Message {
	t.Helper()
	return message(t, &raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: &from, To: &to, Term: proto.Uint64(1), Commit: &commit,
	})
}

// appended returns a message with one entry.
func appended(t testing.TB, from, to, index uint64, data []byte) member.Message {
	t.Helper()
	return message(t, &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: &from, To: &to, Term: proto.Uint64(1), LogTerm: proto.Uint64(1),
		Index:   proto.Uint64(index - 1),
		Entries: []*raftpb.Entry{{Index: &index, Term: proto.Uint64(1), Data: data}},
	})
}

func message(t testing.TB, m *raftpb.Message) member.Message {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := replica.ParseMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	return member.Message{Message: parsed, Sent: 17, Applied: 5, Short: true}
}

// handler gives the answers that a test sets.
type handler struct {
	received chan member.Message // may be nil
	push     error
	write    error
	outcome  outcome.Outcome
	pushed   chan []byte
	wrote    chan *entry.Entry
	copied   string // what a file of the copy has
	pinned   chan uint64
}

func (h *handler) Copy(_ context.Context, node string, whole bool) ([]CopiedFile, error) {
	if node != "b" {
		return nil, fmt.Errorf("node %s wants a copy", node)
	}
	if !whole {
		return make([]CopiedFile, 2*filesAtOnce+1), nil
	}
	return []CopiedFile{{"tsdb/x", 1}, {"y", 1 << 40}}, nil
}

func (h *handler) Fetch(node, name string) (io.ReadCloser, error) {
	if node != "b" || name != "tsdb/x" {
		return nil, fmt.Errorf("node %s has no file %s", node, name)
	}
	return io.NopCloser(strings.NewReader(h.copied)), nil
}

func (h *handler) Pin(node string, from uint64) error {
	if h.pinned != nil {
		h.pinned <- from
	}
	return h.push
}

func (h *handler) Receive(m member.Message) {
	if h.received != nil {
		h.received <- m
	}
}

func (h *handler) Push(_ context.Context, group uint64, push []byte) error {
	if h.pushed != nil {
		h.pushed <- push
	}
	return h.push
}

func (h *handler) Write(_ context.Context, group uint64, e *entry.Entry) (*outcome.Outcome, error) {
	if h.wrote != nil {
		h.wrote <- e
	}
	return &h.outcome, h.write
}

var joined = Joined{
	Cluster: Cluster{1, 2}, Epoch: 3, Group: 0, Founder: 4, Index: 5, Voters: []uint64{4, 6},
	Nodes: map[string]uint64{"a": 4},
}

func (h *handler) Join(_ context.Context, j Join) (Joined, error) {
	if j.Name != "c" || j.Member != 99 || j.Format != 1 || j.Semantics != 2 {
		return Joined{}, fmt.Errorf("%+v joins", j)
	}
	return joined, nil
}

func (h *handler) Change(_ context.Context, c Change) error {
	return fmt.Errorf("change %d of %s for %v: %w", c.Kind, c.Node, c.Lasts, replica.ErrNotLeader)
}

var leads = Leader{Name: "a", Address: "host:1", Term: 7, Cluster: Cluster{1}, Epoch: 1,
	Self: Brief{Ready: true, Applied: 9, Lag: 0.25, HTTP: "http://host:7125", Version: "v1"}}

func (h *handler) Leader(context.Context) Leader { return leads }

var well = Status{Name: "a", Member: 1, Ready: true, Applied: 2, Committed: 3, Lag: 0.5, Clock: -4, Version: "v1",
	Damage:     &Damage{"its log", 5},
	Leaderless: 1.5, LeaderlessSum: 7, LogBytes: 1 << 40,
	LogPins: []string{"a/raw", "b/10s"}, LogAppend: 0.125, Marks: []marks.Mark{{Index: 64, Hash: 1 << 63}, {Index: 128}},
	Settings: map[string]string{"limits": "0123456789abcdef"}, Leader: "b",
	Report: &Report{Version: "v1", Bytes: 1 << 33, Samples: 5, Oldest: 61.5},
	Fill:   &Fill{From: "a", Bytes: 1 << 34, OfBytes: 1 << 35, Seconds: 8.5, ETA: -1, Failures: 2, Error: "disk"},

	LogBase: 7, Epoch: 3, MissingBlocks: 5, Disk: &Disk{Free: 1 << 31, Size: 1 << 40, MinFree: 1 << 32}}

func (h *handler) Status(context.Context) Status { return well }

var reported = map[string]usage.Use{"x": {Samples: 7, Series: 5, New: 1, Metrics: map[string]int{"m": 4}}, "y": {}}

var shared = usage.Answer{
	Others: map[string]usage.Use{"x": {Samples: 9, Series: 20, Metrics: map[string]int{"m": 3}}, "y": {}},
	Bounds: map[string]usage.Bounds{"x": {Series: 1, MetricSeries: 2, NewSeries: 3}}, Whole: true,
}

// sentBack says since when a node has refused requests.
var sentBack = map[string]watermark.Refusal{"x": {Since: 7000, Last: 5}}

// heard is what collectors told about their windows.
var heard = []Heard{{7, 1_700_000_000_000, 2 * time.Second}, {8, 0, 0}}

func (h *handler) Share(_ context.Context, from string, x Shared) (ShareAnswer, error) {
	want := Shared{Process: 99, Uses: reported, Delivered: x.Delivered}
	if from == "host-1" {
		want.Books, want.Stages = &books, stages
	} else {
		want.Refusals = sentBack
	}
	if !reflect.DeepEqual(x, want) {
		return ShareAnswer{}, fmt.Errorf("%s reports %+v with the books %+v", from, x, x.Books)
	}
	return ShareAnswer{shared, heard}, h.push
}

// stages are the figures of the stages of the collector host-1.
var stages = []stage.Stats{
	{Stage: stage.Read, Samples: 9,
		Spent: stage.Histogram{Count: 7, Sum: 0.5, Zero: 2, Buckets: map[int]int64{-31: 4, 2: 1}},
		Age:   stage.Histogram{Buckets: map[int]int64{}}},
	{Stage: stage.Parse, Input: stage.OTLP, Samples: 1, Spent: stage.Histogram{Buckets: map[int]int64{}},
		Age: stage.Histogram{Buckets: map[int]int64{}}},
}

// books are the books of the collector host-1.
var books = ledger.Claim{Producer: 7, Started: 1_795_228_020_000, Boundary: 1_795_228_030_000, Final: true,
	Tenants: map[string]ledger.Tenant{"shop": {
		Samples: ledger.Samples{Received: 9, Refused: map[string]uint64{"rule": 2}, Malformed: map[string]uint64{},
			Late: map[string]uint64{}, Unsent: map[string]uint64{}, Discarded: map[string]uint64{}, HandedOver: 7},
		Clients: map[string]float64{"packets_sent": 3},
	}}}

func (h *handler) Figures(_ context.Context, of Figures, tenant string) ([]byte, error) {
	if of != Limits {
		return nil, errors.New("the figures are not known yet")
	}
	return []byte(`{"tenant":"` + tenant + `"}`), nil
}

// process is a node or a collector of a test.
type process struct {
	*Peers
	handler  *handler
	server   *Server
	registry *prometheus.Registry
	address  string
	said     chan struct{} // signals that the server logged something
	stop     func()        // ends its server
	end      func()        // ends its connections
}

func logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// told is a log handler that signals each record.
type told struct {
	slog.Handler
	said chan<- struct{}
}

func (*told) Enabled(context.Context, slog.Level) bool { return true }

func (l *told) Handle(context.Context, slog.Record) error {
	select {
	case l.said <- struct{}{}:
	default:
	}
	return nil
}

func listen(t testing.TB, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// mostConnections is how many connections a node of a test has at most.
const mostConnections = 20

// serve starts the server of a node.
func serve(t testing.TB, p *process, c *Credentials, self func() Self, l net.Listener) {
	t.Helper()
	p.registry, p.address = prometheus.NewRegistry(), l.Addr().String()
	p.said = make(chan struct{}, 1)
	p.server = NewServer(ServerOptions{
		Credentials: c, Self: self, Handler: p.handler, Registry: p.registry, Connections: mostConnections,
		Logger: slog.New(&told{logger().Handler(), p.said}),
		Member: func(node string) (uint64, bool) { m, known := members[node]; return m, known },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.server.Run(ctx, l) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(p.stop)
}

var members = map[string]uint64{"a": 1, "b": 2, "c": 3}

func selfOf(name string) Self { return Self{Cluster: Cluster{1}, Epoch: 1, Member: members[name]} }

// connect starts the connections of a process.
func connect(t testing.TB, p *process, o Options) {
	t.Helper()
	o.Registry, o.Logger = prometheus.NewRegistry(), logger()
	peers, err := NewPeers(o)
	if err != nil {
		t.Fatal(err)
	}
	p.Peers = peers
	peers.Route(members)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		peers.Run(ctx)
		close(done)
	}()
	p.end = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(p.end)
}

func nodeCredentials(t testing.TB, s *Secret, name string) *Credentials {
	t.Helper()
	c, err := s.Node(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// nodes starts a cluster.
func nodes(t testing.TB, names ...string) map[string]*process {
	t.Helper()
	all, addresses := map[string]*process{}, map[string]string{}
	for _, name := range names {
		p := &process{handler: &handler{received: make(chan member.Message, 1000)}}
		serve(t, p, nodeCredentials(t, secret(t), name), func() Self { return selfOf(name) }, listen(t, "127.0.0.1:0"))
		all[name], addresses[name] = p, p.address
	}
	for _, name := range names {
		connect(t, all[name], Options{
			Name: name, Credentials: nodeCredentials(t, secret(t), name), Nodes: addresses,
			Self: func() Self { return selfOf(name) },
		})
	}
	return all
}

func next[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case x := <-from:
		return x
	case <-time.After(patience):
		t.Fatal("no message arrived")
		panic("unreachable")
	}
}

// awaitHealth waits until the health of a node satisfies `want`.
func awaitHealth(t testing.TB, p *Peers, node string, want func(Health) bool) Health {
	t.Helper()
	for {
		all, changed := p.Health()
		for _, h := range all {
			if h.Node == node && want(h) {
				return h
			}
		}
		select {
		case <-changed:
		case <-time.After(patience):
			t.Fatalf("the health of node %s did not become as wanted; all nodes: %+v", node, all)
		}
	}
}

func isConnected(h Health) bool { return h.Connected }

// Each of three nodes sends to the other two at once. All messages arrive once and in order.
func TestMessagesComeInOrder(t *testing.T) {
	const each = 300
	all := nodes(t, "a", "b", "c")
	var wg sync.WaitGroup
	for from, p := range all {
		wg.Go(func() {
			for i := range uint64(each) {
				for to := range all {
					if to != from {
						p.Send([]member.Message{
							heartbeat(t, members[from], members[to], i+1), appended(t, members[from], members[to], i+1, []byte("data")),
						})
					}
				}
			}
		})
	}
	wg.Wait()
	for name, p := range all {
		last := map[string]uint64{}
		for range 2 * 2 * each {
			m := next(t, p.handler.received)
			var body raftpb.Message
			b, _ := m.Append(nil)
			knows := entry.Version{Format: member.Format, Semantics: member.Semantics}
			if err := proto.Unmarshal(b, &body); err != nil || m.Sent != 17 || m.Applied != 5 || m.Knows != knows || !m.Short {
				t.Fatalf("the message has Sent = %d, Applied = %d, Knows = %v and Short = %v, want 17, 5, %v and true; error %v",
					m.Sent, m.Applied, m.Knows, m.Short, knows, err)
			}
			number := body.GetCommit()
			if !m.Urgent {
				number = body.GetIndex() + 1
			}
			key := fmt.Sprint(m.From, m.Urgent)
			if number != last[key]+1 {
				t.Fatalf("node %s got message %d of member %d after message %d", name, number, m.From, last[key])
			}
			last[key] = number
		}
		if n := testutil.ToFloat64(p.server.metrics.receivedMessages.WithLabelValues("a", urgent)); name != "a" && n != each {
			t.Errorf("%v urgent messages of node a are counted, want %d", n, each)
		}
	}
	awaitHealth(t, all["a"].Peers, "b", isConnected)
	all["a"].end()
	if n := testutil.ToFloat64(all["a"].Peers.metrics.sentMessages.WithLabelValues("b", entries)); n != each {
		t.Errorf("%v messages to node b are counted, want %d", n, each)
	}
	if n := testutil.CollectAndCount(all["a"].Peers.metrics.roundTrip); n != 2 {
		t.Errorf("the metric of round trips has %d nodes, want 2", n)
	}
}

// If a node comes back at the same address, the others connect again, and messages reach it.
func TestACutConnectionIsDialledAgain(t *testing.T) {
	all := nodes(t, "a", "b")
	a, b := all["a"], all["b"]
	a.Send([]member.Message{heartbeat(t, 1, 2, 1)})
	next(t, b.handler.received)
	awaitHealth(t, a.Peers, "b", isConnected) // both connections
	before := testutil.ToFloat64(a.Peers.metrics.dials.WithLabelValues("b", urgent))
	b.stop()
	h := awaitHealth(t, a.Peers, "b", func(h Health) bool { return !h.Connected })
	if h.Since.IsZero() || h.Error == "" {
		t.Errorf("the health of a node that has ended is %+v, want a time and an error", h)
	}
	serve(t, b, nodeCredentials(t, secret(t), "b"), func() Self { return selfOf("b") }, listen(t, b.address))
	awaitHealth(t, a.Peers, "b", isConnected)
	a.Send([]member.Message{heartbeat(t, 1, 2, 2), appended(t, 1, 2, 1, nil)})
	next(t, b.handler.received)
	next(t, b.handler.received)
	if after := testutil.ToFloat64(a.Peers.metrics.dials.WithLabelValues("b", urgent)); after <= before {
		t.Errorf("after the node came back, %v dials are counted, want more than the earlier %v", after, before)
	}
}

// late is a listener of a busy node: it takes a second to read the first bytes of a connection, and more.
type late struct{ net.Listener }

func (l late) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &lateConn{Conn: c, after: time.After(redial + redial/2)}, err
}

type lateConn struct {
	net.Conn
	once  sync.Once
	after <-chan time.Time
}

func (c *lateConn) Read(b []byte) (int, error) {
	c.once.Do(func() { <-c.after })
	return c.Conn.Read(b)
}

// A node that is so busy that a handshake takes longer than the longest pause between two dials is connected all the
// same.
func TestABusyNodeIsConnected(t *testing.T) {
	b := &process{handler: &handler{received: make(chan member.Message, 1)}}
	serve(t, b, nodeCredentials(t, secret(t), "b"), func() Self { return selfOf("b") }, late{listen(t, "127.0.0.1:0")})
	a := &process{}
	connect(t, a, Options{Name: "a", Credentials: nodeCredentials(t, secret(t), "a"),
		Self: func() Self { return selfOf("a") }, Nodes: map[string]string{"b": b.address}})
	awaitHealth(t, a.Peers, "b", isConnected)
}

// The queue for a node that is down is bounded. Send does not block.
func TestAFullBufferDrops(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	l.Close() // nothing listens at the address any more
	p := &process{}
	connect(t, p, Options{Name: "a", Credentials: nodeCredentials(t, secret(t), "a"),
		Self: func() Self { return selfOf("a") }, Nodes: map[string]string{"b": l.Addr().String()}})
	big := appended(t, 1, 2, 1, make([]byte, 1<<20))
	for range 70 {
		p.Send([]member.Message{big, heartbeat(t, 1, 3, 1)})
	}
	m := p.Peers.metrics.dropped
	if n := testutil.ToFloat64(m.WithLabelValues("b", entries, droppedFull)); n != 7 {
		t.Errorf("%v of 70 messages of 1 MiB were dropped, want 7, as there is room for 63", n)
	}
	if n := testutil.ToFloat64(m.WithLabelValues("", urgent, droppedUnknown)); n != 70 {
		t.Errorf("%v messages to an unknown member were dropped, want 70", n)
	}
}

// A message that has waited for too long is not sent, and a batch ends where the members change.
func TestQueue(t *testing.T) {
	q, start := newQueue(1<<20), time.Unix(100, 0)
	for i, to := range []uint64{2, 2, 2, 3} {
		q.put(waiting{ends{1, to}, wire.Part{Body: [][]byte{{byte(i)}}, Bytes: 1}, start.Add(time.Duration(i) * time.Second)})
	}
	if e, more := q.wait(t.Context()); !more || e != (ends{1, 2}) {
		t.Errorf("the ends of the first message are %+v, want {1 2}; the queue is open: %t", e, more)
	}
	got, size, late := q.take(ends{1, 2}, start.Add(time.Second))
	if len(got) != 2 || size == 0 || late != 1 {
		t.Errorf("the batch has %d messages in %d bytes, and %d were late; want 2 messages, 1 late", len(got), size, late)
	}
	if got, _, _ := q.take(ends{1, 2}, start); len(got) != 0 {
		t.Error("a message for another member is in the batch")
	}
	if got, _, _ := q.take(ends{1, 3}, start); len(got) != 1 || q.bytes != 0 {
		t.Errorf("the batch has %d messages, want 1; %d bytes remain, want 0", len(got), q.bytes)
	}
}

// A node refuses a message of another member. The messages after it arrive nevertheless.
func TestARefusalDoesNotEndAConnection(t *testing.T) {
	t.Parallel() // it waits for tooLate
	all := nodes(t, "a", "b")
	all["a"].Send([]member.Message{heartbeat(t, 3, 2, 1)})
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for patient := time.After(patience); ; {
		select {
		case <-all["b"].handler.received:
			if n := refusals(all["b"], refusedMember); n == 0 {
				t.Error("no message was refused, so this test shows nothing")
			}
			return
		case <-again.C:
			all["a"].Send([]member.Message{heartbeat(t, 1, 2, 1)})
		case <-patient:
			t.Fatal("no message arrived")
		}
	}
}

// If a node refuses the stream of the first message, the queue drops that message after tooLate, and
// sends the next ones. Earlier, such a message stayed at the front of the queue for ever.
func TestARefusedMessageHoldsUpNothing(t *testing.T) {
	q, start := newQueue(1<<20), time.Unix(100, 0)
	for i, from := range []uint64{9, 9, 1} {
		q.put(waiting{ends{from, 2}, wire.Part{Body: [][]byte{{1}}, Bytes: 1}, start.Add(time.Duration(i) * time.Second)})
	}
	if late := q.expire(start); late != 0 {
		t.Errorf("%d messages are late at the start, want 0", late)
	}
	if late := q.expire(start.Add(1500 * time.Millisecond)); late != 2 {
		t.Errorf("%d messages are late, want 2", late)
	}
	if e, _ := q.wait(t.Context()); e != (ends{1, 2}) {
		t.Errorf("the ends of the first message are %+v, want {1 2}", e)
	}
	if got, _, _ := q.take(ends{1, 2}, start); len(got) != 1 || q.bytes != 0 {
		t.Errorf("the batch has %d messages, want 1; %d bytes remain, want 0", len(got), q.bytes)
	}
}

// aPush returns a valid push.
func aPush(t testing.TB) []byte {
	t.Helper()
	key := series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", "hits"))
	b := batch.Begin(nil, &batch.Header{
		Tenant: []byte("default"), Shard: series.Shard("default", key), Producer: 1, Incarnation: 2, Sequence: 3,
		Second: 1_795_228_020,
	})
	b = (&batch.Increment{Key: key, Samples: 2, Value: 3}).Append(b, 1_795_228_020)
	batch.End(b, 1)
	push, err := member.PushOf([]batch.Batch{{Bytes: b}})
	if err != nil {
		t.Fatal(err)
	}
	return push
}

func anEntry() *entry.Entry {
	return &entry.Entry{Kind: entry.KindRequest, Request: entry.Request{
		Tenant: "default", Form: entry.RemoteWrite1, Body: []byte("x"),
	}}
}

// Errors that callers act on are the same errors after a call to another node.
func TestErrorsOfCallsArrive(t *testing.T) {
	all := nodes(t, "a", "b")
	h := all["b"].handler
	full := &batch.FullError{
		Samples: map[string]uint64{"x": 3, "y": 4}, Cause: fmt.Errorf("the disk is full: %w", batch.ErrRefused),
	}
	for _, sent := range []error{
		nil, full, &batch.FullError{Samples: map[string]uint64{"x": 1}}, replica.ErrNotLeader,
		&NotLeaderError{Leader: "c", Address: "host:1"}, fmt.Errorf("a: %w", member.ErrLost), member.ErrFull,
		member.ErrMoved, fmt.Errorf("%w: the disk", member.ErrUnknown), replica.ErrFull, batch.ErrUnsynced,
		batch.ErrRefused, errors.New("another"),
	} {
		h.push, h.write = sent, sent
		_, err := all["a"].Write(t.Context(), "b", 0, anEntry())
		for _, got := range []error{all["a"].Push(t.Context(), "b", 0, aPush(t)), err} {
			if (got == nil) != (sent == nil) || got != nil && got.Error() != sent.Error() {
				t.Errorf("sent %v, got %v", sent, got)
			}
			for _, s := range sentinels {
				if errors.Is(sent, s.err) != errors.Is(got, s.err) {
					t.Errorf("sent %v, got %v; only one of them is %v", sent, got, s.err)
				}
			}
			if errors.Is(sent, member.ErrUnknown) != errors.Is(got, member.ErrUnknown) {
				t.Errorf("sent %v, got %v; only one of them is member.ErrUnknown", sent, got)
			}
			var x, y *batch.FullError
			if errors.As(sent, &x) && (!errors.As(got, &y) || !reflect.DeepEqual(x.Samples, y.Samples) ||
				(x.Cause == nil) != (y.Cause == nil)) {
				t.Errorf("sent %v, got %+v", sent, got)
			}
			var from, to *NotLeaderError
			if errors.As(sent, &from) && (!errors.As(got, &to) || *from != *to) {
				t.Errorf("sent %v, got %+v", sent, got)
			}
		}
	}
	all["b"].stop()
	err := all["a"].Push(t.Context(), "b", 0, aPush(t))
	if !errors.Is(err, member.ErrLost) || !errors.Is(err, ErrUnreachable) {
		t.Errorf("a push to a node that has ended returned %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	mine := errors.New("mine")
	cancel(mine)
	if err := all["a"].Push(ctx, "b", 0, aPush(t)); !errors.Is(err, mine) || errors.Is(err, member.ErrLost) {
		t.Errorf("a push whose caller gave up returned %v", err)
	}
}

func someEvents(titles ...string) *entry.Entry {
	e := &entry.Entry{Kind: entry.KindEvents, Events: entry.Events{Tenant: "default"}}
	for _, title := range titles {
		e.Events.List = e.Events.List.Append((&event.Event{Title: title}).AppendDated(nil))
	}
	return e
}

func TestCalls(t *testing.T) {
	all := nodes(t, "a", "b")
	a, h := all["a"], all["b"].handler
	h.pushed, h.wrote = make(chan []byte, 1), make(chan *entry.Entry, 1)
	h.outcome.NotKept, h.outcome.First = 7, outcome.Example{Series: "up", Cause: "the cause"}
	h.outcome.Refused[outcome.TooOld].Samples = 9
	if err := a.Push(t.Context(), "b", 0, aPush(t)); err != nil || string(<-h.pushed) != string(aPush(t)) {
		t.Errorf("a push returned %v", err)
	}
	e := anEntry()
	o, err := a.Write(t.Context(), "b", 0, e)
	if err != nil || *o != h.outcome || e.Shape != 0 {
		t.Errorf("a write returned %+v, %v", o, err)
	}
	if got := <-h.wrote; got.Request.Tenant != "default" || string(got.Request.Body) != "x" {
		t.Errorf("wrote %+v", got)
	}
	if l, err := a.Leader(t.Context(), "b"); err != nil || l != leads {
		t.Errorf("Leader returned %+v, %v; want %+v", l, err, leads)
	}
	self := a.Self
	a.Self = func() Self { return Self{Cluster: Cluster{2}, Member: 1} }
	_, err = a.Leader(t.Context(), "b")
	if l, anyErr := a.AnyLeader(t.Context(), "b"); err == nil || anyErr != nil || l != leads {
		t.Errorf("in another cluster, Leader returned %v, and AnyLeader %+v, %v; want an error, and %+v", err, l, anyErr,
			leads)
	}
	a.Self = self
	if s, err := a.Status(t.Context(), "b"); err != nil || !reflect.DeepEqual(s, well) {
		t.Errorf("Status returned %+v, %v; want %+v", s, err, well)
	}
	// A node is asked for its books, and so its own are not taken. A collector refuses no requests.
	report := Shared{99, reported, &books, stages, &Delivered{7, 1_700_000_000_000, true}, sentBack}
	x, err := a.Share(t.Context(), "b", report)
	if err != nil || !reflect.DeepEqual(x, ShareAnswer{shared, heard}) {
		t.Errorf("the answer to a report is %+v, %v", x, err)
	}
	if text, err := a.Figures(t.Context(), "b", Limits, "shop"); err != nil || string(text) != `{"tenant":"shop"}` {
		t.Errorf("%s, %v", text, err)
	}
	err = a.Change(t.Context(), "b", Change{Drain, "c", time.Hour})
	if !errors.Is(err, replica.ErrNotLeader) || !strings.Contains(err.Error(), "change 3 of c for 1h0m0s") {
		t.Errorf("Change returned %v", err)
	}
	_, err = a.Figures(t.Context(), "b", Ledger, "shop")
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "not known yet") {
		t.Errorf("asked for unknown figures, got error %v", err)
	}
	if _, err := a.Leader(t.Context(), "z"); err == nil {
		t.Error("a call to an unknown node succeeded")
	}
	c := &process{}
	connect(t, c, Options{Name: "c", Credentials: nodeCredentials(t, secret(t), "c"), Self: func() Self { return Self{} },
		Nodes: map[string]string{"b": all["b"].address}})
	j, err := c.Join(t.Context(), "b", Join{Name: "c", Member: 99, Format: 1, Semantics: 2})
	if err != nil || !reflect.DeepEqual(j, joined) {
		t.Errorf("Join returned %+v, %v; want %+v", j, err, joined)
	}
	// Malformed input is refused before the handler gets it.
	if err := a.Push(t.Context(), "b", 0, []byte("no push")); !errors.Is(err, batch.ErrRefused) {
		t.Errorf("a malformed push returned %v", err)
	}
	other := &entry.Entry{Kind: entry.KindVersion, Version: entry.Version{Format: 9}}
	if _, err := a.Write(t.Context(), "b", 0, other); err == nil || !strings.Contains(err.Error(), "only requests") {
		t.Errorf("a write of an entry of the kind version returned %v", err)
	}
	long := someEvents(strings.Repeat("x", event.MaxTitle+1))
	if _, err := a.Write(t.Context(), "b", 0, long); err == nil || !strings.Contains(err.Error(), "its title has") {
		t.Errorf("a write of an event with a long title returned %v", err)
	}
	if n := testutil.ToFloat64(all["b"].server.metrics.refused.WithLabelValues(refusedMalformed)); n != 3 {
		t.Errorf("%v refusals are counted, want 3", n)
	}
}
