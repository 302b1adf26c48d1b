package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/blocks"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

func newImportTSDBCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tsdb DIR|URL",
		Short: "Import blocks of Prometheus, Thanos or Mimir",
		Long: `Sends blocks to a server. DIR is the data directory of a Prometheus or a snapshot of it,
or a copy of a bucket of Thanos, or of one tenant of Mimir. URL is such a bucket itself,
in a store that speaks the protocol of S3: s3://BUCKET/PREFIX. Blocks are downloaded one
after the other. The server reads each block and checks it before queries see it. Then
the command compares some series with what the server answers.

A block that the server has is left out, so a command that was interrupted goes on when
it is run again. A block that cannot be read is named; the others are imported.

Region and credentials are those of AWS' tools: AWS_REGION, AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the machine's role.`,
		Example: `  freshet import tsdb /var/lib/prometheus
  freshet import tsdb /mnt/thanos-bucket --label replica=
  freshet import tsdb s3://thanos --label replica=
  freshet import tsdb s3://mimir-blocks/team-a --tenant team-a --s3-endpoint https://minio:9000`,
		Args: command.Words(1, 1, "freshet import tsdb DIR, or freshet import tsdb s3://BUCKET/PREFIX"),
	}
	i := importTSDB{flags: newImportFlags(cmd.Flags())}
	cmd.Flags().Lookup("label").Usage += "; an empty value leaves out an external label"
	cmd.Flags().BoolVar(&i.noExternal, "no-external-labels", false,
		"do not add the external labels that Thanos keeps in the metadata of blocks")
	cmd.Flags().BoolVar(&i.skipDownsampled, "skip-downsampled", false, "leave out blocks that Thanos downsampled")
	endpoint := cmd.Flags().String("s3-endpoint", "", "`URL` of the store of s3://BUCKET/PREFIX if it is not AWS; also "+
		"AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		i.out, i.notes = cmd.OutOrStdout(), cmd.ErrOrStderr()
		// Directories in --work-dir are removed when the command is interrupted. A second signal kills it.
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		context.AfterFunc(ctx, stop)
		if err := i.runFrom(ctx, args[0], *endpoint); err != nil {
			return fmt.Errorf("import %s: %w", shown(args[0]), err)
		}
		return nil
	}
	return cmd
}

// shown returns the source of an import without secrets.
func shown(source string) string {
	scheme, rest, is := strings.Cut(source, "://")
	switch {
	case !is:
		return source
	case strings.Contains(rest, "@"): // a secret may have any character, so what is in front of this is unclear
		return scheme + "://..."
	}
	return conf.ShowURL(source)
}

type importTSDB struct {
	flags           importFlags
	noExternal      bool
	skipDownsampled bool
	out, notes      io.Writer
}

// blockSource is where blocks are: a directory, or a bucket.
type blockSource interface {
	// String names it for people.
	String() string

	// find returns its blocks in the order of time, by their metadata alone.
	find(ctx context.Context) ([]blocks.Block, error)

	// bytes returns how many bytes a block has.
	bytes(b blocks.Block) (int64, error)

	// open returns a block that is in a directory of this machine until `done` is called. If it is to have labels, a
	// copy of it will be written to --work-dir, too.
	open(ctx context.Context, u *upload, b blocks.Block, labelled bool) (opened blocks.Block, done func() error, err error)

	// ends reports whether the error of a block ends the import.
	ends(err error) bool
}

// runFrom imports the blocks of a directory or of an address.
func (i *importTSDB) runFrom(ctx context.Context, source, endpoint string) error {
	if !strings.Contains(source, "://") {
		if endpoint != "" {
			return conf.Mistake(errors.New("--s3-endpoint is for s3://BUCKET/PREFIX, not for a directory"))
		}
		return i.run(ctx, blockDir(filepath.Clean(source)))
	}
	from, err := openBucket(ctx, source, endpoint, *i.flags.workDir, i.notes)
	if err != nil {
		return err
	}
	return i.run(ctx, from)
}

func (i *importTSDB) run(ctx context.Context, from blockSource) error {
	found, err := i.find(ctx, from)
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
		if bytes, err := from.bytes(b); err == nil && !u.knows(b.ID) {
			u.total += bytes
		}
	}
	i.announce(from, found, u.total)
	var left []string
	for _, b := range found {
		if u.knows(b.ID) {
			left = append(left, b.ID.String())
			err = u.has(b.ID.String())
		} else if err = i.add(ctx, u, from, b); err != nil && ctx.Err() == nil && from.ends(err) {
			return fmt.Errorf("%s: %w; run the command again to go on", b.ID, err)
		} else if err != nil {
			err = u.fail(ctx, b.ID.String(), err)
		}
		if err != nil {
			return err
		}
	}
	i.noteLabels(u, left)
	return u.end()
}

// noteLabels says that blocks that were imported before do not get the labels of this command. The server does not know
// with which labels they came. If these were others, a metric is two series now, and nothing else would say so.
func (i *importTSDB) noteLabels(u *upload, left []string) {
	if len(left) == 0 || len(*i.flags.add) == 0 && !i.noExternal {
		return
	}
	fmt.Fprintf(i.notes, "note: the labels of the first import stay in %s that the server has: %s; if they were others, "+
		"run %s for each, and this command again\n", counted(len(left), "block"), joined(left), u.removal("BLOCK"))
}

