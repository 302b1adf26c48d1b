package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
)

func newRestartCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "Restart a server in place, without losing a datagram",
		Long: `Has a running server replace itself by the program that lies at its path now, in
the same process and with the same sockets: what is sent meanwhile waits in them.
The server first has the new program check the configuration. If either is bad
it goes on as before, and this command says why. docs/upgrade.md tells the rest.
It sends SIGUSR2 to the process that the data directory names.`,
		Example: `  freshet restart
  freshet restart --data-dir /var/lib/freshet
  freshet restart --json`,
		Args: noWords,
	}
	preset := os.Getenv("FRESHET_DATA_DIR")
	if preset == "" {
		preset = defaultConfig().DataDir
	}
	dir := cmd.Flags().String("data-dir", preset, "`directory` of the server's data; also FRESHET_DATA_DIR")
	raw := cmd.Flags().Bool("json", false, "print what came of it as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := terminal.New(cmd.OutOrStdout(), cmd.ErrOrStderr())
		end, err := restart(cmd.Context(), *dir, func(s restartState) {
			if !*raw {
				fmt.Fprintln(v.Notes, s.progress())
			}
		})
		if *raw && end.State != "" {
			if err := printJSON(v.Out, end); err != nil {
				return err
			}
		}
		return err
	}
	return cmd
}

// progress is what a person reads.
func (s restartState) progress() string {
	switch s.State {
	case restartChecking:
		return fmt.Sprintf("process %d checks the program and the configuration", s.PID)
	case restartStopping:
		return "both are good; it ends its requests and journals its windows"
	case restartOpening:
		return "the new program reads the sockets, and opens the stores"
	case restartReady:
		return fmt.Sprintf("ready: %s; the sockets waited for %.0f ms", s.Build, s.Gap*1000)
	}
	return s.State
}

const (
	restartPoll = 20 * time.Millisecond

	// signalTime is how long a server may take to notice the signal. One that
	// knows nothing of restarts never does.
	signalTime = 10 * time.Second
)

// restart asks the server of a data directory to restart, and tells each state
// that it sees until the end, which it returns.
func restart(ctx context.Context, dir string, see func(restartState)) (restartState, error) {
	var server listening
	if err := readJSON(filepath.Join(dir, "listening.json"), &server); err != nil {
		return restartState{}, fmt.Errorf("find the server of %s: %w; is it running, and is this its --data-dir?", dir, err)
	}
	last, _ := readRestartState(dir) // of the restart before, if there was one
	if err := syscall.Kill(server.PID, syscall.SIGUSR2); err != nil {
		return restartState{}, fmt.Errorf("signal process %d: %w%s", server.PID, err, signalHint(err))
	}
	tick := time.NewTicker(restartPoll)
	defer tick.Stop()
	for begun, seen := time.Now(), false; ; {
		if now, err := readRestartState(dir); err == nil && now != last && now.PID == server.PID {
			see(now)
			last, seen = now, true
		}
		switch {
		case seen && last.State == restartReady:
			return last, nil
		case seen && last.State == restartRefused:
			return last, fmt.Errorf("not restarted, nothing has changed: %s", last.Why)
		case !seen && time.Since(begun) > signalTime:
			return restartState{}, fmt.Errorf("process %d does not answer SIGUSR2: it is busy starting, or of a version that cannot restart in place", server.PID)
		case errors.Is(syscall.Kill(server.PID, 0), syscall.ESRCH):
			return last, fmt.Errorf("process %d has ended; its log says why", server.PID)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
}

func signalHint(err error) string {
	switch {
	case errors.Is(err, syscall.ESRCH):
		return "; the server ended without a word, start it again"
	case errors.Is(err, syscall.EPERM):
		return "; be the server's user, or root"
	}
	return ""
}

func readRestartState(dir string) (s restartState, err error) {
	return s, readJSON(filepath.Join(dir, restartFile), &s)
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
