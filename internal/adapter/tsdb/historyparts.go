package tsdb

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/tsdb"
)

// partsDir, beside the stores of a tenant, has the blocks that are being imported.
const partsDir = "history.new"

// stagedDir, beside the stores of a tenant, has whole blocks that the node of a cluster keeps until the log says that
// queries see them.
const stagedDir = "history.staged"

// removeParts removes what a dead process left of its imports. A file in place of the tenant's directory has none.
func removeParts(tenantDir string) error {
	err := os.RemoveAll(filepath.Join(tenantDir, partsDir))
	if errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}

// unwanted are the blocks that an operator removes from an open database. tsdb deletes them when it reads its
// directory the next time.
type unwanted struct {
	mu  sync.Mutex
	ids map[ulid.ULID]struct{}
}

func (u *unwanted) add(id ulid.ULID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = map[ulid.ULID]struct{}{}
	}
	u.ids[id] = struct{}{}
}

func (u *unwanted) remove(id ulid.ULID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.ids, id)
}

// unwantedBlocks says which blocks of a history tsdb may delete. No retention applies to them.
func (s *store) unwantedBlocks(blocks []*tsdb.Block) map[ulid.ULID]struct{} {
	s.unwanted.mu.Lock()
	defer s.unwanted.mu.Unlock()
	found := map[ulid.ULID]struct{}{}
	for _, b := range blocks {
		if _, is := s.unwanted.ids[b.Meta().ULID]; is {
			found[b.Meta().ULID] = struct{}{}
		}
	}
	return found
}

// mayOverlap is the log of a history, whose blocks may overlap: those of two replicas do. tsdb would warn of all of
// them once a minute.
type mayOverlap struct{ slog.Handler }

// Handle implements slog.Handler.
func (h mayOverlap) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "Overlapping blocks found during reloadBlocks" {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h mayOverlap) WithAttrs(attrs []slog.Attr) slog.Handler {
	return mayOverlap{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h mayOverlap) WithGroup(name string) slog.Handler { return mayOverlap{h.Handler.WithGroup(name)} }
