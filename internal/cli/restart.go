package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/settings"
)

func newRestartCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "Restart a server in place, without losing a datagram",
		Long: `Makes a running server replace itself with the program now at its path, in the same
process and with the same sockets, without losing a datagram. If the program or the
configuration is bad, the server goes on as before, and this command says why. It sends
SIGUSR2 to the process that has the data directory. See docs/upgrade.md.`,
		Example: `  freshet restart
  freshet restart --data-dir /var/lib/freshet`,
		Args: command.NoWords,
	}
	preset := os.Getenv("FRESHET_DATA_DIR")
	if preset == "" {
		preset = settings.Default().DataDir
	}
	dir := cmd.Flags().String("data-dir", preset, "`directory` of the server's data; also FRESHET_DATA_DIR")
	raw := cmd.Flags().Bool("json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := terminal.New(cmd.OutOrStdout(), cmd.ErrOrStderr())
		end, err := restart(cmd.Context(), *dir, func(s answer.Restart) {
			if !*raw {
				fmt.Fprintln(v.Notes, progress(s))
			}
		})
		if *raw && end.State != "" {
			if err := terminal.PrintJSON(v.Out, end); err != nil {
				return err
			}
		}
		return err
	}
	return cmd
}

// progress describes a state for people.
func progress(s answer.Restart) string {
	switch s.State {
	case answer.RestartChecking:
		return fmt.Sprintf("process %d checks the program and the configuration", s.PID)
	case answer.RestartStopping:
		return "both are valid; the server ends its requests and journals its windows"
	case answer.RestartOpening:
		return "the new program reads the sockets, and opens the stores"
	case answer.RestartRefused:
		return "the server goes on as before"
	case answer.RestartReady:
		return fmt.Sprintf("ready: %s; the sockets waited for %.0f ms", s.Build, s.Gap*1000)
	}
	return s.State
}

const (
	restartPoll = 20 * time.Millisecond

	// signalTime is how long a server may take to react to the signal. A version that cannot restart in
	// place never reacts.
	signalTime = 10 * time.Second

	// holderTime is how long the data directory may have no owner. It has none, for example, while
	// another restart replaces the image.
	holderTime = time.Second
)

// restart asks the server of a data directory to restart, calls `see` with each state until the
// end, and returns the last state.
func restart(ctx context.Context, dir string, see func(answer.Restart)) (answer.Restart, error) {
	tick := time.NewTicker(restartPoll)
	defer tick.Stop()
	server, err := findServer(ctx, dir, tick.C)
	if err != nil {
		return answer.Restart{}, err
	}
	last, _ := readRestart(dir) // the state of an earlier restart, if there was one
	if err := server.Signal(answer.RestartSignal); err != nil {
		return answer.Restart{}, fmt.Errorf("signal process %d: %w%s", server.Pid, err, signalHint(err))
	}
	for begun, seen := time.Now(), false; ; {
		if now, err := readRestart(dir); err == nil && now != last && now.PID == server.Pid {
			see(now)
			last, seen = now, true
		}
		switch {
		case seen && last.State == answer.RestartReady:
			return last, nil
		case seen && last.State == answer.RestartRefused:
			return last, fmt.Errorf("not restarted; nothing has changed: %s", last.Why)
		case !seen && time.Since(begun) > signalTime:
			return answer.Restart{},
				fmt.Errorf("process %d does not react to SIGUSR2: it is busy starting, or its version cannot restart in place",
					server.Pid)
		case errors.Is(server.Signal(syscall.Signal(0)), os.ErrProcessDone):
			return last, fmt.Errorf("process %d has ended; its log says why", server.Pid)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
}

// findServer returns the process that owns a data directory. restart must not signal any other
// process, since the signal could kill it.
func findServer(ctx context.Context, dir string, tick <-chan time.Time) (*os.Process, error) {
	for begun := time.Now(); ; {
		server, err := files.Holder(dir)
		if err == nil {
			return server, nil
		}
		if !errors.Is(err, files.ErrNoHolder) || time.Since(begun) > holderTime {
			return nil,
				fmt.Errorf("find the server of %s: %w; is it running, is this its --data-dir, and are you root or its user?",
					dir, err)
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func signalHint(err error) string {
	switch {
	case errors.Is(err, os.ErrProcessDone):
		return "; the server ended without an error; start it again"
	case errors.Is(err, syscall.EPERM):
		return "; run this command as the server's user, or as root"
	}
	return ""
}

func readRestart(dir string) (s answer.Restart, err error) {
	return s, files.ReadJSON(filepath.Join(dir, answer.RestartFile), &s)
}
