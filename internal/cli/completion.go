package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
)

func newCompletionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script that makes a shell complete freshet commands",
		Long: `Prints a script for a shell. It completes commands, flags and, if a server answers,
the names of metrics.`,
		Example: `  source <(freshet completion bash)                       in this bash
  freshet completion bash > /etc/bash_completion.d/freshet
  freshet completion zsh > "${fpath[1]}/_freshet"
  freshet completion fish > ~/.config/fish/completions/freshet.fish`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && slices.Contains(cmd.ValidArgs, args[0]) {
				return nil
			}
			return fmt.Errorf("completion takes the name of one shell: bash, zsh or fish; got %q", strings.Join(args, " "))
		},
		ValidArgs:             []string{"bash", "zsh", "fish"},
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				if err := root.GenBashCompletionV2(out, true); err != nil {
					return err
				}
				_, err := io.WriteString(out, bashWords)
				return err
			case "zsh":
				return root.GenZshCompletion(out)
			default:
				return root.GenFishCompletion(out, true)
			}
		},
	}
}

// bashWords splits the line into words. Cobra's script would use the package bash-completion, which may
// not be installed. A space ends a word; : and = do not, although they do in COMP_WORDS.
const bashWords = `
__freshet_init_completion()
{
    COMPREPLY=()
    local line=${COMP_LINE:0:COMP_POINT}
    read -ra words <<<"$line"
    if [[ $line == *[[:space:]] ]]; then
        words+=("")
    fi
    cword=$((${#words[@]} - 1))
    cur=${words[cword]}
    prev=${words[cword - 1]}
}
`

// completeTimeout is how long a user of a shell waits for names after pressing the key.
const completeTimeout = 300 * time.Millisecond

// completeMetric completes the name of a metric that the server knows. If the server does not
// answer at once, it completes nothing.
func completeMetric(server *apiclient.Server) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const noFiles = cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 {
			return nil, noFiles
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		found := names{ctx: ctx, server: *server}.Metrics(prefix)
		if len(found) == 0 {
			return nil, noFiles
		}
		return found, noFiles | cobra.ShellCompDirectiveNoSpace // no space, because an expression may continue
	}
}
