package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/rulefiles"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

func newRulesDiffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff FILE...",
		Short: "Show what files of rules would change on a running server",
		Long: `Compares files of rules, or files that a glob matches, with the rules of a server: groups
that a reload would add, remove or change, with each rule that differs. It changes
nothing. A file is compared with the server's file of the same path, or of the same name
if only one has it; the server's other files are not compared. An interval that a group
does not set is not compared, since it is the server's.

The exit code is 0 if nothing would change, 1 if something would, and 2 if a file is
invalid, a glob matches no file, or the server cannot be asked.`,
		Example: `  freshet rules diff rules.yaml
  freshet rules diff '/etc/freshet/rules/*.yaml' --json | jq '.groups[].name'`,
		Args: command.Words(1, math.MaxInt, "freshet rules diff rules.yaml"),
	}
	server := apiclient.Flags(cmd.Flags())
	raw := cmd.Flags().Bool("json", false, "print the changes as JSON")
	cmd.RunE = func(cmd *cobra.Command, patterns []string) error {
		d, err := askRulesDiff(cmd.Context(), *server, patterns)
		if err != nil {
			for _, line := range conf.Lines(fmt.Errorf("rules diff: %w", err)) {
				fmt.Fprintf(cmd.ErrOrStderr(), "freshet: %s\n", line)
			}
			return command.Exit(command.Usage)
		}
		view := terminal.New(cmd.OutOrStdout(), cmd.ErrOrStderr())
		if *raw {
			err = terminal.PrintJSON(view.Out, d)
		} else {
			err = d.print(view)
		}
		if err != nil {
			return err
		}
		if len(d.Groups) > 0 {
			return command.Exit(command.Failure)
		}
		return nil
	}
	return cmd
}

// rulesDiff is what files would change.
type rulesDiff struct {
	Groups      []groupDiff `json:"groups"`
	NotCompared []string    `json:"not_compared"` // files of the server that no file is compared with
}

// groupDiff is what a file would change in a group.
type groupDiff struct {
	File   string   `json:"file"`
	Name   string   `json:"name"`
	Change string   `json:"change"` // added, removed or changed
	Lines  []string `json:"lines"`  // each begins with +, - or ~
}

// comparedGroup is a group of a file or of a server, in the form in which they are compared.
type comparedGroup struct {
	Name     string         `json:"name"`
	File     string         `json:"file"`
	Interval float64        `json:"interval"` // seconds; 0 is unknown
	Limit    int            `json:"limit"`
	Offset   float64        `json:"-"` // query_offset in seconds, of another answer
	Rules    []comparedRule `json:"rules"`
}

// comparedRule is a rule as the answer of /api/v1/rules has it.
type comparedRule struct {
	Type          string            `json:"type"` // alerting or recording
	Name          string            `json:"name"`
	Query         string            `json:"query"`
	Duration      float64           `json:"duration"`      // seconds
	KeepFiringFor float64           `json:"keepFiringFor"` // seconds
	Labels        map[string]string `json:"labels"`
	Annotations   map[string]string `json:"annotations"`
}

func (r comparedRule) String() string {
	return map[string]string{"alerting": "alert ", "recording": "record "}[r.Type] + r.Name
}

// askRulesDiff compares files with the rules of a server.
func askRulesDiff(ctx context.Context, server apiclient.Server, patterns []string) (rulesDiff, error) {
	p := promapi.NewParser(promapi.DefaultConfig(), func() {})
	set, problems := rulefiles.ReadNamed(patterns, p)
	if len(problems) > 0 {
		return rulesDiff{}, conf.Mistake(errors.New(strings.Join(problems, "\n")))
	}
	there, err := askGroups(ctx, server)
	if err != nil {
		return rulesDiff{}, err
	}
	return diffRules(set, there, p)
}

