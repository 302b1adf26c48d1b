// Command freshet takes measurements from applications to queryable series. It
// is both the server (freshet serve) and the tools to ask it. This is the only
// package that knows every role; what the roles do is theirs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Exit codes. The systemd unit relies on usage: starting again does not help.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2 // a mistake on the command line, in what a server is asked, or in the configuration
)

// By these signals a server is asked to reload and to restart. Whatever it is
// doing, from its first line to its last, it must not die of them.
const (
	reloadSignal  = syscall.SIGHUP
	restartSignal = syscall.SIGUSR2
)

func main() {
	// Nobody listens yet: a server that starts reads what is newest anyway.
	signal.Notify(make(chan os.Signal, 1), reloadSignal, restartSignal)
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the command that args name and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		args = []string{"serve"} // with defaults, it does something useful at once
	}
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	parsed := false // what fails before is a mistake on the command line
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		parsed = true
		if cmd.Name() != serveName {
			signal.Reset(reloadSignal, restartSignal) // others end with their terminal
		}
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if said := (exitError{}); errors.As(err, &said) {
		return said.code
	}
	for line := range strings.Lines(strings.TrimSuffix(err.Error(), "\n")) {
		fmt.Fprintf(stderr, "freshet: %s\n", strings.TrimSuffix(line, "\n"))
	}
	if problems := (conf.Problems)(nil); !parsed || errors.As(err, &problems) || errors.As(err, new(conf.MistakeError)) || errors.As(err, new(mistakeError)) {
		return exitUsage
	}
	return exitFailure
}

// exitError is the exit code of a command that has said itself what there is to
// say.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func exitWith(code int) error {
	if code == exitOK {
		return nil
	}
	return exitError{code}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "freshet",
		Short: "A metrics pipeline in one binary: DogStatsD in, PromQL out",
		Long: `Freshet takes measurements from any DogStatsD client, aggregates and stores them,
and answers PromQL about a second later. Without a command it runs the server on
this machine's loopback, with its data in ./data.`,
		Example: `  freshet                                       run everything with defaults
  freshet serve --config /etc/freshet.yaml      run as configured
  freshet query page_views                      what is it now
  freshet query 'rate(page_views[1m])' --range 1h
                                                what was it in the last hour, drawn
  freshet events --since 1d --tag env:prod      what happened since yesterday
  freshet backup /backup/freshet-monday         keep what there is
  freshet help query                            more about a command, with examples`,
		Args:                  unknownCommand,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		DisableFlagsInUseLine: true,
		SilenceErrors:         true, // printed once, by execute
		SilenceUsage:          true, // an error is not an occasion to print 100 flags
	}
	root.CompletionOptions.DisableDefaultCmd = true // ours says less and leaves PowerShell out
	root.SetFlagErrorFunc(unknownFlag)
	addGroup(root, "Run a server:", newServeCommand(), newRestartCommand(), newBackupCommand(), newRestoreCommand())
	addGroup(root, "Ask it:", newQueryCommand(), newEventsCommand(), newLedgerCommand(), newExplainCommand(), newDiagnoseCommand())
	addGroup(root, "See what arrives:", newTopCommand(), newTailCommand(), newCaptureCommand(), newReplayCommand())
	addGroup(root, "Measure it:", newBenchCommand())
	addGroup(root, "Configure it:", newCheckCommand(), newConfigCommand(), newDiffCommand(), newConvertCommand(), newCompletionCommand(), newVersionCommand())
	root.SetHelpCommandGroupID(root.Groups()[len(root.Groups())-1].ID)
	root.AddCommand(newExitCodesTopic())
	addHelp(root)
	return root
}

// addGroup adds commands that are listed together, below a title.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
		root.AddCommand(c)
	}
}

// newExitCodesTopic is a page of help, and no command.
func newExitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit code of a command says",
		Long: `  0  it is done
  1  it could not be done; the last lines on standard error say why. Of diff and
     convert: there is a difference
  2  a mistake on the command line, such as PromQL that cannot be read, or in the
     configuration: retrying cannot help

A server that is asked to stop by SIGINT or SIGTERM, and does so in order, ends with 0.`,
	}
}

// unknownCommand refuses what is no command below parent, and names the one that was
// likely meant.
func unknownCommand(parent *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range parent.Commands() {
		names = append(names, c.Name())
	}
	if near := conf.Nearest(args[0], names); near != "" {
		return fmt.Errorf("unknown command: %s; did you mean %s %s?", args[0], parent.CommandPath(), near)
	}
	return fmt.Errorf("unknown command: %s; see freshet help", args[0])
}

// unknownFlag adds to the error of an unknown flag the one that was likely meant.
func unknownFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return wrongValue(err)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := conf.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}
