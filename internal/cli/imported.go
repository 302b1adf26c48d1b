package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

func newImportListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the imported blocks of a tenant",
		Long: `Lists the blocks of a tenant's history, with their times, counts and sizes on the disk.
In a cluster, it also names the nodes that have each block.`,
		Example: "  freshet import list",
		Args:    command.NoWords,
	}
	server, tenant := apiclient.Flags(cmd.Flags()), tenantFlag(cmd.Flags())
	asJSON := cmd.Flags().Bool("json", false, "print the server's answer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		has, err := imported(cmd.Context(), *server, *tenant)
		if err != nil {
			return fmt.Errorf("import list: %w", err)
		}
		if *asJSON {
			return terminal.PrintJSON(cmd.OutOrStdout(), has)
		}
		return printHistory(cmd.OutOrStdout(), has)
	}
	return cmd
}

func printHistory(out io.Writer, has answer.History) error {
	for _, block := range has.Importing {
		if _, err := fmt.Fprintf(out, "%s is being imported.\n", block); err != nil {
			return err
		}
	}
	if len(has.Blocks) == 0 {
		_, err := fmt.Fprintf(out, "Nothing was imported into tenant %s.\n", has.Tenant)
		return err
	}
	inCluster := slices.ContainsFunc(has.Blocks, func(b answer.HistoryBlock) bool { return len(b.Nodes) > 0 })
	rows := [][]string{historyRow(inCluster, "block", "from", "to", "nodes", "series", "samples", "size")}
	for _, b := range has.Blocks {
		rows = append(rows, historyRow(inCluster, b.Block, minute(b.MinTime), minute(b.MaxTime), strings.Join(b.Nodes, " "),
			terminal.Thousands(b.Series), terminal.Thousands(b.Samples), size(b.Bytes)))
	}
	return terminal.WriteTable(out, rows, 3)
}

// historyRow leaves out the nodes of a block outside a cluster.
func historyRow(inCluster bool, row ...string) []string {
	const nodes = 3
	if inCluster {
		return row
	}
	return slices.Delete(row, nodes, nodes+1)
}

func newImportRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove BLOCK...",
		Short: "Remove imported blocks",
		Long: `Removes blocks from the history of a tenant, for good. freshet import list names them.
Nothing else removes imported samples.`,
		Example: "  freshet import remove 01JDRSYX5Z8V3M1E0Q6W2T4N7K",
		Args:    command.Words(1, math.MaxInt, "freshet import remove BLOCK; freshet import list names the blocks"),
	}
	server, tenant := apiclient.Flags(cmd.Flags()), tenantFlag(cmd.Flags())
	asJSON := cmd.Flags().Bool("json", false, "print each removed block as a line of JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, block := range args { // before any is removed
			if _, err := ulid.ParseStrict(block); err != nil {
				return conf.Mistake(fmt.Errorf("import remove: %.80q is no block's name; freshet import list names them", block))
			}
		}
		for _, block := range args {
			if err := removeImported(cmd.Context(), *server, *tenant, block); err != nil {
				return fmt.Errorf("import remove: %w", err)
			}
			if *asJSON {
				if err := terminal.PrintJSON(cmd.OutOrStdout(), map[string]string{"removed": block}); err != nil {
					return err
				}
				continue
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: removed\n", block); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func removeImported(ctx context.Context, server apiclient.Server, tenant, block string) error {
	resp, err := server.Do(ctx, http.MethodDelete, historyPath+"/"+url.PathEscape(block), url.Values{"tenant": {tenant}},
		nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return server.Refusal(resp)
	}
	return nil
}
