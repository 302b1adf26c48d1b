package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/blocks"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

func newImportTSDBCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tsdb DIR",
		Short: "Import blocks of Prometheus, Thanos or Mimir",
		Long: `Sends the blocks in DIR to a server: the data directory of a Prometheus or a snapshot of
it, or a copy of a bucket of Thanos, or of one tenant of Mimir. The server reads each
block and checks it before queries see it. Then the command compares some series with
what the server answers.

A block that the server has is left out, so a command that was interrupted goes on when
it is run again. A block that cannot be read is named; the others are imported.`,
		Example: `  freshet import tsdb /var/lib/prometheus
  freshet import tsdb /mnt/thanos-bucket --label replica=
  freshet import tsdb /mnt/mimir-blocks/team-a --tenant team-a`,
		Args: command.Words(1, 1, "freshet import tsdb DIR"),
	}
	i := importTSDB{flags: newImportFlags(cmd.Flags())}
	cmd.Flags().BoolVar(&i.noExternal, "no-external-labels", false,
		"do not add the external labels that Thanos keeps in the metadata of blocks")
	cmd.Flags().BoolVar(&i.skipDownsampled, "skip-downsampled", false, "leave out blocks that Thanos downsampled")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		i.out, i.notes = cmd.OutOrStdout(), cmd.ErrOrStderr()
		if strings.Contains(args[0], "://") {
			return conf.Mistake(fmt.Errorf("import %s: is a URL, but blocks are read from a directory: copy the bucket by "+
				"rclone copy or aws s3 sync, or mount it by rclone mount; of a server that answers remote read, "+
				"freshet import remote-read imports the samples", conf.ShowURL(args[0])))
		}
		if err := i.run(cmd.Context(), filepath.Clean(args[0])); err != nil {
			return fmt.Errorf("import %s: %w", args[0], err)
		}
		return nil
	}
	return cmd
}

type importTSDB struct {
	flags           importFlags
	noExternal      bool
	skipDownsampled bool
	out, notes      io.Writer
}

func (i *importTSDB) run(ctx context.Context, dir string) error {
	found, err := i.find(dir)
	if err != nil {
		return err
	}
	if _, err := labelsWith(labels.EmptyLabels(), *i.flags.add); err != nil {
		return err
	}
	u, err := newUpload(ctx, i.flags, i.out, i.notes)
	if err != nil {
		return err
	}
	for _, b := range found {
		if bytes, err := blocks.Bytes(b.Dir); err == nil && !u.known[b.ID.String()] {
			u.total += bytes
		}
	}
	i.announce(dir, found, u.total)
	for _, b := range found {
		if u.known[b.ID.String()] {
			err = u.has(b.ID.String())
		} else if err = i.add(ctx, u, b); err != nil {
			err = u.fail(ctx, b.ID.String(), err)
		}
		if err != nil {
			return err
		}
	}
	return u.end()
}

// find returns the blocks in a directory that are to be imported. It refuses downsampled blocks before anything is
// imported.
func (i *importTSDB) find(dir string) (found []blocks.Block, err error) {
	all, err := blocks.Find(dir)
	if err != nil {
		return nil, conf.Mistake(err)
	}
	var replaced, downsampled []string
	for _, b := range all {
		switch {
		case b.Replaced:
			replaced = append(replaced, b.ID.String())
		case b.Resolution > 0:
			downsampled = append(downsampled, fmt.Sprintf("%s (%s)", b.ID, b.Resolution))
		default:
			found = append(found, b)
		}
	}
	if len(downsampled) > 0 && !i.skipDownsampled {
		return nil, conf.Mistake(fmt.Errorf("%s downsampled by Thanos, which have aggregates in place of samples: %s; "+
			"add --skip-downsampled to import the others. Only blocks of raw samples can be imported, so the time for "+
			"which Thanos has no other blocks stays in Thanos", counted(len(downsampled), "block"), joined(downsampled)))
	}
	if len(replaced) > 0 {
		fmt.Fprintf(i.notes, "note: %s left out, since others replace them, or they are marked for deletion: %s\n",
			counted(len(replaced), "block"), joined(replaced))
	}
	if len(downsampled) > 0 {
		fmt.Fprintf(i.notes, "note: %s left out, since Thanos downsampled them: %s\n", counted(len(downsampled), "block"),
			joined(downsampled))
	}
	return found, nil
}

// announce says what is to be imported.
func (i *importTSDB) announce(dir string, found []blocks.Block, bytes int64) {
	most := uint64(0)
	for _, b := range found {
		most = max(most, b.Meta.Stats.NumSeries)
	}
	fmt.Fprintf(i.notes, "%s in %s, %s to send; at most %d series in one, which distributor.max_series does not count\n",
		counted(len(found), "block"), dir, size(bytes), most)
	if _, err := os.Stat(filepath.Join(dir, "wal")); err == nil {
		fmt.Fprintf(i.notes, "note: the newest samples of a Prometheus are in its log, which is not imported; make it write "+
			"a snapshot (POST /api/v1/admin/tsdb/snapshot) and import that\n")
	}
}

// add sends a block, with its labels if it is to have any.
func (i *importTSDB) add(ctx context.Context, u *upload, b blocks.Block) error {
	if b.Err != nil {
		return b.Err
	}
	external := b.External
	if i.noExternal {
		external = labels.EmptyLabels()
	}
	add, err := labelsWith(external, *i.flags.add)
	if err != nil {
		return err
	}
	some, err := sample(ctx, b, add)
	if err != nil {
		return err
	}
	if add.IsEmpty() {
		return u.add(ctx, b, some)
	}
	dir, err := os.MkdirTemp(*i.flags.workDir, "freshet-import-")
	if err != nil {
		return err
	}
	b.Meta, err = b.Label(ctx, filepath.Join(dir, b.ID.String()), add)
	if err == nil {
		b.Dir = filepath.Join(dir, b.ID.String())
		err = u.add(ctx, b, some)
	}
	return errors.Join(err, os.RemoveAll(dir))
}
