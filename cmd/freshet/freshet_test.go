package main

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite docs/commands.md")

// TestMain fixes the reader's time zone, which the output is for.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	// A server keeps its process to nine tenths of what the runtime may have.
	if err := os.Setenv("GOMEMLIMIT", "off"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// freshet runs a command line and returns its exit code and what it printed.
func freshet(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, notes bytes.Buffer
	code = execute(t.Context(), args, &out, &notes)
	return code, out.String(), notes.String()
}

// printed is what a command that runs has printed so far.
type printed struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}
