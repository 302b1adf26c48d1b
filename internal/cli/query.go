package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func newQueryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "query 'EXPR'",
		Short: "Query PromQL and print a table, or draw a plot",
		Long: `Sends a PromQL expression to a server and prints a table of series and values, bars for
native histograms, or a plot of a range of time. If no series match, it says why. With -i
it asks for one expression after the other: Tab completes metrics, labels, their values
and functions, the arrows recall earlier queries, and \help lists commands for the range
and the time.`,
		Example: `  freshet query page_views
  freshet query 'increase(page_views[5m] anchored)'
  freshet query 'histogram_quantile(0.99, rate(request_seconds[5m]))' --range 6h
  freshet query 'sum by (host) (rate(page_views[1m]))' --range 1h --step 10s
  freshet query page_views --time 2026-11-20T09:30:00Z --json
  freshet query -i --range 1h`,
	}
	server := apiclient.Flags(cmd.Flags())
	cmd.ValidArgsFunction = completeMetric(server)
	at := command.TimeFlag(cmd.Flags(), "time",
		"`instant`, or end of the range: Unix seconds or 2006-01-02T15:04:05Z (default now)")
	length := command.DurationFlag(cmd.Flags(), "range", 0, "draw the last `duration`, like 15m, 1h or 2d")
	step := command.DurationFlag(cmd.Flags(), "step", 0,
		"`duration` between points, counted back from the end (default one point per column)")
	raw := cmd.Flags().Bool("json", false, "print the server's answer unchanged")
	interactive := cmd.Flags().BoolP("interactive", "i", false, "ask for expressions, one after the other")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case *interactive && (len(args) > 0 || *raw):
			return errors.New("--interactive takes no expression and no --json: write expressions at its prompt")
		case !*interactive && len(args) != 1:
			return fmt.Errorf("query takes one expression, got %d words; write it in quotes: "+
				"freshet query 'sum by (host) (page_views)'", len(args))
		case !*interactive && *step > 0 && *length == 0:
			return errors.New("--step is the time between the points of a range: add --range, such as --range 1h")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asked := timeSpan{at: *at, length: *length, step: *step}
		if *interactive {
			return converse(cmd, *server, asked)
		}
		q := query{server: *server, expr: args[0], raw: *raw, view: asked.view(cmd.OutOrStdout(), cmd.ErrOrStderr())}
		return q.run(cmd.Context())
	}
	return cmd
}
