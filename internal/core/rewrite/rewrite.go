// Package rewrite makes the bodies of log entries from a request. It applies the rules of the node
// that received the request. So a member that applies the entries needs no rules, and a reload of
// rules cannot make two members differ.
//
// It takes the decisions that need only the request and the rules. Decisions that depend on stored
// samples, such as whether a sample is too old, are taken when the entry is applied.
package rewrite

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/write"
)

const (
	// headRoom is how many bytes of an entry are reserved for the fields before the body. The longest
	// of them are the names of an HA pair, which are two label values.
	headRoom = 16 << 10

	targetBody = entry.TargetSize - headRoom
	maxBody    = entry.MaxSize - headRoom

	// keepBytes is the most memory that a Rewriter keeps of one buffer for the next request.
	keepBytes = 4 << 20
)

// Body is the body of one entry, compressed with snappy.
type Body struct {
	Form      entry.Form
	Bytes     []byte
	Unchanged bool // it is the body as received
}

// Rewriter rewrites requests one after the other, and reuses its memory. The zero value is ready.
type Rewriter struct {
	labels   []remotewrite.Label
	resolved []labels.Labels // labels of the series before the first one that the rules change
	bodies   []Body
	encoder  encoder

	target, most int // size of a body in bytes: usually target; up to most if a single part is larger
}

// Sized returns a Rewriter for entries of another size than ours, for tests. A body usually has at most
// `target` bytes, and at most `most` bytes if a single part is larger.
func Sized(target, most int) *Rewriter { return &Rewriter{target: target, most: most} }

// Rewrite returns a request as bodies, in the order in which to propose them, and the outcome of
// the parts that the rules drop or refuse. That outcome and the outcomes of the bodies add up to
// the request's outcome.
//
// If the rules change no series and the request's body fits into an entry, Rewrite returns that body,
// without a copy or an allocation. Otherwise it makes bodies of remote write 2.0, and cuts a series
// between its samples if the series fits into no body. Families, the metadata of remote write 1.0, then
// follow in bodies of version 1. Rewrite leaves out a series of version 1 without samples, since version
// 2 refuses it. So even if the tenant has no room for such a series, the series is not counted as
// refused.
//
// The bodies are valid until the next call, and only as long as the request is valid.
func (w *Rewriter) Rewrite(in *write.Incoming, rules *labelrules.Rules) ([]Body, outcome.Outcome) {
	w.init()
	return w.rewrite(in, rules, w.target)
}

// RewritePart is Rewrite for a part of the deltas of a request. It returns a single body for the series if
// the largest entry has room for it, so that the rules hardly ever decide how many bodies there are.
func (w *Rewriter) RewritePart(in *write.Incoming, rules *labelrules.Rules) ([]Body, outcome.Outcome) {
	w.init()
	return w.rewrite(in, rules, w.most)
}

func (w *Rewriter) init() {
	if w.most == 0 {
		w.target, w.most = targetBody, maxBody
	}
}

func (w *Rewriter) rewrite(in *write.Incoming, rules *labelrules.Rules, target int) ([]Body, outcome.Outcome) {
	r := &in.Request
	w.bodies = w.bodies[:0]
	clear(w.resolved)
	w.resolved = w.resolved[:0]
	fits := in.Compressed != nil && len(in.Compressed) <= target
	if fits && w.unchanged(r, rules) {
		form := entry.RemoteWrite1
		if r.Version2() {
			form = entry.RemoteWrite2
		}
		w.bodies = append(w.bodies, Body{Form: form, Bytes: in.Compressed, Unchanged: true})
		return w.bodies, outcome.Outcome{}
	}
	e := &w.encoder
	e.begin(r, decompressed(target), decompressed(w.most))
	for i := range r.Series {
		w.series(r, i, rules, &e.outcome)
	}
	e.flush()
	for i := range r.Families {
		e.family(&r.Families[i])
	}
	e.flushFamilies()
	w.bodies = append(w.bodies, e.bodies...)
	return w.bodies, e.end()
}

// decompressed returns how long a body may be so that it takes at most size bytes when compressed,
// whatever its content. Source: snappy.MaxEncodedLen.
func decompressed(size int) int { return (size - 32) / 7 * 6 }

var errNoSamples = errors.New("it has no sample, no histogram and no exemplar")

// series encodes a series, unless the rules drop or refuse it. It decides in the same order as a
// store that has these rules.
func (w *Rewriter) series(r *remotewrite.Request, i int, rules *labelrules.Rules, o *outcome.Outcome) {
	s := &r.Series[i]
	parts := counts(r, s)
	if parts == (outcome.Counts{}) && r.Version2() {
		refuse(o, r, s, parts, outcome.Refusal{Reason: outcome.NoSamples, Cause: errNoSamples})
		return
	}
	var ls labels.Labels
	var refusal *outcome.Refusal
	if i < len(w.resolved) {
		ls = w.resolved[i]
	} else {
		ls, refusal = rules.Resolve(r, s)
	}
	switch {
	case refusal != nil:
		refuse(o, r, s, parts, *refusal)
	case ls.IsEmpty():
		o.Dropped.Add(parts)
	default:
		w.encoder.series(s, ls)
	}
}

