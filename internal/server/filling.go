package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/freshet-io/freshet/internal/adapter/eventlog"
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/role/filler"
	"github.com/freshet-io/freshet/internal/settings"
)

// copiesPath is the directory of copies for other nodes, below the data directory.
const copiesPath = "copies"

// checkMounts refuses a node's data directory in which stores or logs are on a mount of their own. Nodes give, take and
// set aside data by links and renames, which would fail on the day on which they are needed.
func (s *server) checkMounts() error {
	if s.config.Cluster.Node == "" {
		return nil
	}
	var paths []string
	for _, pattern := range []string{"tsdb", "tsdb/*", "tsdb/*/*", "groups", "groups/*", "events.db", "fill", copiesPath} {
		found, err := fs.Glob(os.DirFS(s.config.DataDir), pattern)
		if err != nil {
			return err
		}
		for _, name := range found {
			paths = append(paths, s.path(filepath.FromSlash(name)))
		}
	}
	path, err := files.Elsewhere(s.config.DataDir, paths)
	if err == nil && path != "" {
		err = conf.Mistake(fmt.Errorf("%s is on another mount than the data directory %s, but a node of a cluster renames "+
			"and links files between them: stop the server, copy the data to one file system, and mount it at %[2]s",
			path, s.config.DataDir))
	}
	return err
}

// openFilling prepares a node to fill other nodes, and to be filled.
func (s *server) openFilling() (err error) {
	if s.config.Cluster.Node == "" {
		return nil
	}
	s.copies, err = filler.NewCopies(s.path(copiesPath), s.copyBlocks, s.copyWhole)
	s.filler = filler.New(filler.Options{
		DataDir: s.config.DataDir, Rate: int64(s.config.Cluster.FillRate), Check: checkCopy, Room: s.hasRoomFor,
		Logger: s.logger,
		Nodes:  sources{&s.config.Cluster, func() *nodes { return s.nodes }},
	})
	return err
}

// copyBlocks copies the blocks of the stores for another node.
func (s *server) copyBlocks(ctx context.Context, dir string) ([]filler.File, error) {
	if err := s.canGive(); err != nil {
		return nil, err
	}
	all, err := s.stores.CopyBlocks(ctx, filepath.Join(dir, "tsdb"))
	return below("tsdb/", all), err
}

// copyWhole copies for another node what a start of this node after a power loss would find. The checkpoint comes
// first, since the stores must have everything that it leaves out.
func (s *server) copyWhole(ctx context.Context, dir string) ([]filler.File, error) {
	if err := s.canGive(); err != nil {
		return nil, err
	}
	g, err := s.member()
	if err != nil {
		return nil, err
	}
	base, reaches, err := g.Save(ctx)
	if err != nil {
		return nil, fmt.Errorf("write a checkpoint for another node: %w", err)
	}
	log, err := files.Open(filepath.Join(dir, filepath.FromSlash(answer.GroupPath)))
	if err != nil {
		return nil, err
	}
	if err := g.CopyLog(log, base, reaches); err != nil {
		return nil, err
	}
	all, err := s.stores.Copy(ctx, filepath.Join(dir, "tsdb"))
	if err != nil {
		return nil, err
	}
	if err := s.events.Snapshot(filepath.Join(dir, eventsFile)); err != nil {
		return nil, err
	}
	whole := below("tsdb/", all)
	copied, err := sizes(dir)
	for name, size := range copied {
		if !strings.HasPrefix(name, "tsdb/") { // files of stores may have grown since
			whole = append(whole, filler.File{Name: name, Size: size})
		}
	}
	return whole, err
}

// canGive returns an error unless this node has everything that the group has.
func (s *server) canGive() error {
	if !s.nodeReady() {
		return fmt.Errorf("node %s is not ready itself, so it gives no data to another node", s.config.Cluster.Node)
	}
	if h := s.clusterHistory; h != nil {
		if lacks := h.missing(); len(lacks) > 0 { // the other node may have them, and would lose them
			return fmt.Errorf("node %s gives no data to another node until it has all imported blocks: it lacks %d, such as "+
				"block %s of tenant %s", s.config.Cluster.Node, len(lacks), ulid.ULID(lacks[0].Block), lacks[0].Tenant)
		}
	}
	return nil
}

