package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

func newDiffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff FILE",
		Short: "Show what a configuration file would change on a running server",
		Long: `Compares FILE with the configuration of a server on this machine, and prints each key
that differs, with its old and new value, and whether a reload applies it or a restart
is needed. It changes nothing. - is standard input. The server's own flags and
environment override the file, so a key that they set never differs.

The server also reads the rule files that FILE names, and each group that differs from
the rules in force is printed; freshet rules diff prints its rules.

The exit code is 0 if nothing would change, 1 if something would, and 2 if the file or a
rule file is invalid or the server cannot be asked.`,
		Example: `  freshet diff /etc/freshet.yaml
  freshet diff new.yaml --json | jq '.changes[] | select(.restart)'
  freshet diff new.yaml; [ $? = 1 ] && cp new.yaml /etc/freshet.yaml && systemctl reload freshet`,
		Args: command.Words(1, 1, "freshet diff freshet.yaml, or - for standard input"),
	}
	server := apiclient.Flags(cmd.Flags())
	raw := cmd.Flags().Bool("json", false, "print the changes and problems as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		trouble := func(err error) error {
			for _, line := range conf.Lines(err) {
				fmt.Fprintf(cmd.ErrOrStderr(), "freshet: %s\n", line)
			}
			return command.Exit(command.Usage)
		}
		name, text, err := readConfigFile(args[0], cmd.InOrStdin())
		if err != nil {
			return trouble(err)
		}
		d, err := askDifference(cmd.Context(), *server, name, text)
		if err != nil {
			return trouble(fmt.Errorf("diff: %w", err))
		}
		view := terminal.New(cmd.OutOrStdout(), cmd.ErrOrStderr())
		if *raw {
			err = terminal.PrintJSON(view.Out, d)
		} else {
			err = printDifference(view, d)
		}
		if err != nil {
			return trouble(fmt.Errorf("diff: %w", err))
		}
		return command.Exit(exitCodeOf(d))
	}
	return cmd
}

func exitCodeOf(d answer.Difference) int {
	switch {
	case len(d.Problems) > 0:
		return command.Usage
	case len(d.Changes)+len(d.Rules) > 0:
		return command.Failure
	}
	return command.OK
}

func printDifference(v terminal.View, d answer.Difference) error {
	for _, p := range d.Problems {
		if _, err := fmt.Fprintf(v.Notes, "freshet: %s\n", p); err != nil {
			return err
		}
	}
	for _, c := range d.Changes {
		takes := tint(v, green, "on reload")
		if c.Restart {
			takes = tint(v, yellow, "needs a restart")
		}
		if _, err := fmt.Fprintf(v.Out, "%s  (%s)\n", terminal.Printable(c.String()), takes); err != nil {
			return err
		}
	}
	for _, r := range d.Rules {
		_, err := fmt.Fprintf(v.Out, "%s  (%s)\n", terminal.Printable(r.String()), tint(v, green, "on reload"))
		if err != nil {
			return err
		}
	}
	if exitCodeOf(d) == command.OK {
		_, err := fmt.Fprintln(v.Notes, "nothing would change")
		return err
	}
	return nil
}

// askDifference asks a server what the text of a file would change.
func askDifference(ctx context.Context, server apiclient.Server, name string,
	text []byte) (d answer.Difference, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiclient.Timeout)
	defer cancel()
	resp, err := server.Post(ctx, "/api/v1/status/diff", url.Values{"name": {name}}, bytes.NewReader(text))
	if err != nil {
		return d, err
	}
	if resp.StatusCode == http.StatusForbidden {
		return d, errors.Join(server.Refusal(resp), resp.Body.Close())
	}
	_, a, err := server.Read(resp)
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(a.Data, &d); err != nil {
		return d, fmt.Errorf("read the answer of %s: %w", server, err)
	}
	return d, nil
}
