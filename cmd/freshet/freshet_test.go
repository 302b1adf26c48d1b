package main

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
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// asCommand in the environment makes the test binary the freshet command, for
// tests that need one as a file.
const asCommand = "FRESHET_TEST_AS_COMMAND"

// TestMain fixes the reader's time zone, which the output is for.
func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	time.Local = time.UTC
	// Each server keeps its process to nine tenths of what the runtime may have: of the
	// hundredth that a test starts nothing would be left.
	if err := os.Setenv("GOMEMLIMIT", "off"); err != nil {
		panic(err)
	}
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

// answering starts a server that gives body to every request, and keeps those.
func answering(t *testing.T, status int, body string) (server string, asked func() *url.URL) {
	t.Helper()
	requests := make(chan *url.URL, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() *url.URL {
		select {
		case u := <-requests:
			return u
		default:
			t.Fatal("the server was not asked")
			return nil
		}
	}
}
