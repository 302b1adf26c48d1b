package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/retry"
)

func newClusterReplaceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replace NODE",
		Short: "Let a node come back with an empty data directory",
		Long: `The data directory of a node is lost. For the next 10 minutes, the node may join again
under its name with an empty directory: freshet serve --cluster-join. It gets all data
from the others. Once it has them, it takes the place of the lost one in one step. The
lost directory is of no use from then on: if it turns up, the other nodes refuse it.

If another node leads before the new directory has asked to join, the permission ends.
With --wait, the command stays until the directory has asked, and tells each new leader.`,
		Example: `  freshet cluster replace b
  freshet cluster replace b --wait`,
		Args: command.Words(1, 1, "freshet cluster replace b"),
	}
	server := apiclient.Flags(cmd.Flags())
	wait := cmd.Flags().Bool("wait", false, "wait until the new directory has asked to join, up to 10 minutes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r := replacement{server: server, node: args[0], out: cmd.OutOrStdout(), every: time.Second, most: replaceTime}
		if *wait {
			return r.wait(cmd.Context())
		}
		return r.let(cmd.Context())
	}
	return cmd
}

// replaceTime is how long a leader lets another directory take a node's name.
const replaceTime = 10 * time.Minute

// replacement lets another data directory take the name of a node.
type replacement struct {
	server *apiclient.Server
	node   string
	out    io.Writer
	every  time.Duration // time between two looks at the cluster
	most   time.Duration // how long to wait
	said   string        // the last line that was printed while the command waits
}

// let asks the leader.
func (r *replacement) let(ctx context.Context) error {
	if err := changeNode(ctx, r.server, "replace", r.node, url.Values{}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(r.out, "Node %[1]s may join again within 10 minutes. On its machine, with an empty directory:\n"+
		"  freshet serve --data-dir DIR --cluster-node %[1]s --cluster-join ...\n", r.node)
	return err
}

// wait asks the leader, and each later leader, until another directory has the node's name.
func (r *replacement) wait(ctx context.Context) error {
	began, err := r.look(ctx)
	if err != nil {
		return err
	}
	if err := r.let(ctx); err != nil {
		return err
	}
	asked := began
	for end := time.Now().Add(r.most); time.Now().Before(end); {
		if err := retry.Wait(ctx, r.every); err != nil {
			return err
		}
		now, err := r.look(ctx)
		switch {
		case err != nil:
			r.say("Trying again: " + err.Error())
			continue
		case now.member != began.member:
			_, err := fmt.Fprintf(r.out, "Node %s has the new directory. freshet cluster status shows how it gets its data.\n",
				r.node)
			return err
		case now.leader == "":
			r.say("No node leads.")
			continue
		case now.leader == asked.leader && now.term == asked.term:
			continue
		}
		if err := changeNode(ctx, r.server, "replace", r.node, url.Values{}); err != nil {
			r.say("Trying again: " + err.Error()) // a new leader does not know yet that the node is lost
			continue
		}
		asked = now
		r.say(fmt.Sprintf("Node %s leads now. Node %s may join again.", now.leader, r.node))
	}
	return fmt.Errorf("node %s has not asked to join within %v: start it with an empty directory and --cluster-join, "+
		"and run the command again", r.node, r.most)
}

// say prints a line, unless it was the last one.
func (r *replacement) say(line string) {
	if line != r.said {
		r.said = line
		_, _ = fmt.Fprintln(r.out, line) // a closed terminal must not end the wait
	}
}

// naming is which member has a node's name, and who leads.
type naming struct {
	member, leader string
	term           uint64
}

func (r *replacement) look(ctx context.Context) (n naming, err error) {
	_, a, err := r.server.Ask(ctx, "/api/v1/status/cluster", nil)
	if err != nil {
		return n, err
	}
	var c answer.Cluster
	if err := json.Unmarshal(a.Data, &c); err != nil {
		return n, fmt.Errorf("the answer of the server: %w", err)
	}
	if len(c.Groups) == 0 {
		return n, errors.New("the server is no node of a cluster, or starts")
	}
	g := &c.Groups[0]
	return naming{member: g.Names[r.node], leader: g.Leader, term: g.Term}, nil
}

// changeNode asks a server to change a node's part in its cluster.
func changeNode(ctx context.Context, server *apiclient.Server, change, node string, params url.Values) error {
	params.Set("node", node)
	resp, err := server.Post(ctx, "/api/v1/admin/cluster/"+change, params, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return server.Refusal(resp)
	}
	return nil
}
