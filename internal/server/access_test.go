package server

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

// tenantsText returns a file with tokens: a token with all rights for each of two teams, and a
// token for each single right.
func tenantsText() string {
	var b strings.Builder
	b.WriteString("tenants:\n")
	for _, name := range []string{"team-alpha", "team-beta"} {
		fmt.Fprintf(&b, "- {name: %s, tokens: [{sha256: %x}]}\n", name, sha256.Sum256([]byte(name+"-both")))
	}
	for _, may := range []string{"read", "write"} {
		fmt.Fprintf(&b, "- {name: only-%s, may: %[1]s, tokens: [{sha256: %x}]}\n", may, sha256.Sum256([]byte("only-"+may)))
	}
	return b.String()
}

const (
	alpha = "team-alpha-both" // tokens
	beta  = "team-beta-both"
)

// twoTenants starts a server with tokens and a socket for each of two tenants.
func twoTenants(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "tenants.yaml")
	if err := os.WriteFile(file, []byte(tenantsText()), 0o600); err != nil {
		t.Fatal(err)
	}
	return running(t, `
data_dir: `+filepath.Join(dir, "data")+`
http: {listen: "127.0.0.1:0", tenants_file: `+file+`}
dogstatsd:
  udp: 127.0.0.1:0
  unixgram: ""
  unix: ""
  tenant: team-alpha
  host_label: false
  listeners: [{network: udp, address: "127.0.0.2:0", tenant: team-beta}]
# On a busy machine a stage is over its budget, and its record would hold the one CPU profiler
# while a test asks for a profile.
self: {recorder: {budgets: false}}
`)
}

// ofBeta matches text that only team-beta may see: its name, the names and values of its series,
// its socket, and the reason in its books.
var ofBeta = regexp.MustCompile(`beta|73190842|127\.0\.0\.2|bad_value`)

const (
	linesOfAlpha = "alpha_level:1|g|#alpha_tag:x\n_e{5,1}:alpha|x"
	linesOfBeta  = "beta_level:73190842|g|#beta_tag:x\n_e{4,1}:beta|x\nbeta_bad:x|c"
)

// question is one way to request a route.
type question struct {
	path, body string
	own        bool // the answer for team-beta must match ofBeta, which proves that the test can see a leak
}

const anySeries = "%7B__name__%3D~%22.%2B%22%7D" // the selector {__name__=~".+"}

// questions returns a request for each route that shows data.
func questions(t *testing.T) map[string]question {
	now := time.Now()
	span := fmt.Sprintf("&start=%d&end=%d&step=1", now.Add(-time.Hour).Unix(), now.Add(time.Minute).Unix())
	request := prompb.ReadRequest{Queries: []*prompb.Query{{
		EndTimestampMs: now.Add(time.Minute).UnixMilli(),
		Matchers:       []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_RE, Name: "__name__", Value: ".+"}},
	}}}
	read, err := request.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]question{
		"GET /{$}":                   {path: "/"},
		"/api/v1/events":             {path: "/api/v1/events", own: true},
		"/api/v1/status/explain":     {path: "/api/v1/status/explain?line=a:1%7Cg", own: true},
		"GET /api/v1/status/ledger":  {path: "/api/v1/status/ledger", own: true},
		"GET /api/v1/status/process": {path: "/api/v1/status/process", own: true},
		"GET /api/v1/status/queries": {path: "/api/v1/status/queries", own: true},
		"GET /api/v1/status/rules":   {path: "/api/v1/status/rules", own: true},
		"GET /api/v1/status/senders": {path: "/api/v1/status/senders", own: true},
		"GET /api/v1/status/top":     {path: "/api/v1/status/top", own: true},
		"GET /api/v1/status/limits":  {path: "/api/v1/status/limits", own: true},
		"GET /metrics":               {path: "/metrics", own: true},
		"GET /federate":              {path: "/federate?match[]=" + anySeries, own: true},

		"GET /config/v1/rules":                                {path: "/config/v1/rules", own: true},
		"GET /config/v1/rules/{namespace}":                    {path: "/config/v1/rules/shared", own: true},
		"GET /config/v1/rules/{namespace}/{group}":            {path: "/config/v1/rules/shared/g", own: true},
		"GET /prometheus/config/v1/rules":                     {path: "/prometheus/config/v1/rules", own: true},
		"GET /prometheus/config/v1/rules/{namespace}":         {path: "/prometheus/config/v1/rules/shared", own: true},
		"GET /prometheus/config/v1/rules/{namespace}/{group}": {path: "/prometheus/config/v1/rules/shared/g", own: true},
		"/prometheus/api/v1/":                                 {path: "/prometheus/api/v1/rules", own: true},
		"GET /prometheus/api/v1/status/buildinfo":             {path: "/prometheus/api/v1/status/buildinfo"},

		"/query":               {path: "/api/v1/query?query=" + anySeries, own: true},
		"/query_range":         {path: "/api/v1/query_range?query=" + anySeries + span, own: true},
		"/query_exemplars":     {path: "/api/v1/query_exemplars?query=up" + span},
		"/format_query":        {path: "/api/v1/format_query?query=up"},
		"/parse_query":         {path: "/api/v1/parse_query?query=up"},
		"/labels":              {path: "/api/v1/labels", own: true},
		"/series":              {path: "/api/v1/series?match[]=" + anySeries, own: true},
		"/label/{name}/values": {path: "/api/v1/label/__name__/values", own: true},
		"/metadata":            {path: "/api/v1/metadata", own: true},
		"/rules":               {path: "/api/v1/rules", own: true},
		"/alerts":              {path: "/api/v1/alerts"},
		"/alertmanagers":       {path: "/api/v1/alertmanagers"},
		"/targets":             {path: "/api/v1/targets"},
		"/targets/metadata":    {path: "/api/v1/targets/metadata"},
		"/scrape_pools":        {path: "/api/v1/scrape_pools"},
		"/status/buildinfo":    {path: "/api/v1/status/buildinfo"},
		"/status/runtimeinfo":  {path: "/api/v1/status/runtimeinfo"},
		"/status/tsdb":         {path: "/api/v1/status/tsdb", own: true},
		"/status/cardinality":  {path: "/api/v1/status/cardinality", own: true},
		"/status/walreplay":    {path: "/api/v1/status/walreplay"},
		"/features":            {path: "/api/v1/features"},
		"/notifications":       {path: "/api/v1/notifications"},
		"/read":                {path: "/api/v1/read", body: string(snappy.Encode(nil, read)), own: true},
	}
}

