package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const updateReference = "go test ./cmd/freshet -run TestReference -update"

// docs/commands.md is what the commands say of themselves.
func TestReference(t *testing.T) {
	t.Setenv("FRESHET_SERVER", "") // defaults are not those of this machine
	t.Setenv("FRESHET_CONFIG", "")
	t.Setenv("FRESHET_CA_FILE", "")
	page := filepath.Join("..", "..", "docs", "commands.md")
	want := reference(newRootCommand())
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if has, err := os.ReadFile(page); err != nil || string(has) != want {
		t.Errorf("docs/commands.md is not what the commands say (%v); run: %s", err, updateReference)
	}
}

// reference describes each command as its help does. The settings of serve are
// left to docs/configuration.md.
func reference(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Commands\n\nGenerated from the binary: change the command, then run `%s`.\n\n%s\n", updateReference, root.Long)
	for _, group := range root.Groups() {
		fmt.Fprintf(&b, "\n## %s\n", strings.TrimSuffix(group.Title, ":"))
		for _, c := range root.Commands() {
			if c.GroupID == group.ID && c.IsAvailableCommand() {
				describe(&b, c)
			}
		}
	}
	for _, c := range root.Commands() {
		if c.IsAdditionalHelpTopicCommand() {
			fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n```\n", c.Short, c.Long)
		}
	}
	return b.String()
}

func describe(b *strings.Builder, c *cobra.Command) {
	c.InitDefaultHelpFlag()
	fmt.Fprintf(b, "\n### %s\n\n%s\n", c.CommandPath(), c.Short+".")
	if c.Long != "" {
		fmt.Fprintf(b, "\n%s\n", c.Long)
	}
	fmt.Fprintf(b, "\n```\n%s\n", c.UseLine())
	if flags := ownFlags(c); flags != "" {
		fmt.Fprintf(b, "\n%s", flags)
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n%s\n", c.Example)
	}
	b.WriteString("```\n")
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			describe(b, sub)
		}
	}
}

// manyFlags is more than a reader looks through: such flags are settings.
const manyFlags = 20

func ownFlags(c *cobra.Command) string {
	n := 0
	c.LocalFlags().VisitAll(func(*pflag.Flag) { n++ })
	if n > manyFlags {
		return "A flag for each key of the configuration: see configuration.md.\n"
	}
	return c.LocalFlags().FlagUsages()
}
