// Command freshet turns the measurements of applications into series that can be queried. It has both
// the server (freshet serve) and the commands that ask it. This package only joins them.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/bench"
	"github.com/freshet-io/freshet/internal/cli"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/timerslack"
	"github.com/freshet-io/freshet/internal/server"
)

func main() {
	build.Version = version
	if args := os.Args[1:]; len(args) == 0 || args[0] == server.CommandName {
		timerslack.Widen(timerSlack)
	}
	// Until a server handles these signals, they must not kill the process. Nothing has to read them
	// from the channel, since a server reads the newest configuration when it starts.
	signal.Notify(make(chan os.Signal, 1), answer.ReloadSignal, answer.RestartSignal)
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// timerSlack is how late the kernel may end a server's timers. Their work needs no better than a millisecond,
// and a slack of 200 us saves hardly more CPU time.
const timerSlack = 100 * time.Microsecond

// version is set when a release is linked: -ldflags "-X main.version=v1.2.3".
var version string

// execute runs the command that args name and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		args = []string{server.CommandName} // a server with the defaults is useful at once
	}
	return command.Execute(ctx, newRootCommand(), args, stdout, stderr)
}

// newRootCommand returns the command freshet with all its subcommands.
func newRootCommand() *cobra.Command {
	root := cli.NewRoot(server.NewCommand(), bench.NewCommand())
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		if cmd.Name() != server.CommandName {
			signal.Reset(answer.ReloadSignal, answer.RestartSignal) // other commands end when their terminal closes
		}
	}
	return root
}
