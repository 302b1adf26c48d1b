package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/rulefiles"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

func newRulesBacktestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backtest --rule FILE --from TIME",
		Short: "Show when alerts would have fired on stored data",
		Long: `Evaluates the alerting rules of a file on the data that a server has stored, with
Prometheus' own code, and shows when each alert would have been pending and would have
fired, as a plot and as a table. It writes nothing. Recording rules are left out: alerts
read the recordings that are stored.`,
		Example: `  freshet rules backtest --rule rules.yaml --from 2026-11-20T00:00:00Z
  freshet rules backtest --rule rules.yaml --from 2026-11-20T00:00:00Z --to 2026-11-21T00:00:00Z --json`,
		Args: command.NoWords,
	}
	server := apiclient.Flags(cmd.Flags())
	file := cmd.Flags().String("rule", "", "`file` of rules in Prometheus' format (required)")
	from := command.TimeFlag(cmd.Flags(), "from", "`begin`: Unix seconds or 2006-01-02T15:04:05Z (required)")
	to := command.TimeFlag(cmd.Flags(), "to", "`end`: Unix seconds or 2006-01-02T15:04:05Z (default now)")
	interval := command.DurationFlag(cmd.Flags(), "interval", time.Minute,
		"`duration` between evaluations of groups that have no interval (default 1m)")
	raw := cmd.Flags().Bool("json", false, "print the times as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *file == "" || from.IsZero() {
			return conf.Mistake(errors.New("backtest: needs --rule FILE and --from TIME"))
		}
		view := terminal.New(cmd.OutOrStdout(), cmd.ErrOrStderr())
		if view.At = *to; view.At.IsZero() {
			view.At = time.Now()
		}
		if view.Length = view.At.Sub(*from); view.Length <= 0 {
			return conf.Mistake(errors.New("backtest: --from must be before --to"))
		}
		if *interval < time.Second {
			return conf.Mistake(errors.New("backtest: --interval must be at least 1s"))
		}
		c := backtestCommand{data: storedData{*server}, view: view, line: terminal.NewLine(cmd.ErrOrStderr()),
			interval: *interval}
		found, err := c.run(cmd.Context(), *file)
		if err != nil {
			return fmt.Errorf("backtest: %w", err)
		}
		if *raw {
			return terminal.PrintJSON(view.Out, backtested{*from, view.At, found})
		}
		return writeBacktest(view, found)
	}
	return cmd
}

// backtested is the output of --json.
type backtested struct {
	From   time.Time     `json:"from"`
	To     time.Time     `json:"to"`
	Alerts []testedAlert `json:"alerts"`
}

// testedAlert says when the alerts of one rule would have been active.
type testedAlert struct {
	Group       string        `json:"group"`
	Alert       string        `json:"alert"`
	Interval    float64       `json:"interval_seconds"`
	Evaluations int           `json:"evaluations"`
	Failed      int           `json:"failed_evaluations"`
	Error       string        `json:"error,omitempty"` // of the first evaluation that failed
	Ended       bool          `json:"ended,omitempty"` // after so many failures, before --to
	Cut         bool          `json:"cut,omitempty"`   // there were more periods
	Periods     []alertPeriod `json:"periods"`
}

// backtestCommand evaluates the alerts of a file.
type backtestCommand struct {
	data     pastData
	view     terminal.View // its range is the time to test
	line     *terminal.Line
	interval time.Duration // of groups that have none
}

func (c backtestCommand) run(ctx context.Context, file string) ([]testedAlert, error) {
	parser := promapi.NewParser(promapi.DefaultConfig(), func() {})
	set, problems := rulefiles.ReadNamed([]string{file}, parser)
	if len(problems) > 0 {
		return nil, conf.Mistake(errors.New(strings.Join(problems, "\n")))
	}
	defer c.line.Clear()
	all := []testedAlert{}
	for _, path := range set.Paths() {
		for _, g := range set[path].Groups {
			for _, r := range g.Rules {
				if r.Alert == "" {
					continue
				}
				interval := c.interval
				if g.Interval > 0 {
					interval = time.Duration(g.Interval)
				}
				b, err := newBacktest(&g, &r, interval, parser)
				if err != nil {
					return nil, err
				}
				t, err := c.test(ctx, b, &g, r.Alert)
				if err != nil {
					return nil, fmt.Errorf("alert %s: %w", r.Alert, err)
				}
				all = append(all, t)
			}
		}
	}
	if len(all) == 0 {
		return nil, conf.Mistake(fmt.Errorf("%s: has no alerting rule; name a file that has one", file))
	}
	return all, nil
}

func (c backtestCommand) test(ctx context.Context, b *backtest, g *rulefmt.RuleGroup,
	name string) (testedAlert, error) {
	b.data, b.from, b.to = c.data, c.view.At.Add(-c.view.Length), c.view.At
	b.progress = func(done, all int) {
		c.line.Draw(fmt.Sprintf("%q: %d of %d evaluations", name, done, all))
	}
	err := b.run(ctx)
	if err != nil && !errors.Is(err, errHardlyWorks) {
		return testedAlert{}, err
	}
	t := testedAlert{Group: g.Name, Alert: name, Interval: b.interval.Seconds(), Evaluations: b.slots, Failed: b.failed,
		Ended: err != nil, Cut: b.cut, Periods: append([]alertPeriod{}, b.periods...)}
	if b.failure != nil {
		t.Error = b.failure.Error()
	}
	return t, nil
}

// storedData asks a server.
type storedData struct{ server apiclient.Server }

