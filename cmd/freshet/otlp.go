package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// otlpServer is the bound address of OTLP over gRPC. Over HTTP it comes in with
// everything else.
type otlpServer struct {
	listener  net.Listener
	address   string // as the configuration spells it
	secure    *tls.Config
	passwords passwords
}

// openOTLP binds the address, unless it was open already. Nobody is answered until
// everything is open: who asks before waits.
func (s *server) openOTLP() error {
	address := s.config.Ingest.OTLP.GRPCListen
	if address == "" || !s.config.stores() {
		return nil
	}
	secure, err := tlsConfig(s.config.HTTP.WebConfig)
	if err != nil {
		return configurationError{fmt.Errorf("listen on OTLP %s: %w", address, err)}
	}
	if secure != nil {
		secure.NextProtos = []string{"h2"}
	}
	listener, err := s.inherited.listener(address)
	if err == nil && listener == nil {
		listener, err = net.Listen("tcp", address)
	}
	if err != nil {
		return otlpError(address, err)
	}
	s.otlp = &otlpServer{listener: listener, address: address, secure: secure}
	return nil
}

func otlpError(address string, err error) error {
	return listenError("OTLP", address, "--ingest-otlp-grpc-listen", err)
}

// addr is empty if nothing listens.
func (o *otlpServer) addr() string {
	if o == nil {
		return ""
	}
	return o.listener.Addr().String()
}

func (o *otlpServer) close() error {
	if o == nil {
		return nil
	}
	if err := o.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil // by the end of runOTLP
}

// runOTLP answers until ctx is done, then lets the running requests end.
func (s *server) runOTLP(ctx context.Context) error {
	if s.otlp == nil || s.waitAnswering(ctx) != nil {
		<-ctx.Done() // whoever failed to open says why
		return nil
	}
	options, service := s.ingest.receiver.GRPC()
	options = append(options, grpc.StreamInterceptor(s.guardOTLP), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}))
	if s.otlp.secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.otlp.secure)))
	}
	g := grpc.NewServer(options...)
	g.RegisterService(service, nil)
	served := make(chan error, 1)
	go func() { served <- g.Serve(s.otlp.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("answer on OTLP %s: %w", s.otlp.addr(), err)
	case <-ctx.Done():
	}
	late := time.AfterFunc(s.config.Drain/3, g.Stop) // which ends GracefulStop
	g.GracefulStop()
	if !late.Stop() {
		return errors.New("requests were cut off")
	}
	return nil
}

// guardOTLP lets through who may write, with the tenant in the context, as guard does
// over HTTP. A panic must cost no more than the request, as there.
func (s *server) guardOTLP(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.logger.Error("a request of OTLP was given up", "panic", p, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "a fault of the server's; its log has more")
		}
	}()
	headers, _ := metadata.FromIncomingContext(stream.Context())
	authorization := ""
	if all := headers.Get("authorization"); len(all) > 0 {
		authorization = all[0] // as http.Header.Get
	}
	var grant tenant.Grant
	if err = s.otlp.authenticate(s.config.HTTP.WebConfig, authorization); err == nil {
		grant, err = s.grant(tenant.Claim{Address: s.config.HTTP.Tenant, Token: bearer(authorization), Headers: headers.Get("x-scope-orgid")}, true)
	}
	switch {
	case errors.Is(err, tenant.ErrNoToken):
		s.refused.WithLabelValues(reasonUnauthorized).Inc()
		return status.Error(codes.Unauthenticated, err.Error())
	case err != nil:
		s.refused.WithLabelValues(reasonOf(err)).Inc()
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return next(service, granted{stream, tenant.NewContext(stream.Context(), grant.Tenant)})
}

// granted is a stream with another context.
type granted struct {
	grpc.ServerStream
	ctx context.Context
}

func (g granted) Context() context.Context { return g.ctx }

// authenticate asks for the password of a web configuration file that has some, which
// the exporter-toolkit does over HTTP. Like it, this reads the file again each time.
func (o *otlpServer) authenticate(webConfig, authorization string) error {
	if webConfig == "" {
		return nil
	}
	c, err := readWebConfig(webConfig)
	if err != nil {
		return err
	}
	if len(c.Users) == 0 {
		return nil
	}
	user, password, ok := basicAuth(authorization)
	hash, known := c.Users[user]
	if !known {
		user, hash = "", nobody
	}
	if !o.passwords.fit(user, string(hash), password) || !ok || !known {
		return fmt.Errorf("%w: send a user and a password of the web configuration file, in authorization: Basic", tenant.ErrNoToken)
	}
	return nil
}

// nobody is the hash of a password that is checked where there is no such user, so that
// the time it takes does not tell.
const nobody = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"

// basicAuth is that of http.Request, of which there is none.
func basicAuth(header string) (user, password string, ok bool) {
	scheme, encoded, _ := strings.Cut(header, " ")
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !strings.EqualFold(scheme, "Basic") {
		return "", "", false
	}
	return strings.Cut(string(text), ":")
}

// passwords remembers which of them fitted, as their check is meant to be slow. Each user
// has one at most.
type passwords struct {
	mu     sync.Mutex
	fitted map[string][sha256.Size]byte // by user: of the hash and the password
}

func (p *passwords) fit(user, hash, password string) bool {
	sum := sha256.Sum256([]byte(hash + "\x00" + password))
	p.mu.Lock()
	known, ok := p.fitted[user]
	p.mu.Unlock()
	if ok && known == sum {
		return true
	}
	if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fitted == nil {
		p.fitted = map[string][sha256.Size]byte{}
	}
	p.fitted[user] = sum
	return true
}

// file is the socket once more, for a successor.
func (o *otlpServer) file() (*os.File, error) { return fileOf(o.listener, "OTLP") }
