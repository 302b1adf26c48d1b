package cli

import (
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// NewRoot returns the command freshet with all its subcommands. serve and bench are parameters,
// because this package must not import the packages that declare them.
func NewRoot(serve, bench *cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "freshet",
		Short: "A metrics pipeline in one binary: DogStatsD in, PromQL out",
		Long: `Freshet takes measurements from any DogStatsD client, aggregates and stores them,
and answers PromQL about a second later. Without a command it runs the server on
loopback, with its data in ./data.`,
		Example: `  freshet                                       run everything with defaults
  freshet serve --config /etc/freshet.yaml      run as configured
  freshet query page_views                      the current value
  freshet query 'rate(page_views[1m])' --range 1h
                                                a plot of the last hour
  freshet events --since 1d --tag env:prod      what happened since yesterday
  freshet backup /backup/freshet-monday         take a backup
  freshet help query                            more about a command, with examples`,
		Args:                  command.Unknown,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		DisableFlagsInUseLine: true,
		Version:               build.This().String(), // makes --version what `freshet version` is
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true // our own command is shorter and leaves out PowerShell
	addGroup(root, "Run a server:", serve, newRestartCommand(), newBackupCommand(), newRestoreCommand(),
		newImportCommand(), newExportCommand(), newClusterCommand())
	addGroup(root, "Ask it:", newHealthCommand(), newQueryCommand(), newEventsCommand(), newLedgerCommand(),
		newCardinalityCommand(), newAlertsCommand(), newRulesCommand(), newExplainCommand(), newDiagnoseCommand(),
		newQueriesCommand())
	addGroup(root, "See what arrives:", newTopCommand(), newSendersCommand(), newTailCommand(),
		newCaptureCommand(), newReplayCommand())
	addGroup(root, "Measure it:", bench)
	addGroup(root, "Configure it:", newCheckCommand(), newConfigCommand(), newDiffCommand(), newConvertCommand(),
		newCompletionCommand(), newVersionCommand())
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

// newExitCodesTopic returns a help page that is not a command.
func newExitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit code of a command means",
		Long: `  0  success
  1  failure; the last lines on standard error say why. For diff and convert:
     there is a difference
  2  a mistake on the command line, such as invalid PromQL, or in the configuration:
     retrying cannot help

A server stopped by SIGINT or SIGTERM exits with 0 if nothing failed while it stopped.`,
	}
}

// addHelp adds the command `help`, which refuses topics that have no page.
func addHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	help.Args = func(_ *cobra.Command, args []string) error {
		if found, _, err := root.Find(args); err == nil && found != root {
			return nil
		}
		return command.Unknown(root, args)
	}
}
