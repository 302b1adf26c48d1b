package peer

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/freshet-io/freshet/internal/adapter/peer/wire"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/stage"
)

// dial returns a client that sends what a test wants.
func dial(t *testing.T, to *process, config *tls.Config) wire.PeerClient {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+to.address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return wire.NewPeerClient(cc)
}

// careless returns the configuration of a client that trusts any server.
func careless(c *Credentials) *tls.Config {
	config := c.config(func(Identity) error { return nil })
	config.VerifyConnection = nil
	return config
}

func refusals(p *process, reason string) float64 {
	return testutil.ToFloat64(p.server.metrics.refused.WithLabelValues(reason))
}

// Connections on which no certificate is shown are closed to make room. So nodes and collectors get in, and the process
// keeps its descriptors, however many programs connect.
func TestStrangersMakeRoom(t *testing.T) {
	b := nodes(t, "b")["b"]
	var strangers []net.Conn
	for range 2 * mostConnections {
		conn, err := net.Dial("tcp", b.address)
		if errors.Is(err, syscall.ECONNRESET) {
			continue // it has made room already
		}
		if err != nil {
			t.Fatal(err)
		}
		strangers = append(strangers, conn)
	}
	awaitRefusal(t, b, refusedConnections, mostConnections-1)
	awaitOpen(t, b, mostConnections)

	a := &process{}
	connect(t, a, Options{Name: "a", Credentials: nodeCredentials(t, secret(t), "a"),
		Nodes: map[string]string{"b": b.address}, Self: func() Self { return selfOf("a") }})
	// Before its certificate is shown, a connection of node a may be the one that makes room. Then it comes again.
	for deadline := time.Now().Add(patience); ; {
		_, err := a.Leader(t.Context(), "b")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("while strangers take all connections, the calls of a node fail: %v", err)
		}
	}
	for _, conn := range strangers {
		_ = conn.Close()
	}
	awaitOpen(t, b, 2) // those of node a
	if n := refusals(b, refusedConnections); n > 2*mostConnections {
		t.Errorf("%v connections were refused, want at most %v", n, 2*mostConnections)
	}
	a.end()
	awaitOpen(t, b, 0)
}

// A connection on which a certificate was shown stays, and the new one is closed.
func TestNodesMakeNoRoom(t *testing.T) {
	b := nodes(t, "b")["b"]
	for range mostConnections {
		if _, err := dial(t, b, careless(nodeCredentials(t, secret(t), "a"))).
			Leader(t.Context(), &wire.LeaderRequest{Hello: &wire.Hello{Node: "a", Lowest: 1, Highest: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the read from a connection too many returned %v, want that it is closed", err)
	}
	awaitRefusal(t, b, refusedConnections, 0)
	awaitOpen(t, b, mostConnections)
}

// awaitOpen waits until a node has so many connections.
func awaitOpen(t *testing.T, p *process, want int) {
	t.Helper()
	d := &p.server.door
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		d.mu.Lock()
		open := d.open
		d.mu.Unlock()
		if open == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are open, want %d", open, want)
		}
	}
}

// awaitRefusal waits until more than `before` refusals are counted. It must wait, because the client
// may see its refusal before the server counts it.
func awaitRefusal(t *testing.T, p *process, reason string, before float64) {
	t.Helper()
	for refusals(p, reason) <= before {
		select {
		case <-p.said:
		case <-time.After(patience):
			t.Fatalf("a refusal is not counted as %s", reason)
		}
	}
}

// say sends batches on a stream. It repeats each batch as many times as one acknowledgement needs. It
// returns the error with which the stream ends.
func say(t *testing.T, c wire.PeerClient, batches ...*wire.Batch) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := c.Urgent(ctx)
	if err != nil {
		return err
	}
	for _, b := range batches {
		times := 1
		if b.Hello == nil {
			times = ackEvery
		}
		for range times {
			_ = s.Send(b) // Recv returns the error of Send
		}
		if _, err := s.Recv(); err != nil {
			return err
		}
	}
	return nil
}