// A tenant requests every route and finds no data of the other tenant. The other tenant sees its own
// data there, so the data exists.
func TestTenantsDoNotCrossOver(t *testing.T) {
	s := twoTenants(t)
	for whose, name := range map[string]string{"team-alpha": "alpha_stored", "team-beta": "beta_stored"} {
		_, err := s.stores.WriteTiles(t.Context(), whose, tile.Width10s, []tile.Sample{{
			Series: &tile.Series{Labels: labels.FromStrings("__name__", name)}, T: time.Now().UnixMilli(), V: 1,
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for token, group := range map[string]string{
		alpha: "{name: g, rules: [{record: alpha_recorded, expr: alpha_level}]}",
		beta:  "{name: g, rules: [{record: beta_recorded, expr: beta_level}]}",
	} {
		resp, text := s.answer(t, http.MethodPost, "/config/v1/rules/shared", token, group, true)
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("setting a rule with the token %q: %s: %s", token, resp.Status, text)
		}
	}
	asked := questions(t)
	for path, q := range asked {
		method := http.MethodGet
		if q.body != "" {
			method = http.MethodPost
		}
		// Both tenants send all the time, since some routes show only data that arrives during the
		// request.
		eventually(t, path+" has the data of team-beta", func() bool {
			s.send(t, "team-alpha", linesOfAlpha)
			s.send(t, "team-beta", linesOfBeta)
			resp, text := s.answer(t, method, q.path, beta, q.body, true)
			return resp.StatusCode == http.StatusOK && (!q.own || ofBeta.MatchString(text))
		})
		resp, text := s.answer(t, method, q.path, alpha, q.body, true)
		if leaked := ofBeta.FindString(text); resp.StatusCode != http.StatusOK || leaked != "" {
			t.Errorf("%s: team-alpha gets the status %s and the foreign text %q, want 200 and no foreign text; the "+
				"answer is\n%s",
				path, resp.Status, leaked, text)
		}
		for token, want := range map[string]int{
			"": http.StatusUnauthorized, "guessed": http.StatusUnauthorized, "only-write": http.StatusForbidden,
		} {
			resp, text := s.answer(t, method, q.path, token, q.body, true)
			if resp.StatusCode != want || (want == http.StatusUnauthorized) != (resp.Header.Get("WWW-Authenticate") != "") ||
				ofBeta.MatchString(text) {
				t.Errorf("%s with the token %q: status %s, want %d: %s", path, token, resp.Status, want, text)
			}
		}
	}

	recorded, err := s.recorder.Record(t.Context(), "a record that operators may read")
	if err != nil {
		t.Fatal(err)
	}
	id := recorded.ID

	// The test must request every route, either above or in the loops below.
	for pattern, e := range exposures {
		method, path, found := strings.Cut(pattern, " ")
		if !found {
			method, path = http.MethodGet, pattern
		}
		switch e {
		case reads, splits:
			if _, tried := asked[pattern]; !tried && pattern != "/api/v1/" {
				t.Errorf("%s: the test does not request this route; add a question", pattern)
			}
		case writes:
			s.writesAreApart(t, method, path)
		case readsHere:
			s.streamsAreApart(t, path)
		case operates, operatesMany:
			if path == "/self/api/v1/" {
				path += "labels"
			}
			s.isForOperators(t, method, strings.ReplaceAll(path, "{id}", id))
		case probes:
			if resp, text := s.answer(t, method, path, "", "", true); resp.StatusCode != http.StatusOK ||
				ofBeta.MatchString(text) {
				t.Errorf("%s: %s %s", pattern, resp.Status, text)
			}
		case pages:
			s.isForEverybody(t, path)
		}
	}
	for _, path := range prometheusRoutes(t) {
		_, ours := exposures["GET /api/v1"+path]
		if _, tried := asked[path]; !tried && !ours {
			t.Errorf("/api/v1%s: the test does not request this route; add a question", path)
		}
	}
}

// prometheusRoutes returns the routes below /api/v1/ that the Prometheus API registers in a router of
// its own.
func prometheusRoutes(t *testing.T) (paths []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(),
		filepath.Join("..", "..", "internal", "adapter", "promapi", "routes.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		route, ok := n.(*ast.CompositeLit) // {methods, path, handler}
		if !ok || route.Type != nil || len(route.Elts) != 3 {
			return true
		}
		if path, ok := route.Elts[1].(*ast.BasicLit); ok {
			text, _ := strconv.Unquote(path.Value)
			paths = append(paths, text)
		}
		return true
	})
	if !slices.Contains(paths, "/query") || !slices.Contains(paths, "/read") {
		t.Fatalf("found only %v", paths)
	}
	return paths
}

// writesAreApart checks the rights to write through a route.
func (s *server) writesAreApart(t *testing.T, method, path string) {
	t.Helper()
	for token, want := range map[string]int{"": http.StatusUnauthorized, "only-read": http.StatusForbidden} {
		if resp, text := s.answer(t, method, path, token, "", true); resp.StatusCode != want {
			t.Errorf("%s with the token %q: status %s, want %d: %s", path, token, resp.Status, want, text)
		}
	}
	resp, text := s.answer(t, method, path, "only-write", "", true)
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden || ofBeta.MatchString(text) {
		t.Errorf("%s: %s: %s", path, resp.Status, text)
	}
}

// streamsAreApart checks who sees which data on a streaming route.
func (s *server) streamsAreApart(t *testing.T, path string) {
	t.Helper()
	for token, want := range map[string]int{"": http.StatusUnauthorized, "only-write": http.StatusForbidden} {
		resp := s.request(t, http.MethodGet, path, token, "", true) // the body may have no end
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("%s with the token %q: status %s, want %d", path, token, resp.Status, want)
		}
	}
	resp := s.request(t, http.MethodGet, path, alpha, "", true)
	if resp.Body.Close(); resp.StatusCode != http.StatusForbidden {
		t.Errorf("%s by a proxy: %s", path, resp.Status)
	}
	open := func(token string) *bufio.Reader {
		stream := s.request(t, http.MethodGet, path, token, "", false)
		t.Cleanup(func() { stream.Body.Close() })
		return bufio.NewReader(stream.Body)
	}
	readTo := func(stream *bufio.Reader, marks ...string) string {
		var text bytes.Buffer
		for !slices.ContainsFunc(marks, func(m string) bool { return bytes.Contains(text.Bytes(), []byte(m)) }) {
			b, err := stream.ReadByte()
			if err != nil {
				t.Fatalf("the stream of %s ended: %v", path, err)
			}
			text.WriteByte(b)
		}
		return text.String()
	}
	ofAlpha, own := open(alpha), open(beta)
	s.send(t, "team-beta", linesOfBeta)
	readTo(own, "beta_level") // by now the other tenant's stream could have shown the line, too
	s.send(t, "team-alpha", linesOfAlpha)
	if text := readTo(ofAlpha, "alpha_level", "beta_level"); ofBeta.MatchString(text) {
		t.Errorf("%s: team-alpha sees data of team-beta in the stream\n%q", path, text)
	}
}

// isForEverybody checks that a browser without a token gets a file of the web page.
func (s *server) isForEverybody(t *testing.T, path string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+s.http[0].addr()+strings.Replace(path, "{$}", "", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || ofBeta.Match(text) || resp.StatusCode != http.StatusOK && !strings.Contains(path, "{file}") {
		t.Errorf("%s: %v, %s: %s", path, err, resp.Status, text)
	}
}

// isForOperators checks a route that shows the whole process. A tenant on another machine must not see
// it. Users of this machine may see it without a token.
func (s *server) isForOperators(t *testing.T, method, path string) {
	t.Helper()
	if resp, text := s.answer(t, method, path, alpha, "", true); resp.StatusCode != http.StatusForbidden ||
		ofBeta.MatchString(text) {
		t.Errorf("%s %s: team-alpha gets the status %s, want 403: %s", method, path, resp.Status, text)
	}
	want := http.StatusOK
	switch {
	case strings.HasPrefix(path, "/api/v1/admin/cluster/"):
		want = http.StatusNotFound // the server is in no cluster
	case strings.HasPrefix(path, "/api/v1/admin/history/"):
		want = http.StatusBadRequest // names no block, or asks nothing
	case changes[method+" "+path] == isRefused:
		want = http.StatusNotImplemented
	}
	if resp, text := s.answer(t, method, path+"?seconds=1", "", "", false); resp.StatusCode != want {
		t.Errorf("%s %s: a user of this machine gets the status %s, want %d: %s", method, path, resp.Status, want, text)
	}
}

// A tenant's view of /metrics has only metrics that are labelled with the tenant. Sums over all tenants
// would show how much other tenants send. Users of this machine see everything.
func TestMetricsOfATenant(t *testing.T) {
	s := twoTenants(t)
	eventually(t, "both have metrics", func() bool {
		s.send(t, "team-alpha", linesOfAlpha)
		s.send(t, "team-beta", linesOfBeta)
		_, text := s.answer(t, http.MethodGet, "/metrics", "", "", false)
		return strings.Contains(text, `tenant="team-alpha"`) && strings.Contains(text, `tenant="team-beta"`) &&
			strings.Contains(text, "\ngo_goroutines ")
	})
	_, text := s.answer(t, http.MethodGet, "/metrics", alpha, "", false)
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, `tenant="team-alpha"`) {
			t.Errorf("team-alpha sees the metric %s, want only metrics with its name in the label tenant", line)
		}
	}
}

