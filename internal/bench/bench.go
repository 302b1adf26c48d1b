package bench

import (
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/lib/command"
)

// NewCommand is the command bench.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what a server costs on this machine",
		Long: `Sends a load that is known exactly to a server, and says what became of it and what
it cost the server. docs/benchmarking.md says what the figures mean.`,
		Example: `  freshet bench dogstatsd
  freshet bench remote-write`,
		Args: command.Unknown,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDogStatsDCommand(), newRemoteWriteCommand())
	return cmd
}
