package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/mapping/statsdexporter"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

func newConvertCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "convert",
		Short: "Convert another program's configuration, and dashboards",
		Long: `Converts files of the programs that Freshet replaces, and lists what it could not
convert.`,
		Example: `  freshet convert statsd_exporter statsd_mapping.yml > freshet.yaml
  freshet convert dashboard shop.json > shop.freshet.json`,
		Args: command.Unknown,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConvertExporterCommand(), newConvertDashboardCommand())
	return cmd
}

func newConvertExporterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "statsd_exporter FILE",
		Short: "Convert a mapping file of statsd_exporter",
		Long: `Reads a mapping file of Prometheus' statsd_exporter and writes a configuration file
that gives each line the same name and labels. Everything without an equivalent, or
with another meaning, is listed on standard error and marked ATTENTION in the file.
- is standard input.

The exit code is 0 if there was nothing to list, 1 if there was, and 2 if the file
cannot be read; then nothing is written.`,
		Example: `  freshet convert statsd_exporter statsd_mapping.yml > freshet.yaml
  freshet explain 'shop.cart.200.requests:1|c' --config freshet.yaml`,
		Args: command.Words(1, 1, "freshet convert statsd_exporter statsd_mapping.yml"),
	}
	asJSON := cmd.Flags().Bool("json", false, "print the configuration and the notes as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, text, err := readFile(cmd, args[0])
		if err != nil {
			return conf.Mistake(fmt.Errorf("convert: %w", err))
		}
		c, err := statsdexporter.Convert(text)
		if err != nil {
			return conf.Mistake(fmt.Errorf("convert %s: %w", file, err))
		}
		if *asJSON {
			err = terminal.PrintJSON(cmd.OutOrStdout(), struct {
				Configuration string                `json:"configuration"`
				Notes         []statsdexporter.Note `json:"notes"`
			}{c.Text, append([]statsdexporter.Note{}, c.Notes...)})
		} else {
			_, err = fmt.Fprint(cmd.OutOrStdout(), c.Text)
		}
		if err != nil {
			return err
		}
		for _, n := range c.Notes {
			where := file
			if n.Line > 0 {
				where = fmt.Sprintf("%s:%d", file, n.Line)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", where, n.Text)
		}
		if len(c.Notes) > 0 {
			return fmt.Errorf("convert %s: the configuration is written, but parts of it are not equivalent; see the "+
				"%s above", file, counted(len(c.Notes), "note"))
		}
		return nil
	}
	return cmd
}