// A header that may name any tenant still may not name the tenant of Freshet's own metrics, which shows
// the whole process.
func TestOwnTenantIsNoGuess(t *testing.T) {
	s := running(t, `
data_dir: `+t.TempDir()+`
http: {listen: "127.0.0.1:0", trust_tenant_header: true, allow_unknown_tenants: true}
dogstatsd: {udp: "", unix: "", unixgram: ""}
`)
	for name, want := range map[string]int{"freshet": http.StatusForbidden, "somebody": http.StatusOK} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.http[0].addr()+"/api/v1/labels", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Scope-OrgID", name)
		r.Header.Set("X-Forwarded-For", "192.0.2.1") // as if the request came through a proxy
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s", name, resp.Status)
		}
	}
}

// A token acts for its own tenant, wherever it is used and whatever else the request says.
func TestATokenIsForItsTenant(t *testing.T) {
	s := twoTenants(t)
	explain := "/api/v1/status/explain?line=a:1%7Cc&tenant=team-beta"
	if resp, text := s.answer(t, http.MethodGet, explain, alpha, "", false); resp.StatusCode != http.StatusForbidden ||
		strings.Contains(text, "127.0.0.2") {
		t.Errorf("a token of team-alpha got an explanation for another tenant: %s: %s", resp.Status, text)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.http[0].addr()+"/api/v1/labels", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "bearer "+alpha)
	for header, want := range map[string]int{"team-alpha": http.StatusOK, "team-beta": http.StatusForbidden} {
		r.Header.Set("X-Scope-OrgID", header)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("X-Scope-OrgID: %s: status %s", header, resp.Status)
		}
	}
}

