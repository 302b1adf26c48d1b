package bench

import (
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/lib/command"
)

// NewCommand returns the command bench.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what a server costs on this machine",
		Long: `Sends a known load to a server, and reports what became of it and what it cost.
docs/benchmarking.md explains the figures.`,
		Example: `  freshet bench dogstatsd
  freshet bench remote-write`,
		Args: command.Unknown,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDogStatsDCommand(), newRemoteWriteCommand())
	return cmd
}
