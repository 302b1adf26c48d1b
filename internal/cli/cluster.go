package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/adapter/rulesets"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func newClusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Found a cluster of three nodes, look at it, replace and remove nodes",
		Long: `Three nodes are one Freshet with three copies of all data. One of them founds the cluster,
and the others join it when they start.`,
		Example: `  freshet cluster init --data-dir /var/lib/freshet --name a
  freshet cluster status`,
		Args: command.Unknown,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newClusterInitCommand(), newClusterSecretCommand(), newClusterStatusCommand(),
		newClusterReplaceCommand(), newClusterRemoveCommand(), newClusterDrainCommand(),
		newClusterUndrainCommand(), newClusterRecoverCommand(), newClusterSkipCommand())
	return cmd
}

func newClusterInitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Found a cluster in a data directory",
		Long: `Makes a data directory the first node of a new cluster. Do this once, on one machine,
before its server starts. The other nodes join: freshet serve --cluster-join.

The directory of a stopped server may have data. The next start gives them to the cluster.
Other nodes that join then get these data.`,
		Example: `  freshet cluster init --data-dir /var/lib/freshet --name a`,
		Args:    command.NoWords,
	}
	dataDir := cmd.Flags().String("data-dir", answer.DefaultDataDir, "data `directory` of the node; a missing one is made")
	name := cmd.Flags().String("name", "", "`name` of the node in the cluster (required)")
	asJSON := cmd.Flags().Bool("json", false, "print the node and its cluster as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *name == "" {
			return errors.New("a node needs a name; write freshet cluster init --data-dir DIR --name a")
		}
		node, withData, err := initCluster(filepath.Clean(*dataDir), *name)
		if err != nil {
			return fmt.Errorf("found a cluster in %s: %w", *dataDir, err)
		}
		if *asJSON {
			return terminal.PrintJSON(cmd.OutOrStdout(), node)
		}
		nodes := fmt.Sprintf("%s=HOST:PORT", node.Node)
		others := "The next start gives the data of this directory to the cluster. Other nodes may join it then."
		if !withData {
			for _, other := range []string{"a", "b", "c"} {
				if other != node.Node && strings.Count(nodes, "=") < 3 {
					nodes += "," + other + "=HOST:PORT"
				}
			}
			others = "The others: the same with a name and a directory of their own, and --cluster-join"
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is node %s, the first of cluster %s.\n"+
			"Start it:   freshet serve --data-dir %[1]s --cluster-node %[2]s --cluster-nodes %[4]s "+
			"--cluster-secret-file FILE\n%[5]s\n",
			*dataDir, node.Node, node.Cluster, nodes, others)
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
			return errors.New("--push: needs the cluster's secret; add --cluster-secret-file FILE")
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

func newClusterRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NODE",
		Short: "Take a node out of the cluster for good",
		Long: `The node leaves the cluster, whether it runs or not. Its copy of the data is of no use
from then on: stop its process, and empty the directory. If there is a spare, it votes in
the node's place. With two nodes left, the cluster waits whenever one of them is away.
With one left, there is a single copy of all data.
Remove the node from cluster.nodes of the others at their next restart. A new node
joins with an empty directory: freshet serve --cluster-join.`,
		Example: `  freshet cluster remove c --yes`,
		Args:    command.Words(1, 1, "freshet cluster remove c --yes"),
	}
	server := apiclient.Flags(cmd.Flags())
	yes := cmd.Flags().Bool("yes", false, "remove the node without a question")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*yes {
			return fmt.Errorf("node %s would leave the cluster for good, and its data would be of no use; to do that, "+
				"add --yes", args[0])
		}
		if err := changeNode(cmd.Context(), server, "remove", args[0], url.Values{}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Node %s is removed. Stop its process, and empty its data directory.\n",
			args[0])
		return err
	}
	return cmd
}

func newClusterDrainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain [NODE]",
		Short: "Let a node lead no more, and send nothing to it",
		Long: `The node hands over the lead, and does not lead again. /-/ready answers 503, so gateways
and load balancers leave the node. It still answers, votes and applies: nothing fails
while they leave it. That lasts until freshet cluster undrain, or for --for, and also
over restarts of the node. Without NODE it is the node that FRESHET_CLUSTER_NODE names.`,
		Example: `  freshet cluster drain a
  freshet cluster drain a --for 1h`,
		Args: command.Words(0, 1, "freshet cluster drain a"),
	}
	server := apiclient.Flags(cmd.Flags())
	lasts := cmd.Flags().Duration("for", 0, "end the drain by itself after this `duration`; 0 for never")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		node := strings.Join(args, "")
		if node == "" {
			node = os.Getenv("FRESHET_CLUSTER_NODE")
		}
		if node == "" {
			return errors.New("drain needs the name of a node; write freshet cluster drain a, or set FRESHET_CLUSTER_NODE")
		}
		params, until := url.Values{}, "until freshet cluster undrain "+node
		if *lasts != 0 {
			params.Set("for", lasts.String())
			until = fmt.Sprintf("for %v, or %s", *lasts, until)
		}
		if err := changeNode(cmd.Context(), server, "drain", node, params); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Node %s is drained %s.\n", node, until)
		return err
	}
	return cmd
}

func newClusterUndrainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "undrain NODE",
		Short:   "End the drain of a node",
		Long:    `The node may lead again, and is ready once it has caught up.`,
		Example: `  freshet cluster undrain a`,
		Args:    command.Words(1, 1, "freshet cluster undrain a"),
	}
	server := apiclient.Flags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := changeNode(cmd.Context(), server, "undrain", args[0], url.Values{}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Node %s is no longer drained.\n", args[0])
		return err
	}
	return cmd
}

func newClusterStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the nodes of a cluster",
		Long: `Prints how the nodes of a server's cluster are: which one leads, which are ready, and how
far each has applied the log. An unreachable node has its last known figures. Collectors
on other hosts are listed with what waits in their outboxes, as they told a node last.`,
		Example: `  freshet cluster status
  freshet cluster status --json | jq -r .data.leader`,
		Args: command.NoWords,
	}
	server := apiclient.Flags(cmd.Flags())
	asJSON := cmd.Flags().Bool("json", false, "print the server's answer unchanged")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		body, a, err := server.Ask(cmd.Context(), "/api/v1/status/cluster", nil)
		if err != nil {
			return err
		}
		if *asJSON {
			_, err := cmd.OutOrStdout().Write(body)
			return err
		}
		var c answer.Cluster
		if err := json.Unmarshal(a.Data, &c); err != nil {
			return fmt.Errorf("the answer of the server: %w", err)
		}
		return printCluster(cmd.OutOrStdout(), &c)
	}
	return cmd
}

