// Package growth counts new series by tenant: how many came and when, their metrics and senders, and for
// each metric the label that keeps getting new values. A store reports a series only when it first sees
// the series, so samples of known series cost nothing here.
//
// The memory is bounded, and the counts are forgotten in minutes. Package limit and the
// distributor decide which series may come in; package diagnose interprets the numbers.
package growth

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/sender"
)

const (
	// Step is the time that one count covers, in seconds. Tiles are written every ten seconds, so
	// each step has one flush.
	Step = 10

	// Steps is how many counts are kept, for four minutes. All series of a start or a deploy come
	// in that time, and a target with a scrape interval of a minute is scraped four times.
	Steps = 24

	// generation is the number of seconds after which the count of label values begins anew. Two
	// generations are kept, so the values cover the last one to two minutes.
	generation = 60
)

// Bounds of memory: a tenant takes at most 16 metrics x 32 labels x 2 generations x 256 bytes, 260
// kB, and 16 x 32 names and values of up to 200 bytes each, 200 kB. With 8 labels of 20 bytes it
// takes 80 kB. Series of cAdvisor have 10 to 15 labels, including target labels.
const (
	maxTenants = 100
	maxMetrics = 16
	maxLabels  = 32
	maxSenders = 4
	maxText    = 200 // bytes of a name, a value or an example
)

// Tracker counts the new series of all tenants. It is safe for concurrent use.
type Tracker struct {
	mu      sync.Mutex
	tenants map[string]*tenant
}

// New returns a tracker without counts.
func New() *Tracker { return &Tracker{tenants: map[string]*tenant{}} }

// Series is a series that is new to a store.
type Series struct {
	Tenant  string
	Store   string // raw, 10s or 1m
	Labels  labels.Labels
	Sender  sender.Sender // zero if unknown
	Refused bool          // refused by a limit; the series may come again
}

type tenant struct {
	began   int64 // time of the tenant's first new series, in Unix seconds
	last    int64 // time of the tenant's newest series, in Unix seconds
	turned  int64 // time at which the generation began, in Unix seconds
	all     counts
	known   generations // number of series that were not refused, in the time that `names` covers
	names   values      // names of metrics
	metrics []*metric
}

// metric is one of the metrics with the most new series. A metric that displaces another reuses the
// other's memory.
type metric struct {
	store, name string
	weight      uint64 // new series of this metric and of the metrics that it displaced; halved with each generation
	series      uint64 // new series since the metric got this place
	new         counts
	known       generations // number of series that were not refused, in the time that a label's `values` cover
	labels      []label
	senders     []senderSeries
}

type label struct {
	name    string
	example string // value in the metric's second series; empty if the series has no such label
	values
}

type senderSeries struct {
	sender.Sender
	series uint64
}

// counts are the numbers of new series by step.
type counts [Steps + 1]struct {
	at           int64 // Unix seconds, a multiple of Step
	new, refused uint64
}

func (c *counts) add(now int64, refused bool) {
	at := now - now%Step
	s := &c[uint64(at/Step)%uint64(len(c))]
	if s.at != at {
		s.at, s.new, s.refused = at, 0, 0
	}
	if refused {
		s.refused++
	} else {
		s.new++
	}
}

// generations has the numbers of series in two generations: the two for which the type `values` counts
// label values.
type generations struct{ now, before uint64 }

func (g *generations) turn(both bool) {
	g.before = g.now
	if both {
		g.before = 0
	}
	g.now = 0
}

func (g *generations) add(refused bool) {
	if !refused {
		g.now++
	}
}

// values counts the values of a label in two generations.
type values struct{ now, before distinct.Sketch }

func (v *values) turn(both bool) {
	v.before = v.now
	if both {
		v.before = distinct.Sketch{}
	}
	v.now = distinct.Sketch{}
}

func (v *values) len() uint64 {
	all := v.before
	all.Merge(&v.now)
	return all.Len()
}

// Add counts a new series. `now` is in Unix seconds.
func (t *Tracker) Add(now int64, s *Series) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.tenant(now, s.Tenant)
	if of == nil {
		return
	}
	of.turn(now)
	of.last = now
	of.all.add(now, s.Refused)
	of.known.add(s.Refused)
	name := s.Labels.Get(model.MetricNameLabel)
	of.names.now.Add(distinct.HashString(name))
	m := of.metric(now, s.Store, name)
	m.weight++
	m.new.add(now, s.Refused)
	m.known.add(s.Refused)
	m.series++
	at := 0
	s.Labels.Range(func(l labels.Label) {
		if l.Name != model.MetricNameLabel {
			m.value(at, l.Name, l.Value)
			at++
		}
	})
	m.sentBy(s.Sender)
}

