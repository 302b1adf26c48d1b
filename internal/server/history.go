package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	prom "github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/adapter/blocks"
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tenants"
	"github.com/freshet-io/freshet/internal/lib/fulldisk"
)

const (
	// importReserve is the room that an import leaves on the disk, for acknowledged samples.
	importReserve = 1 << 30

	// importStall is how long an import may wait for the next bytes of a block.
	importStall = time.Minute

	// maxPadding bounds the bytes behind an archive: some programs fill up a record of tar.
	maxPadding = 1 << 20
)

// history imports blocks, for freshet import.
type history struct {
	dataDir string
	cluster clusterImports // nil outside a cluster
	stores  *tsdb.Stores
	tenants *tenants.Gate
	ready   func() error

	importing sync.Mutex // of one import at a time, or several would take the room that each leaves free
}

// clusterImports are the imported blocks of a cluster.
type clusterImports interface {
	take(ctx context.Context, tenant string, id ulid.ULID, fill func(dir string) error) (answer.HistoryBlock, error)
	list(ctx context.Context, tenant string) (answer.History, error)
	remove(ctx context.Context, tenant string, id ulid.ULID) error
}

// historyError is an error with its status.
type historyError struct {
	status int
	kind   string
	error
}

func badHistory(err error) error { return historyError{http.StatusBadRequest, "bad_data", err} }

func conflict(err error) error { return historyError{http.StatusConflict, "conflict", err} }

func notNow(err error) error { return historyError{http.StatusServiceUnavailable, "unavailable", err} }

// register adds the routes. The table `exposures` restricts them to operators: an import fills the disk, and may be
// as old as it likes.
func (h *history) register(mux *routes) {
	mux.HandleFunc("GET /api/v1/admin/history", h.serve(h.list))
	mux.HandleFunc("PUT /api/v1/admin/history/{block}", h.serve(h.put))
	mux.HandleFunc("DELETE /api/v1/admin/history/{block}", h.serve(h.remove))
}

// tenantAsked returns the tenant that an operator's request names by the parameter `tenant`. Without it, that is the
// tenant of the address.
func tenantAsked(r *http.Request) (string, error) {
	name := r.URL.Query().Get("tenant")
	if name == "" {
		name = tenantOf(r)
	}
	if err := tenant.Check(name); err != nil {
		return "", badHistory(err)
	}
	return name, nil
}

// readAsked answers a remote read of the tenant that an operator names, from the Prometheus API. The header
// X-Scope-OrgID would not do: a server without tenants ignores it, and would answer with other samples.
func readAsked(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, err := tenantAsked(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r = r.Clone(tenant.NewContext(r.Context(), name))
		r.URL.Path, r.URL.RawPath = "/api/v1/read", ""
		api.ServeHTTP(w, r)
	})
}

// serve answers with what `do` returns, about the tenant that the request names.
func (h *history) serve(do func(w http.ResponseWriter, r *http.Request, name string) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var data any
		name, err := tenantAsked(r)
		if err == nil {
			data, err = do(w, r, name)
		}
		w.Header().Set("Content-Type", "application/json")
		body := map[string]any{"status": "success", "data": data}
		if err != nil {
			failed := historyError{http.StatusInternalServerError, "internal", err}
			errors.As(err, &failed)
			w.WriteHeader(failed.status)
			body = map[string]any{"status": "error", "errorType": failed.kind, "error": err.Error()}
		}
		_ = json.NewEncoder(w).Encode(body) // fails only if the client is gone
	}
}

func (h *history) list(_ http.ResponseWriter, r *http.Request, name string) (any, error) {
	all, err := h.blocks(r.Context(), name)
	all.Unknown = len(all.Blocks)+len(all.Importing) == 0 && !slices.Contains(h.stores.Tenants(), name)
	return all, err
}

func (h *history) blocks(ctx context.Context, name string) (all answer.History, err error) {
	if h.cluster != nil {
		return h.cluster.list(ctx, name)
	}
	all = answer.History{Tenant: name, Blocks: []answer.HistoryBlock{}}
	metas, err := h.stores.Blocks(name, tsdb.History)
	if err != nil {
		return all, err
	}
	for _, m := range metas {
		all.Blocks = append(all.Blocks, h.block(name, m))
	}
	return all, nil
}

func (h *history) block(name string, m prom.BlockMeta) answer.HistoryBlock {
	return answerOf(m, h.stores.ImportedBytes(name, m.ULID))
}

func answerOf(m prom.BlockMeta, bytes int64) answer.HistoryBlock {
	return answer.HistoryBlock{Block: m.ULID.String(), MinTime: m.MinTime, MaxTime: m.MaxTime,
		Series: m.Stats.NumSeries, Samples: m.Stats.NumSamples, Bytes: bytes}
}

