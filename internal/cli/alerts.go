package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func newAlertsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Show the alerts that are pending or fire",
		Long: `Prints each alert of a server's rules that is pending or fires, and since when its
condition holds. docs/alerts.md explains rules and alerts; freshet rules shows the rules.`,
		Example: `  freshet alerts
  freshet alerts --watch
  freshet alerts --json | jq .data.alerts`,
		Args: command.NoWords,
	}
	server := apiclient.Flags(cmd.Flags())
	watch := cmd.Flags().Bool("watch", false, "repeat each second, until interrupted")
	raw := cmd.Flags().Bool("json", false, "print the server's answer of /api/v1/alerts unchanged")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := alertsView{pages: newPages(cmd, *raw, *watch), server: *server}
		return v.run(cmd.Context(), v.show)
	}
	return cmd
}

// alertsView shows the alerts of a server to people.
type alertsView struct {
	pages
	server apiclient.Server
}

// activeAlerts is the part of the answer of /api/v1/alerts that the command shows.
type activeAlerts struct {
	Alerts []activeAlert `json:"alerts"`
}

type activeAlert struct {
	State       string            `json:"state"`
	Labels      labels.Labels     `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	ActiveAt    time.Time         `json:"activeAt"`
	Value       string            `json:"value"`
}

func (v *alertsView) show(ctx context.Context) error {
	body, a, err := v.server.Ask(ctx, "/api/v1/alerts", nil)
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	if v.raw {
		return terminal.WriteJSON(v.Out, body)
	}
	var all activeAlerts
	if err := json.Unmarshal(a.Data, &all); err != nil {
		return fmt.Errorf("alerts: read the answer of %s: %w", v.server, err)
	}
	_, a, err = v.server.Ask(ctx, "/api/v1/status/rules", nil)
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	var state answer.Rules
	if err := json.Unmarshal(a.Data, &state); err != nil {
		return fmt.Errorf("alerts: read the answer of %s: %w", v.server, err)
	}
	text, err := alertsPage(all.Alerts, state)
	if err != nil {
		return err
	}
	return v.draw(text)
}

// alertsPage lays out alerts for people: those that fire first, the oldest of each state first.
func alertsPage(all []activeAlert, state answer.Rules) (string, error) {
	var out bytes.Buffer
	slices.SortStableFunc(all, func(a, b activeAlert) int {
		return cmp.Or(cmp.Compare(a.State, b.State), a.ActiveAt.Compare(b.ActiveAt), labels.Compare(a.Labels, b.Labels))
	})
	rows := [][]string{{"state", "alert", "active since", "value", "labels", "summary"}}
	for _, a := range all {
		name := a.Labels.Get(labels.AlertName)
		rest := labels.NewBuilder(a.Labels).Del(labels.AlertName).Labels()
		rows = append(rows, []string{
			terminal.Printable(a.State), terminal.Printable(name), a.ActiveAt.Local().Format(time.DateTime),
			shortNumber(a.Value), terminal.Printable(rest.String()), terminal.Printable(a.Annotations["summary"]),
		})
	}
	if len(all) == 0 {
		fmt.Fprintln(&out, "no alert is pending or fires")
	} else if err := terminal.WriteTable(&out, rows, 0); err != nil {
		return "", err
	}
	if stale := slices.IndexFunc(state.Waiting, func(g answer.WaitingGroup) bool { return g.Stale }); stale >= 0 {
		fmt.Fprintf(&out, "\nrules wait for late data, so alerts are as of %s: freshet rules says what is late\n",
			time.UnixMilli(state.InTime).Format(time.DateTime))
	}
	return out.String(), nil
}

// shortNumber shortens a value to the digits that people read.
func shortNumber(text string) string {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return terminal.Printable(text)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
