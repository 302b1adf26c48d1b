package peer

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/core/cluster"
)

// Identity names the process to which a certificate belongs.
type Identity struct {
	Name      string // of the node or of the collector
	Collector bool   // it may only push, and ask for the leader
}

// String returns the URI in the certificate.
func (i Identity) String() string {
	if i.Collector {
		return "freshet://collector/" + i.Name
	}
	return "freshet://node/" + i.Name
}

// Credentials prove which process this is, and verify which process is at the other end.
type Credentials struct {
	own    func() (*tls.Certificate, error)
	verify func(chain []*x509.Certificate) (Identity, error)
}

// Node returns the credentials of a node. A push secret makes no such credentials.
func (s *Secret) Node(name string) (*Credentials, error) {
	if s.OnlyPush() {
		return nil, errors.New("this is a push secret, which is for collectors; " +
			"a node needs the secret of the cluster, which is the same on all nodes")
	}
	return s.credentials(Identity{Name: name}, s.nodes)
}

// Collector returns the credentials of a collector.
func (s *Secret) Collector(name string) (*Credentials, error) {
	return s.credentials(Identity{Name: name, Collector: true}, s.pushers)
}

func (s *Secret) credentials(who Identity, ca ed25519.PrivateKey) (*Credentials, error) {
	leaf, err := newLeaf(who, ca)
	if err != nil {
		return nil, err
	}
	nodes, pushers := issuer(s.node), issuer(publicKey(s.pushers))
	return &Credentials{
		own: func() (*tls.Certificate, error) { return leaf, nil },
		verify: func(chain []*x509.Certificate) (Identity, error) {
			who, err := identityOf(chain)
			if err != nil {
				return Identity{}, err
			}
			signer := nodes
			if who.Collector {
				signer = pushers
			}
			if err := chain[0].CheckSignatureFrom(signer); err != nil {
				return Identity{}, fmt.Errorf("the certificate of %s was made with another secret: %w", who, err)
			}
			return who, nil
		},
	}, nil
}

// newLeaf returns a certificate that does not expire, so a wrong clock cannot invalidate it. The
// certificate's key never leaves the process. A new secret invalidates the certificate.
func newLeaf(who Identity, ca ed25519.PrivateKey) (*tls.Certificate, error) {
	if err := cluster.CheckName(who.Name); err != nil {
		return nil, err
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	uri, err := url.Parse(who.String())
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), URIs: []*url.URL{uri},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, issuer(publicKey(ca)), public, ca)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// issuer returns the certificate of a CA, with only the fields that signing and verifying need.
func issuer(ca ed25519.PublicKey) *x509.Certificate {
	return &x509.Certificate{
		Version: 3, PublicKey: ca, PublicKeyAlgorithm: x509.Ed25519,
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	}
}

var errNoName = errors.New("the certificate needs one URI, freshet://node/NAME or freshet://collector/NAME, " +
	"in its subject alternative names")

func identityOf(chain []*x509.Certificate) (Identity, error) {
	if len(chain) == 0 || len(chain[0].URIs) != 1 {
		return Identity{}, errNoName
	}
	uri := chain[0].URIs[0]
	who := Identity{Name: strings.TrimPrefix(uri.Path, "/"), Collector: uri.Host == "collector"}
	if uri.String() != who.String() || cluster.CheckName(who.Name) != nil {
		return Identity{}, errNoName
	}
	return who, nil
}

// Files returns credentials with a certificate and key from files. These credentials accept
// certificates that a CA in the file `ca` has signed. The files are read at each handshake, so that
// they can be replaced while the process runs. Files fails if they cannot be read now.
func Files(cert, key, ca string) (*Credentials, error) {
	c := &Credentials{
		own: func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			if err != nil {
				return nil, fmt.Errorf("read the certificate of this node: %w", err)
			}
			return &pair, nil
		},
		verify: func(chain []*x509.Certificate) (Identity, error) { return verifyBy(ca, chain) },
	}
	own, err := c.own()
	if err != nil {
		return nil, err
	}
	if _, err := readPool(ca); err != nil {
		return nil, err
	}
	if _, err := identityOf([]*x509.Certificate{own.Leaf}); err != nil {
		return nil, fmt.Errorf("%s: %w", cert, err)
	}
	return c, nil
}

func readPool(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the CA of the cluster: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read the CA of the cluster: %s has no certificate in PEM", file)
	}
	return pool, nil
}

func verifyBy(ca string, chain []*x509.Certificate) (Identity, error) {
	who, err := identityOf(chain)
	if err != nil {
		return Identity{}, err
	}
	pool, err := readPool(ca)
	if err != nil {
		return Identity{}, err
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return Identity{}, fmt.Errorf("the certificate of %s: %w", who, err)
	}
	return who, nil
}

