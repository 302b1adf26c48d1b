package limit

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"

	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
)

// Bounds of the memory for offenders. 16 offenders with 8 labels of 256 + 200 bytes, 8 senders of
// 50 + 200 bytes and an example of 200 bytes take 100 kB for each tenant.
const (
	maxOffenders = 16
	maxLabels    = 8
	maxSenders   = 8
	maxText      = 200 // bytes of a label's name, a container or an example
)

// forgetAfter is how long a metric is reported after its last sample over a limit.
const forgetAfter = int64(10 * time.Minute)

// steadyFor is how long a metric that displaced another must be over a limit to be Steady: the code
// that warns people looks twice in that time.
const steadyFor = int64(2 * time.Second)

// rivalFor decides whether a metric that displaces another is a rival: it is a rival if the other was
// over a limit at most this long before.
const rivalFor = int64(time.Minute)

// keep returns `b` as a string. It returns `text` if `b` equals `text`, which saves a copy if few
// containers take turns.
func keep(b []byte, text string) string {
	if text == string(b) {
		return text
	}
	return string(b)
}

// offender is a metric that is over a limit, or stands for all names of a kind that have no series.
// A metric that displaces another reuses the other's memory.
type offender struct {
	metric  string
	kind    series.Kind
	fate    Fate
	weight  uint64 // samples of this metric and of the metrics that it displaced
	samples [NumReasons]uint64
	since   int64 // Unix nanoseconds of the first and the last sample
	last    int64
	rival   bool   // this metric displaced one that was over a limit shortly before
	example []byte // labels of the first series, as text
	labels  []labelValues
	senders []senderSamples
}

type labelValues struct {
	name   string
	values distinct.Sketch
}

type senderSamples struct {
	sender.Sender
	container string // id in the sender's lines
	samples   uint64
}

// unknownNames has one name for each kind. All metrics of the kind that have no series are reported
// under this name. It is the name of the kind's overflow series, if the kind has one.
var unknownNames = func() (names [series.LastKind + 1]string) {
	for kind := series.Counter; kind <= series.LastKind; kind++ {
		names[kind] = "freshet_overflow_" + kind.String()
	}
	return names
}()

// blame notes which metric is over a limit. It keeps the metrics with the most samples over a
// limit.
func (t *Tenant) blame(now int64, m *metric, c *Claim, v Verdict) {
	kind := series.Kind(c.Key[0])
	name := unknownNames[kind]
	if m != nil {
		name = m.name
	}
	var o *offender
	if at := slices.IndexFunc(t.offenders, func(o *offender) bool { return o.kind == kind && o.metric == name }); at >= 0 {
		o = t.offenders[at]
	} else {
		o = t.newOffender(now)
		o.metric, o.kind, o.fate, o.since = name, kind, v.Fate, now
		o.example = appendExample(o.example, c.Key)
	}
	o.last = now
	o.weight += c.Samples
	o.samples[v.Reason] += c.Samples
	at := 0
	for name, value := range series.KeyLabels(c.Key) {
		if m == nil || string(name) != model.MetricNameLabel { // all series of a metric have one name
			o.label(at, name, value)
			at++
		}
	}
	o.sender(c)
}

// appendExample appends the labels of a key as people write them, and cuts a long text.
func appendExample(text, key []byte) []byte {
	text = append(text, '{')
	for name, value := range series.KeyLabels(key) {
		if len(text) > 1 {
			text = append(text, ", "...)
		}
		text = append(text, cut(name)...)
		text = append(text, '=')
		text = appendQuoted(text, cut(value))
		if len(text) > maxText {
			return append(text[:maxText], "..."...)
		}
	}
	return append(text, '}')
}

// appendQuoted is strconv.AppendQuote, but cheap for values that need no escaping. While many
// metrics exceed their limits, each claim writes an example.
func appendQuoted(text, value []byte) []byte {
	for _, c := range value {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return strconv.AppendQuote(text, string(value))
		}
	}
	text = append(text, '"')
	text = append(text, value...)
	return append(text, '"')
}

func cut(text []byte) []byte { return text[:min(len(text), maxText)] }

// newOffender returns an empty place: a new one, or the place of the metric with the least weight.
// The place keeps this weight, so that the new metric is not displaced next.
func (t *Tenant) newOffender(now int64) *offender {
	t.forget(now)
	if len(t.offenders) < maxOffenders {
		o := &offender{}
		t.offenders = append(t.offenders, o)
		return o
	}
	o := slices.MinFunc(t.offenders, func(a, b *offender) int { return cmp.Compare(a.weight, b.weight) })
	*o = offender{
		weight: o.weight, rival: now-o.last < rivalFor, example: o.example[:0], labels: o.labels[:0], senders: o.senders[:0],
	}
	return o
}

// forget removes metrics whose last sample over a limit was long ago.
func (t *Tenant) forget(now int64) {
	t.offenders = slices.DeleteFunc(t.offenders, func(o *offender) bool { return now-o.last > forgetAfter })
}

