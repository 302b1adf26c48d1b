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
probe restarts the server.`,
		Example: `  freshet health
  freshet health --live
  freshet health --server 10.0.0.1:7125 --timeout 2s`,
		Args: command.NoWords,
	}
	server := apiclient.Flags(cmd.Flags())
	live := cmd.Flags().Bool("live", false, "ask only whether the process answers")
	timeout := cmd.Flags().Duration("timeout", 5*time.Second, "how long the server may take to answer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		path := "/-/ready"
		if *live {
			path = "/-/healthy"
		}
		return health(cmd.Context(), *server, path, *timeout, cmd.OutOrStdout())
	}
	return cmd
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
