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

// exemplarRoom is how many exemplars an open database has memory for. tsdb takes the memory for
// all of them at once: 0.7 MB for 10,000, more than all the rest of a small database. A
// database of tiles has room for none until the first exemplar comes. It opens with room for
// all, because its WAL may have some, and gives the room back if there are none.
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

// resize changes the room. The caller holds r.mu, or has a database that is not yet shared.
// ApplyConfig turns off what it is not given, so all of it is given again.
func (r *exemplarRoom) resize(db *tsdb.DB, room int64) {
	db.Head().ApplyConfig(&prom.Config{StorageConfig: prom.StorageConfig{
		TSDBConfig:      &prom.TSDBConfig{OutOfOrderTimeWindow: r.outOfOrder},
		ExemplarsConfig: &prom.ExemplarsConfig{MaxExemplars: room},
	}}, nil)
	r.now = room
}

// hasExemplars reports whether the database has any exemplar.
func (d *database) hasExemplars() bool {
	q, err := d.ExemplarQuerier(context.Background())
	if err != nil {
		return true // unknown: assume there are some
	}
	found, err := q.Select(math.MinInt64, math.MaxInt64, []*labels.Matcher{})
	return err != nil || len(found) > 0
}

// traceLabel is the label of an exemplar that has the trace's ID, the name that OTLP uses and
// Grafana looks for.
const traceLabel = "trace_id"

// exemplar adds the exemplar of a stored sample, if it has one. Its outcome affects nothing
// else. One that is already stored is a repeat.
func (w *tileWrite) exemplar(sample *tile.Sample, ref uint64) {
	x := sample.Exemplar
	if x == nil {
		return
	}
	// A repeat of a sample that is only in a block has no reference. The head may be empty then,
	// and would begin at the exemplar's time.
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
