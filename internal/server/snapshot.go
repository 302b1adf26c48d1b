package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/freshet-io/freshet/internal/adapter/cataloguefile"
	"github.com/freshet-io/freshet/internal/adapter/eventlog"
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/rulesets"
	"github.com/freshet-io/freshet/internal/adapter/rulestates"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/imports"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/role/group"
)

// snapshots makes snapshots of a running server, one at a time.
type snapshots struct {
	dataDir       string
	group         *group.Group // nil for a server with a journal
	node          string       // its name in a cluster
	stores        *tsdb.Stores
	events        *eventlog.Log
	catalogueFile *cataloguefile.File
	ruleStates    *rulestates.File // nil without rules
	ruleFiles     *rulesets.Sets   // nil without rules, and in a cluster
	ready         func() error

	mu sync.Mutex // held while a snapshot is made
}

var errSnapshotRunning = errors.New("another snapshot is being made; try again when it is done")

// take makes a snapshot in dataDir/snapshots. It removes a snapshot that it cannot finish.
func (s *snapshots) take(
	ctx context.Context, now time.Time, told func(answer.SnapshotStep),
) (whole answer.SnapshotStep, err error) {
	if !s.mu.TryLock() {
		return whole, errSnapshotRunning
	}
	defer s.mu.Unlock()
	root, err := filepath.Abs(filepath.Join(s.dataDir, "snapshots")) // the client has another working directory
	if err != nil {
		return whole, err
	}
	temp := filepath.Join(root, "unfinished")
	if err := os.RemoveAll(temp); err != nil { // left by a dead process
		return whole, err
	}
	defer os.RemoveAll(temp) // a no-op once the directory has its final name
	dir, err := files.Open(temp)
	if err != nil {
		return whole, err
	}
	m := answer.Manifest{Format: answer.SnapshotFormat, Created: now.UTC(), Freshet: build.This().Version, Node: s.node}
	fill := s.fill
	if s.group != nil {
		fill = s.fillFromGroup
	}
	if m.Entry, err = fill(ctx, temp, told); err != nil {
		return whole, err
	}
	if m.Files, err = sizes(temp); err != nil {
		return whole, err
	}
	for _, n := range m.Files {
		whole.Bytes += n
	}
	if err := writeManifest(dir, m); err != nil {
		return whole, err
	}
	if err := files.SyncDirs(temp); err != nil {
		return whole, err
	}
	var mark [4]byte // distinguishes two snapshots of the same second
	if _, err := rand.Read(mark[:]); err != nil {
		return whole, err
	}
	whole.Name = now.UTC().Format("20060102T150405Z") + "-" + hex.EncodeToString(mark[:])
	whole.Path, whole.Entry, whole.Node = filepath.Join(root, whole.Name), m.Entry, m.Node
	if err := os.Rename(temp, whole.Path); err != nil {
		return whole, err
	}
	return whole, files.SyncDir(root)
}

// fill copies the data of a server with a journal.
//
// The order matters: stores, then the journal, then names. If the journal is newer than the stores, the
// snapshot lacks at most the tiles that were stored in between, and their samples are still in the
// journal's totals. An older journal would continue from an older total, which rate() sees as a reset.
// Names come last, so that the snapshot has every name with samples.
func (s *snapshots) fill(ctx context.Context, dir string, told func(answer.SnapshotStep)) (entry uint64, err error) {
	err = s.stores.Snapshot(ctx, filepath.Join(dir, "tsdb"), func(c tsdb.Content) {
		told(answer.SnapshotStep{Tenant: c.Tenant, Store: c.Store, Blocks: c.Blocks})
	})
	if err != nil {
		return 0, err
	}
	from, err := files.Open(filepath.Join(s.dataDir, "journal"))
	if err != nil {
		return 0, err
	}
	to, err := files.Open(filepath.Join(dir, "journal"))
	if err != nil {
		return 0, err
	}
	n, err := journal.Copy(from, to)
	if err != nil {
		return 0, err
	}
	told(answer.SnapshotStep{File: "journal", Bytes: n})
	return 0, s.copyRest(ctx, dir, told)
}