// put imports the block in the body, a tar archive. The parameter `bytes` is the size of its files.
func (h *history) put(w http.ResponseWriter, r *http.Request, name string) (any, error) {
	if err := h.ready(); err != nil {
		return nil, notNow(err)
	}
	id, err := ulid.ParseStrict(r.PathValue("block"))
	if err != nil {
		return nil, badHistory(fmt.Errorf("block %.80q: a block is named by a ULID: %w", r.PathValue("block"), err))
	}
	bytes, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
	if err != nil || bytes < 0 {
		return nil, badHistory(errors.New("bytes: give the size of the block's files in bytes"))
	}
	h.importing.Lock()
	defer h.importing.Unlock()
	if err := roomFor(h.dataDir, bytes); err != nil {
		return nil, err
	}
	body := patient{r.Context(), http.NewResponseController(w), r.Body}
	done, err := h.take(r.Context(), name, id, func(dir string) error {
		if err := blocks.Unpack(body, dir, bytes); err != nil {
			return err
		}
		return body.ends()
	})
	switch {
	case errors.Is(err, tsdb.ErrImported), errors.Is(err, tsdb.ErrImporting):
		return nil, conflict(fmt.Errorf("block %s: %w", id, err))
	case fulldisk.Is(err):
		return nil, historyError{http.StatusInsufficientStorage, "unavailable", err}
	case err != nil:
		if _, bad := errors.AsType[tsdb.BadBlockError](err); bad {
			err = badHistory(err)
		}
		return nil, err
	}
	return done, nil
}

// take imports a block, which `fill` writes to a directory.
func (h *history) take(ctx context.Context, name string, id ulid.ULID, fill func(dir string) error) (
	done answer.HistoryBlock, err error,
) {
	if h.cluster != nil {
		return h.cluster.take(ctx, name, id, fill)
	}
	if err := h.tenants.Enter(name); err != nil {
		return done, conflict(err)
	}
	meta, err := h.stores.Import(ctx, name, id, fill)
	h.tenants.Leave(name, err == nil)
	return h.block(name, meta), err
}

// roomFor returns an error if a disk has no room for a block.
func roomFor(dir string, bytes int64) error {
	space, err := files.SpaceOf(dir)
	if err != nil {
		return err
	}
	if need := uint64(bytes) + importReserve; space.Free < need {
		return historyError{http.StatusInsufficientStorage, "unavailable", fmt.Errorf("the block needs %d MiB on the disk "+
			"of %s, with 1 GiB that an import leaves free, and there are %d MiB; free some, or use a larger disk",
			need>>20+1, dir, space.Free>>20)}
	}
	return nil
}

func (h *history) remove(_ http.ResponseWriter, r *http.Request, name string) (any, error) {
	id, err := ulid.ParseStrict(r.PathValue("block"))
	if err != nil {
		return nil, badHistory(fmt.Errorf("block %.80q: a block is named by a ULID: %w", r.PathValue("block"), err))
	}
	remove := h.stores.RemoveImported
	if h.cluster != nil {
		remove = h.cluster.remove
	}
	err = remove(r.Context(), name, id)
	if errors.Is(err, tsdb.ErrNotImported) {
		return nil, historyError{http.StatusNotFound, "not_found", fmt.Errorf("block %s: %w", id, err)}
	}
	return struct{}{}, err
}

// patient reads a body for as long as bytes come: the server's limit for a whole request is a minute.
type patient struct {
	ctx     context.Context
	control *http.ResponseController
	body    io.Reader
}

func (p patient) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	_ = p.control.SetReadDeadline(time.Now().Add(importStall)) // fails only on connections without deadlines
	return p.body.Read(b)
}

// ends reads the rest of the body, which may only pad the archive. At its end, net/http takes the deadline back, and
// from then on it notices that the client leaves. Otherwise the import would go on, and hold up all others.
func (p patient) ends() error {
	switch n, err := io.Copy(io.Discard, io.LimitReader(p, maxPadding+1)); {
	case err != nil:
		return fmt.Errorf("read the end of the archive with the block: %w", err)
	case n > maxPadding:
		return errors.New("the request has more than the archive with the block; send the archive alone")
	}
	return nil
}

// newHistory must be called after the server has opened the stores.
func (s *server) newHistory() *history {
	h := &history{dataDir: s.config.DataDir, stores: s.stores, tenants: s.tenants, ready: s.readiness}
	if s.clusterHistory != nil {
		h.cluster = s.clusterHistory
	}
	return h
}
