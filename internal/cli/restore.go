package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/cataloguefile"
	"github.com/freshet-io/freshet/internal/adapter/eventlog"
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/rulesets"
	"github.com/freshet-io/freshet/internal/adapter/rulestates"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func newRestoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore SNAPSHOT",
		Short: "Turn a snapshot into a data directory",
		Long: `Copies a snapshot of freshet backup into an empty directory and checks all of it by
reading it once. freshet serve --data-dir can then use the directory.

A snapshot of a cluster's node becomes the first node of a new cluster. The others join it
with empty directories.`,
		Example: `  freshet restore /backup/freshet-2026-11-21 --data-dir /var/lib/freshet
  freshet serve --data-dir /var/lib/freshet`,
	}
	dataDir := cmd.Flags().String("data-dir", "", "`directory` to restore to: empty, or a new one (required)")
	name := cmd.Flags().String("name", "", "`name` of the node in a new cluster, for a snapshot of a cluster's node")
	asJSON := cmd.Flags().Bool("json", false, "print what was restored as JSON")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		const right = "freshet restore SNAPSHOT --data-dir NEW"
		if *dataDir == "" {
			return errors.New("restore needs an empty directory, or the name of a new one; write " + right)
		}
		return command.Words(1, 1, right)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		done, err := restore(cmd.Context(), filepath.Clean(args[0]), filepath.Clean(*dataDir), *name)
		if err != nil {
			return fmt.Errorf("restore %s: %w", args[0], err)
		}
		if *asJSON {
			return terminal.PrintJSON(cmd.OutOrStdout(), done)
		}
		return done.print(cmd.OutOrStdout())
	}
	return cmd
}

// restored says what the new data directory contains.
type restored struct {
	DataDir  string          `json:"data_dir"`
	Created  time.Time       `json:"created"` // when the snapshot was made
	Bytes    int64           `json:"bytes"`
	Stores   []restoredStore `json:"stores"`
	Frames   uint64          `json:"journal_frames"`
	Entries  uint64          `json:"group_entries,omitempty"` // instead of frames, if the server was a member of a group
	Entry    uint64          `json:"group_entry,omitempty"`   // the last of these entries
	Cluster  string          `json:"cluster,omitempty"`       // id of the new cluster
	Node     string          `json:"node,omitempty"`          // name of its first node
	Warnings []string        `json:"warnings,omitempty"`

	group bool // the server was a member of a group
}

type restoredStore struct {
	Tenant  string `json:"tenant"`
	Store   string `json:"store"`
	Blocks  int    `json:"blocks"`
	Samples uint64 `json:"samples"`
}

