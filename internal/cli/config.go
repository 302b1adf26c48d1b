package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration in force, with comments",
		Long: `Prints the configuration that serve would run with, given the same file, flags and
environment. The output is a file that can be loaded. It contains the secrets, and for
each key its help text and what set it. Keys that nothing sets are commented out.

--server prints the configuration in force in a running server, without its secrets:
values of forward.backends[].headers, users and queries of URLs. Other flags and this
shell's environment then have no effect.`,
		Example: `  freshet config > freshet.yaml                       all keys with their defaults
  freshet config --config /etc/freshet.yaml
  freshet config --config /etc/freshet.yaml --json | jq '.[] | select(.set_by != "default")'
  freshet config --server 127.0.0.1:7125              what runs there`,
		Args: command.NoWords,
	}
	from := settings.NewSource(cmd.Flags())
	server := apiclient.Flags(cmd.Flags())
	asJSON := cmd.Flags().Bool("json", false, "print JSON: an object for each key, or the server's answer")
	reference := cmd.Flags().Bool("reference", false, "print the lists of docs/configuration.md")
	_ = cmd.Flags().MarkHidden("reference") // cannot fail: the flag exists
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		switch {
		case *reference:
			return writeReference(out, settings.Schema().Keys())
		case cmd.Flags().Changed("server"):
			return writeServerConfig(cmd, *server, *asJSON)
		}
		all, err := from.Settings()
		if err != nil {
			return err
		}
		if *asJSON {
			return terminal.PrintJSON(out, all)
		}
		_, err = io.WriteString(out, conf.Render(all))
		return err
	}
	return cmd
}

// writeServerConfig prints the configuration in force in a running server.
func writeServerConfig(cmd *cobra.Command, server apiclient.Server, asJSON bool) error {
	body, a, err := server.Ask(cmd.Context(), "/api/v1/status/config", nil)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if asJSON {
		return terminal.WriteJSON(cmd.OutOrStdout(), body)
	}
	var data struct {
		YAML string `json:"yaml"`
	}
	if err := json.Unmarshal(a.Data, &data); err != nil {
		return fmt.Errorf("config: read the answer of %s: %w", server, err)
	}
	_, err = io.WriteString(cmd.OutOrStdout(), data.YAML)
	return err
}

// topSection is the manual's name for keys outside of all sections.
const topSection = "process"

// writeReference prints a list of keys for each section, between marks as in docs/configuration.md.
func writeReference(w io.Writer, keys []conf.Key) error {
	var b strings.Builder
	current := ""
	for _, k := range keys {
		if strings.HasPrefix(k.Path, "mapping.rules[]") {
			continue // names.md explains the keys of rules with examples
		}
		section, _, below := strings.Cut(k.Path, ".")
		if !below {
			section = topSection
		}
		if section != current {
			if current != "" {
				b.WriteString("<!-- end -->\n")
			}
			fmt.Fprintf(&b, "<!-- keys: %s -->\n", section)
			current = section
		}
		writeKey(&b, k)
	}
	b.WriteString("<!-- end -->\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// writeKey prints one entry of the list. The keys of a list's elements come below the key of the list.
func writeKey(b *strings.Builder, k conf.Key) {
	if k.Default == "" { // k is a key of a list's elements
		fmt.Fprintf(b, "  - `%s` (%s): %s\n", k.Path, k.Type, inMarkdown(k.Help))
		return
	}
	fmt.Fprintf(b, "- **`%s`** (`%s`", k.Path, k.Default)
	if k.Restart {
		b.WriteString(", restart")
	}
	if k.Flag == "" {
		b.WriteString(", file only")
	} else {
		fmt.Fprintf(b, ", `--%s`", k.Flag)
	}
	fmt.Fprintf(b, "): %s.\n", inMarkdown(k.Help))
}

// markdown escapes the characters that Markdown would interpret.
var markdown = strings.NewReplacer("*", `\*`, "_", `\_`, "|", `\|`, "<", "&lt;", "[", `\[`)

func inMarkdown(text string) string { return markdown.Replace(text) }
