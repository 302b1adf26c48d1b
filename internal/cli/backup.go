package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func newBackupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup [DIR]",
		Short: "Take a snapshot of the running server",
		Long: `Makes a running server take a snapshot of all its data, in a directory below snapshots/
in the data directory. Its blocks are hard links, which take space only after the server
has deleted its own blocks. With DIR, which must not exist yet, the snapshot is moved
there, or copied to another disk.`,
		Example: `  freshet backup                                 into the data directory
  freshet backup /backup/freshet-monday          and to another disk
  freshet backup --json | jq -r 'select(.path).path'`,
		Args: command.Words(0, 1, "freshet backup, or freshet backup /backup/freshet-monday"),
	}
	server := apiclient.Flags(cmd.Flags())
	asJSON := cmd.Flags().Bool("json", false, "print each step as a line of JSON; the last one has the path")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		b := backup{server: *server, asJSON: *asJSON, out: cmd.OutOrStdout()}
		if len(args) == 1 {
			b.to = filepath.Clean(args[0])
		}
		return b.run(cmd.Context())
	}
	return cmd
}

type backup struct {
	server apiclient.Server
	to     string // "" leaves the snapshot where the server put it
	asJSON bool
	out    io.Writer
}

func (b *backup) run(ctx context.Context) error {
	if err := b.checkTarget(); err != nil {
		return err
	}
	whole, err := b.request(ctx)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if b.to != "" {
		if err := moveTree(whole.Path, b.to); err != nil {
			return fmt.Errorf("move the snapshot to %s: %w; the snapshot is complete, and stays at %s on the "+
				"server", b.to, err, whole.Path)
		}
		whole.Path = b.to
	}
	return b.tell(whole)
}

// checkTarget finds problems with DIR before the server does its work.
func (b *backup) checkTarget() error {
	if b.to == "" {
		return nil
	}
	if _, err := os.Lstat(b.to); err == nil {
		return fmt.Errorf("%s exists already; name a directory that does not exist, such as %s-2", b.to, b.to)
	}
	if parent, err := os.Stat(filepath.Dir(b.to)); err != nil || !parent.IsDir() {
		return fmt.Errorf("%s is not a directory; create it first", filepath.Dir(b.to))
	}
	return nil
}

// request asks the server for a snapshot, prints its steps and returns the last one.
func (b *backup) request(ctx context.Context) (whole answer.SnapshotStep, err error) {
	resp, err := b.server.Post(ctx, "/api/v1/admin/snapshot", nil, nil)
	if err != nil {
		return whole, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return whole, b.server.Refusal(resp)
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		var step answer.SnapshotStep
		if err := json.Unmarshal(lines.Bytes(), &step); err != nil {
			return whole, fmt.Errorf("%s answered %.80q, which is not a step of a snapshot", b.server, lines.Text())
		}
		switch {
		case step.Error != "":
			return whole, errors.New(step.Error)
		case step.Path != "":
			return step, nil
		}
		if err := b.tell(step); err != nil {
			return whole, err
		}
	}
	return whole, fmt.Errorf("%s ended its answer before the snapshot was complete; see its log", b.server)
}

// tell prints a step.
func (b *backup) tell(step answer.SnapshotStep) error {
	if b.asJSON {
		return terminal.PrintJSON(b.out, step)
	}
	text := step.File
	switch {
	case step.Path != "":
		asOf, name := "", ""
		if step.Entry > 0 {
			asOf = fmt.Sprintf(", as of entry %d of the log", step.Entry)
		}
		if step.Node != "" {
			name = " --name " + step.Node
		}
		text = fmt.Sprintf("%s: %s in %.1f s%s\nTo restore it: freshet restore %s --data-dir NEW%s",
			step.Path, size(step.Bytes), step.Seconds, asOf, step.Path, name)
	case step.Store != "":
		text = fmt.Sprintf("tsdb/%s/%s: %s", step.Tenant, step.Store, counted(step.Blocks, "block"))
	case step.Bytes > 0:
		text += ": " + size(step.Bytes)
	}
	_, err := fmt.Fprintln(b.out, text)
	return err
}

// moveTree moves a directory to a path that does not exist yet. If the path is on another disk,
// moveTree copies the directory. The target is either complete or missing.
func moveTree(from, to string) error {
	if _, err := os.Stat(from); err != nil {
		return fmt.Errorf("the snapshot is not visible from here; the server may run on another machine or in a "+
			"container: %w",
			cause(err))
	}
	err := os.Rename(from, to)
	if !errors.Is(err, syscall.EXDEV) {
		return cause(err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(to), filepath.Base(to)+".unfinished-")
	if err != nil {
		return cause(err)
	}
	defer os.RemoveAll(temp) // does nothing once the directory has its final name
	if err := files.CopyTree(from, temp); err != nil {
		return err
	}
	if err := os.Rename(temp, to); err != nil {
		return err
	}
	return errors.Join(files.SyncDir(filepath.Dir(to)), os.RemoveAll(from))
}

// cause returns the kernel's error without paths, because callers add them.
func cause(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return err
}