// Sent notes a sender of a metric, for stores that report a new series without its sender. It has
// no effect before the metric's first new series.
func (t *Tracker) Sent(tenant, store, metric string, from sender.Sender) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.tenants[tenant]
	if of == nil {
		return
	}
	metric = clip(metric)
	for _, m := range of.metrics {
		if m.name == metric && m.store == store {
			m.sentBy(from)
		}
	}
}

// tenant returns the counts of a tenant. It returns nil if there is no room because all other
// tenants have had new series in the last minutes.
func (t *Tracker) tenant(now int64, name string) *tenant {
	of := t.tenants[name]
	if of == nil {
		if len(t.tenants) >= maxTenants && !t.forget(now) {
			return nil
		}
		of = &tenant{began: now, turned: now}
		t.tenants[strings.Clone(name)] = of
	}
	return of
}

// forget removes one tenant whose counts are all too old to be shown, and reports whether it
// found one.
func (t *Tracker) forget(now int64) bool {
	for name, of := range t.tenants {
		if of.last < now-Steps*Step {
			delete(t.tenants, name)
			return true
		}
	}
	return false
}

// turn begins a new generation if the present one is over, or if the clock went back.
func (t *tenant) turn(now int64) {
	age := now - t.turned
	if age >= 0 && age < generation {
		return
	}
	t.turned = now
	both := age < 0 || age >= 2*generation // forget the last generation, too: it is too old
	t.names.turn(both)
	t.known.turn(both)
	for _, m := range t.metrics {
		m.weight /= 2
		m.known.turn(both)
		for i := range m.labels {
			m.labels[i].turn(both)
		}
		for i := range m.senders {
			m.senders[i].series /= 2
		}
	}
}

// metric returns the counts of a metric. If there are maxMetrics already, a new metric displaces
// the one with the least weight. The new metric inherits this weight, so that it is not displaced
// next.
func (t *tenant) metric(now int64, store, name string) *metric {
	name = clip(name)
	var least *metric
	for _, m := range t.metrics {
		if m.name == name && m.store == store {
			return m
		}
		if least == nil || m.weight < least.weight {
			least = m
		}
	}
	m := least
	if len(t.metrics) < maxMetrics {
		m = new(metric)
		t.metrics = append(t.metrics, m)
	} else {
		*m = metric{weight: least.weight, labels: m.labels[:0], senders: m.senders[:0]}
	}
	m.store, m.name = store, strings.Clone(name)
	return m
}

// value counts a value of a label. It first looks at index `at`, where the label is if all series
// have the same labels.
func (m *metric) value(at int, name, value string) {
	name = clip(name)
	if at >= len(m.labels) || m.labels[at].name != name {
		at = slices.IndexFunc(m.labels, func(l label) bool { return l.name == name })
	}
	if at < 0 {
		if len(m.labels) == maxLabels {
			return
		}
		m.labels = append(m.labels, label{name: strings.Clone(name)})
		at = len(m.labels) - 1
	}
	m.labels[at].now.Add(distinct.HashString(value))
	if m.series == 2 { // not the first, so that a flood of names with one series each copies no text
		m.labels[at].example = strings.Clone(clip(value))
	}
}

// sentBy counts the sender of a series. If there are maxSenders already, a new sender displaces the
// one with the fewest series.
func (m *metric) sentBy(from sender.Sender) {
	if from == (sender.Sender{}) {
		return
	}
	least := 0
	for i := range m.senders {
		if m.senders[i].Sender == from {
			m.senders[i].series++
			return
		}
		if m.senders[i].series < m.senders[least].series {
			least = i
		}
	}
	if len(m.senders) < maxSenders {
		m.senders = append(m.senders, senderSeries{from.Clone(), 1})
		return
	}
	m.senders[least] = senderSeries{from.Clone(), m.senders[least].series + 1}
}

// clip cuts a sender's text to maxText bytes.
func clip(text string) string { return text[:min(len(text), maxText)] }

