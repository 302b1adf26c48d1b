package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/settings"
)

const updateReference = "go test ./cmd/freshet -run TestReference -update"

// docs/commands.md consists of the help texts of the commands.
func TestReference(t *testing.T) {
	t.Setenv("FRESHET_SERVER", "") // this machine's variables must not change the defaults on the page
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
		t.Errorf("docs/commands.md differs from the commands' help (%v); run: %s", err, updateReference)
	}
}

// reference describes each command as its help does. It leaves out the settings of serve, which are in
// docs/configuration.md, and describes a flag of many commands only once.
func reference(root *cobra.Command) string {
	p := page{settings: pflag.NewFlagSet("", pflag.PanicOnError), asking: pflag.NewFlagSet("", pflag.PanicOnError)}
	apiclient.Flags(p.asking)
	settings.NewSource(p.settings)
	fmt.Fprintf(&p, "# Commands\n\nGenerated from the binary: change the command, then run `%s`.\n\n%s\n", updateReference,
		root.Long)
	fmt.Fprintf(&p,
		"\n## Flags of many commands\n\nEach command has -h, --help. A command that asks a server has\n\n```\n%s```\n",
		p.asking.FlagUsages())
	for _, group := range root.Groups() {
		fmt.Fprintf(&p, "\n## %s\n", strings.TrimSuffix(group.Title, ":"))
		for _, c := range root.Commands() {
			if c.GroupID == group.ID && c.IsAvailableCommand() {
				p.describe(c)
			}
		}
	}
	for _, c := range root.Commands() {
		if c.IsAdditionalHelpTopicCommand() {
			fmt.Fprintf(&p, "\n## %s\n\n```\n%s\n```\n", c.Short, c.Long)
		}
	}
	return p.String()
}

type page struct {
	strings.Builder
	settings, asking *pflag.FlagSet // flags that the page does not describe for each command
}

func (p *page) describe(c *cobra.Command) {
	fmt.Fprintf(p, "\n### %s\n\n%s\n", c.CommandPath(), c.Long)
	fmt.Fprintf(p, "\n```\n%s\n", c.UseLine())
	if flags := p.flags(c); flags != "" {
		fmt.Fprintf(p, "\n%s", flags)
	}
	if c.Example != "" {
		fmt.Fprintf(p, "\nExamples:\n%s\n", c.Example)
	}
	p.WriteString("```\n")
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			p.describe(sub)
		}
	}
}

// flags returns the text about the flags of c. It describes the flags that only c has, and names the
// flags that it shares with other commands.
func (p *page) flags(c *cobra.Command) string {
	own := pflag.NewFlagSet("", pflag.PanicOnError)
	var asking []string
	configures := false
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		same := func(shared *pflag.FlagSet) bool { s := shared.Lookup(f.Name); return s != nil && s.Usage == f.Usage }
		switch {
		case f.Name == "help":
		case same(p.asking):
			asking = append(asking, "--"+f.Name)
		case same(p.settings):
			configures = true
		default:
			own.AddFlag(f)
		}
	})
	text := own.FlagUsages()
	if asking != nil {
		text += "      and " + strings.Join(asking, ", ") + "\n"
	}
	if configures {
		text += "      and a flag for each key of configuration.md\n"
	}
	return text
}
