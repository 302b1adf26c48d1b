package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func newVersionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Long:  `Prints the version, its commit, and whether the tree had uncommitted changes.`,
		Example: `  freshet version
  freshet version --json | jq -r .revision`,
		Args: command.NoWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return terminal.PrintJSON(cmd.OutOrStdout(), build.This())
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), build.This())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
