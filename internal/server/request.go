package server

import (
	"net"
	"net/http"
	"strings"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// tenantOf says on whose behalf a request asks: what guard has found out, and until
// then the tenant of the address.
func tenantOf(r *http.Request) string {
	name, ok := tenant.FromContext(r.Context())
	if !ok {
		panic("BUG: a request came by no listener")
	}
	return name
}

// claimOf is what a request says of itself.
func claimOf(r *http.Request) tenant.Claim {
	return tenant.Claim{Address: tenantOf(r), Headers: r.Header.Values("X-Scope-OrgID"), Token: bearer(r.Header.Get("Authorization"))}
}

// bearer is the token in a header Authorization, empty if there is none.
func bearer(header string) string {
	if scheme, token, ok := strings.Cut(header, " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return ""
}

// browser reports whether a request has a header that browsers alone set, and always
// set on one that may change something. Other senders pay two look-ups here.
func browser(r *http.Request) bool {
	return len(r.Header["Origin"]) > 0 || len(r.Header["Sec-Fetch-Site"]) > 0
}

// fromLoopback reports whether a request came on a connection of this machine.
func fromLoopback(r *http.Request) bool {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return isLoopback(host)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// hostOf is HOST of HOST:PORT or HOST.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

type operatorSocketKey struct{}

// byOperatorSocket reports whether a request came by operator.sock, and by no proxy: that
// would let its clients operate, and they are not known by the permission of a file.
func byOperatorSocket(r *http.Request) bool {
	return atOperatorSocket(r) && forwarded(r.Header) == ""
}

func atOperatorSocket(r *http.Request) bool { return r.Context().Value(operatorSocketKey{}) != nil }

// forwarding are headers that proxies, load balancers and content networks add, as
// http.Header spells them, besides all that begin with X-Forwarded.
var forwarding = map[string]bool{
	"Forwarded": true, "Via": true, "Cdn-Loop": true,
	"X-Real-Ip": true, "X-Client-Ip": true, "Client-Ip": true, "True-Client-Ip": true, "X-Cluster-Client-Ip": true,
	"X-Remote-Ip": true, "X-Remote-Addr": true, "X-Proxyuser-Ip": true, "Proxy-Client-Ip": true, "Wl-Proxy-Client-Ip": true,
	"X-Original-Forwarded-For": true, "X-Original-To": true, "X-Original-Host": true, "X-Original-Url": true, "X-Rewrite-Url": true, "X-Host": true,
	"X-Envoy-External-Address": true, "X-Envoy-Internal": true, "X-Arr-Log-Id": true, "X-Arr-Ssl": true,
	"X-Azure-Clientip": true, "X-Azure-Socketip": true, "X-Appengine-User-Ip": true,
	"Cf-Connecting-Ip": true, "Cf-Connecting-Ipv6": true, "Cf-Ray": true, "Cf-Visitor": true, "Fastly-Client-Ip": true, "Fly-Client-Ip": true,
}

// forwarded returns a header that a proxy has added, empty for none. That it is there
// counts, and not what it says: a client may send an empty one, and a proxy then adds its
// own behind it.
func forwarded(h http.Header) string {
	for name := range h {
		if strings.HasPrefix(name, "X-Forwarded") || forwarding[name] {
			return name
		}
	}
	return ""
}
