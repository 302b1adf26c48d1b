// Package labelrules resolves the labels of a request to a series: it checks them, applies limits,
// and relabels them. It runs only for series that were not seen before, so its cost hardly matters.
package labelrules

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// Limits bound one series; 0 means no limit.
type Limits struct {
	Labels     int
	NameBytes  int
	ValueBytes int
}

// Rules are immutable, so goroutines may share them.
type Rules struct {
	Limits  Limits
	Replica string // the label that tells the replicas of an HA pair apart: Resolve removes it; empty if there is none
	Relabel []*relabel.Config
}

// scratch is memory for one Resolve.
type scratch struct {
	labels  []remotewrite.Label
	builder labels.ScratchBuilder
}

var scratches = sync.Pool{New: func() any { return &scratch{builder: labels.NewScratchBuilder(16)} }}

// view returns b as a string without a copy. The string is valid while b does not change.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Resolve returns a copy of a series' labels, after relabelling. The labels are empty if a rule
// drops the series.
//
// Labels may come in any order. The specification of remote write wants them sorted, but Prometheus
// accepts unsorted ones, and several widespread senders send them. Only new spellings are resolved,
// so sorting costs nothing for known ones.
func (r *Rules) Resolve(request *remotewrite.Request, series *remotewrite.Series) (labels.Labels, *outcome.Refusal) {
	w := scratches.Get().(*scratch)
	defer scratches.Put(w)
	var err error
	if w.labels, err = request.Labels(w.labels[:0], series); errors.Is(err, remotewrite.ErrTooManyLabels) {
		return labels.EmptyLabels(), &outcome.Refusal{Reason: outcome.TooManyLabels, Cause: err}
	}
	all := w.labels
	if err == nil {
		// Check limits before reading the values: in version 2, many labels may share one long
		// value.
		if refusal := r.limit(all); refusal != nil {
			return labels.EmptyLabels(), refusal
		}
		err = check(all)
	}
	if err != nil {
		return labels.EmptyLabels(), &outcome.Refusal{Reason: outcome.BadLabels, Cause: err}
	}
	b := &w.builder
	b.Reset()
	for _, l := range all {
		// As in Prometheus, a label without a value does not count.
		if len(l.Value) > 0 && (r.Replica == "" || string(l.Name) != r.Replica) {
			b.Add(view(l.Name), view(l.Value))
		}
	}
	ls := b.Labels() // copies all names and values
	if len(r.Relabel) == 0 {
		return ls, nil
	}
	lb := labels.NewBuilder(ls)
	if !relabel.ProcessBuilder(lb, r.Relabel...) {
		return labels.EmptyLabels(), nil
	}
	if ls = lb.Labels(); ls.Get(model.MetricNameLabel) == "" && !ls.IsEmpty() {
		return labels.EmptyLabels(),
			&outcome.Refusal{
				Reason: outcome.BadLabels,
				Cause:  errors.New("distributor.relabel removed the label __name__; keep this label, or drop the series"),
			}
	}
	return ls, nil
}

// maxText is the number of bytes after which Text adds no further label. Longer names and values
// are cut to maxText.
const maxText = 1 << 10

// Text returns a series as the sender wrote it, for people to read. If the series has many labels, the
// text has only the first ones.
func Text(request *remotewrite.Request, series *remotewrite.Series) string {
	all, err := request.Labels(nil, series)
	if err != nil && !errors.Is(err, remotewrite.ErrTooManyLabels) {
		return err.Error()
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, l := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s=%q", cut(l.Name), cut(l.Value))
		if b.Len() > maxText {
			b.WriteString(", …")
			break
		}
	}
	b.WriteByte('}')
	return b.String()
}

func cut(b []byte) []byte { return b[:min(len(b), maxText)] }

// check refuses labels that cannot identify a series, and sorts them if needed.
func check(all []remotewrite.Label) error {
	named, sorted := false, true
	for i, l := range all {
		switch {
		case len(l.Name) == 0:
			return fmt.Errorf("label %d has no name", i+1)
		case !utf8.Valid(l.Name):
			return fmt.Errorf("the label name %.80q is not UTF-8", l.Name)
		case !utf8.Valid(l.Value):
			return fmt.Errorf("the value %.80q of label %.80s is not UTF-8", l.Value, l.Name)
		}
		sorted = sorted && (i == 0 || string(l.Name) >= string(all[i-1].Name))
		named = named || string(l.Name) == model.MetricNameLabel && len(l.Value) > 0
	}
	if !named {
		return errors.New("the series has no name: the label __name__ is missing or empty")
	}
	if !sorted {
		remotewrite.SortLabels(all)
	}
	for i := 1; i < len(all); i++ {
		if string(all[i].Name) == string(all[i-1].Name) {
			return fmt.Errorf("the label %.80s occurs twice", all[i].Name)
		}
	}
	return nil
}

func (r *Rules) limit(all []remotewrite.Label) *outcome.Refusal {
	if r.Limits.Labels > 0 && len(all) > r.Limits.Labels {
		return &outcome.Refusal{
			Reason: outcome.TooManyLabels,
			Cause:  fmt.Errorf("the series has %d labels, and distributor.max_labels allows %d", len(all), r.Limits.Labels),
		}
	}
	for _, l := range all {
		if r.Limits.NameBytes > 0 && len(l.Name) > r.Limits.NameBytes {
			return &outcome.Refusal{
				Reason: outcome.TooLongLabel,
				Cause: fmt.Errorf("the label name %.80s… has %d bytes, and distributor.max_label_name allows %d",
					l.Name, len(l.Name), r.Limits.NameBytes),
			}
		}
		if r.Limits.ValueBytes > 0 && len(l.Value) > r.Limits.ValueBytes {
			return &outcome.Refusal{
				Reason: outcome.TooLongLabel,
				Cause: fmt.Errorf("the value of label %.80s has %d bytes, and distributor.max_label_value allows %d",
					l.Name, len(l.Value), r.Limits.ValueBytes),
			}
		}
	}
	return nil
}