// fillFromGroup copies the data of a member of a group, as of the last entry of the copied log. A restored server
// starts like one whose machine lost power: from a checkpoint, with stores that have what it leaves out, and with
// the entries behind it. So the log is copied last, and has all entries that the stores and events may have.
func (s *snapshots) fillFromGroup(
	ctx context.Context, dir string, told func(answer.SnapshotStep),
) (entry uint64, err error) {
	if err := s.catchUp(ctx); err != nil {
		return 0, err
	}
	to, err := files.Open(filepath.Join(dir, filepath.FromSlash(answer.GroupPath)))
	if err != nil {
		return 0, err
	}
	entry, err = s.group.CopyWith(ctx, to, func() error { return s.copyStores(ctx, dir, told) })
	if err != nil {
		return 0, err
	}
	told(answer.SnapshotStep{File: answer.GroupPath})
	all, _ := s.group.Imports().All()
	return entry, hasImports(filepath.Join(dir, "tsdb"), all)
}

// hasImports returns an error if copied stores lack an imported block that queries should see: this node does not have
// it yet, or it was shown while the stores were copied. A server that is restored from such a copy could get the block
// from no node.
func hasImports(dir string, all []imports.Block) error {
	for _, b := range all {
		if !b.Shown {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, b.Tenant, tsdb.History, ulid.ULID(b.Stored).String())); err != nil {
			return fmt.Errorf("the snapshot lacks block %s, which was imported into tenant %s: this node may not have it "+
				"yet; try again, or ask another node: %w", ulid.ULID(b.Block), b.Tenant, err)
		}
	}
	return nil
}

// copyStores copies what the entries of a group's log are stored in.
func (s *snapshots) copyStores(ctx context.Context, dir string, told func(answer.SnapshotStep)) error {
	copied, err := s.stores.Copy(ctx, filepath.Join(dir, "tsdb"))
	if err != nil {
		return err
	}
	if err := settle(filepath.Join(dir, "tsdb"), copied); err != nil {
		return err
	}
	told(answer.SnapshotStep{File: "tsdb", Bytes: sum(copied)})
	return s.copyRest(ctx, dir, told)
}

// catchUpTime bounds how long a snapshot waits for a leader, and for entries that this node lacks.
const catchUpTime = 10 * time.Second

// catchUp waits until this node has everything that the cluster acknowledged before the call. The tenant "" has no
// stores, whose requests the log has anyway.
func (s *snapshots) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	if err := s.group.Barrier(ctx, ""); err != nil {
		return fmt.Errorf("a snapshot of this node would lack what the cluster acknowledged, since it has no leader, or "+
			"lags: see `freshet cluster status`, or ask another node: %w", err)
	}
	return nil
}

// settle replaces the links to the newest segments of the stores' logs by files with their bytes so far, since the
// stores append to these segments.
func settle(dir string, copied []tsdb.Copied) error {
	newest := map[string]tsdb.Copied{}
	for _, c := range copied {
		log := path.Dir(c.Name)
		if base := path.Base(log); (base == "wal" || base == "wbl") && c.Name > newest[log].Name {
			newest[log] = c
		}
	}
	for _, c := range newest {
		name := filepath.Join(dir, filepath.FromSlash(c.Name))
		if err := files.CopyFirst(name, name+".tmp", c.Size); err != nil {
			return err
		}
		if err := os.Rename(name+".tmp", name); err != nil {
			return err
		}
	}
	return nil
}

func sum(copied []tsdb.Copied) (bytes int64) {
	for _, c := range copied {
		bytes += c.Size
	}
	return bytes
}

