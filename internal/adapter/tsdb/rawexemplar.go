package tsdb

import (
	"fmt"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// rawExemplars reads the exemplars of requests. Its fields are memory that it reuses.
type rawExemplars struct {
	labels  []remotewrite.Label
	builder labels.ScratchBuilder
}

// read returns a checked copy of an exemplar. tsdb would store the exemplar's labels unchecked, and the
// JSON of queries would then be unreadable for some clients.
func (r *rawExemplars) read(sent rawSent, x *remotewrite.Exemplar) (e exemplar.Exemplar, err error) {
	if r.labels, err = sent.request.ExemplarLabels(r.labels[:0], x); err != nil {
		return e, err
	}
	ls, err := r.sorted()
	return exemplar.Exemplar{Labels: ls, Value: x.Value, Ts: x.Time, HasTs: true}, err
}

// sorted returns a sorted copy of r.labels.
func (r *rawExemplars) sorted() (labels.Labels, error) {
	r.builder.Reset()
	for i, l := range r.labels {
		switch {
		case len(l.Name) == 0:
			return labels.EmptyLabels(), fmt.Errorf("label %d of the exemplar has no name", i+1)
		case !utf8.Valid(l.Name):
			return labels.EmptyLabels(), fmt.Errorf("the label name %.80q of the exemplar is not UTF-8", l.Name)
		case !utf8.Valid(l.Value):
			return labels.EmptyLabels(), fmt.Errorf("the value %.80q of the exemplar's label %.80s is not UTF-8",
				l.Value, l.Name)
		}
		if len(l.Value) > 0 { // a label without a value does not count, as in tsdb
			r.builder.Add(string(l.Name), string(l.Value))
		}
	}
	r.builder.Sort()
	ls := r.builder.Labels()
	if name, twice := ls.HasDuplicateLabelNames(); twice {
		return labels.EmptyLabels(), fmt.Errorf("the label %.80s of the exemplar occurs twice", name)
	}
	return ls, nil
}
