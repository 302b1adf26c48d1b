package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/top"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func newCardinalityCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cardinality [metric]",
		Short: "Show the series of a day by metric, or what each label of a metric costs",
		Long: `Prints how many series a tenant had in a day, by metric. With a metric, prints its labels:
the values of each, and how many series the metric would not have without it. With
--label, prints the values of that label, too. With --days, prints the series of each of
the last days, and the metrics that have grown most since the first of them. The server
counts for at most 5 s, and says if there was no time for all series.`,
		Example: `  freshet cardinality
  freshet cardinality --days 7
  freshet cardinality http_requests_total --label pod
  freshet cardinality --day 2026-11-27 --json | jq .data.series`,
	}
	server := apiclient.Flags(cmd.Flags())
	day := cmd.Flags().String("day", "", "a `day` in UTC, such as 2026-11-28 (default today)")
	days := cmd.Flags().Int("days", 1, "as many `days` beside each other, at most 31; the last is --day")
	label := cmd.Flags().String("label", "", "the `label` of the metric whose values are listed")
	limit := cmd.Flags().Int("limit", top.DefaultRows, "at most this many `rows` of metrics or values")
	raw := cmd.Flags().Bool("json", false, "print the server's answer unchanged")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *label != "" && len(args) == 0 {
			return errors.New("--label needs a metric: freshet cardinality METRIC --label NAME")
		}
		return command.Words(0, 1, "freshet cardinality, or freshet cardinality METRIC")(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		of := url.Values{"limit": {strconv.Itoa(*limit)}, "day": {*day}, "days": {strconv.Itoa(*days)}, "label": {*label}}
		if len(args) > 0 {
			of.Set("metric", args[0])
		}
		return showCardinality(cmd.Context(), terminal.New(cmd.OutOrStdout(), cmd.ErrOrStderr()), *server, of, *raw)
	}
	return cmd
}

func showCardinality(ctx context.Context, to terminal.View, server apiclient.Server, of url.Values, raw bool) error {
	body, a, err := server.Ask(ctx, "/api/v1/status/cardinality", of)
	if err != nil {
		return fmt.Errorf("cardinality: %w", err)
	}
	if raw {
		return terminal.WriteJSON(to.Out, body)
	}
	var c top.ViewCardinality
	if err := json.Unmarshal(a.Data, &c); err != nil {
		return fmt.Errorf("cardinality: read the answer of %s: %w", server, err)
	}
	what := "all metrics"
	if c.Metric != "" {
		what = terminal.Printable(c.Metric)
	}
	fmt.Fprintf(to.Out, "%s: %s series on %s (UTC)\n", what, terminal.Thousands(uint64(c.Series)), c.Day)
	if c.Short != "" {
		fmt.Fprintf(to.Out, "counts are too low: %s\n", terminal.Printable(c.Short))
	}
	if err := errors.Join(writeDays(to, c.Days), writeGrown(to, &c)); err != nil {
		return err
	}
	if len(c.Labels) > 0 {
		rows := [][]string{{"LABEL", "VALUES", "SERIES", "SAVED WITHOUT IT"}}
		for _, l := range c.Labels {
			rows = append(rows, []string{terminal.Printable(l.Name), terminal.Thousands(uint64(l.Values)),
				terminal.Thousands(uint64(l.Series)),
				terminal.Thousands(uint64(l.Saved)) + "  " + percent(float64(l.Saved)/float64(c.Series))})
		}
		fmt.Fprintln(to.Out)
		if err := terminal.WriteTable(to.Out, rows, 3); err != nil {
			return err
		}
	}
	if err := writeCounts(to, "METRIC", c.Counts, c.Others); err != nil {
		return err
	}
	return writeCounts(to, "VALUE OF "+c.Label, c.Values, c.Others)
}

// writeCounts prints names with their numbers of series. `rest` is the number of names that are not listed.
func writeCounts(to terminal.View, title string, all []top.NameCount, rest int) error {
	if len(all) == 0 {
		return nil
	}
	rows := [][]string{{terminal.Printable(title), "SERIES"}}
	for _, n := range all {
		rows = append(rows, []string{terminal.Printable(n.Name), terminal.Thousands(uint64(n.Series))})
	}
	if rest > 0 {
		rows = append(rows, []string{others(rest), ""})
	}
	fmt.Fprintln(to.Out)
	return terminal.WriteTable(to.Out, rows, 1)
}

// writeDays prints the series of each day and how they changed, the newest day first.
func writeDays(to terminal.View, days []top.DayCount) error {
	if len(days) == 0 {
		return nil
	}
	rows := [][]string{{"DAY", "SERIES", "CHANGE"}}
	values := make([]float64, len(days))
	for i, d := range days {
		series, change := terminal.Thousands(uint64(d.Series)), ""
		values[len(days)-1-i] = float64(d.Series)
		if d.Short != "" {
			series, values[len(days)-1-i] = "at least "+series, math.NaN()
		} else if i+1 < len(days) && days[i+1].Short == "" {
			change = signed(d.Series - days[i+1].Series)
		}
		rows = append(rows, []string{d.Day, series, change})
	}
	fmt.Fprintf(to.Out, "\n%s %s %s\n\n", days[len(days)-1].Day, terminal.Sparkline(values), days[0].Day)
	return terminal.WriteTable(to.Out, rows, 2)
}

// writeGrown prints the metrics that have more series than on an earlier day.
func writeGrown(to terminal.View, c *top.ViewCardinality) error {
	if c.Since == "" {
		return nil
	}
	if len(c.Grown) == 0 {
		_, err := fmt.Fprintf(to.Out, "\nno metric has more series than on %s\n", c.Since)
		return err
	}
	rows := [][]string{{"GROWN METRIC", c.Since, c.Day, "CHANGE"}}
	for _, g := range c.Grown {
		rows = append(rows, []string{terminal.Printable(g.Name), terminal.Thousands(uint64(g.Was)),
			terminal.Thousands(uint64(g.Series)), signed(g.Series - g.Was)})
	}
	fmt.Fprintln(to.Out)
	return terminal.WriteTable(to.Out, rows, 3)
}

// signed writes how much a number has changed.
func signed(n int) string {
	switch {
	case n > 0:
		return "+" + terminal.Thousands(uint64(n))
	case n < 0:
		return "-" + terminal.Thousands(uint64(-n))
	}
	return "0"
}