// copyRest copies everything beside the stores and the log.
func (s *snapshots) copyRest(ctx context.Context, dir string, told func(answer.SnapshotStep)) error {
	type file struct {
		name string
		copy func(path string) error
	}
	all := []file{{eventsFile, s.events.Snapshot}, {"names.db", s.catalogueFile.Snapshot}, {"sender", s.copySender}}
	if s.ruleStates != nil {
		all = append(all, file{"rules.db", s.ruleStates.Snapshot})
	}
	if s.ruleFiles != nil && len(s.ruleFiles.Tenants()) > 0 {
		all = append(all, file{"rules", s.ruleFiles.Snapshot})
	}
	for _, db := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := db.copy(filepath.Join(dir, db.name)); err != nil {
			return err
		}
		told(answer.SnapshotStep{File: db.name})
	}
	return nil
}

// copySender copies the number by which aggregators know this collector, so that a restored server
// continues under the same number.
func (s *snapshots) copySender(to string) error {
	return files.CopyFile(filepath.Join(s.dataDir, "sender"), to)
}

func writeManifest(dir files.Dir, m answer.Manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	f, err := dir.Create(answer.ManifestName)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// sizes returns the size of each file below `dir`, in bytes.
func sizes(dir string) (map[string]int64, error) {
	all := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		all[filepath.ToSlash(name)] = info.Size()
		return err
	})
	return all, err
}

// serve makes a snapshot, and streams the progress.
func (s *snapshots) serve(w http.ResponseWriter, r *http.Request) {
	if err := s.ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines, begun := json.NewEncoder(w), time.Now()
	tell := func(step answer.SnapshotStep) {
		_ = lines.Encode(step) // fails if the client is gone; then ctx is done
		_ = http.NewResponseController(w).Flush()
	}
	whole, err := s.take(r.Context(), begun, tell)
	if err != nil {
		tell(answer.SnapshotStep{Error: err.Error()})
		return
	}
	whole.Seconds = time.Since(begun).Seconds()
	tell(whole)
}

// servePrometheus answers as Prometheus does at /api/v1/admin/tsdb/snapshot, for existing scripts.
func (s *snapshots) servePrometheus(w http.ResponseWriter, r *http.Request) {
	respond := func(status int, body map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	refuse := func(status int, kind string, err error) {
		respond(status, map[string]any{"status": "error", "errorType": kind, "error": err.Error()})
	}
	if err := s.ready(); err != nil {
		refuse(http.StatusServiceUnavailable, "unavailable", err)
		return
	}
	if skip := r.FormValue("skip_head"); skip != "" && skip != "false" {
		refuse(http.StatusBadRequest, "bad_data", errors.New("skip_head is not supported: a snapshot always has the "+
			"newest samples"))
		return
	}
	whole, err := s.take(r.Context(), time.Now(), func(answer.SnapshotStep) {})
	if err != nil {
		refuse(http.StatusInternalServerError, "internal", err)
		return
	}
	respond(http.StatusOK, map[string]any{"status": "success", "data": map[string]string{"name": whole.Name}})
}

// register adds the routes. The table `exposures` restricts them to operators: a snapshot fills the
// disk, and contains the series of every tenant.
func (s *snapshots) register(mux *routes) {
	mux.HandleFunc("POST /api/v1/admin/snapshot", s.serve)
	mux.HandleFunc("POST /api/v1/admin/tsdb/snapshot", s.servePrometheus)
	mux.HandleFunc("PUT /api/v1/admin/tsdb/snapshot", s.servePrometheus)
}

// newSnapshots must be called after the server has opened everything.
func (s *server) newSnapshots() *snapshots {
	g, _ := s.aggregator.(*group.Group)
	return &snapshots{
		dataDir: s.config.DataDir, group: g, node: s.config.Cluster.Node, stores: s.stores, events: s.events,
		catalogueFile: s.catalogueFile, ruleStates: s.ruleStates, ruleFiles: s.ruleFiles, ready: s.copyable,
	}
}

// copyable returns why no snapshot is made now; nil if one may be. Damage would show only when it is restored.
func (s *server) copyable() error {
	if d := s.damage(); d != nil {
		return fmt.Errorf("data of this node are damaged, so a snapshot of it would be, too; ask another node: %s", d.What)
	}
	return s.readiness()
}
