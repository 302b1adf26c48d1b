package main

import "github.com/spf13/cobra"

func newServeCommand() *cobra.Command {
	return &cobra.Command{Use: "serve", Short: "Run the server", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
}
