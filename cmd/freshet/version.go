package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

// version is set when a release is linked: -ldflags "-X main.version=v1.2.3".
// Other builds have the version that the Go command derives from git.
var version string

// build says which source this binary was made of.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // commit
	Modified bool   `json:"modified,omitempty"` // there were changes that no commit holds
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// thisBuild reads what the linker and the Go command have left in the binary.
func thisBuild() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b build) String() string {
	text := "freshet"
	if b.Version != "" {
		text += " " + b.Version
	}
	if b.Revision != "" {
		text += fmt.Sprintf(" (%.12s", b.Revision)
		if b.Modified {
			text += ", modified"
		}
		text += ")"
	}
	return text + " " + b.Go + " " + b.Platform
}

// gauge is always 1: the value of freshet_build_info is in its labels.
func (b build) gauge() prometheus.Gauge {
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
		Args: noWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return printJSON(cmd.OutOrStdout(), thisBuild())
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), thisBuild())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
