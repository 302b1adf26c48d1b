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

// foreignPage refuses a request from a web page of another origin, whatever its method and content
// type. Even without a script, such a page can make a browser send a form.
func foreignPage(r *http.Request) error {
	if !browser(r) {
		return nil
	}
	// Check allows every GET as harmless. But some GET requests here occupy one of the few taps, or a
	// processor for seconds. So check them like a POST.
	changing := &http.Request{Method: http.MethodPost, Header: r.Header, Host: r.Host, URL: r.URL}
	if err := crossOrigin.Check(changing); err != nil {
		return denial{reasonForeignPage, fmt.Errorf("web pages of other origins may not make this request: %w", err)}
	}
	return nil
}

// foreign refuses a request that a foreign web page may have caused. It applies rebound to requests of
// all routes, and also foreignPage to routes that write. But a write without the headers of a browser
// comes from a sender, and is not checked.
func (s *server) foreign(e exposure, r *http.Request) error {
	if e != writes {
		return s.rebound(r)
	}
	if !browser(r) {
		return nil
	}
	if err := foreignPage(r); err != nil {
		return err
	}
	return s.rebound(r)
}

// rebound refuses a request on loopback if its Host header is not one of our names. The owner of a
// host name can make the name resolve to loopback, so that a page of that name has the same origin
// as this server. Such a page can set every header except Host, so only Host is checked. Two kinds of
// requests need no check: requests with TLS, since the server has no certificate for the page's name,
// and requests that need a token, since the page has none. Requests on operator.sock are checked, too,
// since a tunnel may lead there from loopback on another machine.
func (s *server) rebound(r *http.Request) error {
	host := strings.TrimSuffix(hostOf(r.Host), ".")
	if _, err := netip.ParseAddr(host); err == nil || host == "" || strings.EqualFold(host, "localhost") {
		return nil // a hostile page cannot have an address or localhost as its host
	}
	if r.TLS != nil || s.http.named(host) || answersTo(s.config.HTTP, host) {
		return nil
	}
	if !atOperatorSocket(r) && (s.config.HTTP.TenantsFile != "" || !fromLoopback(r)) {
		return nil
	}
	return denial{reasonHost, fmt.Errorf("the header Host has %q, which this server does not know as its name; on "+
		"loopback, such a name may belong to a hostile web page; if a proxy on this machine passes the name on, add it "+
		"to http.hosts, or have the proxy send an address as Host", r.Host)}
}

// answersTo reports whether a name is in http.hosts, or is the name of this machine.
func answersTo(c settings.HTTP, name string) bool {
	if own, err := os.Hostname(); err == nil && strings.EqualFold(own, name) {
		return true
	}
	return slices.ContainsFunc(c.Hosts, func(h string) bool { return h == "*" || strings.EqualFold(h, name) })
}

// openOrigins compiles the pattern of the origins whose pages may read answers.
func (s *server) openOrigins() (err error) {
	if s.config.HTTP.CORSOrigin == "" {
		return nil
	}
	s.origins, err = s.config.HTTP.Origins()
	return err
}

// allowOrigin lets a page read the answer if http.cors_origin allows the page's origin. It answers a
// preflight itself and then returns true, since preflights carry no token.
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