// below returns files with names below a directory.
func below(dir string, all []tsdb.Copied) []filler.File {
	named := make([]filler.File, len(all))
	for i, f := range all {
		named[i] = filler.File{Name: dir + f.Name, Size: f.Size}
	}
	return named
}

// checkCopy reads everything that another node has given.
func checkCopy(ctx context.Context, dir string) (last uint64, err error) {
	if err := tsdb.CheckCopy(ctx, filepath.Join(dir, "tsdb")); err != nil {
		return 0, err
	}
	if err := eventlog.VerifyCopy(filepath.Join(dir, eventsFile)); err != nil {
		return 0, err
	}
	group, err := files.Open(filepath.Join(dir, filepath.FromSlash(answer.GroupPath)))
	if err != nil {
		return 0, err
	}
	newest, damage, err := checkpoint.Newest(group, math.MaxUint64)
	if err := errors.Join(append(damage, err)...); err != nil {
		return 0, err
	}
	log, err := entrylog.Open(group, entrylog.Options{})
	if err != nil {
		return 0, err
	}
	if newest == nil || log.Base() != newest.Base {
		err = fmt.Errorf("the log begins behind entry %d, and there is no checkpoint of this entry", log.Base())
	}
	return log.Last(), errors.Join(err, log.Close())
}

// hasRoomFor returns an error unless data of another node fit on the disk, beside what this node has.
func (s *server) hasRoomFor(bytes int64) error {
	space, err := files.SpaceOf(s.config.DataDir)
	if err == nil && uint64(max(0, bytes)) > space.Free {
		err = fmt.Errorf("the disk of this node has no room for the data of another node: it needs %d MiB of free space, "+
			"and has %d MiB; free some, or replace the node with an empty directory", bytes>>20+1, space.Free>>20)
	}
	return err
}

// sources implements filler.Nodes.
type sources struct {
	config *settings.Cluster
	nodes  func() *nodes // they are opened later
}

// Sources returns the nodes that are ready, and the leader last.
func (s sources) Sources(ctx context.Context) (names []string) {
	leader := ""
	for _, a := range s.config.Nodes {
		if a.Node == s.config.Node {
			continue
		}
		if status, err := s.nodes().peers.Status(ctx, a.Node); err == nil && status.Ready {
			names = append(names, a.Node)
			leader = cmp.Or(status.Leader, leader)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(number(a == leader), number(b == leader)) })
	return names
}

// Life implements filler.Nodes.
func (s sources) Life(ctx context.Context, from string) (string, error) {
	l, err := s.nodes().peers.Leader(ctx, from)
	return life(l.Cluster.String(), l.Epoch), err
}

// Copy implements filler.Nodes.
func (s sources) Copy(ctx context.Context, from string, whole bool) ([]filler.File, error) {
	all, err := s.nodes().peers.Copy(ctx, from, whole)
	files := make([]filler.File, len(all))
	for i, f := range all {
		files[i] = filler.File(f)
	}
	return files, err
}

// Fetch implements filler.Nodes.
func (s sources) Fetch(ctx context.Context, from string, f filler.File, take func([]byte) error) error {
	return s.nodes().peers.Fetch(ctx, from, peer.CopiedFile(f), take)
}

// runCopies removes copies that are no longer used.
func (s *server) runCopies(ctx context.Context) error { return s.copies.Run(ctx) }

