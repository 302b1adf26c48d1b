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
// type: a form on such a page needs neither script nor permission.
func foreignPage(r *http.Request) error {
	if !browser(r) {
		return nil
	}
	// Even a GET may cost something here: a tap or a processor. So none passes as harmless.
	changing := &http.Request{Method: http.MethodPost, Header: r.Header, Host: r.Host, URL: r.URL}
	if err := crossOrigin.Check(changing); err != nil {
		return denial{reasonForeignPage, fmt.Errorf("web pages of other origins may not ask this: %w", err)}
	}
	return nil
}

// foreign refuses a request from a web page of another origin. Senders send no headers of browsers,
// so to them the check costs nothing.
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

// rebound refuses a request on loopback whose Host is not one of our names. The owner of a name can
// make it resolve to loopback; a page of that name then has the same origin as the server. Such a
// page can set any header but Host, so no other header is checked. With TLS the server has no
// certificate for the page's name, and where tokens are needed the page has none. operator.sock is
// checked too: a tunnel may lead to it from loopback on another machine.
func (s *server) rebound(r *http.Request) error {
	host := strings.TrimSuffix(hostOf(r.Host), ".")
	if _, err := netip.ParseAddr(host); err == nil || host == "" || strings.EqualFold(host, "localhost") {
		return nil // a name that others own cannot lead here
	}
	if r.TLS != nil || s.http.named(host) || answersTo(s.config.HTTP, host) {
		return nil
	}
	if !atOperatorSocket(r) && (s.config.HTTP.TenantsFile != "" || !fromLoopback(r)) {
		return nil
	}
	return denial{reasonHost, fmt.Errorf("the header Host has %q, which this server does not know as its name; on "+
		"loopback, it may belong to a hostile web page; if a proxy on this machine passes it on, add it to http.hosts, "+
		"or have the proxy send a Host that is an address", r.Host)}
}

// answersTo reports whether http.hosts has a name, or it is this machine's.
func answersTo(c settings.HTTP, name string) bool {
	if own, err := os.Hostname(); err == nil && strings.EqualFold(own, name) {
		return true
	}
	return slices.ContainsFunc(c.Hosts, func(h string) bool { return h == "*" || strings.EqualFold(h, name) })
}

// openOrigins reads which pages may read answers.
func (s *server) openOrigins() (err error) {
	if s.config.HTTP.CORSOrigin == "" {
		return nil
	}
	s.origins, err = s.config.HTTP.Origins()
	return err
}

// allowOrigin lets a page of an origin that http.cors_origin allows read the answer. It reports
// whether the request was a preflight, which it has then answered: preflights carry no token.
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
