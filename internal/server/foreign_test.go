package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/settings"
)

// onlyHTTP starts a server that only answers over HTTP. `more` has more keys of the section http, and
// `sections` has more sections.
func onlyHTTP(t *testing.T, more string, sections ...string) *server {
	t.Helper()
	return running(t, `
data_dir: `+t.TempDir()+`
http: {listen: "127.0.0.1:0"`+more+`}
dogstatsd: {udp: "", unix: "", unixgram: ""}
self: {probe: false}
`+strings.Join(sections, "\n")+"\n")
}

// requestFor returns a method and a path that match the pattern of a route.
func requestFor(pattern string) (method, path string) {
	method, path, found := strings.Cut(pattern, " ")
	if !found {
		method, path = http.MethodGet, pattern
	}
	if strings.HasSuffix(path, "/api/v1/") {
		path += "labels"
	}
	return method, strings.NewReplacer("{id}", "x", "{$}", "").Replace(path)
}

// asked sends one request on loopback. `headers` are separated by "; ", and the header Host sets the
// host.
func (s *server) asked(t *testing.T, method, path, headers string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.http[0].addr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for header := range strings.SplitSeq(headers, "; ") {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			r.Host = value
		} else if name != "" {
			r.Header.Add(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// A page of another origin can make a browser on this machine send a form, or a body without a
// content type. Remote write 1.0 allows such a body. Routes that write or operate refuse such requests.
// Senders, which are not browsers, are not affected.
func TestForeignPagesChangeNothing(t *testing.T) {
	s := onlyHTTP(t, "")
	foreign := map[string]string{
		"a page elsewhere":             "Sec-Fetch-Site: cross-site; Origin: https://evil.example",
		"a page on another port":       "Sec-Fetch-Site: same-site; Origin: http://127.0.0.1:3000",
		"a page in an old browser":     "Origin: http://evil.example",
		"a page with an opaque origin": "Origin: null",
		"a page that sends no origin":  "Sec-Fetch-Site: cross-site",
	}
	for pattern, e := range exposures {
		method, path := requestFor(pattern)
		if e == writes {
			if !strings.Contains(pattern, " ") {
				method = http.MethodPost
			}
		} else if e != operates || method == http.MethodGet {
			continue
		}
		for why, headers := range foreign {
			for _, kind := range []string{
				"", "; Content-Type: text/plain", "; Content-Type: application/x-protobuf", "; Content-Type: application/json",
			} {
				before := testutil.ToFloat64(s.refused.WithLabelValues(reasonForeignPage))
				resp, text := s.asked(t, method, path, headers+kind)
				if resp.StatusCode != http.StatusForbidden || !strings.Contains(text, "web pages of other origins") {
					t.Errorf("%s, %s%s: %s: %s", pattern, why, kind, resp.Status, text)
				}
				if after := testutil.ToFloat64(s.refused.WithLabelValues(reasonForeignPage)); after != before+1 {
					t.Errorf("%s, %s: the metric rose by %g, want 1", pattern, why, after-before)
				}
			}
		}
		if e == writes {
			for why, headers := range map[string]string{
				"an old sender, without a content type": "",
				"our own page":                          "Sec-Fetch-Site: same-origin; Origin: http://" + s.http[0].addr(),
			} {
				if resp, text := s.asked(t, method, path, headers); resp.StatusCode == http.StatusForbidden {
					t.Errorf("%s, %s: %s: %s", pattern, why, resp.Status, text)
				}
			}
		}
	}
}

// The owner of a page's host name can make the name resolve to loopback. Then the page has the same
// origin as the server. Such a page may neither read nor write, whatever headers it adds. http.hosts
// allows the name of a proxy on this machine.
func TestANameThatLeadsToLoopback(t *testing.T) {
	const rebound = "Host: evil.example:7125"
	strict, named, any := onlyHTTP(t, ""), onlyHTTP(t, `, hosts: [metrics.example]`), onlyHTTP(t, `, hosts: ["*"]`)
	tokens := twoTenants(t)
	for _, tt := range []struct {
		why     string
		server  *server
		headers string
		refused bool
	}{
		{"a page whose name resolves to loopback", strict, rebound, true},
		{"such a page posing as a proxy, with headers that it may set", strict,
			rebound + "; X-Forwarded-For: 10.0.0.7; X-Real-IP: 10.0.0.7", true},
		{"a name that begins like ours", strict, "Host: localhost.evil.example", true},
		{"a name with a dot at its end", strict, "Host: evil.example.:7125", true},
		{"an address", strict, "Host: 10.0.0.7:7125", false},
		{"an address of IPv6", strict, "Host: [fd00::7]:7125", false},
		{"localhost", strict, "Host: localhost:7125", false},
		{"a name missing in http.hosts", named, rebound, true},
		{"the name that a proxy on this machine passes on", named, "Host: Metrics.example", false},
		{"any name", any, rebound, false},
		{"a server with tokens, which such a page does not have", tokens,
			rebound + "; Authorization: Bearer " + alpha, false},
	} {
		for pattern, e := range exposures {
			if e != reads && e != splits && e != operatesMany || tt.server == tokens && e == operatesMany {
				continue
			}
			method, path := requestFor(pattern)
			resp, text := tt.server.asked(t, method, path, tt.headers)
			if (resp.StatusCode == http.StatusForbidden && strings.Contains(text, "http.hosts")) != tt.refused {
				t.Errorf("%s, %s: %s: %s", pattern, tt.why, resp.Status, text)
			}
		}
	}
	// When a browser writes, its headers show that it is a browser. Other senders are never refused for
	// the host name that they use.
	for headers, want := range map[string]int{
		rebound + "; Origin: http://evil.example:7125":                              http.StatusForbidden,
		rebound + "; Origin: http://evil.example:7125; Sec-Fetch-Site: same-origin": http.StatusForbidden,
		"Host: metrics.example": http.StatusNoContent,
	} {
		resp, text := strict.asked(t, http.MethodPost, "/api/v1/write", headers)
		if (resp.StatusCode == http.StatusForbidden) != (want == http.StatusForbidden) {
			t.Errorf("write with headers %s: status %s: %s", headers, resp.Status, text)
		}
	}
	if n := testutil.ToFloat64(strict.refused.WithLabelValues(reasonHost)); n == 0 {
		t.Error("refusals because of the Host header are not counted")
	}
}

// Only pages of origins that http.cors_origin allows may read answers, in every part of the API. By
// default no other origin is allowed. No page of another origin may write.
func TestForeignPagesRead(t *testing.T) {
	preflight := func(s *server, path, origin string) string {
		resp, _ := s.asked(t, http.MethodOptions, path,
			"Origin: "+origin+"; Access-Control-Request-Method: GET; Access-Control-Request-Headers: authorization")
		return resp.Header.Get("Access-Control-Allow-Origin")
	}
	none := onlyHTTP(t, "")
	some := onlyHTTP(t, `, cors_origin: 'https://(grafana|wall)\.example'`)
	all := onlyHTTP(t, `, cors_origin: '.*'`)
	const grafana, evil = "https://grafana.example", "https://grafana.example.evil.example"
	for _, path := range []string{
		"/api/v1/query?query=1", "/api/v1/labels", "/api/v1/events", "/api/v1/nothing", "/api/v1/status/explain?line=a:1%7Cc",
		"/api/v1/status/ledger",
		"/api/v1/status/process", "/api/v1/status/limits", "/api/v1/status/config", "/self/api/v1/query?query=1", "/metrics",
	} {
		for _, tt := range []struct {
			server       *server
			origin, want string
		}{
			{none, grafana, ""}, {some, grafana, grafana}, {some, evil, ""}, {some, "http://grafana.example", ""},
			{all, evil, "*"},
		} {
			resp, _ := tt.server.asked(t, http.MethodGet, path, "Sec-Fetch-Site: cross-site; Origin: "+tt.origin)
			if got := resp.Header.Get("Access-Control-Allow-Origin"); got != tt.want {
				t.Errorf("http.cors_origin %q, %s: the answer to the origin %s allows %q, want %q",
					tt.server.config.HTTP.CORSOrigin, path, tt.origin, got, tt.want)
			}
			if strings.HasPrefix(path, "/api/v1/") {
				path, _, _ := strings.Cut(path, "?")
				if got := preflight(tt.server, path, tt.origin); got != tt.want {
					t.Errorf("http.cors_origin %q, %s: the preflight of the origin %s allows %q, want %q",
						tt.server.config.HTTP.CORSOrigin, path, tt.origin, got, tt.want)
				}
			}
		}
	}
	resp, text := all.asked(t, http.MethodPost, "/api/v1/write", "Origin: "+evil)
	if resp.StatusCode != http.StatusForbidden || resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a page that may only read gets the status %s for a write, want 403: %s", resp.Status, text)
	}
	for text, want := range map[string]string{
		`http: {cors_origin: "("}`:                "http.cors_origin = (: is not a regular expression",
		`http: {hosts: ["http://a"]}`:             "http.hosts[0] = http://a: must be a host name without a port",
		`http: {hosts: ["*.example"]}`:            "http.hosts[0] = *.example: must be a host name without a port",
		`http: {hosts: ["a", "metrics.example"]}`: "",
	} {
		_, err := settings.Schema().Load(writeFile(t, text), func(string) (string, bool) { return "", false })
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
}

// overGRPC returns a request of OTLP over gRPC. It has only headers, since guardOTLP reads nothing
// else.
func overGRPC(t *testing.T, header, value string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(tenant.NewContext(t.Context(), tenant.Default), http.MethodPost, "/Export", nil)
	r.ProtoMajor = 2
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set(header, value)
	return r
}

// Even if a header names the tenant, a sender cannot write into the tenant of Freshet's own metrics, by
// any protocol. Over gRPC, this used to be possible.
func TestNobodyWritesIntoTheOwnTenant(t *testing.T) {
	for _, more := range []string{
		", trust_tenant_header: true, allow_unknown_tenants: true", ", trust_tenant_header: true",
	} {
		s := onlyHTTP(t, more, "limits: {tenants: {freshet: {}, shop: {}}}")
		for name, refused := range map[string]bool{"freshet": true, "shop": false} {
			for _, path := range []string{"/api/v1/write", "/v1/metrics", "/api/v1/otlp/v1/metrics"} {
				for _, from := range []string{"", "; X-Forwarded-For: 192.0.2.1"} {
					resp, text := s.asked(t, http.MethodPost, path, "X-Scope-OrgID: "+name+from)
					forbidden := resp.StatusCode == http.StatusForbidden && strings.Contains(text, "Freshet's own metrics")
					if forbidden != refused {
						t.Errorf("tenant %s, %s: status %s: %s", name, path, resp.Status, text)
					}
				}
			}
			reached := ""
			w := httptest.NewRecorder()
			s.guardOTLP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached = tenantOf(r) })).
				ServeHTTP(w, overGRPC(t, "X-Scope-OrgID", name))
			denied := w.Result().Trailer.Get("Grpc-Status") == strconv.Itoa(int(codes.PermissionDenied))
			if denied != refused || (reached == name) == refused {
				t.Errorf("%s: a request over gRPC got the trailer %v and reached the tenant %q, want a refusal: %t",
					name, w.Result().Trailer, reached, refused)
			}
		}
	}
}

// A browser asks for permission before a page of another origin may send gRPC's content type. The
// server refuses such a page even without this protection.
func TestForeignPagesOverGRPC(t *testing.T) {
	s := onlyHTTP(t, "")
	// The first origin is the origin of the httptest server itself.
	for origin, refused := range map[string]bool{"http://example.com": false, "http://evil.example": true} {
		reached := false
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })
		s.guardOTLP(next).ServeHTTP(httptest.NewRecorder(), overGRPC(t, "Origin", origin))
		if reached == refused {
			t.Errorf("a page of %q reached the handler: %t, want %t", origin, reached, !refused)
		}
	}
}

// The checks for browsers allocate nothing for requests of senders.
func TestSendersAreNotChecked(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/api/v1/write", nil)
	r.Header.Set("Content-Encoding", "snappy")
	r.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	s := new(server)
	if n := testing.AllocsPerRun(100, func() {
		if s.foreign(writes, r) != nil {
			t.Error("foreign refuses a sender")
		}
	}); n != 0 {
		t.Errorf("%g allocations for each request, want none", n)
	}
}
