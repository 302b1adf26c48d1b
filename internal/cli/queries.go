package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/querycost"
	"github.com/freshet-io/freshet/internal/core/top"
)

func newQueriesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queries",
		Short: "Show which queries cost most, and which run now",
		Long: `Prints the queries and look-ups over HTTP that are under way, the oldest first, and
those of the last hour, the costliest first. Queries that differ only in numbers and in
values of labels count as one. An operator sees all tenants. Queries of rules are not
listed: see freshet rules. At a node of a cluster, the queries of all nodes are listed.`,
		Example: `  freshet queries
  freshet queries --sort longest --watch
  freshet queries --json | jq '.data.queries[0].example'`,
	}
	server := apiclient.Flags(cmd.Flags())
	limit := cmd.Flags().Int("limit", top.DefaultRows, fmt.Sprintf("`rows` of each list, at most %d", top.MaxRows))
	sort := cmd.Flags().String("sort", string(querycost.ByTime),
		"what comes first, by `figure`: time, count, longest or samples")
	watch := cmd.Flags().Bool("watch", false, "repeat each second until interrupted")
	raw := cmd.Flags().Bool("json", false, "print the server's answer unchanged")
	local := cmd.Flags().Bool("local", false, "in a cluster, the queries of the asked node alone")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if _, err := querycost.ParseOrder(*sort); err != nil {
			return fmt.Errorf("--%w", err)
		}
		return withRows(limit)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := queriesView{pages: newPages(cmd, *raw, *watch), server: *server, limit: *limit, by: *sort, local: *local}
		return v.run(cmd.Context(), v.show)
	}
	return cmd
}

// queriesView shows the queries of a server to people.
type queriesView struct {
	pages
	server apiclient.Server
	limit  int
	by     string // see querycost.ParseOrder
	local  bool
}

func (v *queriesView) show(ctx context.Context) error {
	of := url.Values{"limit": {strconv.Itoa(v.limit)}, "sort": {v.by}}
	if v.local {
		of.Set("local", "true")
	}
	body, a, err := v.server.Ask(ctx, "/api/v1/status/queries", of)
	if err != nil {
		return fmt.Errorf("queries: %w", err)
	}
	if v.raw {
		return terminal.WriteJSON(v.Out, body)
	}
	queries := new(answer.Queries)
	if err := json.Unmarshal(a.Data, queries); err != nil {
		return fmt.Errorf("queries: read the answer of %s: %w", v.server, err)
	}
	text, err := queriesPage(queries, time.Now())
	if err != nil {
		return err
	}
	return v.draw(text)
}

// queriesPage lays out queries for people.
func queriesPage(a *answer.Queries, now time.Time) (string, error) {
	var out bytes.Buffer
	whose := "tenant " + terminal.Printable(a.Tenant)
	if a.All {
		whose = "all tenants"
	}
	fmt.Fprintf(&out, "queries of %s\n", whose)
	for _, n := range a.Nodes {
		if n.Error != "" {
			fmt.Fprintf(&out, "node %s is missing: %s\n", terminal.Printable(n.Name), terminal.Printable(n.Error))
		}
	}
	out.WriteByte('\n')
	if err := writeActive(&out, a, now); err != nil {
		return "", err
	}
	out.WriteByte('\n')
	if len(a.Queries) == 0 {
		out.WriteString("No query was asked in the last hour.\n")
		return out.String(), nil
	}
	rows := [][]string{{"LAST HOUR", "TENANT", "FROM", "COUNT", "FAILED", "TOTAL", "LONGEST", "WAITED", "SAMPLES"}}
	for i := range a.Queries {
		q := &a.Queries[i]
		from := ""
		if len(q.Askers) > 0 {
			from = terminal.Printable(q.Askers[0])
		}
		rows = append(rows, []string{
			shortQuery(q.Query), terminal.Printable(q.Tenant), from, terminal.Thousands(q.Queries),
			terminal.Thousands(q.Failed), ran(q.Running), ran(q.Longest), ran(q.Waited),
			terminal.Thousands(uint64(max(0, q.Samples))),
		})
	}
	if o := a.Others; o.Expressions > 0 {
		rows = append(rows, []string{
			others(int(o.Expressions)), "", "", terminal.Thousands(o.Queries), "", ran(o.Running), "", "",
			terminal.Thousands(uint64(max(0, o.Samples))),
		})
	}
	err := terminal.WriteTable(&out, rows, 6)
	return out.String(), err
}

func writeActive(out *bytes.Buffer, a *answer.Queries, now time.Time) error {
	if len(a.Active) == 0 {
		out.WriteString("No query runs now.\n")
		return nil
	}
	rows := [][]string{{"NOW", "TENANT", "NODE", "FROM", "STATE", "STEPS", "SINCE"}}
	for i := range a.Active {
		q := &a.Active[i]
		state, steps := "runs", "" // look-ups have no steps
		if q.Waiting {
			state = "waits"
		}
		if q.Steps > 0 {
			steps = terminal.Thousands(uint64(q.Steps))
		}
		rows = append(rows, []string{
			shortQuery(q.Query), terminal.Printable(q.Tenant), terminal.Printable(q.Node), terminal.Printable(q.Asker), state,
			steps, ran(float64(now.UnixMilli())/1000 - q.Begun),
		})
	}
	if a.MoreActive > 0 {
		rows = append(rows, []string{others(a.MoreActive), "", "", "", "", "", ""})
	}
	return terminal.WriteTable(out, rows, 2)
}

// ran writes the time that queries took.
func ran(s float64) string {
	if s < 1 {
		return strconv.FormatFloat(max(0, s)*1000, 'f', 0, 64) + "ms"
	}
	return seconds(s)
}

// shortQuery writes a query in one line. The page and --json have the whole query.
func shortQuery(text string) string {
	const most = 80 // columns
	text = strings.Join(strings.Fields(text), " ")
	if cut := []rune(text); len(cut) > most {
		text = string(cut[:most-3]) + "..."
	}
	return terminal.Printable(text)
}