func (d storedData) series(ctx context.Context, expr string, begin, end time.Time,
	step time.Duration) (m model.Matrix, err error) {
	err = d.ask(ctx, "/api/v1/query_range", url.Values{"query": {expr}, "start": {unixSeconds(begin)},
		"end": {unixSeconds(end)}, "step": {fmt.Sprintf("%g", step.Seconds())}}, &m)
	return m, err
}

func (d storedData) values(ctx context.Context, expr string, at time.Time) (v model.Vector, err error) {
	err = d.ask(ctx, "/api/v1/query", url.Values{"query": {expr}, "time": {unixSeconds(at)}}, &v)
	return v, err
}

// ask sends a query, and decodes its result.
func (d storedData) ask(ctx context.Context, path string, params url.Values, result any) error {
	_, a, err := d.server.Ask(ctx, path, params)
	if err != nil {
		return err
	}
	data := struct {
		Result any `json:"result"`
	}{result}
	if err := json.Unmarshal(a.Data, &data); err != nil {
		return fmt.Errorf("read the answer of %s: %w", d.server, err)
	}
	return nil
}

// mostBars is how many alerts of a rule are drawn. The table has all.
const mostBars = 20

// writeBacktest draws the alerts of each rule, and prints when they would have been active.
func writeBacktest(v terminal.View, all []testedAlert) error {
	for i, t := range all {
		if i > 0 {
			fmt.Fprintln(v.Out)
		}
		fired := 0
		for _, p := range t.Periods {
			if !p.Firing.IsZero() {
				fired++
			}
		}
		fmt.Fprintf(v.Out, "%s: would have fired %s, in %s\n", tint(v, bold, terminal.Printable(t.Alert)),
			counted(fired, "time"), counted(t.Evaluations, "evaluation"))
		if t.Failed > 0 {
			fmt.Fprintf(v.Notes, "warning: %s: %s failed, the first with: %s\n", terminal.Printable(t.Alert),
				counted(t.Failed, "evaluation"), terminal.Printable(t.Error))
		}
		if t.Ended {
			fmt.Fprintf(v.Notes, "warning: %s: its backtest ended after %s; correct its expression\n",
				terminal.Printable(t.Alert), counted(t.Evaluations, "evaluation"))
		}
		if t.Cut {
			fmt.Fprintf(v.Notes, "warning: %s: only %d times are shown; test a shorter time\n", terminal.Printable(t.Alert),
				mostPeriods)
		}
		if len(t.Periods) == 0 {
			continue
		}
		drawBars(v, t.Periods)
		if err := terminal.WriteTable(v.Out, periodRows(t.Periods), 1); err != nil {
			return err
		}
	}
	return nil
}

// drawBars draws one bar of blocks for each alert.
func drawBars(v terminal.View, periods []alertPeriod) {
	columns := min(max(v.Columns/2, 20), 80)
	var order []string
	bars := map[string][]rune{}
	names := map[string]string{}
	for _, p := range periods {
		key := p.Labels.String()
		if bars[key] == nil {
			order = append(order, key)
			bars[key] = []rune(strings.Repeat("·", columns))
			names[key] = restOf(p.Labels)
		}
		drawPeriod(v, bars[key], p)
	}
	begin, end := v.At.Add(-v.Length).Local().Format(time.DateTime), v.At.Local().Format(time.DateTime)
	fmt.Fprintf(v.Out, "%s%*s\n", begin, max(columns-len(begin), len(end)+1), end)
	for _, key := range order[:min(len(order), mostBars)] {
		bar := strings.NewReplacer("█", tint(v, red, "█"), "▒", tint(v, yellow, "▒")).Replace(string(bars[key]))
		fmt.Fprintf(v.Out, "%s  %s\n", bar, names[key])
	}
	if more := len(order) - mostBars; more > 0 {
		fmt.Fprintf(v.Notes, "note: %s more in the table\n", counted(more, "alert"))
	}
	fmt.Fprintln(v.Out, "▒ pending  █ firing")
}

// drawPeriod draws a period into a bar. Firing is drawn over pending, so that no column hides it.
func drawPeriod(v terminal.View, bar []rune, p alertPeriod) {
	begin := v.At.Add(-v.Length)
	end := p.Resolved
	if end.IsZero() {
		end = v.At
	}
	fill := func(from, to time.Time, block rune, over bool) {
		column := func(t time.Time) int {
			return min(max(int(float64(len(bar))*float64(t.Sub(begin))/float64(v.Length)), 0), len(bar)-1)
		}
		for i := column(from); i <= column(to); i++ {
			if bar[i] == '·' || over {
				bar[i] = block
			}
		}
	}
	if p.Firing.IsZero() {
		fill(p.Pending, end, '▒', false)
		return
	}
	fill(p.Pending, p.Firing, '▒', false)
	fill(p.Firing, end, '█', true)
}

// periodRows lays out periods as a table.
func periodRows(periods []alertPeriod) [][]string {
	at := func(t time.Time, none string) string {
		if t.IsZero() {
			return none
		}
		return t.Local().Format(time.DateTime)
	}
	rows := [][]string{{"labels", "pending since", "fired", "resolved", "fired for"}}
	for _, p := range periods {
		length := "-"
		if !p.Firing.IsZero() && !p.Resolved.IsZero() {
			length = p.Resolved.Sub(p.Firing).String()
		}
		rows = append(rows, []string{restOf(p.Labels), at(p.Pending, "-"), at(p.Firing, "never"),
			at(p.Resolved, "not yet"), length})
	}
	return rows
}

// restOf writes the labels of an alert without its name.
func restOf(l labels.Labels) string {
	return terminal.Printable(labels.NewBuilder(l).Del(labels.AlertName).Labels().String())
}
