package server

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/settings"
)

// bySocket sends a request by operator.sock. `headers` are separated by "; ".
func (s *server) bySocket(t *testing.T, method, path, headers string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for header := range strings.SplitSeq(headers, "; ") {
		if name, value, ok := strings.Cut(header, ": "); name == "Host" {
			r.Host = value
		} else if ok {
			r.Header.Add(name, value)
		}
	}
	resp, err := apiclient.OverSocket(s.operatorPath()).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// operatorsFile writes a file with one operator and a token.
func operatorsFile(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "operators.yaml")
	text := fmt.Appendf(nil, "operators: [{name: ann, tokens: [{sha256: %x}]}]\n", sha256.Sum256([]byte(token)))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Operator endpoints answer requests on operator.sock. They answer requests with an operator's token,
// through a proxy or not. On loopback they answer only if http.operator_loopback is on.
func TestWhoOperates(t *testing.T) {
	off := onlyHTTP(t, ", operator_loopback: false, operators_file: "+operatorsFile(t, "ann's"))
	tried := 0
	for pattern, e := range exposures {
		method, path := requestFor(pattern)
		if e != operates || path == "/-/record" || strings.HasSuffix(path, "/profile") || strings.HasSuffix(path, "/trace") ||
			strings.Contains(path, "/admin/") {
			continue // these take seconds, and have the same guard
		}
		tried++
		if resp, text := off.asked(t, method, path, ""); resp.StatusCode != http.StatusForbidden ||
			!strings.Contains(text, "http.operator_loopback is off; ask by operator.sock") {
			t.Errorf("%s on loopback: got the status %s, want 403: %s", pattern, resp.Status, text)
		}
		if resp, text := off.asked(t, method, path, "Authorization: Bearer ann"); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s with a wrong token: got the status %s, want 403: %s", pattern, resp.Status, text)
		}
		for _, more := range []string{"", "; X-Forwarded-For: 10.0.0.7; Host: metrics.example"} {
			resp, text := off.asked(t, method, path, "Authorization: Bearer ann's"+more)
			if resp.StatusCode == http.StatusForbidden {
				t.Errorf("%s with an operator's token%s: got the status %s, want it allowed: %s", pattern, more, resp.Status, text)
			}
		}
		if code, text := off.bySocket(t, method, path, ""); code == http.StatusForbidden {
			t.Errorf("%s by operator.sock: got the status %d, want an allowed request; the answer is %s", pattern, code, text)
		}
		// A request of a foreign web page may come through a tunnel.
		for _, page := range []string{
			"Sec-Fetch-Site: cross-site", "Origin: http://evil.example", "Host: evil.example:7125",
		} {
			if code, text := off.bySocket(t, method, path, page); code != http.StatusForbidden {
				t.Errorf("%s by operator.sock with %s: got the status %d, want 403: %s", pattern, page, code, text)
			}
		}
		if code, text := off.bySocket(t, method, path, "X-Forwarded-For: "); code != http.StatusForbidden ||
			!strings.Contains(text, "not through a proxy (X-Forwarded-For)") {
			t.Errorf("%s through a proxy to operator.sock: got the status %d, want 403 and the reason: %s", pattern, code, text)
		}
	}
	if tried < 8 {
		t.Errorf("only %d routes were tried", tried)
	}
	if n := testutil.ToFloat64(off.refused.WithLabelValues(reasonOperator)); n == 0 {
		t.Error("refusals are not counted")
	}
}

// An operator sees any tenant that the request names. A request with a tenant's token counts as the
// tenant's, even on the socket. A guessed token does not make a tenant an operator.
func TestOperatorsSeeTenants(t *testing.T) {
	s := twoTenants(t)
	ledger := "/api/v1/status/ledger"
	for headers, want := range map[string]string{
		"":                               `"tenant":"default"`,
		"X-Scope-OrgID: team-beta":       `"tenant":"team-beta"`,
		"Authorization: Bearer " + alpha: `"tenant":"team-alpha"`,
		"X-Scope-OrgID: team-beta; Authorization: Bearer " + alpha: "send a token of the tenant in X-Scope-OrgID",
		"Authorization: Bearer guessed":                            "no tenant has this token",
	} {
		if code, text := s.bySocket(t, http.MethodGet, ledger, headers); !strings.Contains(text, want) {
			t.Errorf("%q: %d: %s; want %s", headers, code, text, want)
		}
	}
	if code, text := s.bySocket(t, http.MethodGet, ledger, "Host: evil.example:7125"); code != http.StatusForbidden {
		t.Errorf("a page whose name resolves to a tunnel gets the status %d, want 403: %s", code, text)
	}
	if code, text := s.bySocket(t, http.MethodGet, "/metrics", ""); code != http.StatusOK ||
		!strings.Contains(text, "\ngo_goroutines ") {
		t.Errorf("/metrics: status %d, want 200 and metrics of the whole process", code)
	}
}

