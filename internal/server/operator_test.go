package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/settings"
)

// A user of this machine may read all data of the server. A client that reaches the server only
// through a proxy, or through a page in a browser on this machine, may not.
func TestLoopbackIsForThisMachinesUsers(t *testing.T) {
	for _, tt := range []struct {
		why, from, host string
		headers         string // separated by "; "
		want            string // a part of the refusal; "" if the request is allowed
	}{
		{"a command", "127.0.0.1:40000", "127.0.0.1:7125", "", ""},
		{"IPv6", "[::1]:40000", "[::1]:7125", "", ""},
		{"IPv6 without a port", "[::1]:40000", "[::1]", "", ""},
		{"by name", "127.0.0.1:40000", "LocalHost:7125", "", ""},
		{"the name in the configuration", "127.0.0.1:40000", "metrics.internal:7125", "", ""},
		{"typed into a browser", "127.0.0.1:40000", "localhost:7125", "Sec-Fetch-Site: none", ""},
		{"our own page", "127.0.0.1:40000", "localhost:7125",
			"Sec-Fetch-Site: same-origin; Origin: http://localhost:7125", ""},

		{"another machine", "10.0.0.7:40000", "127.0.0.1:7125", "", "only on loopback"},
		{"no address", "", "127.0.0.1:7125", "", "only on loopback"},
		{"a proxy on this machine", "127.0.0.1:40000", "127.0.0.1:7125", "X-Forwarded-For: 10.0.0.7",
			"a proxy (X-Forwarded-For)"},
		{"a proxy that follows the standard", "127.0.0.1:40000", "127.0.0.1:7125", "Forwarded: for=10.0.0.7",
			"a proxy (Forwarded)"},
		{"a client's empty header, then the proxy's own", "127.0.0.1:40000", "127.0.0.1:7125",
			"X-Forwarded-For: ; X-Forwarded-For: 10.0.0.7", "a proxy (X-Forwarded-For)"},
		{"an empty header alone", "127.0.0.1:40000", "127.0.0.1:7125", "x-forwarded-for: ", "a proxy (X-Forwarded-For)"},
		{"a proxy that names itself", "127.0.0.1:40000", "127.0.0.1:7125", "Via: 1.1 edge", "a proxy (Via)"},
		{"nginx as it is often set up", "127.0.0.1:40000", "127.0.0.1:7125", "X-Real-IP: 10.0.0.7", "a proxy (X-Real-Ip)"},
		{"a proxy that passes the host on", "127.0.0.1:40000", "127.0.0.1:7125", "X-Forwarded-Host: metrics.example",
			"a proxy (X-Forwarded-Host)"},
		{"a proxy that passes the protocol on", "127.0.0.1:40000", "127.0.0.1:7125", "X-Forwarded-Proto: https",
			"a proxy (X-Forwarded-Proto)"},
		{"HAProxy with option originalto", "127.0.0.1:40000", "127.0.0.1:7125", "X-Original-To: 10.0.0.8",
			"a proxy (X-Original-To)"},
		{"a content delivery network", "127.0.0.1:40000", "127.0.0.1:7125", "CF-Connecting-IP: 10.0.0.7",
			"a proxy (Cf-Connecting-Ip)"},
		{"a mesh", "127.0.0.1:40000", "127.0.0.1:7125", "X-Envoy-External-Address: 10.0.0.7",
			"a proxy (X-Envoy-External-Address)"},
		{"a balancer behind another", "127.0.0.1:40000", "127.0.0.1:7125", "True-Client-IP: 10.0.0.7",
			"a proxy (True-Client-Ip)"},
		{"a proxy that passes on only Host", "127.0.0.1:40000", "metrics.example", "", `Host "metrics.example" is neither`},
		{"an image in a page", "127.0.0.1:40000", "127.0.0.1:7125", "Sec-Fetch-Site: cross-site",
			"web pages of other origins"},
		{"a page of another port", "127.0.0.1:40000", "127.0.0.1:7125", "Sec-Fetch-Site: same-site",
			"web pages of other origins"},
		{"a page in an old browser", "127.0.0.1:40000", "127.0.0.1:7125", "Origin: http://evil.example",
			"web pages of other origins"},
		{"a page whose name resolves to loopback", "127.0.0.1:40000", "evil.example:7125",
			"Origin: http://evil.example:7125; Sec-Fetch-Site: same-origin", `Host "evil.example:7125" is neither`},
		{"a name that begins like ours", "127.0.0.1:40000", "localhost.evil.example", "", "is neither"},
		{"no name, and an address without one", "127.0.0.1:40000", "", "", "is neither"},
	} {
		s := &server{
			config: settings.Default(), registry: prometheus.NewRegistry(),
			http: httpServers{{address: "metrics.internal:7125"}, {address: ":7126"}},
		}
		if err := s.openAccess(); err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r := httptest.NewRequest(method, "/", nil)
			r.RemoteAddr, r.Host = tt.from, tt.host
			for header := range strings.SplitSeq(tt.headers, "; ") {
				if name, value, ok := strings.Cut(header, ": "); ok {
					r.Header.Add(name, value)
				}
			}
			answered := false
			w := httptest.NewRecorder()
			s.forOperators(func(http.ResponseWriter, *http.Request) { answered = true })(w, r)
			if answered != (tt.want == "") || !answered &&
				(w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), tt.want)) {
				t.Errorf("%s, %s: answered %t, want %t; got the status %d and the body %s, want %q",
					tt.why, method, answered, tt.want == "", w.Code, w.Body, tt.want)
			}
		}
	}
}