// askGroups returns the groups of a server. One answer is Prometheus', and the other has what is missing there.
func askGroups(ctx context.Context, server apiclient.Server) ([]comparedGroup, error) {
	var there struct {
		Groups []comparedGroup `json:"groups"`
	}
	var status answer.Rules
	for path, into := range map[string]any{"/api/v1/rules": &there, "/api/v1/status/rules": &status} {
		_, a, err := server.Ask(ctx, path, map[string][]string{"exclude_alerts": {"true"}})
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(a.Data, into); err != nil {
			return nil, fmt.Errorf("read the answer of %s: %w", server, err)
		}
	}
	for _, o := range status.Offsets {
		for i := range there.Groups {
			if g := &there.Groups[i]; g.File == o.File && g.Name == o.Name {
				g.Offset = o.Offset
			}
		}
	}
	return there.Groups, nil
}

// diffRules compares the groups of files with those of a server.
func diffRules(set rulefiles.Set, there []comparedGroup, p parser.Parser) (rulesDiff, error) {
	d := rulesDiff{Groups: []groupDiff{}, NotCompared: []string{}}
	onServer := map[string]map[string]comparedGroup{}
	for _, g := range there {
		if onServer[g.File] == nil {
			onServer[g.File] = map[string]comparedGroup{}
		}
		onServer[g.File][g.Name] = g
	}
	compared := map[string]bool{}
	for _, path := range set.Paths() {
		file := sameFile(path, onServer)
		compared[file] = true
		file = cmp.Or(file, path)
		old := maps.Clone(onServer[file])
		for i := range set[path].Groups {
			now, err := comparableGroup(&set[path].Groups[i], p)
			if err != nil {
				return d, fmt.Errorf("%s: %w", path, err)
			}
			before, known := old[now.Name]
			delete(old, now.Name)
			change, lines := diffGroup(before, now, known)
			if change != "" {
				d.Groups = append(d.Groups, groupDiff{file, now.Name, change, lines})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(old)) {
			d.Groups = append(d.Groups, groupDiff{file, name, "removed", rulesOf(old[name], "-")})
		}
	}
	for _, file := range slices.Sorted(maps.Keys(onServer)) {
		if !compared[file] {
			d.NotCompared = append(d.NotCompared, file)
		}
	}
	return d, nil
}

// sameFile returns the server's file that a path stands for, or "" if there is none.
func sameFile(path string, onServer map[string]map[string]comparedGroup) string {
	absolute, err := filepath.Abs(path)
	for _, name := range []string{path, absolute} {
		if onServer[name] != nil && err == nil {
			return name
		}
	}
	var found []string
	for file := range onServer {
		if filepath.Base(file) == filepath.Base(path) {
			found = append(found, file)
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return ""
}

// comparableGroup returns a group of a file in the form in which the server has groups.
func comparableGroup(g *rulefmt.RuleGroup, p parser.Parser) (comparedGroup, error) {
	c := comparedGroup{Name: g.Name, Interval: time.Duration(g.Interval).Seconds(), Limit: g.Limit}
	if g.QueryOffset != nil {
		c.Offset = time.Duration(*g.QueryOffset).Seconds()
	}
	for _, r := range g.Rules {
		expr, err := p.ParseExpr(r.Expr)
		if err != nil {
			return c, err
		}
		one := comparedRule{Type: "recording", Name: r.Record, Query: expr.String(),
			Labels: rules.FromMaps(g.Labels, r.Labels).Map()}
		if r.Alert != "" {
			one.Type, one.Name, one.Annotations = "alerting", r.Alert, r.Annotations
			one.Duration, one.KeepFiringFor = time.Duration(r.For).Seconds(), time.Duration(r.KeepFiringFor).Seconds()
		}
		c.Rules = append(c.Rules, one)
	}
	return c, nil
}

// diffGroup says how a group changes.
func diffGroup(before, now comparedGroup, known bool) (change string, lines []string) {
	if !known {
		return "added", rulesOf(now, "+")
	}
	if now.Interval > 0 && now.Interval != before.Interval {
		lines = append(lines, fmt.Sprintf("~ interval: %s -> %s", inSeconds(before.Interval), inSeconds(now.Interval)))
	}
	if now.Limit != before.Limit {
		lines = append(lines, fmt.Sprintf("~ limit: %d -> %d", before.Limit, now.Limit))
	}
	if now.Offset != before.Offset {
		lines = append(lines, fmt.Sprintf("~ query_offset: %s -> %s", inSeconds(before.Offset), inSeconds(now.Offset)))
	}
	lines = append(lines, diffRuleLists(before.Rules, now.Rules)...)
	if len(lines) == 0 {
		return "", nil
	}
	return "changed", lines
}

// diffRuleLists compares rules of the same name in their order: a group may have several rules of a name.
func diffRuleLists(before, now []comparedRule) (lines []string) {
	old := map[string][]comparedRule{}
	for _, r := range before {
		old[r.String()] = append(old[r.String()], r)
	}
	var kept []string
	for _, r := range now {
		name := r.String()
		if len(old[name]) == 0 {
			lines = append(lines, "+ "+name)
			continue
		}
		lines = append(lines, diffRule(old[name][0], r)...)
		old[name] = old[name][1:]
		kept = append(kept, name)
	}
	var were []string // the rules that stay, in the order of the server
	left := maps.Clone(old)
	for _, r := range slices.Backward(before) {
		name := r.String()
		if len(left[name]) > 0 {
			left[name] = left[name][1:]
			lines = append(lines, "- "+name)
			continue
		}
		were = append(were, name)
	}
	slices.Reverse(were)
	if !slices.Equal(were, kept) {
		lines = append(lines, "~ order of the rules")
	}
	return lines
}

// diffRule compares two rules of a name.
func diffRule(before, now comparedRule) (lines []string) {
	for _, part := range []struct{ name, before, now string }{
		{"expr", before.Query, now.Query},
		{"for", inSeconds(before.Duration), inSeconds(now.Duration)},
		{"keep_firing_for", inSeconds(before.KeepFiringFor), inSeconds(now.KeepFiringFor)},
		{"labels", labels.FromMap(before.Labels).String(), labels.FromMap(now.Labels).String()},
		{"annotations", labels.FromMap(before.Annotations).String(), labels.FromMap(now.Annotations).String()},
	} {
		if part.before != part.now {
			lines = append(lines, fmt.Sprintf("~ %s: %s: %s -> %s", now, part.name, part.before, part.now))
		}
	}
	return lines
}

func rulesOf(g comparedGroup, sign string) (lines []string) {
	for _, r := range g.Rules {
		lines = append(lines, sign+" "+r.String())
	}
	return lines
}

func inSeconds(s float64) string { return model.Duration(s * float64(time.Second)).String() }

// print writes the changes for people.
func (d rulesDiff) print(v terminal.View) error {
	for _, file := range d.NotCompared {
		fmt.Fprintf(v.Notes, "note: not compared: %s\n", terminal.Printable(file))
	}
	if len(d.Groups) == 0 {
		_, err := fmt.Fprintln(v.Notes, "nothing would change")
		return err
	}
	colours := map[string]string{"+": green, "-": red, "~": yellow}
	signs := map[string]string{"added": "+", "removed": "-", "changed": "~"}
	for _, g := range d.Groups {
		sign := signs[g.Change]
		fmt.Fprintf(v.Out, "%s of %s\n", tint(v, colours[sign], sign+" group "+terminal.Printable(g.Name)),
			terminal.Printable(g.File))
		for _, line := range g.Lines {
			text := terminal.Printable(line)
			if _, err := fmt.Fprintf(v.Out, "    %s\n", tint(v, colours[line[:1]], text)); err != nil {
				return err
			}
		}
	}
	return nil
}