// The first request with a proxy's header turns http.operator_loopback off. The header may be empty, and
// the address does not matter.
func TestAProxyEndsOperatorLoopback(t *testing.T) {
	const path = "/debug/pprof/cmdline"
	for why, come := range map[string]func(*server){
		"a probe with an empty header": func(s *server) { s.asked(t, http.MethodGet, "/-/healthy", "X-Forwarded-For: ") },
		"a write":                      func(s *server) { s.asked(t, http.MethodPost, "/api/v1/write", "Via: 1.1 edge") },
		"an unknown path":              func(s *server) { s.asked(t, http.MethodGet, "/nothing", "X-Real-IP: 10.0.0.7") },
		"gRPC": func(s *server) {
			s.guardOTLP(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), overGRPC(t, "X-Forwarded-For", ""))
		},
	} {
		s := onlyHTTP(t, "")
		before, _ := s.asked(t, http.MethodGet, path, "")
		come(s)
		after, text := s.asked(t, http.MethodGet, path, "")
		if before.StatusCode != http.StatusOK || after.StatusCode != http.StatusForbidden ||
			!strings.Contains(text, "off until the server is stopped and started") || !strings.Contains(text, "operator.sock") {
			t.Errorf("%s: the status is %s before the proxy and %s after it, want 200 and 403: %s",
				why, before.Status, after.Status, text)
		}
		if code, text := s.bySocket(t, http.MethodGet, path, ""); code != http.StatusOK {
			t.Errorf("%s: by operator.sock, the status is %d, want 200: %s", why, code, text)
		}
		_, text = s.asked(t, http.MethodGet, "/metrics", "")
		if !strings.Contains(text, "\nfreshet_http_operator_loopback 0\n") {
			t.Errorf("%s: the metric does not show that operator_loopback is off", why)
		}
	}
}

