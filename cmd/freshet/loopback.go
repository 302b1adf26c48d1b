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
	if host, _, _ := net.SplitHostPort(r.RemoteAddr); !isLoopback(host) {
		return errors.New("this is answered on loopback only; run it on the server's own machine")
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For"} {
		if r.Header.Get(name) != "" {
			return fmt.Errorf("this is answered on loopback only, and not by way of a proxy (%s)", name)
		}
	}
	// A page can have its own name lead to loopback. Then it is of the same origin,
	// and gives itself away by the name alone.
	if host := hostOf(r.Host); !isLoopback(host) && !strings.EqualFold(host, "localhost") && !all.named(host) {
		return fmt.Errorf("this is answered on loopback only: Host %q is neither a loopback address, nor localhost, nor one that http.listen names", r.Host)
	}
	// Even a GET costs here: it takes a tap or a processor. So none of a page's
	// requests may pass as harmless.
	changing := r.Clone(r.Context())
	changing.Method = http.MethodPost
	if err := http.NewCrossOriginProtection().Check(changing); err != nil {
		return fmt.Errorf("this is not for web pages of others: %w", err)
	}
	return nil
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

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
