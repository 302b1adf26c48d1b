package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func newHealthCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Say by the exit code whether a server is ready",
		Long: `Exits with 0 if a server is ready to take data and to answer queries, and with 1 if it
is not, or does not answer within --timeout. It is a probe for images that have no shell.
With --live, a server that is starting or stopping is fine, too: use it where a failed
probe restarts the server. With --wait it asks again until the server is ready.`,
		Example: `  freshet health
  freshet health --live
  freshet health --wait 30s   after a start
  freshet health --server 10.0.0.1:7125 --timeout 2s`,
		Args: command.NoWords,
	}
	server := apiclient.Flags(cmd.Flags())
	live := cmd.Flags().Bool("live", false, "ask only whether the process answers")
	timeout := cmd.Flags().Duration("timeout", 5*time.Second, "how long the server may take to answer")
	wait := cmd.Flags().Duration("wait", 0, "how long to ask again while the server is not ready")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		path := "/-/ready"
		if *live {
			path = "/-/healthy"
		}
		ask := func() error { return health(cmd.Context(), *server, path, *timeout, cmd.OutOrStdout()) }
		return patiently(cmd.Context(), *wait, ask)
	}
	return cmd
}

// patiently asks until there is no error, or the time is over. It returns the last error.
func patiently(ctx context.Context, wait time.Duration, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// health prints the server's answer at the path of a probe. It returns an error unless the answer is 200.
func health(ctx context.Context, server apiclient.Server, path string, timeout time.Duration, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := server.Get(ctx, path, nil)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("health: %w", server.Refusal(resp))
	}
	_, err = io.Copy(out, resp.Body)
	return err
}
