package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/internal/adapter/connections"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

// httpServers are the bound addresses, each with its server. The first is http.listen.
type httpServers []*httpServer

type httpServer struct {
	listener net.Listener
	address  string // as the configuration writes it
	scheme   string // http or https
	tenant   string
	server   *http.Server
	served   chan error // receives the result of Serve
}

const (
	// idleTimeout is how long a connection without requests stays open.
	idleTimeout = 5 * time.Minute

	// headerTimeout is how long the header of a request may take. A header fits into a few packets.
	headerTimeout = 10 * time.Second
)

// listenHTTP binds all addresses that are not already open, and begins to answer there: a start may
// take long, and probes come during the start. Even after an error the caller must close the
// returned servers.
func listenHTTP(
	c settings.HTTP, handler http.Handler, inherited *inheritance, bound *connections.Bound, logger *slog.Logger,
) (all httpServers, err error) {
	for _, l := range c.All() {
		scheme := "http"
		if secure, err := tlsConfig(l.WebConfig); err != nil {
			return all, conf.Mistake(fmt.Errorf("listen on http %s: %w", l.Listen, err))
		} else if secure != nil {
			scheme = "https"
		}
		listener, err := inherited.tcp(l.Listen)
		if err == nil && listener == nil {
			listener, err = net.Listen("tcp", l.Listen)
		}
		if err != nil {
			return all, httpError(l.Listen, err)
		}
		h := newHTTPServer(listener, l, scheme, handler, logger)
		counted := bound.Serve(h.server, listener)
		go func() {
			if l.WebConfig == "" {
				h.served <- h.server.Serve(counted)
				return
			}
			h.served <- web.Serve(counted, h.server, &web.FlagConfig{WebConfigFile: &l.WebConfig}, logger)
		}()
		all = append(all, h)
	}
	return all, nil
}

// newHTTPServer makes the server of a listener. It does not answer yet.
func newHTTPServer(
	listener net.Listener, l settings.HTTPListener, scheme string, handler http.Handler, logger *slog.Logger,
) *httpServer {
	server := &http.Server{
		Handler: handler,
		// ErrorLog gets panics of handlers and, with TLS, failed handshakes.
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		// A client that never ends its request must not keep a connection. Answers have no time limit
		// here, since queries have a time limit of their own.
		ReadTimeout:       time.Minute,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		// If the request names no tenant, the tenant of the address applies.
		BaseContext: func(net.Listener) context.Context { return tenant.NewContext(context.Background(), l.Tenant) },
	}
	return &httpServer{
		listener: listener, address: l.Listen, scheme: scheme, tenant: l.Tenant, server: server, served: make(chan error, 1),
	}
}

func httpError(address string, err error) error {
	return listenError("http", address, "--http-listen", err)
}

// listenError returns the error of an address that cannot be bound. The error says how to fix it.
func listenError(what, address, flag string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on %s %s: the port is in use; stop the process that uses it, or choose another port "+
			"with %s", what, address, flag)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen on %s %s: permission denied; choose a port above 1023 with %s", what, address, flag)
	}
	return fmt.Errorf("listen on %s %s: %w", what, address, err)
}

func (h *httpServer) addr() string { return h.listener.Addr().String() }

// file returns a duplicate of the socket, for the next image of this process.
func (h *httpServer) file() (*os.File, error) { return fileOf(h.listener, "http") }

func fileOf(listener net.Listener, what string) (*os.File, error) {
	socket, ok := listener.(interface{ File() (*os.File, error) })
	if !ok {
		panic(fmt.Sprintf("BUG: %s listens on a %T", what, listener))
	}
	file, err := socket.File()
	if err != nil {
		return nil, fmt.Errorf("hand over %s %s: %w", what, listener.Addr(), err)
	}
	return file, nil
}

// run answers until ctx is done, then waits for running requests to end.
func (all httpServers) run(ctx context.Context, drain time.Duration) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, h := range all {
		group.Go(func() error { return h.run(ctx, drain) })
	}
	return group.Wait()
}

func (h *httpServer) run(ctx context.Context, drain time.Duration) error {
	select {
	case err := <-h.served:
		return fmt.Errorf("answer on http %s: %w", h.addr(), err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain/3)
	defer cancel()
	if err := h.server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests were cut off: %w", err), h.server.Close())
	}
	return nil
}

// close closes all servers that are still open.
func (all httpServers) close() error {
	var errs []error
	for _, h := range all {
		errs = append(errs, h.server.Close())
	}
	return errors.Join(errs...)
}

// named reports whether `host` is the host of an address in the configuration.
func (all httpServers) named(host string) bool {
	for _, h := range all {
		if own := hostOf(h.address); own != "" && strings.EqualFold(own, host) {
			return true
		}
	}
	return false
}
