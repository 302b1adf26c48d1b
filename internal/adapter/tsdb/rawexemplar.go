package tsdb

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// addExemplar adds an exemplar of a series that has a sample by now.
func (w *rawWrite) addExemplar(x *remotewrite.Exemplar) {
	part := outcome.Counts{Exemplars: 1}
	if x.Time == 0 {
		w.refuse(outcome.BadExemplar, part, errors.New("the exemplar has no time"))
		return
	}
	if w.n == 0 {
		w.refuse(outcome.BadExemplar, part, errors.New("its series has no sample"))
		return
	}
	var err error
	if w.labels, err = w.request.ExemplarLabels(w.labels[:0], x); err != nil {
		w.refuse(outcome.BadExemplar, part, err)
		return
	}
	ls, err := w.exemplarLabels()
	if err != nil {
		w.refuse(outcome.BadExemplar, part, err)
		return
	}
	e := exemplar.Exemplar{Labels: ls, Value: x.Value, Ts: x.Time, HasTs: true}
	ref, err := w.app.AppendExemplar(storage.SeriesRef(w.cache.At(w.n).Ref), labels.EmptyLabels(), e)
	switch {
	case err == nil && ref == 0 && w.store.options.MaxExemplars == 0, errors.Is(err, storage.ErrOutOfOrderExemplar):
		w.request.Outcome.NotKept++
	case err != nil:
		w.refuse(outcome.BadExemplar, part, err)
	default: // or it is already stored
		w.request.Outcome.Written.Add(part)
	}
}

// exemplarLabels returns w.labels sorted, in memory of their own. tsdb would take them
// unchecked, and answers to queries would be JSON that some clients cannot read.
func (w *rawWrite) exemplarLabels() (labels.Labels, error) {
	w.builder.Reset()
	for i, l := range w.labels {
		switch {
		case len(l.Name) == 0:
			return labels.EmptyLabels(), fmt.Errorf("label %d of the exemplar has no name", i+1)
		case !utf8.Valid(l.Name):
			return labels.EmptyLabels(), fmt.Errorf("the label name %.80q of the exemplar is not UTF-8", l.Name)
		case !utf8.Valid(l.Value):
			return labels.EmptyLabels(), fmt.Errorf("the value %.80q of the exemplar's label %.80s is not UTF-8", l.Value, l.Name)
		}
		if len(l.Value) > 0 { // a label without a value does not count, as in tsdb
			w.builder.Add(string(l.Name), string(l.Value))
		}
	}
	w.builder.Sort()
	ls := w.builder.Labels()
	if name, twice := ls.HasDuplicateLabelNames(); twice {
		return labels.EmptyLabels(), fmt.Errorf("the label %.80s of the exemplar occurs twice", name)
	}
	return ls, nil
}
