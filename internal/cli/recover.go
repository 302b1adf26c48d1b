package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func newClusterRecoverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Go on with one node, after most nodes are lost for good",
		Long: `Makes the node of a data directory the only one of its cluster. Do this only if most of
the nodes are lost for good, and not only out of reach, on the node that has the newest
entry, while it is stopped. What the lost nodes acknowledged and this one does not have is
lost. The other nodes are refused from then on, and end if they still run: empty their
directories, and let them join again.`,
		Example: `  freshet cluster recover --from b --data-dir /var/lib/freshet --lose-data`,
		Args:    command.NoWords,
	}
	r := recovery{}
	cmd.Flags().StringVar(&r.dataDir, "data-dir", answer.DefaultDataDir, "data `directory` of the node")
	cmd.Flags().StringVar(&r.node, "from", "", "`name` of the node that has the directory (required)")
	lose := cmd.Flags().Bool("lose-data", false, "say that data may be lost (required)")
	cmd.Flags().StringVar(&r.cluster, "cluster", "", "`id` of the cluster, in place of the question for it")
	cmd.Flags().BoolVar(&r.doubtful, "accept-damage", false,
		"go on with a node whose state differed from the other nodes'")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if r.node == "" || !*lose {
			return errors.New("this loses what only the lost nodes have; write freshet cluster recover --from NODE " +
				"--data-dir DIR --lose-data")
		}
		r.in, r.out = cmd.InOrStdin(), cmd.OutOrStdout()
		if err := r.run(); err != nil {
			return fmt.Errorf("recover the cluster from %s: %w", r.dataDir, err)
		}
		return nil
	}
	return cmd
}

// recovery makes one node the only one of its cluster.
type recovery struct {
	dataDir, node string
	cluster       string // empty asks for it
	doubtful      bool   // the user knows that the data of the node are damaged
	in            io.Reader
	out           io.Writer
}

func (r *recovery) run() (err error) {
	lock, err := files.LockDir(r.dataDir)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	dir, err := files.Open(r.dataDir)
	if err != nil {
		return err
	}
	i, err := identity.Read(dir)
	if err == nil {
		err = r.checkHealing(i)
	}
	switch {
	case err != nil:
		return err
	case !i.Joined():
		return errors.New("the directory has not joined a cluster yet, so it has no data of one")
	case i.Node != r.node:
		return fmt.Errorf("the directory is node %s, but --from is %s", i.Node, r.node)
	}
	if err := r.checkDamage(); err != nil {
		return err
	}
	groupDir, err := files.Open(filepath.Join(r.dataDir, answer.GroupPath))
	if err != nil {
		return err
	}
	log, err := entrylog.Open(groupDir, entrylog.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	newest := "unknown age"
	if t, err := newestTime(log); err != nil {
		return err
	} else if !t.IsZero() {
		newest = fmt.Sprintf("%s, %v ago", t.Format(time.DateTime), time.Since(t).Round(time.Second))
	}
	if _, err := fmt.Fprintf(r.out, "Node %s of cluster %s has entries up to %d, of %s.\n"+
		"What other nodes acknowledged after that is lost. Entries that none acknowledged may count.\n"+
		"The other nodes must be lost for good. Those that still run, but are out of reach, end once they reach this one.\n",
		i.Node, i.Cluster, log.Last(), newest); err != nil {
		return err
	}
	if err := r.confirm(i.Cluster); err != nil {
		return err
	}
	if err := i.Recover(dir, log); errors.Is(err, entrylog.ErrAlone) {
		return fmt.Errorf("node %s is the only one of its cluster already; start it", i.Node)
	} else if err != nil {
		return err
	}
	_, err = fmt.Fprintf(r.out, "Node %s is the only one now, in recovery epoch %d. Start it. For each other node:\n"+
		"  freshet cluster replace NODE      and start it with an empty directory and --cluster-join\n", i.Node, i.Epoch)
	return err
}

// checkHealing refuses a node whose data are set aside, and which has not got those of another node yet.
func (r *recovery) checkHealing(i *identity.Identity) error {
	var h answer.Healing
	err := files.ReadJSON(filepath.Join(r.dataDir, answer.HealFile), &h)
	if errors.Is(err, fs.ErrNotExist) || err == nil && h.Aside == "" {
		return nil
	}
	aside := filepath.Join(r.dataDir, h.Aside)
	switch {
	case err != nil:
		return err
	case i.Member == h.Member:
		return fmt.Errorf("the damaged data of node %s are being moved into %s: start the node, which moves the rest, and "+
			"stop it once its log says that they are set aside", i.Node, aside)
	case !i.Joined():
		return fmt.Errorf("node %s has set its damaged data aside in %s, and has no others yet. If no other node is left, "+
			"move that directory out of %s, run this command with it as --data-dir, and start the node with it", i.Node,
			aside, r.dataDir)
	}
	return nil
}

// checkDamage refuses a node whose state was outvoted, unless the user wants it all the same.
func (r *recovery) checkDamage() error {
	var d answer.Damage
	err := files.ReadJSON(filepath.Join(r.dataDir, answer.DamageFile), &d)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: the node is damaged, and the file does not say how. Recover from another node if one "+
			"is left. If none is, remove the file: answers may lack samples then, without a warning", err)
	}
	since := d.Since.UTC().Format(time.DateTime)
	if !r.doubtful {
		return fmt.Errorf("node %s is damaged since %s: %s. Recover from another node if one is left. If none is, add "+
			"--accept-damage: the node then answers with a warning, since samples may be missing or wrong", r.node, since,
			d.What)
	}
	_, err = fmt.Fprintf(r.out, "Node %s is damaged since %s: %s.\nIts answers will have a warning.\n",
		r.node, since, d.What)
	return err
}

// confirm makes sure that the user means this cluster.
func (r *recovery) confirm(id string) error {
	said := r.cluster
	if said == "" {
		if _, err := fmt.Fprint(r.out, "To go on, enter the id of the cluster: "); err != nil {
			return err
		}
		line, err := bufio.NewReader(r.in).ReadString('\n')
		if err != nil && err != io.EOF {
			return err
		}
		said = strings.TrimSpace(line)
	}
	if said != id {
		return fmt.Errorf("%q is not the id of the cluster, which is %s; nothing was changed", said, id)
	}
	return nil
}

// newestTime returns when the newest entry of a log was made that has a time.
func newestTime(log *entrylog.Log) (time.Time, error) {
	for index := log.Last(); index > log.Base(); index-- {
		found, err := log.Entries(index, index+1, 0)
		if err != nil {
			return time.Time{}, err
		}
		var e entry.Entry
		if data := found[0].GetData(); len(data) == 0 || e.Parse(data) != nil {
			continue // it changes the members, or is of a newer version
		}
		if t := e.Time(); t > 0 {
			return time.UnixMilli(t), nil
		}
	}
	return time.Time{}, nil
}