// Tenant describes the new series of a tenant.
//
// Each count covers Step seconds. The oldest comes first, and the last one is of the present step,
// which is not over.
type Tenant struct {
	Tenant  string   `json:"tenant"`
	Began   int64    `json:"began"` // time of the first new series since the process started, in Unix seconds
	New     []uint64 `json:"new_series"`
	Refused []uint64 `json:"refused_series"` // refused by a limit; a series that comes again counts again
	Names   uint64   `json:"new_names"`      // estimated number of metrics with new series in the last one to two minutes
	Counted uint64   `json:"counted_series"` // new series that were not refused, in the same time; 0 in an older record
	Metrics []Metric `json:"metrics"`        // the metric with the most new series first
}

// Metric is a metric's new series.
type Metric struct {
	Store   string   `json:"store"`
	Name    string   `json:"metric"`
	New     []uint64 `json:"new_series"`
	Refused []uint64 `json:"refused_series"`
	// New series that were not refused, in the time that Label.Values covers; 0 in an older record.
	Counted uint64   `json:"counted_series"`
	Labels  []Label  `json:"labels"`            // the label with the most values first
	Senders []string `json:"senders,omitempty"` // the sender of the most new series first
	Example string   `json:"example,omitempty"` // labels of one series; the label with the most values first
}

// Label is a label of new series.
type Label struct {
	Name   string `json:"label"`
	Values uint64 `json:"values"` // estimated number of values in the last one to two minutes
}

// Report returns the tenants with new series in the last Steps steps. The tenant with the most new
// series comes first. `now` is in Unix seconds.
func (t *Tracker) Report(now int64) []Tenant {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := []Tenant{}
	for name, of := range t.tenants {
		of.turn(now)
		r := Tenant{
			Tenant: name, Began: of.began, Names: of.names.len(), Counted: of.known.now + of.known.before, Metrics: []Metric{},
		}
		if r.New, r.Refused = of.all.report(now); sum(r.New)+sum(r.Refused) == 0 {
			continue
		}
		for _, m := range of.metrics {
			if shown := m.report(now); sum(shown.New)+sum(shown.Refused) > 0 {
				r.Metrics = append(r.Metrics, shown)
			}
		}
		slices.SortFunc(r.Metrics, func(a, b Metric) int {
			return cmp.Or(cmp.Compare(sum(b.New)+sum(b.Refused), sum(a.New)+sum(a.Refused)), cmp.Compare(a.Name, b.Name))
		})
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Tenant) int {
		return cmp.Or(cmp.Compare(sum(b.New)+sum(b.Refused), sum(a.New)+sum(a.Refused)), cmp.Compare(a.Tenant, b.Tenant))
	})
	return all
}

func (m *metric) report(now int64) Metric {
	r := Metric{Store: m.store, Name: m.name, Counted: m.known.now + m.known.before, Labels: []Label{}}
	r.New, r.Refused = m.new.report(now)
	examples := map[string]string{}
	for i := range m.labels {
		l := &m.labels[i]
		r.Labels = append(r.Labels, Label{l.name, l.len()})
		examples[l.name] = l.example
	}
	slices.SortFunc(r.Labels, func(a, b Label) int {
		return cmp.Or(cmp.Compare(b.Values, a.Values), cmp.Compare(a.Name, b.Name))
	})
	r.Example = example(r.Labels, examples)
	senders := slices.Clone(m.senders)
	slices.SortStableFunc(senders, func(a, b senderSeries) int { return cmp.Compare(b.series, a.series) })
	for _, s := range senders {
		r.Senders = append(r.Senders, s.String())
	}
	return r
}

// example returns the text of a series. The label with the most values comes first, so that it is
// still there when a long text is cut.
func example(order []Label, values map[string]string) string {
	var pairs []string
	for _, l := range order {
		if v := values[l.Name]; v != "" {
			pairs = append(pairs, fmt.Sprintf("%s=%q", l.Name, v))
		}
	}
	if len(pairs) == 0 {
		return ""
	}
	return clip("{" + strings.Join(pairs, ", ") + "}")
}

// report returns the counts of the last Steps steps and of the current step.
func (c *counts) report(now int64) (new, refused []uint64) {
	last := now - now%Step
	for at := last - Steps*Step; at <= last; at += Step {
		s := c[uint64(at/Step)%uint64(len(c))]
		if s.at != at {
			s.new, s.refused = 0, 0
		}
		new, refused = append(new, s.new), append(refused, s.refused)
	}
	return new, refused
}

func sum(counts []uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