// A token without the right to write writes nothing. A token with this right writes for its own tenant.
func TestTheRightToWrite(t *testing.T) {
	s := twoTenants(t)
	for token, want := range map[string]string{"only-read": "", "only-write": "only-write", beta: "team-beta"} {
		written := ""
		h := s.guard(writes, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { written = tenantOf(r) }))
		r := httptest.NewRequestWithContext(tenant.NewContext(t.Context(), "default"), http.MethodPost, "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); written != want || (w.Code == http.StatusForbidden) != (want == "") {
			t.Errorf("the token %s wrote for the tenant %q, want %q; status %d: %s", token, written, want, w.Code, w.Body)
		}
	}
}

// A reload reads http.tenants_file again. A broken file changes nothing.
func TestTenantsAreReloaded(t *testing.T) {
	s := twoTenants(t)
	status := func(token string) int {
		resp, _ := s.answer(t, http.MethodGet, "/api/v1/labels", token, "", true)
		return resp.StatusCode
	}
	file := s.config.HTTP.TenantsFile
	for _, tt := range []struct {
		why, text, problem string
		alpha, new         int
	}{
		{"broken", "tenants:\n- name: team-new\n  tokens: [{sha256: 7}]\n", file + ":3: tenants[0].tokens[0]: sha256 must be",
			http.StatusOK, http.StatusUnauthorized},
		{"another", fmt.Sprintf("tenants:\n- name: team-new\n  tokens: [{sha256: %x}]\n", sha256.Sum256([]byte("new"))), "",
			http.StatusUnauthorized, http.StatusOK},
	} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		resp, said := s.answer(t, http.MethodPost, "/-/reload", "", "", false)
		if (resp.StatusCode == http.StatusOK) != (tt.problem == "") || !strings.Contains(said, tt.problem) {
			t.Errorf("%s: %s: %s", tt.why, resp.Status, said)
		}
		if a, n := status(alpha), status("new"); a != tt.alpha || n != tt.new {
			t.Errorf("%s: the old token gets the status %d and the new token %d, want %d and %d", tt.why, a, n, tt.alpha, tt.new)
		}
	}
}

