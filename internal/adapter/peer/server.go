package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/freshet-io/freshet/internal/adapter/peer/wire"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/replica"
)

const (
	// maxFrame bounds a message of gRPC. A batch has at most 1 MiB of messages, or a single message
	// with an entry of at most entry.MaxSize.
	maxFrame = entry.MaxSize + maxBatch

	// maxStreams bounds how many calls a connection has at one time.
	maxStreams = 256

	// window bounds the bytes of a stream, and of a connection, that wait to be read.
	window = 2 * maxBatch

	pingEvery   = 2 * time.Second // interval of pings on a quiet connection
	userTimeout = 5 * time.Second // time until unacknowledged bytes end a connection
	stopTimeout = 5 * time.Second // time that calls in progress get when the server ends
)

// ServerOptions are the parts of a Server. All but Member are required.
type ServerOptions struct {
	Credentials *Credentials
	Self        func() Self // called at each call
	Handler     Handler
	// Member returns the member of a node, if it is known. Other members with the name of the node are
	// refused.
	Member func(node string) (member uint64, known bool)
	// Outdated is called when a node of the same cluster is in a later recovery epoch than this one. It may be nil.
	Outdated    func(epoch uint64)
	Connections int // the most open connections: see door
	Registry    prometheus.Registerer
	Logger      *slog.Logger
}

// Server answers other nodes, and collectors.
type Server struct {
	wire.UnimplementedPeerServer
	ServerOptions

	metrics *metrics
	grpc    *grpc.Server
	door    door

	pushers pushers

	mu      sync.Mutex
	stopped bool
	calls   sync.WaitGroup
}

// NewServer returns a server that does not listen yet.
func NewServer(o ServerOptions) *Server {
	s := &Server{ServerOptions: o, metrics: serverMetrics(o.Registry)}
	anyone := func(Identity) error { return nil }
	s.grpc = grpc.NewServer(
		grpc.Creds(&serverTLS{credentials.NewTLS(o.Credentials.config(anyone)), s}),
		grpc.MaxRecvMsgSize(maxFrame), grpc.MaxSendMsgSize(maxFrame), grpc.MaxConcurrentStreams(maxStreams),
		grpc.ForceServerCodecV2(wire.Codec),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(2*window),
		grpc.WaitForHandlers(true), grpc.ConnectionTimeout(userTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: userTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
	)
	wire.RegisterPeerServer(s.grpc, s)
	return s
}

// Run answers until ctx is done, and closes the listener. Calls in progress then have 5 s to end.
// After that, streams of messages are closed.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	s.door.Listener, s.door.server = l, s
	failed := make(chan error, 1)
	go func() { failed <- s.grpc.Serve(&s.door) }()
	select {
	case err := <-failed:
		s.grpc.Stop()
		return fmt.Errorf("listen for other nodes on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	_ = l.Close() // gRPC closes it again
	ended := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(ended)
	}()
	patience := time.NewTimer(stopTimeout)
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
	}
	s.grpc.Stop()
	<-failed
	<-ended // gRPC has ended the contexts of the calls
	return nil
}

// serverTLS counts failed handshakes, and records which process is at the other end of a connection.
type serverTLS struct {
	credentials.TransportCredentials
	server *Server
}

// authenticated is the AuthInfo of a connection.
type authenticated struct {
	credentials.AuthInfo
	Identity
}

// errNoRoom ends the handshake on a connection that made room for another one.
var errNoRoom = errors.New("the connection made room for another one")

// ServerHandshake is called for each new connection.
func (c *serverTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	door := &c.server.door
	under := &held{Conn: raw}
	conn, info, err := c.TransportCredentials.ServerHandshake(under)
	if !door.entered(raw, err != nil) {
		return nil, nil, errNoRoom
	}
	if err != nil {
		reason := refusedHandshake
		if bad := (certificateError{}); errors.As(err, &bad) {
			reason = refusedCert
		}
		if !errors.Is(err, io.EOF) { // a program that only checks the port sends nothing
			c.server.refuse(reason, fmt.Errorf("connection from %s: %w", raw.RemoteAddr(), explained(err)))
		}
		return nil, nil, err
	}
	// The handshake has verified the certificate.
	who, err := identityOf(info.(credentials.TLSInfo).State.PeerCertificates)
	if err != nil {
		door.left()
		return nil, nil, err
	}
	return &visitor{&whole{conn, under}, sync.OnceFunc(door.left)}, authenticated{info, who}, nil
}

