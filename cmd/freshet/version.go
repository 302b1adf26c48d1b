package main

import (
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// buildGauge is always 1: the value of freshet_build_info is in its labels.
func buildGauge(b build.Info) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "freshet_build_info",
		Help:        "Always 1, with the version and the commit of this binary, and what it was built with, as labels. More than one value among several instances: they are not of one version.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": b.Go, "goos": runtime.GOOS, "goarch": runtime.GOARCH}})
	g.Set(1)
	return g
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Long: `Prints the version, the commit that it was built from, and whether there were changes
that no commit holds.`,
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
