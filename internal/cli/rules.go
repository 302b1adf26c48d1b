package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/rulefiles"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

func newRulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Show the rules of a server, and what they wait for",
		Long: `Prints each rule with its health and state, and what holds back the rules that wait for
late data. docs/alerts.md explains it.`,
		Example: `  freshet rules
  freshet rules --json | jq .data.late`,
		Args: command.NoWords,
	}
	server := apiclient.Flags(cmd.Flags())
	raw := cmd.Flags().Bool("json", false, "print the server's answer of /api/v1/status/rules unchanged")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		body, a, err := server.Ask(cmd.Context(), "/api/v1/status/rules", nil)
		if err != nil {
			return fmt.Errorf("rules: %w", err)
		}
		if *raw {
			return terminal.WriteJSON(cmd.OutOrStdout(), body)
		}
		var state answer.Rules
		if err := json.Unmarshal(a.Data, &state); err != nil {
			return fmt.Errorf("rules: read the answer of %s: %w", *server, err)
		}
		_, a, err = server.Ask(cmd.Context(), "/api/v1/rules", nil)
		if err != nil {
			return fmt.Errorf("rules: %w", err)
		}
		var all ruleGroups
		if err := json.Unmarshal(a.Data, &all); err != nil {
			return fmt.Errorf("rules: read the answer of %s: %w", *server, err)
		}
		return writeRules(cmd.OutOrStdout(), all, state)
	}
	cmd.AddCommand(newRulesCheckCommand(), newRulesBacktestCommand(), newRulesDiffCommand())
	return cmd
}

// ruleGroups is the part of the answer of /api/v1/rules that the command shows.
type ruleGroups struct {
	Groups []struct {
		Name  string `json:"name"`
		File  string `json:"file"`
		Rules []struct {
			Name      string `json:"name"`
			State     string `json:"state"` // empty for a recording
			Health    string `json:"health"`
			LastError string `json:"lastError"`
		} `json:"rules"`
	} `json:"groups"`
}

// writeRules prints the rules, then what they wait for.
func writeRules(w io.Writer, all ruleGroups, state answer.Rules) error {
	rows := [][]string{{"group", "rule", "state", "health", "error"}}
	for _, g := range all.Groups {
		for _, r := range g.Rules {
			kind := r.State
			if kind == "" {
				kind = "recording"
			}
			rows = append(rows, []string{terminal.Printable(g.Name), terminal.Printable(r.Name), kind, r.Health,
				terminal.Printable(r.LastError)})
		}
	}
	if len(rows) == 1 {
		_, err := fmt.Fprintln(w, "no rules; rules.files in the configuration names files of rules")
		return err
	}
	if err := terminal.WriteTable(w, rows, 0); err != nil {
		return err
	}
	var b strings.Builder
	at := func(ms int64) string { return time.UnixMilli(ms).Format(time.DateTime) }
	fmt.Fprintf(&b, "\nwatermark %s\n", at(state.Watermark))
	for _, l := range state.Late {
		fmt.Fprintf(&b, "late: %s since %s\n", strings.TrimSpace(terminal.Printable(l.Sender)+" "+l.Text), at(l.Since))
	}
	for _, g := range state.Waiting {
		stale := ""
		if g.Stale {
			stale = ", stale"
		}
		fmt.Fprintf(&b, "group %s waits since %s, to evaluate %s%s\n", terminal.Printable(g.Name), at(g.Since), at(g.Slot),
			stale)
	}
	for _, l := range state.Gone {
		fmt.Fprintf(&b, "gone: %s %s since %s\n", terminal.Printable(l.Sender), l.Text, at(l.Since))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func newRulesCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE...",
		Short: "Check rule files",
		Long: `Reads each file of rules, or each file that a glob matches, as serve does with its default
limits, and lists all mistakes. A glob that matches no file is a mistake. The exit code
is 0 if there are none, otherwise 2.`,
		Example: `  freshet rules check rules.yaml
  freshet rules check '/etc/freshet/rules/*.yaml'`,
		Args: command.Words(1, math.MaxInt, "freshet rules check rules.yaml"),
		RunE: func(cmd *cobra.Command, patterns []string) error {
			set, problems := rulefiles.ReadNamed(patterns, promapi.NewParser(promapi.DefaultConfig(), func() {}))
			if len(problems) > 0 {
				return conf.Mistake(errors.New(strings.Join(problems, "\n")))
			}
			groups, rules := set.Counts()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "fine: %s, %s, %s\n", counted(len(set), "file"),
				counted(groups, "group"), counted(rules, "rule"))
			return err
		},
	}
}