// The tenant header names the tenant. An unknown tenant and a second header are refused.
func TestTheTenantOfTheHeader(t *testing.T) {
	s := running(t, `
data_dir: `+t.TempDir()+`
http: {listen: "127.0.0.1:0", trust_tenant_header: true}
dogstatsd: {udp: "", unixgram: "", unix: ""}
limits: {tenants: {team-beta: {}}}
`)
	for _, tt := range []struct {
		headers []string
		want    string // a part of the answer
	}{
		{nil, `"tenant":"default"`},
		{[]string{"team-beta"}, `"tenant":"team-beta"`},
		{[]string{"team-gamma"}, `the tenant \"team-gamma\" is not known here`},
		{[]string{"team-gamma", "team-beta"}, "is given 2 times"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+s.http[0].addr()+"/api/v1/status/ledger", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["X-Scope-Orgid"] = tt.headers
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		if resp.Body.Close(); !strings.Contains(string(text), tt.want) {
			t.Errorf("%v: %s: %s; want %s", tt.headers, resp.Status, text, tt.want)
		}
	}
}

// A route without an entry in exposures cannot be registered.
func TestARouteNeedsADecision(t *testing.T) {
	defer func() {
		if said := fmt.Sprint(recover()); !strings.HasPrefix(said, "BUG: the route ") {
			t.Errorf("got %s", said)
		}
	}()
	(&routes{http.NewServeMux(), new(server).guard}).HandleFunc("GET /new", nil)
}

// Load reports settings that contradict each other.
func TestHTTPSettings(t *testing.T) {
	for text, want := range map[string]string{
		"http: {tenants_file: a, trust_tenant_header: true}": "http.trust_tenant_header = true: cannot be combined with " +
			"http.tenants_file",
		"http: {allow_unknown_tenants: true}": "http.allow_unknown_tenants = true: has no effect without " +
			"http.trust_tenant_header",
		"http: {trusted_proxies: [10.0.0.9, gateway]}": "http.trusted_proxies[1] = gateway: must be an address such as " +
			"10.0.0.9, a network such as 10.0.0.0/24, or unix",
		"http: {trusted_proxies: [10.0.0.9/24]}": "http.trusted_proxies[0] = 10.0.0.9/24: is an address within a network",
	} {
		_, err := settings.Schema().Load(writeFile(t, text), func(string) (string, bool) { return "", false })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
	var c settings.Config
	c.HTTP.TenantsFile = "/nonexistent/tenants.yaml"
	if err := checkFiles(c); !errors.As(err, new(conf.MistakeError)) ||
		!strings.Contains(err.Error(), "http.tenants_file: open /nonexistent/tenants.yaml") {
		t.Error(err)
	}
}