// label adds a value to the values of its label. It first looks at index `at`: the label is there if all
// series have the same labels.
func (o *offender) label(at int, name, value []byte) {
	name = cut(name)
	if at >= len(o.labels) || o.labels[at].name != string(name) {
		at = slices.IndexFunc(o.labels, func(l labelValues) bool { return l.name == string(name) })
	}
	if at < 0 {
		if len(o.labels) == maxLabels {
			return
		}
		at = len(o.labels)
		o.labels = slices.Grow(o.labels, 1)[:at+1]
		l := &o.labels[at] // reuses the memory of the displaced metric's label
		l.values = distinct.Sketch{}
		if l.name != string(name) {
			l.name = string(name)
		}
	}
	o.labels[at].values.Add(distinct.Hash(value))
}

// sender adds the samples of a claim to those of its sender. If there are maxSenders already, a new
// sender displaces the sender with the fewest samples.
func (o *offender) sender(c *Claim) {
	if c.Sender == (sender.Sender{}) && len(c.Container) == 0 {
		return
	}
	container := cut(c.Container)
	for i := range o.senders {
		s := &o.senders[i]
		if s.Sender == c.Sender && s.container == string(container) {
			s.samples += c.Samples
			return
		}
	}
	at := len(o.senders)
	if at < maxSenders {
		o.senders = slices.Grow(o.senders, 1)[:at+1]
		o.senders[at].samples = 0 // discards the samples of the displaced metric
	} else {
		at = 0
		for i := range o.senders {
			if o.senders[i].samples < o.senders[at].samples {
				at = i
			}
		}
	}
	s := &o.senders[at]
	s.samples += c.Samples
	s.Sender, s.container = c.Sender, keep(container, s.container)
}

// Report is the state of a tenant, for people.
type Report struct {
	Series    int
	Elsewhere int                // series in other processes of the cluster, which count against the limits, too
	Folded    [NumReasons]uint64 // samples by Reason
	Refused   [NumReasons]uint64
	Offenders []Offender // the metric with the most samples over a limit first
}

// Offender is a metric that has been over a limit in the last ten minutes.
type Offender struct {
	Metric  string // the name, or freshet_overflow_KIND for all names of a kind without series
	Kind    series.Kind
	Fate    Fate
	Samples [NumReasons]uint64 // by Reason
	Since   int64              // Unix nanoseconds of the first and the last sample
	Last    int64
	Labels  []LabelValues // the label with the most values, which is to blame, comes first
	Example string        // labels of a series that had no place
	Senders []SenderSamples

	// Steady is true for a metric that was over a limit for at least steadyFor, or that displaced no
	// metric that was over a limit shortly before. It is false for metrics that keep displacing each
	// other among the 16 that are remembered.
	Steady bool
}

// LabelValues is a label of series that have no place.
type LabelValues struct {
	Name   string
	Values uint64 // distinct values of the label in these series, estimated by a distinct.Sketch
}

// SenderSamples is a sender, and the number of samples over a limit that it sent. If the sender
// displaced others, the number includes their samples.
type SenderSamples struct {
	Sender    sender.Sender
	Container string // container id in the sender's lines
	Samples   uint64
}

// Report returns the state of the tenant. `now` is in Unix nanoseconds.
func (t *Tenant) Report(now int64) Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireAll(now)
	r := Report{Series: t.places.taken, Elsewhere: t.others.Series}
	for reason, s := range t.samples {
		r.Folded[reason], r.Refused[reason] = s.folded, s.refused
	}
	t.forget(now)
	for _, o := range t.offenders {
		r.Offenders = append(r.Offenders, o.report())
	}
	slices.SortFunc(r.Offenders, func(a, b Offender) int {
		return cmp.Or(cmp.Compare(sum(b.Samples), sum(a.Samples)), cmp.Compare(a.Metric, b.Metric))
	})
	return r
}

func sum(samples [NumReasons]uint64) (n uint64) {
	for _, s := range samples {
		n += s
	}
	return n
}

func (o *offender) report() Offender {
	r := Offender{
		Metric: o.metric, Kind: o.kind, Fate: o.fate, Samples: o.samples, Since: o.since, Last: o.last,
		Example: string(o.example), Steady: !o.rival || o.last-o.since >= steadyFor,
	}
	for i := range o.labels {
		r.Labels = append(r.Labels, LabelValues{o.labels[i].name, o.labels[i].values.Len()})
	}
	slices.SortFunc(r.Labels, func(a, b LabelValues) int {
		return cmp.Or(cmp.Compare(b.Values, a.Values), cmp.Compare(a.Name, b.Name))
	})
	for _, s := range o.senders {
		r.Senders = append(r.Senders, SenderSamples{s.Sender, s.container, s.samples})
	}
	slices.SortStableFunc(r.Senders, func(a, b SenderSamples) int { return cmp.Compare(b.Samples, a.Samples) })
	return r
}