// Clone is unused by servers.
func (c *serverTLS) Clone() credentials.TransportCredentials {
	return &serverTLS{c.TransportCredentials.Clone(), c.server}
}

func callerOf(ctx context.Context) Identity {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.AuthInfo.(authenticated); ok {
			return a.Identity
		}
	}
	panic("BUG: a call without a certificate")
}

// refuse counts a refusal.
func (s *Server) refuse(reason string, err error) {
	s.metrics.refused.WithLabelValues(reason).Inc()
	s.Logger.Warn("another process is refused", "reason", reason, "error", err)
}

// refusal counts a refusal, and returns it as a status.
func (s *Server) refusal(code codes.Code, reason, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	s.refuse(reason, err)
	return status.Error(code, valid(err.Error()))
}

// valid returns the text as valid UTF-8, which protobuf requires.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// forCollectors are the methods that a collector may call. It may call Write only with events.
var forCollectors = map[string]bool{
	wire.Peer_Push_FullMethodName: true, wire.Peer_Leader_FullMethodName: true, wire.Peer_Share_FullMethodName: true,
	wire.Peer_Write_FullMethodName: true,
}

func (s *Server) permit(ctx context.Context, method string) error {
	if who := callerOf(ctx); who.Collector && !forCollectors[method] {
		return s.notPermitted(who, method)
	}
	return nil
}

func (s *Server) notPermitted(who Identity, what string) error {
	return s.refusal(codes.PermissionDenied, refusedPermission,
		"%s is a collector, and %s is for nodes; a node needs the secret of the cluster, not a push secret", who, what)
}

func (s *Server) unary(ctx context.Context, in any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := s.permit(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return nil, status.Error(codes.Unavailable, "this node is stopping")
	}
	s.calls.Add(1)
	s.mu.Unlock()
	defer s.calls.Done()
	return next(ctx, in)
}

