package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// onLoopback refuses all but this machine's users: without passwords, what shows
// memory or raw data, or changes anything, is for them.
func (s *server) onLoopback(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.http.elsewhere(r); err != nil {
			s.refused.WithLabelValues(reasonOf(err)).Inc()
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		h(w, r)
	}
}

// elsewhere says why a request may come from somebody who is not on this machine.
// A loopback address alone proves little: a proxy has one, and so has a browser
// here that runs pages of others.
func (all httpServers) elsewhere(r *http.Request) error {
	if !fromLoopback(r) {
		return denial{reasonOperator, errors.New("this is answered on loopback only; run it on the server's own machine")}
	}
	if name := forwarded(r.Header); name != "" {
		return denial{reasonOperator, fmt.Errorf("this is answered on loopback only, and not by way of a proxy (%s)", name)}
	}
	// A page can have its own name lead to loopback. Then it is of the same origin,
	// and gives itself away by the name alone.
	if host := hostOf(r.Host); !isLoopback(host) && !strings.EqualFold(host, "localhost") && !all.named(host) {
		return denial{reasonHost, fmt.Errorf("this is answered on loopback only: Host %q is neither a loopback address, nor localhost, nor one that http.listen names", r.Host)}
	}
	return foreignPage(r)
}

// forwarding are headers that proxies, load balancers and content networks add, as
// http.Header spells them, besides all that begin with X-Forwarded.
var forwarding = map[string]bool{
	"Forwarded": true, "Via": true, "Cdn-Loop": true,
	"X-Real-Ip": true, "X-Client-Ip": true, "Client-Ip": true, "True-Client-Ip": true, "X-Cluster-Client-Ip": true,
	"X-Remote-Ip": true, "X-Remote-Addr": true, "X-Proxyuser-Ip": true, "Proxy-Client-Ip": true, "Wl-Proxy-Client-Ip": true,
	"X-Original-Forwarded-For": true, "X-Original-Host": true, "X-Original-Url": true, "X-Rewrite-Url": true, "X-Host": true,
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

// named reports whether an address of the configuration has that host.
func (all httpServers) named(host string) bool {
	for _, h := range all {
		if own := hostOf(h.address); own != "" && strings.EqualFold(own, host) {
			return true
		}
	}
	return false
}

// hostOf is HOST of HOST:PORT or HOST.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
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
