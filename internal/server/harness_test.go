package server

import (
	"bytes"
	"context"
	"io"
	"os"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/bench"
	"github.com/freshet-io/freshet/internal/cli"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// asCommand in the environment turns the test binary into the freshet command, for tests that need
// one as a file.
const asCommand = "FRESHET_TEST_AS_COMMAND"

// TestMain fixes the time zone, since the output uses the reader's.
func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	time.Local = time.UTC
	// Each server limits its process to nine tenths of what the runtime may have. After a hundred
	// servers in one test binary nothing would be left.
	if err := os.Setenv("GOMEMLIMIT", "off"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// execute runs the command given by args, as cmd/freshet does.
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