func (s *Server) stream(srv any, in grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := s.permit(in.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(srv, in)
}

// greet checks a hello.
func (s *Server) greet(ctx context.Context, h *wire.Hello, knows knows) error {
	who, self := callerOf(ctx), s.Self()
	const bad = codes.FailedPrecondition
	switch theirs := clusterOf(h.GetCluster()); {
	case h == nil:
		return s.refusal(codes.InvalidArgument, refusedMalformed, "%s sent no hello", who)
	case h.GetLowest() > highestVersion || h.GetHighest() < lowestVersion || h.GetLowest() > h.GetHighest():
		return s.refusal(bad, refusedVersion, "%s supports versions %d to %d of the protocol between nodes, and this node "+
			"supports %d to %d; upgrade one release after the other", who, h.GetLowest(), h.GetHighest(), lowestVersion,
			highestVersion)
	case h.GetNode() != who.Name:
		return s.refusal(codes.PermissionDenied, refusedName, "%s says that it is %.80q", who, h.GetNode())
	case knows == knowsNothing && (len(h.GetCluster()) == 0 || self.Cluster == (Cluster{})):
		return nil
	case self.Cluster == (Cluster{}):
		return status.Errorf(codes.Unavailable, "this node has not joined its cluster yet") // not the fault of the caller
	case len(h.GetCluster()) != len(theirs) || theirs != self.Cluster || theirs == (Cluster{}):
		return s.refusal(bad, refusedCluster, "%s belongs to cluster %s, and this node to cluster %s; "+
			"see cluster.nodes in the configurations of both", who, theirs, self.Cluster)
	case !who.Collector && h.GetEpoch() != self.Epoch && knows != knowsNothing:
		if h.GetEpoch() > self.Epoch && s.Outdated != nil {
			s.Outdated(h.GetEpoch())
		}
		return s.refusal(bad, refusedEpoch, "%s has recovery epoch %d, and this node has %d; a node from before "+
			"a recovery must join again with an empty directory", who, h.GetEpoch(), self.Epoch)
	case h.GetGroup() != self.Group:
		return s.refusal(bad, refusedGroup, "%s calls group %d, but this node is in group %d", who, h.GetGroup(),
			self.Group)
	case knows == knowsMembers && h.GetTo() != self.Member:
		return s.refusal(bad, refusedMember, "%s calls member %d, but this node has member %d; "+
			"it has another data directory than before", who, h.GetTo(), self.Member)
	}
	return s.greetMember(who, h, knows)
}

// knows is the knowledge that the sender of a hello needs.
type knows uint8

const (
	knowsNothing knows = iota // either side may not know its cluster or the recovery epoch yet
	pushes                    // the cluster; a node that was removed or replaced hands over its last windows
	knowsCluster              // the cluster, of which the sender is a part
	knowsMembers              // the members of both sides
)

func (s *Server) greetMember(who Identity, h *wire.Hello, knows knows) error {
	if who.Collector || knows == pushes {
		return nil
	}
	is, known := uint64(0), false
	if s.Member != nil {
		is, known = s.Member(who.Name)
	}
	if known && is != h.GetFrom() || knows == knowsMembers && h.GetFrom() == 0 {
		return s.refusal(codes.FailedPrecondition, refusedMember, "%s sent member %d, but in the cluster this name has "+
			"member %d: the node was replaced or removed; to join again, it needs an empty directory", who, h.GetFrom(), is)
	}
	return nil
}

func clusterOf(b []byte) (c Cluster) {
	copy(c[:], b)
	return c
}

// Entries receives messages with entries, and the answers to such messages.
func (s *Server) Entries(in grpc.BidiStreamingServer[wire.Batch, wire.Ack]) error {
	return s.receive(entries, in)
}

// Urgent receives all other messages.
func (s *Server) Urgent(in grpc.BidiStreamingServer[wire.Batch, wire.Ack]) error {
	return s.receive(urgent, in)
}

func (s *Server) receive(connection string, in grpc.BidiStreamingServer[wire.Batch, wire.Ack]) error {
	first, err := in.Recv()
	if err != nil {
		return err
	}
	hello, who := first.GetHello(), callerOf(in.Context())
	if err := s.greet(in.Context(), hello, knowsMembers); err != nil {
		return err
	}
	ack := &wire.Ack{}
	if err := in.Send(ack); err != nil {
		return err
	}
	bytes := s.metrics.receivedBytes.WithLabelValues(who.Name, connection)
	messages := s.metrics.receivedMessages.WithLabelValues(who.Name, connection)
	for unacknowledged := 1; ; unacknowledged++ {
		b, err := in.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		// The node may have left the cluster, or joined another cluster, since the stream began.
		if self := s.Self(); self.Member != hello.GetTo() || self.Epoch != hello.GetEpoch() ||
			self.Cluster != clusterOf(hello.GetCluster()) {
			return s.greet(in.Context(), hello, knowsMembers)
		}
		all, err := readBatch(hello, b)
		if err != nil {
			reason := refusedMalformed
			if errors.Is(err, errForged) {
				reason = refusedForged
			}
			return s.refusal(codes.InvalidArgument, reason, "a message from %s: %w", who, err)
		}
		for i, m := range all {
			bytes.Add(float64(len(b.GetMessages()[i].GetBody())))
			s.Handler.Receive(m)
		}
		messages.Add(float64(len(all)))
		if unacknowledged == ackEvery {
			if err := in.Send(ack); err != nil {
				return err
			}
			unacknowledged = 0
		}
	}
}

var errForged = errors.New("it is from or for another member than its stream")

// readBatch parses the messages of a batch. All messages must be between the members of the hello.
func readBatch(hello *wire.Hello, b *wire.Batch) ([]member.Message, error) {
	all := make([]member.Message, 0, len(b.GetMessages()))
	knows := entry.Version{Format: hello.GetFormat(), Semantics: hello.GetSemantics()}
	for _, m := range b.GetMessages() {
		parsed, err := replica.ParseMessage(m.GetBody())
		if err != nil {
			return nil, err
		}
		if parsed.From != hello.GetFrom() || parsed.To != hello.GetTo() {
			return nil, fmt.Errorf("%w: from %d to %d, on a stream from %d to %d", errForged, parsed.From, parsed.To,
				hello.GetFrom(), hello.GetTo())
		}
		all = append(all, member.Message{Message: parsed, Sent: m.GetSent(), Applied: m.GetApplied(), Knows: knows,
			Short: m.GetShort()})
	}
	return all, nil
}

// Push handles a call with a push.
func (s *Server) Push(ctx context.Context, in *wire.PushRequest) (*wire.Reply, error) {
	if err := s.greet(ctx, in.GetHello(), pushes); err != nil {
		return nil, err
	}
	if p, _ := entry.ParsePush(in.GetPush()); !p.Leaves { // CheckPush returns the error
		s.pushers.called(in.GetHello(), &p)
	}
	err := member.CheckPush(in.GetPush())
	if err == nil && len(in.GetPush()) > entry.MaxSize/2 {
		err = fmt.Errorf("%w: the push has %d bytes, but at most %d bytes are allowed", batch.ErrRefused,
			len(in.GetPush()), entry.MaxSize/2)
	}
	if err != nil {
		s.refuse(refusedMalformed, err)
	} else {
		err = s.Handler.Push(ctx, in.GetHello().GetGroup(), in.GetPush())
	}
	return &wire.Reply{Error: encodeError(err)}, nil
}

// Write handles a call with an entry to write.
func (s *Server) Write(ctx context.Context, in *wire.WriteRequest) (*wire.WriteReply, error) {
	if err := s.greet(ctx, in.GetHello(), knowsCluster); err != nil {
		return nil, err
	}
	e, err := readWrite(in)
	if err != nil {
		return nil, s.refusal(codes.InvalidArgument, refusedMalformed, "an entry from %s: %w", callerOf(ctx), err)
	}
	if who := callerOf(ctx); who.Collector && e.Kind != entry.KindEvents {
		return nil, s.notPermitted(who, "a write of samples, rules or imports")
	}
	o, err := s.Handler.Write(ctx, e.Group, e)
	if err != nil {
		return &wire.WriteReply{Error: encodeError(err)}, nil
	}
	return &wire.WriteReply{Outcome: o.Append(nil)}, nil
}

// readWrite parses the entry of a write: a request, deltas, events, a rule set or an import. Only the members
// themselves propose entries of other kinds.
func readWrite(in *wire.WriteRequest) (*entry.Entry, error) {
	e := &entry.Entry{}
	if err := e.Parse(in.GetEntry()); err != nil {
		return nil, err
	}
	switch e.Kind {
	case entry.KindRequest, entry.KindDeltas, entry.KindRuleSet, entry.KindImport:
	case entry.KindEvents:
		if err := member.CheckEvents(&e.Events); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("its kind is %d, but only requests, deltas, events, rule sets and imports can be "+
			"written", e.Kind)
	}
	if e.Group != in.GetHello().GetGroup() {
		return nil, fmt.Errorf("it is for group %d, but the call is for group %d", e.Group, in.GetHello().GetGroup())
	}
	return e, nil
}

// Join handles the call of a node that wants to join.
func (s *Server) Join(ctx context.Context, in *wire.JoinRequest) (*wire.JoinReply, error) {
	h := in.GetHello()
	if err := s.greet(ctx, h, knowsNothing); err != nil {
		return nil, err
	}
	j, err := s.Handler.Join(ctx, Join{
		Name: h.GetNode(), Member: h.GetFrom(), Format: in.GetFormat(), Semantics: in.GetSemantics(), Last: in.GetLast(),
		Heals: in.GetHeals(),
	})
	if err != nil {
		return &wire.JoinReply{Error: encodeError(err)}, nil
	}
	return &wire.JoinReply{
		Cluster: j.Cluster[:], Epoch: j.Epoch, Group: j.Group, Founder: j.Founder, Index: j.Index, Voters: j.Voters,
		Nodes: j.Nodes,
	}, nil
}

// Change handles a call that changes a node's part in the group.
func (s *Server) Change(ctx context.Context, in *wire.ChangeRequest) (*wire.Reply, error) {
	if err := s.greet(ctx, in.GetHello(), knowsCluster); err != nil {
		return nil, err
	}
	lasts := time.Duration(min(in.GetMilliseconds(), maxAge*1000)) * time.Millisecond
	if err := s.Handler.Change(ctx, Change{ChangeKind(in.GetKind()), in.GetNode(), lasts}); err != nil {
		return &wire.Reply{Error: encodeError(err)}, nil
	}
	return &wire.Reply{}, nil
}

// Leader returns the node that leads.
func (s *Server) Leader(ctx context.Context, in *wire.LeaderRequest) (*wire.LeaderReply, error) {
	if err := s.greet(ctx, in.GetHello(), knowsNothing); err != nil {
		return nil, err
	}
	s.pushers.called(in.GetHello(), nil)
	l := s.Handler.Leader(ctx)
	return &wire.LeaderReply{
		Name: l.Name, Address: l.Address, Term: l.Term, Cluster: l.Cluster[:], Epoch: l.Epoch,
		Applied: l.Self.Applied, Ready: l.Self.Ready, LagSeconds: l.Self.Lag, Http: l.Self.HTTP, Version: l.Self.Version,
	}, nil
}

// Status returns the status of this node.
func (s *Server) Status(ctx context.Context, in *wire.StatusRequest) (*wire.StatusReply, error) {
	if err := s.greet(ctx, in.GetHello(), knowsNothing); err != nil {
		return nil, err
	}
	x := s.Handler.Status(ctx)
	r := &wire.StatusReply{
		Name: x.Name, Member: x.Member, Ready: x.Ready, Applied: x.Applied, Committed: x.Committed, LagSeconds: x.Lag,
		Clock: x.Clock, Version: x.Version, LeaderlessSeconds: x.Leaderless, LeaderlessTotalSeconds: x.LeaderlessSum,
		LogBytes: x.LogBytes, LogPins: x.LogPins, LogAppendSeconds: x.LogAppend,
		Settings: x.Settings, Leader: x.Leader, Report: encodeReport(x.Report), Fill: encodeFill(x.Fill), LogBase: x.LogBase,
		Disk: encodeDisk(x.Disk), Epoch: x.Epoch, MissingBlocks: x.MissingBlocks,
	}
	if x.Damage != nil {
		r.Damage = &wire.Damage{What: valid(x.Damage.What), Since: x.Damage.Since}
	}
	for _, m := range x.Marks {
		r.Marks = append(r.Marks, &wire.Mark{Index: m.Index, Hash: m.Hash})
	}
	for _, p := range s.Pushers() {
		r.Collectors = append(r.Collectors, &wire.Pusher{Name: p.Name, AgoSeconds: p.Ago.Seconds(),
			Report: encodeReport(p.Report), ToldSeconds: p.Told.Seconds()})
	}
	return r, nil
}

// Figures returns figures of this node.
func (s *Server) Figures(ctx context.Context, in *wire.FiguresRequest) (*wire.FiguresReply, error) {
	if err := s.greet(ctx, in.GetHello(), knowsCluster); err != nil {
		return nil, err
	}
	text, err := s.Handler.Figures(ctx, Figures(in.GetKind()), in.GetTenant())
	if err != nil {
		return nil, status.Error(codes.Unavailable, valid(err.Error()))
	}
	return &wire.FiguresReply{Json: text}, nil
}
