package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/mapping/statsdexporter"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

func newConvertCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "convert statsd_exporter FILE",
		Short: "Convert another program's configuration",
		Long: `Reads a mapping file of Prometheus' statsd_exporter and writes a configuration file
that gives each line the same name and labels. Everything without an equivalent, or
with another meaning, is listed on standard error and marked ATTENTION in the file.
- is standard input.

The exit code is 0 if there was nothing to list, 1 if there was, and 2 if the file
cannot be read; then nothing is written.`,
		Example: `  freshet convert statsd_exporter statsd_mapping.yml > freshet.yaml
  freshet explain 'shop.cart.200.requests:1|c' --config freshet.yaml`,
		ValidArgs: []string{"statsd_exporter"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] != "statsd_exporter" {
				return errors.New("convert takes the program and its file: freshet convert statsd_exporter statsd_mapping.yml")
			}
			return nil
		},
	}
	asJSON := cmd.Flags().Bool("json", false, "print the configuration and the notes as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file := args[1]
		var text []byte
		var err error
		if file == "-" {
			file = "stdin"
			text, err = io.ReadAll(cmd.InOrStdin())
		} else {
			text, err = os.ReadFile(file)
		}
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
				"%d notes above",
				file, len(c.Notes))
		}
		return nil
	}
	return cmd
}
