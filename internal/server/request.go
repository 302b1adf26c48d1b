package server

import (
	"net"
	"net/http"
	"strings"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// tenantOf returns the tenant for which a request acts: the tenant that the method `guard` determined,
// or else the tenant of the address.
func tenantOf(r *http.Request) string {
	name, ok := tenant.FromContext(r.Context())
	if !ok {
		panic("BUG: a request came through no listener")
	}
	return name
}

// tokenOf returns the name of a request's token; empty if it has none.
func tokenOf(r *http.Request) string { return tenant.TokenFromContext(r.Context()) }

// senderOf returns the sender of a request, behind the proxies that the configuration trusts. It is for people to read,
// and to tell requests apart; what a client may do depends on the peer of its connection instead: see fromLoopback.
func (s *server) senderOf(r *http.Request) sender.Sender {
	return s.proxies.Sender(r.RemoteAddr, atOperatorSocket(r), r.Header["X-Forwarded-For"], r.UserAgent())
}

// claimOf returns what a request says about its sender.
func claimOf(r *http.Request) tenant.Claim {
	return tenant.Claim{
		Address: tenantOf(r), Headers: r.Header.Values("X-Scope-OrgID"), Token: bearer(r.Header.Get("Authorization")),
	}
}

// bearer returns the token in an Authorization header, empty if there is none.
func bearer(header string) string {
	if scheme, token, ok := strings.Cut(header, " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return ""
}

// browser reports whether a request has a header that only browsers set. Browsers always set it on
// requests that may change something. For other senders the check costs two look-ups.
func browser(r *http.Request) bool {
	return len(r.Header["Origin"]) > 0 || len(r.Header["Sec-Fetch-Site"]) > 0
}

// fromLoopback reports whether a request came over a connection from this machine.
func fromLoopback(r *http.Request) bool {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return isLoopback(host)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// hostOf returns HOST, given HOST:PORT or HOST alone.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

type operatorSocketKey struct{}

// byOperatorSocket reports whether a request came by operator.sock, and not through a proxy. The file's
// permission lets the proxy in, but says nothing about the proxy's clients.
func byOperatorSocket(r *http.Request) bool {
	return atOperatorSocket(r) && forwarded(r.Header) == ""
}

func atOperatorSocket(r *http.Request) bool { return r.Context().Value(operatorSocketKey{}) != nil }

// forwarding has the headers that proxies, load balancers and content delivery networks add,
// spelled as in http.Header. Headers that begin with X-Forwarded count as well.
var forwarding = map[string]bool{
	"Forwarded": true, "Via": true, "Cdn-Loop": true,
	"X-Real-Ip": true, "X-Client-Ip": true, "Client-Ip": true, "True-Client-Ip": true, "X-Cluster-Client-Ip": true,
	"X-Remote-Ip": true, "X-Remote-Addr": true, "X-Proxyuser-Ip": true,
	"Proxy-Client-Ip": true, "Wl-Proxy-Client-Ip": true,
	"X-Original-Forwarded-For": true, "X-Original-To": true, "X-Original-Host": true, "X-Original-Url": true,
	"X-Rewrite-Url": true, "X-Host": true,
	"X-Envoy-External-Address": true, "X-Envoy-Internal": true, "X-Arr-Log-Id": true, "X-Arr-Ssl": true,
	"X-Azure-Clientip": true, "X-Azure-Socketip": true, "X-Appengine-User-Ip": true,
	"Cf-Connecting-Ip": true, "Cf-Connecting-Ipv6": true, "Cf-Ray": true, "Cf-Visitor": true,
	"Fastly-Client-Ip": true, "Fly-Client-Ip": true,
}

// forwarded returns the name of a header that a proxy has added, or "" if there is none. Even an empty
// header counts: a client may send an empty header, and a proxy then appends a second header.
func forwarded(h http.Header) string {
	for name := range h {
		if strings.HasPrefix(name, "X-Forwarded") || forwarding[name] {
			return name
		}
	}
	return ""
}