// fillAgain fills a node that has joined already, if the process before has found that it lacks entries which the
// logs of the others no longer have. The member stays the same, so it must not forget its vote, nor entries that it
// has acknowledged.
func (s *server) fillAgain(ctx context.Context) error {
	if s.filler == nil {
		return nil
	}
	old, err := s.filler.Again()
	if old == nil || err != nil {
		return err
	}
	if old.Last == 0 {
		if old, err = s.keepOld(); err != nil {
			return s.wayOut(err)
		}
	}
	for {
		last, err := s.filler.Last()
		if err != nil {
			return err
		}
		if last >= old.Last {
			break
		}
		if err := s.filler.Fill(ctx); err != nil {
			return err
		}
	}
	if err := keepVote(s.filler.Path(answer.GroupPath), old); err != nil {
		return fmt.Errorf("keep the vote of this node: %w", err)
	}
	if err := s.filler.Install(); err != nil {
		return err
	}
	if err := s.foundEvents(); err != nil {
		return err
	}
	if err := os.Remove(s.path(damagedEventsFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.logger.Info("this node has the data of another node, and takes part again")
	return s.filler.End()
}

// keepOld keeps what the log of the member has, before another one takes its place.
func (s *server) keepOld() (*filler.Old, error) {
	dir, err := files.Open(s.path(answer.GroupPath))
	if err != nil {
		return nil, err
	}
	log, err := entrylog.Open(dir, entrylog.Options{})
	if err != nil {
		return nil, err
	}
	defer log.Close()
	state, _, err := log.InitialState()
	if err != nil {
		return nil, err
	}
	old := filler.Old{Last: log.Last(), Term: state.GetTerm(), Vote: state.GetVote()}
	return &old, s.filler.KeepOld(old)
}

// keepVote writes the term and the vote of the member to the log of a fill, unless that is installed already.
func keepVote(path string, old *filler.Old) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir, err := files.Open(path)
	if err != nil {
		return err
	}
	var mark [4]byte
	if _, err := rand.Read(mark[:]); err != nil {
		return err
	}
	return entrylog.KeepVote(dir, binary.LittleEndian.Uint32(mark[:]), old.Term, old.Vote)
}

const (
	// watchLogEvery is how often a node looks whether the leader's log still has what the node lacks.
	watchLogEvery = 5 * time.Second

	// lacksFor is how often in a row the leader's log must lack entries: a new leader may have them.
	lacksFor = 6
)

// watchLog ends the process if the leader's log no longer has the entries that this node lacks. The next start then
// fills it again.
func (s *server) watchLog(ctx context.Context) error {
	for lacks := 0; ; {
		select {
		case <-time.After(watchLogEvery):
		case <-ctx.Done():
			return nil
		}
		if lacks++; !s.lacksEntries(ctx) {
			lacks = 0
		}
		if lacks < lacksFor {
			continue
		}
		if err := s.filler.FillAgain(); err != nil {
			s.logger.Error("this node lacks entries that the log of the leader no longer has, and cannot be filled again",
				"error", err)
			continue
		}
		return errors.New("this node lacks entries that the log of the leader no longer has: start it again, and it " +
			"gets the data of another node")
	}
}

// lacksEntries reports whether the leader's log begins behind the last entry of this node. This node may not know the
// leader's member, if it was away when that member joined, so each node is asked whether it leads.
func (s *server) lacksEntries(ctx context.Context) bool {
	g, err := s.member()
	if err != nil {
		return false
	}
	mine := g.Status()
	for _, a := range s.config.Cluster.Nodes {
		if a.Node == s.config.Cluster.Node || mine.Leads {
			continue
		}
		of, err := s.nodes.peers.Status(ctx, a.Node)
		if err == nil && of.Leader == a.Node && of.LogBase > mine.Last {
			return true
		}
	}
	return false
}

// pinEvery is how often a node that needs the logs of the others says so.
const pinEvery = time.Second

// pinLogs makes the other nodes keep the entries of the log that this node lacks, while it is filled and until it
// votes or is a spare.
func (s *server) pinLogs(ctx context.Context) error {
	for settled := false; !settled; {
		var from uint64
		if from, settled = s.needsFrom(); from < math.MaxUint64 || settled {
			s.pin(ctx, from)
		}
		select {
		case <-time.After(pinEvery):
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// pin makes the other nodes keep the entries after `from`. A node that is not told may remove them. If it leads later,
// this node is filled again.
func (s *server) pin(ctx context.Context, from uint64) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, a := range s.config.Cluster.Nodes {
		if a.Node != s.config.Cluster.Node {
			wg.Go(func() { _ = s.nodes.peers.Pin(ctx, a.Node, from) })
		}
	}
}

// needsFrom returns the entry behind which the other nodes must keep their logs, and whether this node votes or is a
// spare. math.MaxUint64 means that this node needs nothing.
func (s *server) needsFrom() (from uint64, settled bool) {
	if !s.identity.Load().Joined() || s.filler.Progress() != nil {
		last, err := s.filler.Last()
		if err != nil || last == 0 {
			last = s.filler.Base()
		}
		if last == 0 {
			last = math.MaxUint64 // the blocks come first, which may take hours, and need no log
		}
		return last, false
	}
	g, err := s.member()
	switch {
	case err != nil:
		return math.MaxUint64, false
	case g.Settled():
		return math.MaxUint64, true
	}
	return g.Applied(), false
}