// find returns the blocks that are to be imported. It refuses downsampled blocks before anything is imported.
func (i *importTSDB) find(ctx context.Context, from blockSource) (found []blocks.Block, err error) {
	all, err := from.find(ctx)
	if err != nil {
		return nil, err
	}
	var replaced, downsampled []string
	var aggregates []blocks.Block
	for _, b := range all {
		switch {
		case b.Replaced:
			replaced = append(replaced, b.ID.String())
		case b.Resolution > 0:
			aggregates = append(aggregates, b)
			downsampled = append(downsampled, fmt.Sprintf("%s (%s)", b.ID, b.Resolution))
		default:
			found = append(found, b)
		}
	}
	if len(downsampled) > 0 && !i.skipDownsampled {
		return nil, conf.Mistake(fmt.Errorf("%s downsampled by Thanos, which have aggregates in place of samples: %s; "+
			"add --skip-downsampled to import the others. Only blocks of raw samples can be imported%s",
			counted(len(downsampled), "block"), joined(downsampled), staysInThanos("; ", blocks.Uncovered(aggregates, found))))
	}
	if len(replaced) > 0 {
		fmt.Fprintf(i.notes, "note: %s left out, since others replace them, or they are marked for deletion: %s\n",
			counted(len(replaced), "block"), joined(replaced))
	}
	if len(downsampled) > 0 {
		fmt.Fprintf(i.notes, "note: %s left out, since Thanos downsampled them: %s%s\n", counted(len(downsampled), "block"),
			joined(downsampled), staysInThanos("; ", blocks.Uncovered(aggregates, found)))
	}
	return found, nil
}

// staysInThanos names the times for which there are downsampled blocks alone, behind `between`.
func staysInThanos(between string, times []blocks.Span) string {
	if len(times) == 0 {
		return ""
	}
	var texts []string
	for _, s := range times {
		texts = append(texts, minute(s.From)+" to "+minute(s.To))
	}
	return between + "no other block has samples of " + joined(texts) + ", which stay in Thanos"
}

// announce says what is to be imported.
func (i *importTSDB) announce(from blockSource, found []blocks.Block, bytes int64) {
	most := uint64(0)
	for _, b := range found {
		most = max(most, b.Meta.Stats.NumSeries)
	}
	fmt.Fprintf(i.notes, "%s in %s, %s to send; at most %d series in one, which distributor.max_series does not count\n",
		counted(len(found), "block"), from, size(bytes), most)
	if dir, is := from.(blockDir); is && dir.hasLog() {
		fmt.Fprintf(i.notes, "note: the newest samples of a Prometheus are in its log, which is not imported; make it write "+
			"a snapshot (POST /api/v1/admin/tsdb/snapshot) and import that\n")
	}
}

// add imports a block.
func (i *importTSDB) add(ctx context.Context, u *upload, from blockSource, b blocks.Block) error {
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
	b, done, err := from.open(ctx, u, b, !add.IsEmpty())
	if err != nil {
		return err
	}
	return errors.Join(i.send(ctx, u, b, add), done())
}

// send sends a block, with labels if it is to have any.
func (i *importTSDB) send(ctx context.Context, u *upload, b blocks.Block, add labels.Labels) error {
	some, err := sample(ctx, b, add)
	if err != nil {
		return b.Damage(ctx, err)
	}
	if add.IsEmpty() {
		err := u.add(ctx, b, some)
		if refused, is := errors.AsType[apiclient.Refused](err); is && refused.Type == "bad_data" {
			return b.Damage(ctx, err) // the server reads more of the block than the sample
		}
		return err
	}
	dir, err := os.MkdirTemp(*i.flags.workDir, "freshet-import-")
	if err != nil {
		return err
	}
	labelled := filepath.Join(dir, b.ID.String())
	if b.Meta, err = b.Label(ctx, labelled, add); err != nil {
		err = b.Damage(ctx, err)
	} else {
		b.Dir = labelled
		err = u.add(ctx, b, some)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// blockDir is a directory with blocks.
type blockDir string

func (d blockDir) String() string { return string(d) }

func (d blockDir) find(context.Context) ([]blocks.Block, error) {
	all, err := blocks.Find(string(d))
	if err != nil {
		return nil, conf.Mistake(err)
	}
	return all, nil
}

func (d blockDir) bytes(b blocks.Block) (int64, error) { return blocks.Bytes(b.Dir) }

func (d blockDir) open(_ context.Context, _ *upload, b blocks.Block, _ bool) (blocks.Block, func() error, error) {
	return b, func() error { return nil }, nil
}

// ends is false: the next block costs nothing to try.
func (d blockDir) ends(error) bool { return false }

// hasLog reports whether the directory has the write-ahead log of a Prometheus.
func (d blockDir) hasLog() bool {
	_, err := os.Stat(filepath.Join(string(d), "wal"))
	return err == nil
}