func (r *restored) print(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: as of %s, %s, read and verified\n", r.DataDir, r.Created.Format(time.RFC3339), size(r.Bytes))
	for _, s := range r.Stores {
		fmt.Fprintf(&b, "  tsdb/%s/%s: %s, %s\n", s.Tenant, s.Store, counted(s.Blocks, "block"), counted(s.Samples, "sample"))
	}
	if r.group {
		fmt.Fprintf(&b, "  %s: entries after the checkpoint: %d, up to entry %d\n", answer.GroupPath, r.Entries, r.Entry)
	} else {
		fmt.Fprintf(&b, "  journal: %s\n", counted(r.Frames, "frame"))
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	if r.Cluster != "" {
		fmt.Fprintf(&b, "It is node %s, the first of the new cluster %s.\nTo use it: freshet serve --data-dir %s "+
			"--cluster-node %[1]s --cluster-nodes %[1]s=HOST:PORT --cluster-secret-file FILE\nOther nodes, by any of their "+
			"old names after freshet cluster replace NAME: the same with an empty directory and --cluster-join\n",
			r.Node, r.Cluster, r.DataDir)
	} else {
		fmt.Fprintf(&b, "To use it: freshet serve --data-dir %s\n", r.DataDir)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// restore fills `dataDir`. Meanwhile it holds the lock of the directory, so that no server starts
// there. After an error the directory is empty again.
func restore(ctx context.Context, from, dataDir, name string) (*restored, error) {
	m, err := readManifest(from)
	switch {
	case err != nil:
		return nil, err
	case m.Node != "" && name == "":
		return nil, fmt.Errorf("the snapshot is of node %s of a cluster, and becomes the first node of a new one: add "+
			"--name %[1]s", m.Node)
	case m.Node == "" && name != "":
		return nil, errors.New("the snapshot is of a single machine: restore it without --name; freshet cluster init then " +
			"founds a cluster with its data")
	}
	lock, err := files.LockDir(dataDir)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	if err := checkEmpty(dataDir); err != nil {
		return nil, err
	}
	temp := filepath.Join(dataDir, unfinished)
	defer os.RemoveAll(temp)
	if err := os.RemoveAll(temp); err != nil {
		return nil, err
	}
	done := &restored{DataDir: dataDir, Created: m.Created}
	if err := copySnapshot(ctx, m, from, temp, done); err != nil {
		return nil, err
	}
	if err := done.verify(ctx, temp); err != nil {
		return nil, err
	}
	if name != "" {
		if err := done.found(temp, name); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(temp)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(temp, e.Name()), filepath.Join(dataDir, e.Name())); err != nil {
			return nil, err
		}
	}
	return done, files.SyncDir(dataDir)
}

// unfinished is the subdirectory of a data directory where a restore works.
const unfinished = "restore-unfinished"

func readManifest(dir string) (m answer.Manifest, err error) {
	text, err := os.ReadFile(filepath.Join(dir, answer.ManifestName))
	if err != nil {
		return m, fmt.Errorf("this is not a snapshot: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("read %s: %w", answer.ManifestName, err)
	}
	if m.Format != answer.SnapshotFormat {
		return m,
			fmt.Errorf("the snapshot has format %d, and this version of freshet reads %d; restore it with version %s",
				m.Format, answer.SnapshotFormat, m.Freshet)
	}
	return m, nil
}

// checkEmpty returns an error if `dataDir` has files. It ignores lost+found, the lock, an unfinished
// restore, and the names in `but`.
func checkEmpty(dataDir string, but ...string) error {
	entries, err := os.ReadDir(dataDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !slices.Contains([]string{"lock", "lost+found", unfinished}, e.Name()) && !slices.Contains(but, e.Name()) {
			return fmt.Errorf("%s is not empty: it has %s; use a new directory, or move its content away",
				dataDir, e.Name())
		}
	}
	return nil
}

// copySnapshot copies every file in the snapshot's manifest.
func copySnapshot(ctx context.Context, m answer.Manifest, from, to string, done *restored) error {
	for name, want := range m.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		first, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		if !filepath.IsLocal(name) ||
			!slices.Contains([]string{"tsdb", "journal", "groups", "events.db", "names.db", "rules.db", "rules", "sender"},
				first) {
			return fmt.Errorf("%s names %s, which does not belong in a snapshot", answer.ManifestName, name)
		}
		source, target := filepath.Join(from, name), filepath.Join(to, name)
		info, err := os.Lstat(source)
		if err != nil {
			return fmt.Errorf("the snapshot is incomplete: %w", err)
		}
		if !info.Mode().IsRegular() { // a link may lead outside the snapshot, and a pipe has no end
			return fmt.Errorf("the snapshot is incomplete: %s is not a regular file", source)
		}
		if info.Size() != want {
			return fmt.Errorf("the snapshot is incomplete: %s has %d bytes, not %d", source, info.Size(), want)
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
			return err
		}
		if err := files.CopyFile(source, target); err != nil {
			return err
		}
		done.Bytes += want
	}
	return files.SyncDirs(to)
}

// found makes the first node of a new cluster of the files in a directory.
func (r *restored) found(dir, name string) error {
	root, err := files.Open(dir)
	if err != nil {
		return err
	}
	groupDir, err := files.Open(filepath.Join(dir, answer.GroupPath))
	if err != nil {
		return err
	}
	log, err := entrylog.Open(groupDir, entrylog.Options{})
	if err != nil {
		return err
	}
	node, err := identity.Restored(root, log, name)
	if err == nil {
		r.Cluster, r.Node = node.Cluster, node.Node
	}
	return errors.Join(err, log.Close())
}

// verify reads all data once, so that a restore finds any damage.
func (r *restored) verify(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, answer.GroupPath)); err == nil {
		r.group = true
	}
	if err := r.verifyStores(ctx, dir); err != nil {
		return err
	}
	if err := errors.Join(eventlog.Check(filepath.Join(dir, "events.db")),
		cataloguefile.Check(filepath.Join(dir, "names.db"))); err != nil {
		return err
	}
	states := filepath.Join(dir, "rules.db")
	if _, err := os.Stat(states); err == nil { // snapshots of older versions have none
		if err := rulestates.Check(states); err != nil {
			return err
		}
	}
	if err := rulesets.Check(filepath.Join(dir, "rules")); err != nil {
		return err
	}
	if r.group {
		return r.verifyGroup(filepath.Join(dir, answer.GroupPath))
	}
	return r.verifyJournal(filepath.Join(dir, "journal"))
}

// verifyStores reads the stores: those of a member of a group have logs beside their blocks.
func (r *restored) verifyStores(ctx context.Context, dir string) error {
	if r.group {
		return tsdb.CheckCopy(ctx, filepath.Join(dir, "tsdb"))
	}
	return tsdb.Verify(ctx, dir, func(c tsdb.Content) {
		r.Stores = append(r.Stores, restoredStore{Tenant: c.Tenant, Store: c.Store, Blocks: c.Blocks, Samples: c.Samples})
	})
}

func (r *restored) verifyJournal(dir string) error {
	journalDir, err := files.Open(dir)
	if err != nil {
		return err
	}
	// journal.Open removes the last frame if it was still being written when the file was copied.
	log, report, err := journal.Open(journalDir, journal.Options{})
	if err != nil {
		return err
	}
	r.Frames = report.Frames
	for _, d := range report.Damage {
		if d.Frames > 0 {
			r.Warnings = append(r.Warnings, "journal: "+d.String())
		}
	}
	return log.Close()
}

// verifyGroup reads the group's log and checkpoint. The log must begin at or before the end of the
// checkpoint.
func (r *restored) verifyGroup(dir string) error {
	groupDir, err := files.Open(dir)
	if err != nil {
		return err
	}
	saved, damage, err := checkpoint.Newest(groupDir, math.MaxUint64)
	if err := errors.Join(append(damage, err)...); err != nil {
		return err
	}
	log, err := entrylog.Open(groupDir, entrylog.Options{})
	if err != nil {
		return err
	}
	applied := log.Base()
	if saved != nil {
		applied = saved.Base
	}
	r.Entry, r.Entries = log.Last(), log.Last()-min(applied, log.Last())
	return errors.Join(log.Start(applied), log.Close())
}