func counts(r *remotewrite.Request, s *remotewrite.Series) outcome.Counts {
	return outcome.Counts{Samples: len(r.Samples(s)), Histograms: len(r.Histograms(s)), Exemplars: len(r.Exemplars(s))}
}

func refuse(
	o *outcome.Outcome, r *remotewrite.Request, s *remotewrite.Series, parts outcome.Counts, why outcome.Refusal,
) {
	if o.Refuse(why.Reason, parts) {
		o.Tell(labelrules.Text(r, s), why.Cause)
	}
}

// unchanged reports whether the rules leave every series as it came. It passes over labels that
// every store refuses: the members refuse them in the same way.
func (w *Rewriter) unchanged(r *remotewrite.Request, rules *labelrules.Rules) bool {
	if len(rules.Relabel) > 0 {
		return w.relabelsNothing(r, rules)
	}
	if r.Version2() && symbolsFit(r, rules) {
		for i := range r.Series {
			if n := len(r.Refs(&r.Series[i])) / 2; rules.Limits.Labels > 0 && n > rules.Limits.Labels {
				return false
			}
		}
		return true
	}
	for i := range r.Series {
		s := &r.Series[i]
		if !r.Version2() && keyFits(r.Key(s), rules) {
			continue
		}
		var err error
		if w.labels, err = r.Labels(w.labels[:0], s); err == nil && !labelsFit(w.labels, rules) {
			return false
		}
	}
	return true
}

// relabelsNothing reports whether relabelling changes no series. It remembers the labels of the
// series before the first change.
func (w *Rewriter) relabelsNothing(r *remotewrite.Request, rules *labelrules.Rules) bool {
	for i := range r.Series {
		ls, refusal := rules.Resolve(r, &r.Series[i])
		if refusal != nil || !w.same(r, &r.Series[i], ls) {
			return false
		}
		w.resolved = append(w.resolved, ls)
	}
	return true
}

// same reports whether a series came with exactly these labels, in any order. It ignores labels without
// a value.
func (w *Rewriter) same(r *remotewrite.Request, s *remotewrite.Series, ls labels.Labels) bool {
	var err error
	if w.labels, err = r.Labels(w.labels[:0], s); err != nil {
		return false
	}
	n := 0
	for _, l := range w.labels {
		if len(l.Value) > 0 {
			n++
			if ls.Get(view(l.Name)) != view(l.Value) {
				return false
			}
		}
	}
	return n == ls.Len()
}

// symbolsFit reports whether every symbol is short enough for the limits and none is the name of
// the replica label.
func symbolsFit(r *remotewrite.Request, rules *labelrules.Rules) bool {
	for i := range r.Symbols() {
		s := r.Symbol(uint32(i))
		if tooLong(s, rules) || rules.Replica != "" && string(s) == rules.Replica {
			return false
		}
	}
	return true
}

// keyFits reports whether the labels of version 1 surely fit. It does not decode them.
func keyFits(key []byte, rules *labelrules.Rules) bool {
	return !tooLong(key, rules) && (rules.Limits.Labels == 0 || fewLabels(key, rules.Limits.Labels)) &&
		(rules.Replica == "" || !bytes.Contains(key, []byte(rules.Replica)))
}

// fewLabels reports whether a key surely has at most `most` labels. It can only count labels of fewer
// than 128 bytes, and reports false if one is longer.
func fewLabels(key []byte, most int) bool {
	const label = 1<<3 | wireBytes
	n, i := 0, 0
	for ; i+1 < len(key) && key[i] == label && key[i+1] < 0x80; n++ {
		i += 2 + int(key[i+1])
	}
	return i == len(key) && n <= most
}

func tooLong(b []byte, rules *labelrules.Rules) bool {
	l := &rules.Limits
	return l.NameBytes > 0 && len(b) > l.NameBytes || l.ValueBytes > 0 && len(b) > l.ValueBytes
}

func labelsFit(all []remotewrite.Label, rules *labelrules.Rules) bool {
	limits := &rules.Limits
	if limits.Labels > 0 && len(all) > limits.Labels {
		return false
	}
	for _, l := range all {
		if limits.NameBytes > 0 && len(l.Name) > limits.NameBytes ||
			limits.ValueBytes > 0 && len(l.Value) > limits.ValueBytes ||
			rules.Replica != "" && string(l.Name) == rules.Replica {
			return false
		}
	}
	return true
}

// compress returns a body in snappy's block format, in the memory of `to` if that is large enough.
func compress(to, body []byte) []byte { return snappy.Encode(to[:cap(to)], body) }

func tooLarge(most int) error {
	return fmt.Errorf("the part and the labels of its series take more than %d bytes, the most that fits "+
		"into an entry of the log", most)
}
