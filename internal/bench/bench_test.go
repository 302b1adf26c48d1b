package bench

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/lib/command"
)

// freshet runs a command line and returns its exit code and what it printed.
func freshet(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, notes bytes.Buffer
	root := &cobra.Command{Use: "freshet"}
	root.AddCommand(NewCommand())
	code = command.Execute(t.Context(), root, args, &out, &notes)
	return code, out.String(), notes.String()
}
