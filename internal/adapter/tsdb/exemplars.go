package tsdb

import (
	"context"
	"math"
	"sync"

	prom "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/core/tile"
)

// exemplarRoom is how many exemplars an open database has memory for, which tsdb takes
// for all of them at once: 0.7 MB for 10,000, more than all else of a small database. One
// of tiles has none until the first exemplar comes. It opens with room for all, since its
// WAL may have some, and gives it back if there are none.
type exemplarRoom struct {
	mu         sync.Mutex
	most       int64 // store.exemplars
	now        int64
	outOfOrder int64 // store.out_of_order, in milliseconds
}

// grow makes room for exemplars if there is none yet.
func (r *exemplarRoom) grow(db *tsdb.DB) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now < r.most {
		r.resize(db, r.most)
	}
}

// resize needs r.mu, or an opening that nobody knows of yet. What the head takes for off if
// it is missing is said again.
func (r *exemplarRoom) resize(db *tsdb.DB, room int64) {
	db.Head().ApplyConfig(&prom.Config{StorageConfig: prom.StorageConfig{
		TSDBConfig:      &prom.TSDBConfig{OutOfOrderTimeWindow: r.outOfOrder},
		ExemplarsConfig: &prom.ExemplarsConfig{MaxExemplars: room},
	}}, nil)
	r.now = room
}

// hasExemplars reports whether there are any.
func (d *database) hasExemplars() bool {
	q, err := d.ExemplarQuerier(context.Background())
	if err != nil {
		return true // nobody knows
	}
	found, err := q.Select(math.MinInt64, math.MaxInt64, []*labels.Matcher{})
	return err != nil || len(found) > 0
}

// traceLabel is the label of an exemplar that names its trace, as in OTLP and in what
// Grafana looks for.
const traceLabel = "trace_id"

// exemplar adds the exemplar of a sample that is stored, if it has one. What becomes of it
// harms nothing else. One that is there already is a repeat.
func (w *tileWrite) exemplar(sample *tile.Sample, ref uint64) {
	x := sample.Exemplar
	if x == nil {
		return
	}
	// A repeat of what is in a block alone has no reference. The head may be empty then, and
	// would take the exemplar's time for its own beginning.
	if w.db.exemplars.most == 0 || ref == 0 || x.Time > w.latest {
		w.written.ExemplarsNotKept++
		return
	}
	w.db.exemplars.grow(w.db.DB)
	if _, err := w.app.AppendExemplar(storage.SeriesRef(ref), sample.Series.Labels, exemplar.Exemplar{
		Labels: labels.FromStrings(traceLabel, x.Trace.String()), Value: x.Value, Ts: x.Time, HasTs: true,
	}); err != nil {
		w.written.ExemplarsNotKept++
		return
	}
	w.written.Exemplars++
}