// A hello that does not match is refused with a text that says why. A message of another member is
// refused, too.
func TestStreamsThatDoNotFitAreRefused(t *testing.T) {
	b := nodes(t, "b")["b"]
	var outdated []uint64
	b.server.Outdated = func(epoch uint64) { outdated = append(outdated, epoch) }
	right := func() *wire.Hello {
		cluster := Cluster{1}
		return &wire.Hello{Cluster: cluster[:], Epoch: 1, Node: "a", From: 1, To: 2, Lowest: 1, Highest: 1}
	}
	c := dial(t, b, nodeCredentials(t, secret(t), "a").config(func(Identity) error { return nil }))
	body := func(from, to uint64) []byte {
		m := heartbeat(t, from, to, 1)
		bytes, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	fits := &wire.Batch{Messages: []*wire.Message{{Body: body(1, 2)}}}
	if err := say(t, c, &wire.Batch{Hello: right()}, fits); err != nil {
		t.Fatalf("a matching hello was refused: %v", err)
	}
	for _, x := range []struct {
		reason string
		change func(*wire.Hello)
		text   string
	}{
		{refusedCluster, func(h *wire.Hello) { h.Cluster = make([]byte, 16); h.Cluster[0] = 2 },
			"belongs to cluster 02000000000000000000000000000000, and this node to cluster 01000000000000000000000000000000"},
		{refusedCluster, func(h *wire.Hello) { h.Cluster = nil }, "cluster (none yet)"},
		{refusedCluster, func(h *wire.Hello) { h.Cluster = append(h.Cluster, 0) }, "belongs to cluster"},
		{refusedEpoch, func(h *wire.Hello) { h.Epoch = 2 }, "has recovery epoch 2, and this node has 1"},
		{refusedGroup, func(h *wire.Hello) { h.Group = 5 }, "calls group 5"},
		{refusedVersion, func(h *wire.Hello) { h.Lowest, h.Highest = 2, 3 }, "supports versions 2 to 3"},
		{refusedVersion, func(h *wire.Hello) { h.Lowest, h.Highest = 0, 0 }, "this node supports 1 to 1"},
		{refusedVersion, func(h *wire.Hello) { h.Lowest, h.Highest = 1, 0 }, "supports versions 1 to 0"},
		{refusedMember, func(h *wire.Hello) { h.To = 9 }, "calls member 9, but this node has member 2"},
		{refusedMember, func(h *wire.Hello) { h.From = 9 }, "sent member 9, but in the cluster this name has member 1"},
		{refusedName, func(h *wire.Hello) { h.Node = "c" }, `says that it is "c"`},
	} {
		h, before := right(), refusals(b, x.reason)
		x.change(h)
		err := say(t, c, &wire.Batch{Hello: h})
		if !strings.Contains(status.Convert(err).Message(), x.text) ||
			refusals(b, x.reason) != before+1 {
			t.Errorf("reason %s: the stream ended with %v, want %q; %v refusals were counted, want 1",
				x.reason, err, x.text, refusals(b, x.reason)-before)
		}
	}
	// A node that was removed, or replaced by another directory, may still hand over windows, and nothing else.
	former := right()
	former.From = 9
	before := refusals(b, refusedMember)
	_, err := c.Push(t.Context(), &wire.PushRequest{Hello: former})
	if err != nil || refusals(b, refusedMember) != before {
		t.Errorf("a push of a former member: %v", err)
	}
	if _, err := c.Write(t.Context(), &wire.WriteRequest{Hello: former}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a write of a former member: %v", err)
	}
	if !slices.Equal(outdated, []uint64{2}) {
		t.Errorf("the node was told of the later epochs %v, want 2", outdated)
	}
	if err := say(t, c, &wire.Batch{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a stream without a hello ended with %v", err)
	}
	// A newer release also supports this version.
	newer := right()
	newer.Highest = 7
	if err := say(t, c, &wire.Batch{Hello: newer}); err != nil {
		t.Errorf("versions 1 to 7: %v", err)
	}
	for _, bad := range []struct {
		reason string
		body   []byte
	}{{refusedForged, body(3, 2)}, {refusedForged, body(1, 3)}, {refusedMalformed, []byte("no message")}} {
		before := refusals(b, bad.reason)
		err := say(t, c, &wire.Batch{Hello: right()}, &wire.Batch{Messages: []*wire.Message{{Body: bad.body}}})
		if status.Code(err) != codes.InvalidArgument || refusals(b, bad.reason) != before+1 {
			t.Errorf("%s: %v", bad.reason, err)
		}
	}
	if n := len(b.handler.received); n != ackEvery {
		t.Errorf("%d messages were received, want only those of the first stream, which is valid", n)
	}
}

// A stream is for one pair of members in one cluster. It ends once the node is another member, or in another cluster.
func TestAStreamEndsWithItsMember(t *testing.T) {
	for name, change := range map[string]func(*Self){
		"another member":  func(s *Self) { s.Member = 9 },
		"another cluster": func(s *Self) { s.Cluster = Cluster{7} },
		"a later epoch":   func(s *Self) { s.Epoch++ },
	} {
		b := &process{handler: &handler{received: make(chan member.Message, 1000)}}
		var self atomic.Pointer[Self]
		before := selfOf("b")
		self.Store(&before)
		serve(t, b, nodeCredentials(t, secret(t), "b"), func() Self { return *self.Load() }, listen(t, "127.0.0.1:0"))
		c := dial(t, b, nodeCredentials(t, secret(t), "a").config(func(Identity) error { return nil }))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		s, err := c.Urgent(ctx)
		if err != nil {
			t.Fatal(err)
		}
		hello := &wire.Hello{Cluster: before.Cluster[:], Epoch: before.Epoch, Group: before.Group, Node: "a", From: 1,
			To: before.Member, Lowest: 1, Highest: 1}
		if err := s.Send(&wire.Batch{Hello: hello}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatalf("%s: the stream did not begin: %v", name, err)
		}
		after := before
		change(&after)
		self.Store(&after)
		m := heartbeat(t, 1, before.Member, 1)
		body, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Send(&wire.Batch{Messages: []*wire.Message{{Body: body}}}) // Recv returns the error
		if _, err := s.Recv(); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: the stream ended with %v", name, err)
		}
		if n := len(b.handler.received); n != 0 {
			t.Errorf("%s: %d messages were received", name, n)
		}
	}
}

// A collector may push and ask for the leader. With its secret it cannot act as a node, whatever it
// sends.
func TestACollectorIsNoNode(t *testing.T) {
	a := nodes(t, "a")["a"]
	push, err := ParseSecret(secret(t).Push() + "\n")
	if err != nil {
		t.Fatal(err)
	}
	own, err := push.Collector("host-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := push.Node("b"); err == nil {
		t.Error("a push secret made credentials of a node")
	}
	c := &process{}
	var report atomic.Pointer[Report]
	connect(t, c, Options{Name: "host-1", Collector: true, Credentials: own, Nodes: map[string]string{"a": a.address},
		Self: func() Self { return Self{Cluster: Cluster{1}} }, Report: report.Load})
	awaitHealth(t, c.Peers, "a", isConnected)
	if l, err := c.Leader(t.Context(), "a"); err != nil || l != leads {
		t.Errorf("%+v, %v", l, err)
	}
	if all := a.server.Pushers(); len(all) != 0 {
		t.Errorf("after a process without an outbox asked for the leader, the collectors are %v, want none", all)
	}
	report.Store(&Report{Version: "v1", Bytes: 3 << 20, Samples: 4, Oldest: 12.5})
	if _, err := c.Leader(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	recent := func(d time.Duration) bool { return d >= 0 && d < time.Minute }
	all := a.server.Pushers()
	if len(all) != 1 || all[0].Ago >= 0 || !recent(all[0].Told) || *all[0].Report != *report.Load() {
		t.Errorf("without a leader, the collectors are %+v; want one report, and no push", all)
	}
	if err := c.Push(t.Context(), "a", 0, aPush(t)); err != nil {
		t.Error(err)
	}
	if all := a.server.Pushers(); len(all) != 1 || all[0].Name != "host-1" || !recent(all[0].Ago) {
		t.Errorf("the collectors that pushed are %v, want host-1 alone", all)
	}
	if err := c.Push(t.Context(), "a", 0, member.LeaveOf(entry.Push{Producer: 1, Incarnation: 1, Shape: 1})); err != nil {
		t.Error("a push that leaves:", err)
	}
	for _, left := range []struct{ incarnation, names int }{{1, 1}, {2, 0}} { // aPush is of incarnation 2
		if a.server.Left(1, uint64(left.incarnation)); len(a.server.Pushers()) != left.names {
			t.Errorf("after incarnation %d left, the collectors are %v, want %d", left.incarnation, a.server.Pushers(),
				left.names)
		}
	}
	a.server.pushers.called(&wire.Hello{Node: "host-1", Report: &wire.Report{}}, nil)
	if all := a.server.Pushers(); len(all) != 0 {
		t.Errorf("after one more call of the collector that stops, the collectors are %v, want none", all)
	}
	if err := c.Push(t.Context(), "a", 0, aPush(t)); err != nil || len(a.server.Pushers()) != 1 {
		t.Errorf("after another push (error %v), the collectors are %v, want one", err, a.server.Pushers())
	}
	if _, err := c.Write(t.Context(), "a", 0, someEvents("deploy")); err != nil {
		t.Error("events:", err)
	}
	x, err := c.Share(t.Context(), "a", Shared{99, reported, &books, stages, nil, sentBack})
	if err != nil {
		t.Error("a report with books:", err)
	}
	if x.Heard != nil {
		t.Errorf("a collector is told %v of other collectors", x.Heard)
	}
	_, write := c.Write(t.Context(), "a", 0, anEntry())
	_, join := c.Join(t.Context(), "a", Join{Name: "host-1", Member: 9})
	_, asked := c.Status(t.Context(), "a")
	_, figures := c.Figures(t.Context(), "a", Limits, "")
	change := c.Change(t.Context(), "a", Change{Kind: Remove, Node: "b"})
	cluster := Cluster{1}
	client := dial(t, a, own.config(func(Identity) error { return nil }))
	streamed := say(t, client, &wire.Batch{Hello: &wire.Hello{
		Cluster: cluster[:], Epoch: 1, Node: "host-1", From: 2, To: 1, Lowest: 1, Highest: 1,
	}})
	for name, err := range map[string]error{
		"write": write, "join": join, "status": asked, "stream": streamed, "figures": figures,
		"change": change,
	} {
		if err == nil || !strings.Contains(err.Error(), "freshet://collector/host-1 is a collector") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := refusals(a, refusedPermission); n != 6 {
		t.Errorf("%v refusals are counted, want 6", n)
	}
	// A node's certificate that was signed with a push secret is refused.
	forged, err := newLeaf(Identity{Name: "b"}, push.pushers)
	if err != nil {
		t.Fatal(err)
	}
	own = &Credentials{own: func() (*tls.Certificate, error) { return forged, nil }}
	_, err = dial(t, a, careless(own)).Leader(t.Context(), &wire.LeaderRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a node with a forged certificate got %v, want Unavailable", err)
	}
	awaitRefusal(t, a, refusedCert, 0)
}

// A node refuses to connect to a server that shows a collector's certificate or another node's
// certificate.
func TestAnotherServerIsRefused(t *testing.T) {
	own, err := secret(t).Collector("b")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{handler: &handler{}}
	serve(t, p, own, func() Self { return selfOf("b") }, listen(t, "127.0.0.1:0"))
	c := nodes(t, "c")["c"]
	a := &process{}
	connect(t, a, Options{Name: "a", Credentials: nodeCredentials(t, secret(t), "a"),
		Self: func() Self { return selfOf("a") }, Nodes: map[string]string{"b": p.address, "x": c.address}})
	for to, text := range map[string]string{
		"b": " is freshet://collector/b, not", "x": " is freshet://node/c, not",
	} {
		if _, err := a.Leader(t.Context(), to); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// A process with another secret, without a certificate, or with an older version of TLS is refused,
// and the refusal is counted.
func TestStrangersAreRefused(t *testing.T) {
	a := nodes(t, "a")["a"]
	other, err := ParseSecret("another secret of another cluster")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(config *tls.Config) error {
		_, err := dial(t, a, config).Leader(t.Context(), &wire.LeaderRequest{})
		return err
	}
	foreign := nodeCredentials(t, other, "b")
	if err := ask(careless(foreign)); status.Code(err) != codes.Unavailable {
		t.Errorf("a certificate of a foreign secret was verified: %v", err)
	}
	awaitRefusal(t, a, refusedCert, 0)
	for name, config := range map[string]*tls.Config{
		"a stranger that verifies": foreign.config(func(Identity) error { return nil }),
		"TLS 1.2": {InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
			GetClientCertificate: careless(nodeCredentials(t, secret(t), "b")).GetClientCertificate},
		"no certificate": {InsecureSkipVerify: true, NextProtos: []string{"h2"}},
	} {
		before := refusals(a, refusedHandshake)
		if err := ask(config); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		awaitRefusal(t, a, refusedHandshake, before)
	}
	// The node with the wrong secret reports that in its health.
	p := &process{}
	connect(t, p, Options{Name: "b", Credentials: foreign, Self: func() Self { return selfOf("b") },
		Nodes: map[string]string{"a": a.address}})
	if _, err := p.Leader(t.Context(), "a"); err == nil {
		t.Error("a stranger got an answer")
	}
	all, _ := p.Health()
	if all[0].Connected || !strings.Contains(all[0].Error, "freshet://node/a was made with another secret") ||
		!strings.Contains(all[0].Error, "cluster.secret_file") {
		t.Errorf("the health is %+v", all[0])
	}
}

// testCA signs certificates, and writes them into the files of a directory.
type testCA struct {
	key  ed25519.PrivateKey
	cert *x509.Certificate
}

func newTestCA(t *testing.T) *testCA {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		IsCA: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, public, key)
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return &testCA{key, ca}
}

// write writes ca.pem, cert.pem and key.pem.
func (ca *testCA) write(t *testing.T, dir, uri string, serial int64, ends time.Time) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: ends,
		URIs: []*url.URL{parsed}}, ca.cert, public, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]pem.Block{
		"ca.pem": {Type: "CERTIFICATE", Bytes: ca.cert.Raw}, "cert.pem": {Type: "CERTIFICATE", Bytes: der},
		"key.pem": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func files(dir string) (*Credentials, error) {
	return Files(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem"))
}

// Each handshake reads the files again: the process' own certificate and the CA's certificate.
func TestCertificateFilesRotate(t *testing.T) {
	ca, server, client, later := newTestCA(t), t.TempDir(), t.TempDir(), time.Now().Add(time.Hour)
	ca.write(t, server, "freshet://node/a", 2, later)
	ca.write(t, client, "freshet://node/b", 3, later)
	own, err := files(server)
	if err != nil {
		t.Fatal(err)
	}
	a := &process{handler: &handler{}}
	serve(t, a, own, func() Self { return selfOf("a") }, listen(t, "127.0.0.1:0"))
	other, err := files(client)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() (serial int64, err error) {
		config := other.config(func(who Identity) error { return nil })
		verify := config.VerifyConnection
		config.VerifyConnection = func(s tls.ConnectionState) error {
			serial = s.PeerCertificates[0].SerialNumber.Int64()
			return verify(s)
		}
		hello := &wire.Hello{Node: "b", Lowest: 1, Highest: 1}
		_, err = dial(t, a, config).Leader(t.Context(), &wire.LeaderRequest{Hello: hello})
		return serial, err
	}
	if serial, err := ask(); serial != 2 || err != nil {
		t.Errorf("certificate %d, %v", serial, err)
	}
	ca.write(t, server, "freshet://node/a", 4, later)
	if serial, err := ask(); serial != 4 || err != nil {
		t.Errorf("after a rotation the server shows certificate %d, want 4; error %v", serial, err)
	}
	newTestCA(t).write(t, server, "freshet://node/a", 5, later)
	if serial, err := ask(); serial != 5 || err == nil {
		t.Errorf("after a rotation of the server's CA, the server shows certificate %d, error %v; want 5 and an error",
			serial, err)
	}
	for name, write := range map[string]func(dir string){
		"another URI": func(dir string) { ca.write(t, dir, "https://node/a", 6, later) },
		"no name":     func(dir string) { ca.write(t, dir, "freshet://node/", 6, later) },
		"no key":      func(dir string) { os.Remove(filepath.Join(dir, "key.pem")) },
		"no CA":       func(dir string) { os.Remove(filepath.Join(dir, "ca.pem")) },
	} {
		dir := t.TempDir()
		ca.write(t, dir, "freshet://node/a", 6, later)
		write(dir)
		if _, err := files(dir); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	// The other side refuses an expired certificate.
	ca.write(t, server, "freshet://node/a", 7, time.Now().Add(-time.Minute))
	if _, err := ask(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("a call with an expired certificate returned %v", err)
	}
}

// The figures of stages are within bounds, too.
func TestStagesThatNoCollectorHas(t *testing.T) {
	of := func(change func(*wire.StageFigures)) []*wire.StageFigures {
		all := writeStages(stages)
		change(all[0])
		return all
	}
	for what, all := range map[string][]*wire.StageFigures{
		"an unknown stage":     of(func(s *wire.StageFigures) { s.Stage = uint32(stage.NumStages) }),
		"an unknown input":     of(func(s *wire.StageFigures) { s.Input = 1 << 31 }),
		"too many samples":     of(func(s *wire.StageFigures) { s.Samples = 1 << 60 }),
		"no sum":               of(func(s *wire.StageFigures) { s.Spent.Sum = math.NaN() }),
		"too few counts":       of(func(s *wire.StageFigures) { s.Spent.Counts = s.Spent.Counts[1:] }),
		"too high a count":     of(func(s *wire.StageFigures) { s.Spent.Counts[0] = 1 << 63 }),
		"a bucket twice":       of(func(s *wire.StageFigures) { s.Spent.Buckets[1] = s.Spent.Buckets[0] }),
		"a bucket of no time":  of(func(s *wire.StageFigures) { s.Spent.Buckets[1] = 1 << 30 }),
		"a stage twice":        append(writeStages(stages), writeStages(stages)...),
		"more stages than are": make([]*wire.StageFigures, 1000),
		"too many buckets": of(func(s *wire.StageFigures) {
			s.Age = &wire.Durations{Buckets: make([]int32, 1000), Counts: make([]uint64, 1000)}
		}),
	} {
		if got, err := readStages(all); err == nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// A collector may say what it likes about itself, within bounds.
func TestBooksThatNoCollectorHas(t *testing.T) {
	tenant := func(name, json string) *wire.TenantBooks { return &wire.TenantBooks{Tenant: name, Json: []byte(json)} }
	for what, b := range map[string]*wire.Books{
		"a time before 1970":    {Started: -1},
		"a time after 2255":     {Boundary: maxTime + 1},
		"a tenant with no name": {Tenants: []*wire.TenantBooks{tenant("", "{}")}},
		"a long name":           {Tenants: []*wire.TenantBooks{tenant(strings.Repeat("x", maxTenant+1), "{}")}},
		"a reason in prose":     {Tenants: []*wire.TenantBooks{tenant("x", `{"samples":{"late":{"<script>":1}}}`)}},
		"too many bytes":        {Tenants: []*wire.TenantBooks{tenant("x", "{"+strings.Repeat(" ", ledger.MaxClaim)+"}")}},
	} {
		if got, err := readBooks(b); err == nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
}
