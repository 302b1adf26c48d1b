package querier

import (
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// needTwo are the functions that need two samples in a range to return a value.
var needTwo = map[string]bool{
	"rate": true, "increase": true, "irate": true, "delta": true, "idelta": true, "deriv": true, "predict_linear": true,
}

// sparseNote explains why a function finds nothing in a range: the tiles that answer are longer than
// half the range, and the function needs two of them. An example is rate(x[1m]) at times for which no
// tiles of 10 s are kept. Without the note, the answer would be empty for no visible reason.
// sparseNote returns nil if the tiles are short enough.
func sparseNote(hints *storage.SelectHints, w tile.Width, finest time.Duration) error {
	if hints == nil || w == tile.Width10s || !needTwo[hints.Func] || hints.Range <= 0 || hints.Range >= 2*w.Millis() {
		return nil
	}
	text := func(ms int64) model.Duration { return model.Duration(time.Duration(ms) * time.Millisecond) }
	return fmt.Errorf("%w: the query reads tiles of %v, because tiles of %v are kept only for %v (store.retention.%v); "+
		"%s needs two tiles, but a range of %v holds one; ask for a range of %v or more, or for a later start",
		promapi.ErrSparse, w, tile.Width10s, model.Duration(finest), tile.Width10s, hints.Func, text(hints.Range),
		text(pointsPerRange*w.Millis()))
}

// sparse is a select of tiles that adds a note if it finds a series.
type sparse struct {
	storage.SeriesSet
	note error
	seen bool
}

// Next is part of storage.SeriesSet.
func (s *sparse) Next() bool {
	more := s.SeriesSet.Next()
	s.seen = s.seen || more
	return more
}

// Warnings is part of storage.SeriesSet.
func (s *sparse) Warnings() annotations.Annotations {
	if !s.seen {
		return s.SeriesSet.Warnings()
	}
	notes := annotations.New()
	notes.Add(s.note)
	return notes.Merge(s.SeriesSet.Warnings())
}
