// Package command has what all commands of a program share: exit codes, and the errors for
// mistakes on the command line.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Exit codes. The systemd unit relies on Usage: it does not start the program again after this
// code.
const (
	OK      = 0
	Failure = 1
	Usage   = 2 // a mistake on the command line, in a request to a server, or in the configuration
)

// Execute runs the command of `root` that `args` name, prints its error, and returns the exit code.
func Execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SilenceErrors = true // printed once, below
	root.SilenceUsage = true  // 100 flags would hide the error
	root.SetFlagErrorFunc(flagError)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	parsed := false // until it is true, an error is a mistake on the command line
	before := root.PersistentPreRun
	root.PersistentPreRun = func(cmd *cobra.Command, args []string) {
		parsed = true
		if before != nil {
			before(cmd, args)
		}
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		return OK
	}
	if said := (ExitError{}); errors.As(err, &said) {
		return said.Code
	}
	for line := range strings.Lines(strings.TrimSuffix(err.Error(), "\n")) {
		fmt.Fprintf(stderr, "%s: %s\n", root.Name(), strings.TrimSuffix(line, "\n"))
	}
	if problems := (conf.Problems)(nil); !parsed || errors.As(err, &problems) || errors.As(err, new(conf.MistakeError)) {
		return Usage
	}
	return Failure
}

// ExitError is the exit code of a command that has already printed why it ends.
type ExitError struct{ Code int }

func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// Exit returns the error by which a command ends with a code and prints nothing more. It is nil
// for OK.
func Exit(code int) error {
	if code == OK {
		return nil
	}
	return ExitError{code}
}
