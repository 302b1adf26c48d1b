package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/freshet-io/freshet/internal/adapter/receive"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

// otlpServer serves OTLP over gRPC, at its own address. OTLP over HTTP uses the HTTP addresses.
type otlpServer struct {
	listener  net.Listener
	address   string // as the configuration writes it
	secure    *tls.Config
	passwords passwords
}

// openOTLP binds the address, unless it is already open. Requests wait until everything is open.
func (s *server) openOTLP() error {
	address := s.config.Distributor.OTLP.GRPCListen
	if address == "" || !s.has(settings.RoleDistributor) {
		return nil
	}
	secure, err := tlsConfig(s.config.HTTP.WebConfig)
	if err != nil {
		return conf.Mistake(fmt.Errorf("listen on OTLP %s: %w", address, err))
	}
	listener, err := s.inherited.listener("tcp", address)
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
	return listenError("OTLP", address, "--distributor-otlp-grpc-listen", err)
}

// addr returns the bound address, or "" if nothing listens.
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
	return nil // runOTLP has already closed it
}

// file returns a duplicate of the socket, for the next image.
func (o *otlpServer) file() (*os.File, error) { return fileOf(o.listener, "OTLP") }

// runOTLP answers requests until ctx is done, then waits for running requests to end.
func (s *server) runOTLP(ctx context.Context) error {
	g := s.otlpHTTP()
	listener := s.bound.Serve(g, s.otlp.listener)
	served := make(chan error, 1)
	go func() {
		if s.otlp.secure != nil {
			served <- g.ServeTLS(listener, "", "")
			return
		}
		served <- g.Serve(listener)
	}()
	select {
	case err := <-served:
		return fmt.Errorf("answer on OTLP %s: %w", s.otlp.addr(), err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Drain/3)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests of OTLP over gRPC did not end in time and were cut off: %w", err), g.Close())
	}
	return nil
}

// otlpHTTP returns the server for gRPC, which is a protocol on top of HTTP/2.
func (s *server) otlpHTTP() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true) // so that clients of OTLP over HTTP learn that this address is wrong
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: s.guardOTLP(http.HandlerFunc(s.receiver.GRPC)), Protocols: &protocols, TLSConfig: s.otlp.secure,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context {
			return tenant.NewContext(context.Background(), s.config.HTTP.Tenant)
		},
	}
}

// guardOTLP passes allowed writes on, with the tenant in the context. The method guard does the same for
// HTTP.
func (s *server) guardOTLP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !receive.SpeaksGRPC(w, r) {
			return
		}
		s.noteProxy(r.Header)
		err := s.foreign(writes, r)
		if err == nil {
			err = s.otlp.authenticate(s.config.HTTP.WebConfig, r.Header.Get("Authorization"))
		}
		var grant tenant.Grant
		if err == nil {
			grant, err = s.grant(s.access.Load(), claimOf(r), true)
		}
		switch {
		case errors.Is(err, tenant.ErrNoToken):
			s.refused.WithLabelValues(reasonUnauthorized).Inc()
			receive.AnswerGRPC(w, status.New(codes.Unauthenticated, err.Error()), nil)
		case err != nil:
			s.refused.WithLabelValues(reasonOf(err)).Inc()
			receive.AnswerGRPC(w, status.New(codes.PermissionDenied, err.Error()), nil)
		default:
			next.ServeHTTP(w, r.WithContext(grant.NewContext(r.Context())))
		}
	})
}

// authenticate checks a password against the web configuration file, as the exporter-toolkit does for
// HTTP. Like the toolkit, it reads the file for each request.
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
		return fmt.Errorf("%w: send a user and password of the web configuration file in the header authorization: Basic",
			tenant.ErrNoToken)
	}
	return nil
}