// explained names the settings to look at if one side refused the other's certificate.
func explained(err error) error {
	bad := certificateError{}
	if !errors.As(err, &bad) && !strings.Contains(err.Error(), "bad certificate") { // TLS has no type for this alert
		return err
	}
	return fmt.Errorf("%w; both processes need cluster.secret_file of the same cluster, or certificates of the same "+
		"cluster.tls.ca_file", err)
}

// certificateError says why a certificate is refused.
type certificateError struct{ error }

func (e certificateError) Unwrap() error { return e.error }

// config returns the configuration of TLS for one side. `check` may refuse an identity; the other side
// then learns only that its certificate is bad.
func (c *Credentials) config(check func(Identity) error) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{"h2"},
		SessionTicketsDisabled: true, // each connection shows its certificate
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.own() },
		GetClientCertificate:   func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.own() },
		ClientAuth:             tls.RequireAnyClientCert,
		// VerifyConnection verifies instead: certificates name nodes, not hosts.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			who, err := c.verify(s.PeerCertificates)
			if err == nil {
				err = check(who)
			}
			if err != nil {
				return certificateError{err}
			}
			return nil
		},
	}
}

// writeBuffer is how many bytes gRPC gathers before it writes to a connection. Entries of several requests fit.
const writeBuffer = 128 << 10

// door is the listener of a Server. It bounds the connections, so that the process keeps descriptors for its data.
// Anybody can connect. So at the bound, a connection makes room whose other end has shown no certificate yet: a right
// handshake takes some milliseconds, and is rarely the one.
type door struct {
	net.Listener
	server *Server

	mu      sync.Mutex
	open    int
	waiting map[net.Conn]struct{} // no certificate was shown on them yet
}

// Accept implements net.Listener. It closes connections for which there is no room.
func (d *door) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil || d.admit(conn) {
			return conn, err
		}
		_ = conn.Close() // admit has counted it
	}
}

func (d *door) admit(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == nil {
		d.waiting = map[net.Conn]struct{}{}
	}
	if most := d.server.Connections; d.open >= most {
		d.server.refuse(refusedConnections, fmt.Errorf("connection from %s: %d connections are open already, and one is "+
			"closed; raise LimitNOFILE= or ulimit -n, or find out who connects", conn.RemoteAddr(), most))
		if !d.makeRoom() {
			return false
		}
	}
	d.open++
	d.waiting[conn] = struct{}{}
	return true
}

// makeRoom closes a connection on which no certificate was shown yet, if there is one. The order of a map is random,
// so nobody can keep such connections alive. The caller has locked mu.
func (d *door) makeRoom() bool {
	for conn := range d.waiting {
		delete(d.waiting, conn)
		d.open--
		_ = conn.Close() // its handshake fails
		return true
	}
	return false
}

// entered ends a handshake, and reports whether the connection is still open. After a handshake that failed, the
// connection does not count any more.
func (d *door) entered(conn net.Conn, failed bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, waits := d.waiting[conn]; !waits {
		return false
	}
	delete(d.waiting, conn)
	if failed {
		d.open--
	}
	return true
}

func (d *door) left() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
}

// visitor is a connection that counts until it is closed.
type visitor struct {
	net.Conn
	left func()
}

// Close implements net.Conn. gRPC may call it more than once.
func (v *visitor) Close() error {
	v.left()
	return v.Conn.Close()
}

// whole is an encrypted connection that hands all bytes of one Write to the kernel together. TLS alone
// writes each record of 16 KiB separately, and each of these writes would wake the process at the other
// end.
type whole struct {
	net.Conn
	raw *held
}

// Write implements net.Conn.
func (w *whole) Write(b []byte) (int, error) {
	w.raw.hold()
	n, err := w.Conn.Write(b)
	if sent := w.raw.release(); err == nil && sent != nil {
		return 0, sent
	}
	return n, err
}

// held is the connection below a `whole` connection. It is safe for concurrent use, since TLS may answer
// the other end during a Write.
type held struct {
	net.Conn

	mu      sync.Mutex
	holds   bool
	records []byte
}

func (h *held) hold() {
	h.mu.Lock()
	h.holds = true
	h.mu.Unlock()
}

// release writes what was held.
func (h *held) release() (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.records) > 0 {
		_, err = h.Conn.Write(h.records)
	}
	if h.holds, h.records = false, h.records[:0]; cap(h.records) > 2*writeBuffer {
		h.records = nil
	}
	return err
}

// Write implements net.Conn.
func (h *held) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.holds {
		return h.Conn.Write(b)
	}
	h.records = append(h.records, b...)
	return len(b), nil
}
