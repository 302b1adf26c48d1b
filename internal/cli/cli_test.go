package cli

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/lib/command"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// If this environment variable is set, the test binary acts as the freshet command. Tests need it
// when the command must be a file.
const asCommand = "FRESHET_TEST_AS_COMMAND"

// TestMain fixes the time zone, because the output uses the zone of the machine.
func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	time.Local = time.UTC
	os.Exit(m.Run())
}

// golden compares got with testdata/golden/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s\ngot\n%s\nwant\n%s", file, got, want)
	}
}

// freshet runs a command line and returns its exit code and what it printed.
func freshet(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, notes bytes.Buffer
	code = execute(t.Context(), args, &out, &notes)
	return code, out.String(), notes.String()
}

// answering is a helper that starts a server. The server answers every request with `body`. `asked` returns the
// first request since its last call, as a query for advice may follow the request that a test is about.
func answering(t *testing.T, status int, body string) (server string, asked func() *url.URL) {
	t.Helper()
	requests := make(chan *url.URL, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case requests <- r.URL:
		default:
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() *url.URL {
		select {
		case u := <-requests:
			return u
		default:
			t.Fatal("the server got no request")
			return nil
		}
	}
}

// recorded returns a recorded answer of the API of Prometheus itself.
func recorded(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "adapter", "terminal", "testdata", "answers", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// execute runs a command line.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return command.Execute(ctx, newRoot(), args, stdout, stderr)
}

// newRoot returns the root with all commands. Here serve and bench do nothing.
func newRoot() *cobra.Command {
	return NewRoot(&cobra.Command{Use: "serve"}, &cobra.Command{Use: "bench"})
}
