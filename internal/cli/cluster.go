package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func newClusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Found a cluster of three nodes",
		Long: `Three nodes are one Freshet with three copies of all data. One of them founds the cluster,
and the others join it when they start.`,
		Example: `  freshet cluster init --data-dir /var/lib/freshet --name a`,
		Args:    command.Unknown,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newClusterInitCommand(), newClusterSecretCommand())
	return cmd
}

func newClusterInitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Found a cluster in an empty data directory",
		Long: `Makes a data directory the first node of a new cluster. Do this once, on one machine,
before its server starts. The other nodes join: freshet serve --cluster-join.`,
		Example: `  freshet cluster init --data-dir /var/lib/freshet --name a`,
		Args:    command.NoWords,
	}
	dataDir := cmd.Flags().String("data-dir", answer.DefaultDataDir, "data `directory` of the node: empty, or a new one")
	name := cmd.Flags().String("name", "", "`name` of the node in the cluster (required)")
	asJSON := cmd.Flags().Bool("json", false, "print the node and its cluster as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *name == "" {
			return errors.New("a node needs a name; write freshet cluster init --data-dir DIR --name a")
		}
		node, err := initCluster(filepath.Clean(*dataDir), *name)
		if err != nil {
			return fmt.Errorf("found a cluster in %s: %w", *dataDir, err)
		}
		if *asJSON {
			return terminal.PrintJSON(cmd.OutOrStdout(), node)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is node %s, the first of cluster %s.\n"+
			"Start it:   freshet serve --data-dir %[1]s --cluster-node %[2]s --cluster-nodes %[2]s=HOST:PORT,b=HOST:PORT,"+
			"c=HOST:PORT --cluster-secret-file FILE\n"+
			"The others: the same with a name and a directory of their own, and --cluster-join\n",
			*dataDir, node.Node, node.Cluster)
		return err
	}
	return cmd
}

func newClusterSecretCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Make a secret for the nodes, or for collectors",
		Long: `Prints a new secret for the nodes of a cluster. With --push it prints the push secret that
belongs to the cluster's secret: a collector that has it can push to the nodes, and can
neither pass for a node nor read anything.`,
		Example: `  freshet cluster secret > /etc/freshet/cluster-secret
  freshet cluster secret --push --cluster-secret-file /etc/freshet/cluster-secret > push-secret`,
		Args: command.NoWords,
	}
	push := cmd.Flags().Bool("push", false, "print the push secret that belongs to --cluster-secret-file")
	file := cmd.Flags().String("cluster-secret-file", os.Getenv("FRESHET_CLUSTER_SECRET_FILE"),
		"`file` with the cluster's secret, for --push")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		text := peer.NewSecret()
		switch {
		case *push && *file == "":
			return errors.New("a push secret belongs to a cluster's secret; add --cluster-secret-file FILE")
		case *push:
			secret, err := peer.ReadSecret(*file)
			if err != nil {
				return err
			}
			text = secret.Push()
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
		return err
	}
	return cmd
}

// initCluster holds the directory's lock, so that no server starts there meanwhile.
func initCluster(dataDir, name string) (*identity.Identity, error) {
	lock, err := files.LockDir(dataDir)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	dir, err := files.Open(dataDir)
	if err != nil {
		return nil, err
	}
	if _, err := identity.Read(dir); errors.Is(err, identity.ErrNone) {
		if err := checkEmpty(dataDir, "groups"); err != nil {
			return nil, err
		}
	}
	log, err := files.Open(filepath.Join(dataDir, answer.GroupPath))
	if err != nil {
		return nil, err
	}
	return identity.Found(dir, log, name)
}
