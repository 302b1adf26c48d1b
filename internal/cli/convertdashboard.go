package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/dashboard"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

func newConvertDashboardCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dashboard FILE",
		Short: "Convert the queries of a Grafana dashboard",
		Long: `Reads a dashboard of Grafana in JSON and writes it with queries for what Freshet stores:
histograms in place of quantiles, sums and counts, and ranges that tiles of 1 min can
answer. It knows the names of statsd_exporter, of StatsD (stats_timers_x_upper_90) and of
the Datadog Agent (x_95percentile). Nothing but changed queries changes in the file.
Queries that it cannot convert stay, and standard error has them with the reason and what
to do. - is standard input.

A summary that is asked for without a quantile becomes one query for all of its quantiles.
No dashboard says which these are: --summary-quantiles does.

With --server it asks Freshet what each name is, which no dashboard says: whether x_count
is a counter or belongs to a timer. With --check it also asks the Prometheus of the old
dashboard each query, and Freshet the converted one, and lists answers that differ.

The exit code is 0 if there was nothing to list, 1 if there was, and 2 if the file cannot
be read; then nothing is written.`,
		Example: `  freshet convert dashboard shop.json --server 127.0.0.1:7125 > shop.freshet.json
  freshet convert dashboard shop.json --drop-label job,instance --check http://prometheus:9090 > shop.freshet.json
  freshet convert dashboard shop.json --json | jq '.notes[]'`,
		Args: command.Words(1, 1, "freshet convert dashboard shop.json"),
	}
	flags := cmd.Flags()
	server := apiclient.Flags(flags)
	var c conversion
	flags.StringVar(&c.from, "from", string(dashboard.StatsDExporter),
		"`system` whose names the queries have: "+strings.Join(sources(), ", "))
	flags.StringSliceVar(&c.options.DropLabels, "drop-label", nil,
		"`labels` to remove from queries, since series do not have them here, such as job,instance of the scrape")
	flags.StringVar(&c.options.SummaryAge, "summary-age", "10m",
		"`time` that statsd_exporter's summaries look back: max_age of summary_options")
	flags.StringSliceVar(&c.quantiles, "summary-quantiles", dashboard.DefaultQuantiles,
		"`quantiles` that statsd_exporter's summaries have, for queries that name none")
	flags.StringVar(&c.check, "check", "", "`URL` of the old Prometheus, to compare the answers")
	flags.Float64Var(&c.tolerance, "tolerance", 0.1, "largest `part` by which compared values may differ")
	flags.BoolVar(&c.json, "json", false, "print the dashboard, the queries and the notes as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.server = *server
		if flags.Changed("summary-quantiles") {
			c.options.SummaryQuantiles = c.quantiles
		}
		return c.run(cmd, args[0])
	}
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(sources(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func sources() (all []string) {
	for _, s := range dashboard.Sources() {
		all = append(all, string(s))
	}
	return all
}

// conversion is what the flags of convert dashboard ask for.
type conversion struct {
	from, check string
	tolerance   float64
	quantiles   []string
	json        bool
	options     dashboard.Options
	server      apiclient.Server
}

func (c *conversion) run(cmd *cobra.Command, file string) error {
	if !slices.Contains(sources(), c.from) {
		return conf.Mistake(fmt.Errorf("--from = %s: is not one of %s", c.from, strings.Join(sources(), ", ")))
	}
	if _, err := model.ParseDuration(c.options.SummaryAge); err != nil {
		return conf.Mistake(fmt.Errorf("--summary-age: %w", err))
	}
	for _, q := range c.quantiles {
		if f, err := strconv.ParseFloat(q, 64); err != nil || !(f >= 0 && f <= 1) {
			return conf.Mistake(fmt.Errorf("--summary-quantiles: %s is no number from 0 to 1", q))
		}
	}
	name, text, err := readFile(cmd, file)
	if err != nil {
		return conf.Mistake(fmt.Errorf("convert: %w", err))
	}
	c.options.From = dashboard.Source(c.from)
	kinds := serverKinds{ctx: cmd.Context(), server: c.server}
	if c.server.Address != "" || c.check != "" {
		c.options.Kind = kinds.of
	}
	converted, err := dashboard.Convert(text, c.options)
	if err != nil {
		return conf.Mistake(fmt.Errorf("convert %s: %w", name, err))
	}
	if kinds.err != nil {
		return kinds.err
	}
	answers := comparison{Differences: []difference{}}
	if c.check != "" {
		if answers, err = c.compare(cmd.Context(), &converted); err != nil {
			return err
		}
	}
	return c.print(cmd, name, &converted, answers)
}

// print writes the dashboard, and the notes and differences that a person must look at.
func (c *conversion) print(cmd *cobra.Command, file string, d *dashboard.Conversion, answers comparison) error {
	var err error
	if c.json {
		err = terminal.PrintJSON(cmd.OutOrStdout(), struct {
			Dashboard json.RawMessage   `json:"dashboard"`
			Queries   []dashboard.Query `json:"queries"`
			Notes     []dashboard.Note  `json:"notes"`
			comparison
		}{d.Text, append([]dashboard.Query{}, d.Queries...), append([]dashboard.Note{}, d.Notes...), answers})
	} else {
		_, err = cmd.OutOrStdout().Write(d.Text)
	}
	if err != nil {
		return err
	}
	notes := cmd.ErrOrStderr()
	for _, n := range d.Notes {
		fmt.Fprintf(notes, "%s: %s\n", terminal.Printable(n.Place.String()), terminal.Printable(n.Why))
		if n.Expr != "" {
			fmt.Fprintf(notes, "    %s\n", terminal.Printable(n.Expr))
		}
		fmt.Fprintf(notes, "    To do: %s\n", terminal.Printable(n.Do))
	}
	for _, one := range answers.Differences {
		one.print(notes)
	}
	fmt.Fprintf(notes, "%s: %d of %d queries changed\n", file, d.Changed(), len(d.Queries))
	if c.options.Kind == nil {
		fmt.Fprintf(notes, "%s: without --server, names are timers only if the dashboard shows that they are\n", file)
	}
	if c.check != "" {
		fmt.Fprintf(notes, "%s: %d queries had an answer at %s and were compared\n", file, answers.Compared, c.old())
	}
	if len(d.Notes)+len(answers.Differences) > 0 {
		return fmt.Errorf("convert %s: the dashboard is written, but not all of it has the same answers; see the %s "+
			"and %s above", file, counted(len(d.Notes), "note"), counted(len(answers.Differences), "difference"))
	}
	return nil
}

// serverKinds asks a server what it has under a name.
type serverKinds struct {
	ctx    context.Context
	server apiclient.Server
	err    error // of the first question that failed; no other is asked
}

func (k *serverKinds) of(name string) dashboard.Kind {
	all := fmt.Sprintf("last_over_time({__name__=%q}[1h])", name)
	switch {
	case !k.any(all):
		return dashboard.Absent
	case k.any("histogram_count(" + all + ")"):
		return dashboard.Native
	}
	return dashboard.Plain
}

// any reports whether a query has an answer.
func (k *serverKinds) any(query string) bool {
	if k.err != nil {
		return false
	}
	_, a, err := k.server.Ask(k.ctx, "/api/v1/query", url.Values{"query": {"count(" + query + ")"}})
	var data struct{ Result []json.RawMessage }
	if err == nil {
		err = json.Unmarshal(a.Data, &data)
	}
	k.err = err
	return len(data.Result) > 0
}

// readFile reads a file, or standard input, and returns the name under which messages mention it.
func readFile(cmd *cobra.Command, file string) (name string, text []byte, err error) {
	if file == "-" {
		text, err = io.ReadAll(cmd.InOrStdin())
		return "stdin", text, err
	}
	text, err = os.ReadFile(file)
	return file, text, err
}