// printCluster prints a line for each node, and lines for what is unusual.
func printCluster(out io.Writer, c *answer.Cluster) error {
	var b strings.Builder
	if c.Cluster != "" {
		fmt.Fprintf(&b, "cluster %s\n", c.Cluster)
	}
	for _, g := range c.Groups {
		fmt.Fprintf(&b, "the log uses format %d and semantics %d\n", g.Format, g.Semantics)
	}
	if c.Leader == "" {
		b.WriteString("no leader: writes fail, and queries answer only in part (partial_response=true)\n")
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "node\tstate\tpart\tapplied\tlag\tlog\tdisk free\tclock\tdigest\toutbox\tversion\taddress\t")
	for i := range c.Nodes {
		n := &c.Nodes[i]
		digest := n.Digest
		if digest == "" {
			digest = "?"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", n.Name, nodeState(c, n), n.Part,
			known(n.Applied, func(v uint64) string { return strconv.FormatUint(v, 10) }),
			known(n.LagSeconds, func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) + " s" }),
			known(n.LogBytes, func(v uint64) string { return size(int64(v)) }),
			known(n.Disk, func(d answer.ClusterDisk) string { return size(int64(d.FreeBytes)) }),
			known(n.AheadSeconds, func(v float64) string { return fmt.Sprintf("%+.3f s", v) }),
			digest, known(n.Outbox, func(o answer.ClusterOutbox) string { return size(int64(o.Bytes)) }), n.Version, n.Address)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range c.Nodes {
		printFill(&b, &c.Nodes[i])
		printUnusual(&b, &c.Nodes[i])
		printScrub(&b, &c.Nodes[i])
	}
	for _, differs := range c.SettingsDiffer {
		var sets []string
		for _, nodes := range differs.Nodes {
			sets = append(sets, strings.Join(nodes, ", "))
		}
		fmt.Fprintf(&b, "settings differ in the section %s: %s\n", differs.Section, strings.Join(sets, " | "))
	}
	if len(c.VersionsDiffer) > 0 {
		var all []string
		for _, v := range c.VersionsDiffer {
			names := v.Nodes
			for _, collector := range v.Collectors {
				names = append(names, "collector "+collector)
			}
			all = append(all, v.Version+": "+strings.Join(names, ", "))
		}
		fmt.Fprintf(&b, "versions differ: %s\n", strings.Join(all, " | "))
	}
	if err := errors.Join(printCollectors(&b, c.Collectors), printTenants(&b, c.Tenants)); err != nil {
		return err
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// printFill prints how far a node is that gets the data of another node.
func printFill(b *strings.Builder, n *answer.ClusterNode) {
	f := n.Fill
	if f == nil {
		return
	}
	from := "no node gives its data now"
	if f.From != "" {
		from = "from node " + f.From
	}
	left := ""
	if f.ETASeconds != nil {
		left = ", about " + time.Duration(*f.ETASeconds*float64(time.Second)).Round(time.Second).String() + " left"
	}
	fmt.Fprintf(b, "node %s is filled: %s of %s, %s%s\n", n.Name, size(int64(f.Bytes)), size(int64(f.OfBytes)), from, left)
	if f.Failures > 0 {
		fmt.Fprintf(b, "node %s: %d tries to fill it failed, the last with: %s\n", n.Name, f.Failures, f.Error)
	}
}

// printScrub prints how far the node that answers has read its files in search of damage.
func printScrub(b *strings.Builder, n *answer.ClusterNode) {
	if n.Scrub == nil {
		return
	}
	last := "no pass has ended since its start"
	if n.Scrub.Last != nil {
		last = "the last pass ended " + n.Scrub.Last.Format(time.RFC3339)
	}
	fmt.Fprintf(b, "node %s: the scrub has read %s of %s since %s; %s\n", n.Name, size(n.Scrub.Bytes),
		size(n.Scrub.OfBytes), n.Scrub.Begun.Format(time.RFC3339), last)
}

// printCollectors prints a line for each process that is only a collector.
func printCollectors(b *strings.Builder, all []answer.ClusterCollector) error {
	if len(all) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ncollector\tpushes to\tlast push\toutbox\tbehind\ttold\tversion\t")
	ago := func(v float64) string { return fmt.Sprintf("%.1f s ago", v) }
	for i := range all {
		p := &all[i]
		node := p.Node
		if node == "" {
			node = "?"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", p.Name, node, known(p.PushedSeconds, ago),
			known(p.Outbox, func(o answer.ClusterOutbox) string { return size(int64(o.Bytes)) }),
			known(p.Outbox, func(o answer.ClusterOutbox) string { return fmt.Sprintf("%.1f s", o.OldestSeconds) }),
			known(p.ToldSeconds, ago), p.Version)
	}
	return w.Flush()
}

// shownTenants is how many tenants the status shows; its JSON has more.
const shownTenants = 10

// printTenants prints which tenants take most of the disk.
func printTenants(b *strings.Builder, all []answer.ClusterTenant) error {
	if len(all) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ntenant\ton disk\t")
	for _, t := range all[:min(len(all), shownTenants)] {
		fmt.Fprintf(w, "%s\t%s\t\n", t.Tenant, size(int64(t.Bytes)))
	}
	if more := len(all) - shownTenants; more > 0 {
		fmt.Fprintf(w, "and %d more\t\t\n", more)
	}
	return w.Flush()
}

func nodeState(c *answer.Cluster, n *answer.ClusterNode) string {
	switch {
	case n.Error != "":
		return "unreachable"
	case n.Damage != nil:
		return "damaged"
	case n.Drained:
		return "drained"
	case !n.Ready:
		return "not ready"
	case n.Name == c.Leader:
		return "leads"
	}
	return "ready"
}

// known returns a figure as text, or a question mark for a figure that is not known.
func known[T any](v *T, text func(T) string) string {
	if v == nil {
		return "?"
	}
	return text(*v)
}

// slowAppend is the time, in seconds, from which a write to the log is slow.
const slowAppend = 1

// printUnusual prints what a person should know of a node.
func printUnusual(b *strings.Builder, n *answer.ClusterNode) {
	say := func(format string, args ...any) {
		fmt.Fprintf(b, "node %s: "+format+"\n", append([]any{n.Name}, args...)...)
	}
	if n.Part == answer.PartRemoved {
		say("it was removed, or a spare has taken its place; to join again, it needs an empty data directory")
	}
	if n.Error != "" {
		say("%s", n.Error)
		return
	}
	if n.Damage != nil {
		say("damaged since %s: %s", n.Damage.Since.Format(time.RFC3339), n.Damage.What)
	}
	if n.LeaderlessSeconds != nil && *n.LeaderlessSeconds > 0 {
		say("it has known no leader for %.0f s", *n.LeaderlessSeconds)
	}
	if n.LogAppendSeconds != nil && *n.LogAppendSeconds >= slowAppend {
		say("a write to its log takes %.1f s: its disk is slow", *n.LogAppendSeconds)
	}
	if n.Outbox != nil && n.Outbox.OldestSeconds > 0 {
		say("windows of its collector wait in its outbox, the oldest for %.0f s", n.Outbox.OldestSeconds)
	}
	if d := n.Disk; d != nil && d.Short {
		say("its disk has %s left, less than cluster.min_free (%s); writes are refused if that is so on too many nodes",
			size(int64(d.FreeBytes)), size(int64(d.MinFreeBytes)))
	}
	if n.MissingBlocks > 0 {
		say("it lacks %s, which it gets from other nodes; until then, its answers over their times have a warning",
			counted(n.MissingBlocks, "imported block"))
	}
	for _, pin := range n.LogPins {
		switch {
		case pin == "checkpoint":
			say("its log grows until a checkpoint succeeds")
		case pin == "backup":
			say("its log is kept while a backup is made")
		case strings.HasPrefix(pin, "fill of node "):
			say("its log is kept for the %s", pin)
		default:
			say("its log grows until store %s can be synced", pin)
		}
	}
	if n.Digest == answer.DigestDiffers {
		say("its state differs from the other nodes' since entry %d, or before: do not trust its answers, and report "+
			"this bug", n.DigestDiffered)
	}
}

// initCluster founds the cluster in the directory. Meanwhile it holds the directory's lock, so that no server
// starts there. withData reports whether the directory has data of one machine.
func initCluster(dataDir, name string) (node *identity.Identity, withData bool, err error) {
	lock, err := files.LockDir(dataDir)
	if err != nil {
		return nil, false, err
	}
	defer lock.Unlock()
	dir, err := files.Open(dataDir)
	if err != nil {
		return nil, false, err
	}
	base := uint64(identity.BaseIndex)
	if _, err := identity.Read(dir); errors.Is(err, identity.ErrNone) {
		if withData, err = hasData(dataDir); err != nil {
			return nil, false, err
		}
		if err := rulesets.CheckTakeover(filepath.Join(dataDir, "rules")); err != nil {
			return nil, false, err
		}
		if withData {
			base = identity.DataIndex
		}
	}
	log, err := files.Open(filepath.Join(dataDir, answer.GroupPath))
	if err != nil {
		return nil, false, err
	}
	node, err = identity.Found(dir, log, name, base)
	return node, withData, err
}

// hasData reports whether a directory has the data of one machine, that is stores or a journal. If it has
// neither, it must be empty.
func hasData(dataDir string) (bool, error) {
	if _, err := os.Stat(filepath.Join(dataDir, unfinished)); err == nil {
		return false, fmt.Errorf("a restore ended early and left %s there; empty the directory, and restore again",
			unfinished)
	}
	for _, name := range []string{"tsdb", "journal"} {
		if _, err := os.Stat(filepath.Join(dataDir, name)); err == nil {
			return true, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, checkEmpty(dataDir, "groups")
}
