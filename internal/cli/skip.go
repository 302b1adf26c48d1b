package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/skip"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func newClusterSkipCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "skip",
		Short: "Leave out an entry of the log that no node can apply",
		Long: `All nodes of a cluster stop at the same entry of the log, and say so: none can apply it.
That is a bug: report it, and try a newer version first. To go on without the entry, stop
all nodes, and run the command on each. It says what is in the entry, which is lost unless
its sender sends it again. A node that leaves out an entry alone differs from the others.`,
		Example: `  freshet cluster skip --index 4711 --data-dir /var/lib/freshet --yes`,
		Args:    command.NoWords,
	}
	dataDir := cmd.Flags().String("data-dir", answer.DefaultDataDir, "data `directory` of the node")
	index := cmd.Flags().Uint64("index", 0, "`number` of the entry, from the error of the node (required)")
	yes := cmd.Flags().Bool("yes", false, "leave out the entry without a question")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *index == 0 {
			return errors.New("which entry? Write freshet cluster skip --index N --data-dir DIR, with the number in the " +
				"error of the node")
		}
		if err := skipEntry(cmd.OutOrStdout(), *dataDir, *index, *yes); err != nil {
			return fmt.Errorf("skip entry %d in %s: %w", *index, *dataDir, err)
		}
		return nil
	}
	return cmd
}

// skipEntry tells the node of a data directory to leave out an entry, and says what is in it.
func skipEntry(out io.Writer, dataDir string, index uint64, yes bool) error {
	lock, err := files.LockDir(dataDir)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	dir, err := files.Open(dataDir)
	if err != nil {
		return err
	}
	i, err := identity.Read(dir)
	if err != nil {
		return err
	}
	data, err := entryAt(dataDir, index)
	if err != nil {
		return err
	}
	var all skip.List
	if err := files.ReadJSON(filepath.Join(dataDir, skip.File), &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if all.Find(index, data) != nil {
		_, err := fmt.Fprintf(out, "Node %s leaves out entry %d already.\n", i.Node, index)
		return err
	}
	e := skip.Of(index, data)
	if _, err := fmt.Fprintf(out, "Entry %d: %s, with %d samples, in %d bytes.\n", index, e.What, e.Samples,
		len(data)); err != nil {
		return err
	}
	if !yes {
		return errors.New("its data would be lost; to leave it out, add --yes")
	}
	if err := writeSkips(dir, append(all, e)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "Node %s leaves it out from its next start. Run the same on all other nodes, and start "+
		"them.\n", i.Node)
	return err
}

// entryAt returns the bytes of an entry in the log of a data directory.
func entryAt(dataDir string, index uint64) (data []byte, err error) {
	group, err := files.Open(filepath.Join(dataDir, answer.GroupPath))
	if err != nil {
		return nil, err
	}
	log, err := entrylog.Open(group, entrylog.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if index <= log.Base() || index > log.Last() {
		return nil, fmt.Errorf("the log of this node has the entries %d to %d. If it gets the entry later, it stops at it: "+
			"run the command then", log.Base()+1, log.Last())
	}
	found, err := log.Read(index, index+1, 0)
	if err != nil {
		return nil, err
	}
	if e := found[0]; e.Change || len(e.Data) == 0 {
		return nil, errors.New("the entry only changes who votes or leads, and must not be left out")
	}
	return found[0].Data, nil
}

// writeSkips writes which entries a node leaves out. The file is either old or new, even after a power loss.
func writeSkips(dir segment.FS, all skip.List) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	temp := skip.File + ".tmp"
	f, err := dir.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(dir.Rename(temp, skip.File), dir.SyncDir())
}
