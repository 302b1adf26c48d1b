package cli

import (
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/lib/command"
)

func newImportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Bring history along from Prometheus, Thanos and Mimir",
		Long: `Imports samples of another server into the history of a tenant. Queries read it beside
everything else. It may be older than any retention, and is kept until it is removed.`,
		Example: `  freshet import tsdb /var/lib/prometheus
  freshet import remote-read http://prometheus:9090 --from 2026-10-01T00:00:00Z
  freshet import list`,
		Args: command.Unknown,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newImportTSDBCommand(), newImportRemoteReadCommand(), newImportListCommand(), newImportRemoveCommand())
	return cmd
}
