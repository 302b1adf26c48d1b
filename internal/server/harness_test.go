package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/bench"
	"github.com/freshet-io/freshet/internal/cli"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/run"
	"github.com/freshet-io/freshet/internal/settings"
)

// If this environment variable is set, the test binary acts as the freshet command. Tests need it when
// the command must be a file.
const asCommand = "FRESHET_TEST_AS_COMMAND"

// TestMain fixes the time zone, since the output uses the zone of the machine.
func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	time.Local = time.UTC
	// Each server lowers the runtime's memory limit to nine tenths of its value. After a hundred
	// servers in one test binary, no memory would be left.
	if err := os.Setenv("GOMEMLIMIT", "off"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// execute runs the command that args name, as cmd/freshet does.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return command.Execute(ctx, cli.NewRoot(NewCommand(), bench.NewCommand()), args, stdout, stderr)
}

// freshet runs a command line and returns its exit code and what it printed.
func freshet(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, notes bytes.Buffer
	code = execute(t.Context(), args, &out, &notes)
	return code, out.String(), notes.String()
}

// running is a helper that starts a server with all its parts, and stops it when the test ends.
func running(t testing.TB, text string) *server {
	t.Helper()
	return runningFrom(t, writeFile(t, text))
}

// runningFrom is like the function running, but takes the path of a configuration file.
func runningFrom(t testing.TB, file string) *server {
	t.Helper()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	from := settings.NewSource(flags)
	if err := flags.Parse([]string{"--config", file}); err != nil {
		t.Fatal(err)
	}
	c, err := from.Load()
	if err == nil {
		err = checkFiles(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Distributor.OTLP.GRPCListen = "127.0.0.1:0" // the kernel chooses the port, as for the other addresses
	ctx, stop := context.WithCancelCause(context.Background())
	s, err := newServer(c, from, prometheus.NewRegistry(), newLog(io.Discard, slog.LevelInfo))
	if err != nil {
		t.Fatal(errors.Join(err, s.close()))
	}
	s.restarter.begin(ctx, stop)
	opened, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- run.Run(ctx, c.Drain, s.parts(func() error { close(opened); return nil })...) }()
	t.Cleanup(func() {
		stop(nil)
		if err := errors.Join(<-ended, s.close()); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-opened:
	case err := <-ended:
		ended <- err
		t.FailNow()
	}
	return s
}

// withoutSockets starts a server that accepts samples only over HTTP.
func withoutSockets(t *testing.T) *server {
	t.Helper()
	return running(t, `
data_dir: `+t.TempDir()+`
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "", unixgram: "", unix: ""}
`)
}

// request sends a request with a token, either directly or as if through a proxy. After the first
// request through a proxy, operators on this machine must use operator.sock.
func (s *server) request(t *testing.T, method, path, token, body string, proxied bool) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.http[0].addr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if proxied {
		r.Header.Set("X-Forwarded-For", "10.0.0.7")
	}
	if strings.HasPrefix(body, "query=") {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	client := http.DefaultClient
	if !proxied && s.proxied.Load() != nil {
		client = apiclient.OverSocket(s.operatorPath())
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// answer sends a request and reads the whole answer.
func (s *server) answer(t *testing.T, method, path, token, body string, proxied bool) (*http.Response, string) {
	t.Helper()
	resp := s.request(t, method, path, token, body, proxied)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := snappy.Decode(nil, text); err == nil && strings.HasSuffix(path, "/read") {
		text = plain
	}
	return resp, string(text)
}

// send sends lines once, to the socket of a tenant.
func (s *server) send(t *testing.T, whose, lines string) {
	t.Helper()
	for _, l := range s.collector.Listening() {
		if l.Tenant != whose {
			continue
		}
		conn, err := net.Dial("udp", l.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, lines); err != nil {
			t.Fatal(err)
		}
	}
}

// eventually waits until is() returns true. `what` names the condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("this did not happen within 30s: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// writeFile writes text to a file and returns its path.
func writeFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "freshet.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// writeIn writes a file and returns its path.
func writeIn(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
