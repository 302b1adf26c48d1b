package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func newEventsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print the events that applications have sent, oldest first",
		Long: `Prints a table of the events that applications have sent to a server, oldest first. The
server keeps them for events.retention.`,
		Example: `  freshet events --since 15m
  freshet events --since 2d --text deploy --tag env:prod --tag team:web`,
		Args: command.NoWords,
	}
	server := apiclient.Flags(cmd.Flags())
	since := command.DurationFlag(cmd.Flags(), "since", time.Hour,
		"only events of the last `duration`, like 15m or 2d (default 1h)")
	text := cmd.Flags().String("text", "", "only events with this in their title or text")
	tags := cmd.Flags().StringArray("tag", nil, "only events with this `tag`, such as env:prod; repeated: with all")
	raw := cmd.Flags().Bool("json", false, "print the server's answer unchanged")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		now := time.Now()
		params := url.Values{"start": {unixSeconds(now.Add(-*since))}, "end": {unixSeconds(now)}, "tag": *tags}
		if *text != "" {
			params.Set("text", *text)
		}
		body, a, err := server.Ask(cmd.Context(), "/api/v1/events", params)
		if err != nil {
			return fmt.Errorf("events: %w", err)
		}
		a.PrintNotes(cmd.ErrOrStderr())
		if *raw {
			return terminal.WriteJSON(cmd.OutOrStdout(), body)
		}
		var events []answer.Event
		if err := json.Unmarshal(a.Data, &events); err != nil {
			return fmt.Errorf("events: read the answer of %s: %w", *server, err)
		}
		if len(events) == 0 {
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "no events since %s\n", now.Add(-*since).Format(time.RFC3339))
			return err
		}
		return terminal.WriteTable(cmd.OutOrStdout(), eventRows(events), 0)
	}
	return cmd
}

// eventRows returns a line for each event. The text comes last, because it may be long.
func eventRows(events []answer.Event) [][]string {
	slices.SortStableFunc(events, func(a, b answer.Event) int { return cmp.Compare(a.Time, b.Time) })
	rows := [][]string{{"time", "type", "host", "title", "tags", "text"}}
	for _, e := range events {
		rows = append(rows, []string{
			time.UnixMilli(int64(e.Time * 1000)).Format(time.DateTime), terminal.Printable(e.Alert), terminal.Printable(e.Host),
			terminal.Printable(e.Title),
			terminal.Printable(strings.Join(e.Tags, ",")), terminal.Printable(e.Text),
		})
	}
	return rows
}