// Only this user may open the socket's file, from the first moment on. The new socket replaces the
// socket of a dead process, but never a file of another kind.
func TestOperatorSocketFile(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir()
	path := filepath.Join(dir, answer.OperatorSocket)
	for range 2 { // the second round finds the socket of the first
		l, err := listenPrivately(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("%v: mode %v", err, info.Mode())
		}
		_ = l.Close()
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("closing the listener removed the file, which a successor may need: %v", err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenPrivately(path); err == nil || !strings.Contains(err.Error(), "not a socket is in the way") {
		t.Errorf("with a file in the way, listenPrivately returned %v, want an error about the file", err)
	}
}

// If the path of the data directory is too long, the socket is in runDirectory, and programs learn
// its path.
func TestOperatorSocketElsewhere(t *testing.T) {
	old := runDirectory
	runDirectory = t.TempDir()
	t.Cleanup(func() { // once the server has ended
		if left, err := os.ReadDir(runDirectory); err != nil || len(left) > 0 {
			t.Errorf("files left: %v, want none; error %v", left, err)
		}
		runDirectory = old
	})
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	s := running(t, `
data_dir: `+dir+`
http: {listen: "127.0.0.1:0", operator_loopback: false}
dogstatsd: {udp: "", unix: "", unixgram: ""}
self: {probe: false}
`)
	var told answer.Listening
	eventually(t, "listening.json", func() bool {
		return s.writeListening() == nil && files.ReadJSON(filepath.Join(dir, answer.ListeningFile), &told) == nil
	})
	if filepath.Dir(told.Operator) != runDirectory || told.Operator != s.operatorPath() {
		t.Errorf("listening.json says that the socket is at %q, but it is at %q", told.Operator, s.operatorPath())
	}
	t.Setenv("FRESHET_DATA_DIR", dir)
	if got := (apiclient.Server{}).String(); got != "unix:"+told.Operator {
		t.Errorf("commands use the address %q, want %q", got, "unix:"+told.Operator)
	}
}

// Without --server, a command uses the socket of the data directory, or the usual address if no socket
// answers.
func TestCommandsAskBySocket(t *testing.T) {
	t.Setenv(apiclient.ServerVariable, "")
	s := onlyHTTP(t, ", operator_loopback: false")
	t.Setenv("FRESHET_DATA_DIR", s.config.DataDir)
	got, want := (apiclient.Server{}).String(), "unix:"+filepath.Join(s.config.DataDir, answer.OperatorSocket)
	if got != want {
		t.Errorf("a command uses the address %s, want %s", got, want)
	}
	_, a, err := apiclient.Server{}.Ask(t.Context(), "/api/v1/status/records", nil)
	if err != nil || a.Status != "success" {
		t.Errorf("%+v, %v", a, err)
	}
	if code, said, _ := freshet(t, "diff", writeFile(t, "log_level: debug\n")); code != command.Failure ||
		!strings.Contains(said, "log_level: ") {
		t.Errorf("diff: exit code %d, want a changed log_level: %s", code, said)
	}
	if code, _, said := freshet(t, "diff", writeFile(t, ""), "--server", s.http[0].addr()); code != command.Usage ||
		!strings.Contains(said, "operator.sock") {
		t.Errorf("diff over TCP: exit code %d, want a refusal that names operator.sock: %s", code, said)
	}

	dead := t.TempDir() // a data directory with the socket of a killed process
	l, err := listenPrivately(filepath.Join(dead, answer.OperatorSocket))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	text, _ := json.Marshal(answer.Listening{Operator: filepath.Join(dead, answer.OperatorSocket)})
	if err := os.WriteFile(filepath.Join(dead, answer.ListeningFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FRESHET_DATA_DIR", dead)
	// The next check holds only where no installed server runs.
	if _, err := net.Dial("unix", filepath.Join(answer.PackagedDataDir, answer.OperatorSocket)); err != nil {
		if got := (apiclient.Server{}).String(); got != apiclient.DefaultServer {
			t.Errorf("without an answering socket, a command uses the address %s, want %s", got, apiclient.DefaultServer)
		}
	}
}

// A restart in place takes over the socket of the previous image. If the socket's file is gone, the new
// image binds a new socket. Otherwise no client could connect until the server was stopped and
// started.
func TestARestartBindsARemovedSocket(t *testing.T) {
	for _, removed := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, answer.OperatorSocket)
		before, err := listenPrivately(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := before.(*net.UnixListener).File()
		if err != nil {
			t.Fatal(err)
		}
		left, err := syscall.Dup(int(file.Fd())) // the next image closes it
		if err := errors.Join(err, file.Close(), before.Close()); err != nil {
			t.Fatal(err)
		}
		t.Setenv("LISTEN_FRESHET", fmt.Sprintf(`[{"fd": %d, "name": %q}]`, left, path))
		if removed {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		was, _ := os.Lstat(path)
		s := &server{config: settings.Config{DataDir: dir}, logger: slog.New(slog.DiscardHandler)}
		s.restarter = newRestarter()
		if err := s.openInherited(); err != nil {
			t.Fatal(err)
		}
		if left := s.inherited.Left(); len(left) != 1 {
			t.Fatalf("the inherited sockets that nobody took are %v, want one", left)
		}
		listener, bound, err := s.bindOperatorSocket([]string{path})
		if err != nil || bound != path {
			t.Fatalf("the socket is bound at %q, want %q; error %v", bound, path, err)
		}
		if left := s.inherited.Left(); len(left) != 0 {
			t.Errorf("the inherited sockets that nobody took are %v, want none", left)
		}
		if is, err := os.Lstat(path); err != nil || !removed && !os.SameFile(was, is) {
			t.Errorf("socket file removed before: %t; afterwards the file is missing, or another file replaced it: %v",
				removed, err)
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatalf("removed %t: %v", removed, err)
		}
		taken, err := listener.Accept()
		if err := errors.Join(err, conn.Close(), taken.Close(), listener.Close()); err != nil {
			t.Error(err)
		}
	}
}
