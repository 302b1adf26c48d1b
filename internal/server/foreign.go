package server

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/util/httputil"

	"github.com/freshet-io/freshet/internal/settings"
)

var crossOrigin = http.NewCrossOriginProtection()

// foreignPage refuses a request of a web page of another origin, whatever its method
// and content type: a form of such a page needs neither script nor permission.
func foreignPage(r *http.Request) error {
	if !browser(r) {
		return nil
	}
	// Even a GET may cost here: it takes a tap or a processor. So none passes as harmless.
	changing := &http.Request{Method: http.MethodPost, Header: r.Header, Host: r.Host, URL: r.URL}
	if err := crossOrigin.Check(changing); err != nil {
		return denial{reasonForeignPage, fmt.Errorf("this is not for web pages of others: %w", err)}
	}
	return nil
}

// rebound refuses a request on loopback whose Host is a name that is none of ours. The
// page of such a name has it lead to loopback, and is then of the same origin as the
// server. That page can set any header but Host, so that no header makes up for it. With
// TLS it has no certificate for the name, and where tokens are asked for it has none. To
// operator.sock a tunnel may lead, from loopback on another machine.
func (s *server) rebound(r *http.Request) error {
	host := strings.TrimSuffix(hostOf(r.Host), ".")
	if _, err := netip.ParseAddr(host); err == nil || host == "" || strings.EqualFold(host, "localhost") {
		return nil // no name that somebody else can have lead here
	}
	if r.TLS != nil || s.http.named(host) || answersTo(s.config.HTTP, host) {
		return nil
	}
	if !atOperatorSocket(r) && (s.config.HTTP.TenantsFile != "" || !fromLoopback(r)) {
		return nil
	}
	return denial{reasonHost, fmt.Errorf("the header Host has %q, a name that this server does not know, and on loopback it could be that of a web page of others; "+
		"if a proxy on this machine passes it on, add it to http.hosts, or have the proxy send a Host that is an address", r.Host)}
}

// answersTo reports whether http.hosts has a name, or this machine has it.
func answersTo(c settings.HTTP, name string) bool {
	if own, err := os.Hostname(); err == nil && strings.EqualFold(own, name) {
		return true
	}
	return slices.ContainsFunc(c.Hosts, func(h string) bool { return h == "*" || strings.EqualFold(h, name) })
}

// openOrigins reads which pages may read.
func (s *server) openOrigins() (err error) {
	if s.config.HTTP.CORSOrigin == "" {
		return nil
	}
	s.origins, err = s.config.HTTP.Origins()
	return err
}

// allowOrigin lets a page of an origin that http.cors_origin names read the answer. It
// reports whether the request was a browser's question for just that, which it has
// answered then: those carry no token.
func (s *server) allowOrigin(w http.ResponseWriter, r *http.Request) bool {
	if s.origins == nil {
		return false
	}
	httputil.SetCORS(w, s.origins, r)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}
