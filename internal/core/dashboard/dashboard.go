// Package dashboard converts dashboards of Grafana. Their queries ask for the names under which statsd_exporter,
// StatsD or the Datadog Agent show what clients send; converted, they ask for Freshet's. Only strings that
// hold a changed query change, so that a diff shows them and nothing else.
package dashboard

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/mapping"
)

// Source is the system whose names a dashboard has.
type Source string

// The systems.
const (
	StatsDExporter Source = "statsd_exporter"
	StatsD         Source = "statsd"  // stats_timers_x_upper_90
	Datadog        Source = "datadog" // x_95percentile
)

// Sources lists the systems.
func Sources() []Source { return []Source{StatsDExporter, StatsD, Datadog} }

// Kind is what a server has under a name.
type Kind int

// The kinds.
const (
	Unknown Kind = iota // nobody asked
	Absent
	Native // a native histogram
	Plain  // other series
)

// Options say how to convert.
type Options struct {
	From             Source
	DropLabels       []string               // labels that series do not have here
	SummaryAge       string                 // a duration of PromQL: how far back a summary's quantiles look
	SummaryQuantiles []string               // the quantiles of each summary; nil if nobody said which
	Kind             func(name string) Kind // what the server has under a name; nil if there is no server to ask
}

// DefaultQuantiles are the quantiles of statsd_exporter's summaries without summary_options.
var DefaultQuantiles = []string{"0.5", "0.9", "0.99"}

// Conversion is a converted dashboard.
type Conversion struct {
	Text    []byte
	Queries []Query
	Notes   []Note
	values  map[string]string // of variables
}

// Query is a query of a dashboard, before and after. Both are equal if nothing had to change.
type Query struct {
	Place
	Was      string `json:"was"`
	Is       string `json:"is"`
	Variable bool   `json:"variable,omitempty"` // whether its syntax is Grafana's own: label_values(...)
}

// Changed returns the number of queries that changed.
func (c *Conversion) Changed() (n int) {
	for _, q := range c.Queries {
		if q.Was != q.Is {
			n++
		}
	}
	return n
}

// Note is a query that could not be converted, or not without an assumption.
type Note struct {
	Place
	Expr string `json:"expr"`
	Reason
}

// Reason says why a query needs a person, and what the person does.
type Reason struct {
	Why string `json:"why"`
	Do  string `json:"do"`
}

// Convert converts the text of a dashboard.
func Convert(text []byte, o Options) (Conversion, error) {
	whole, err := parse(text)
	if err != nil {
		return Conversion{}, err
	}
	if whole.kind != object {
		return Conversion{}, fmt.Errorf("is not a dashboard: it is no object")
	}
	queries, notes := find(whole)
	c := &converter{Options: o, summaries: map[string]bool{}, classic: map[string]bool{}, parts: map[string]bool{},
		known: map[string]Kind{}, several: several(whole), mapper: newMapper()}
	c.learn(queries)
	out := Conversion{Notes: notes, values: values(whole)}
	at := 0
	for i := range queries {
		q := &queries[i]
		is, reasons := c.query(q)
		out.add(q, is, reasons)
		if is == q.at.text {
			continue
		}
		out.Text = append(append(out.Text, text[at:q.at.start]...), quoted(is)...)
		at = q.at.end
	}
	out.Text = append(out.Text, text[at:]...)
	return out, nil
}

// add adds what was done with a query. A variable has its query in two places, which count as one.
func (c *Conversion) add(q *query, is string, reasons []Reason) {
	if one := (Query{q.Place, q.at.text, is, q.ofVariable}); !slices.Contains(c.Queries, one) {
		c.Queries = append(c.Queries, one)
	}
	for _, r := range reasons {
		if note := (Note{q.Place, q.at.text, r}); !slices.Contains(c.Notes, note) {
			c.Notes = append(c.Notes, note)
		}
	}
}

// converter converts the queries of one dashboard.
type converter struct {
	Options
	summaries map[string]bool // names that, as the dashboard shows, summaries have
	classic   map[string]bool // names whose buckets the dashboard uses
	parts     map[string]bool // names with _sum and _count that the dashboard uses
	known     map[string]Kind
	several   map[string]bool // variables that may have several values at once
	mapper    *mapping.Mapper
}

func newMapper() *mapping.Mapper {
	m, err := mapping.New(mapping.Config{}, labels.EmptyLabels())
	if err != nil {
		panic(fmt.Sprintf("BUG: no rules are valid: %v", err))
	}
	return m
}

// kind returns what the server has under a name, or what the dashboard itself shows, and asks once for each name.
// Nobody can ask for a name with a variable, which differs from its masked form.
func (c *converter) kind(name, plain string) Kind {
	kind, known := c.known[name]
	if known || c.Kind == nil || name != plain {
		return kind
	}
	kind = c.Kind(name)
	c.known[name] = kind
	return kind
}

// recorded is a name that a recording rule may have.
var recorded = regexp.MustCompile(`^[\w:]*$`)

// metricName returns a metric's name as the mapping writes it. A name that the server has stays.
func (c *converter) metricName(name, plain string) string {
	if kind := c.kind(name, plain); name != plain || kind == Native || kind == Plain {
		return name
	}
	if short, cut := strings.CutSuffix(name, "_total"); cut && c.From == Datadog && c.kind(short, short) == Plain {
		return short
	}
	return c.mapped(name)
}

// mapped returns the name of a metric or a label as the mapping writes it: with underscores. A name with a variable
// stays.
func (c *converter) mapped(name string) string {
	if recorded.MatchString(name) || maskName(name) != name {
		return name
	}
	return c.mapper.Map(&mapping.Input{Type: dogstatsd.Gauge, Name: []byte(name)}).Name
}

// learn collects from all queries which names belong to timers.
func (c *converter) learn(queries []query) {
	aggregates := map[string]string{} // an aggregate of the Datadog Agent, by the timer's name
	for i := range queries {
		m, err := mask(queries[i].at.text)
		if err != nil {
			continue
		}
		grouped, plain := false, map[string]bool{} // by the label quantile; names without a matcher on it
		parser.Inspect(m.expr, func(node parser.Node, path []parser.Node) error {
			switch node := node.(type) {
			case *parser.AggregateExpr:
				grouped = grouped || !node.Without && slices.Contains(node.Grouping, quantileLabel)
			case *parser.VectorSelector:
				s := m.selectorAt(node.PosRange)
				c.learnName(s, aggregates)
				if _, seen := plain[s.name]; !seen || plain[s.name] {
					plain[s.name] = len(s.find(quantileLabel)) == 0 && !inHistogramFunction(path)
				}
			}
			return nil
		})
		if len(plain) == 1 && (grouped || slices.Contains(queries[i].shown(), quantileLabel)) {
			c.learnSummaries(plain)
		}
	}
}

// learnSummaries learns from a query of one name that shows the label quantile.
func (c *converter) learnSummaries(names map[string]bool) {
	for name, plain := range names {
		if c.From == StatsDExporter && plain && name != "" && !observed.MatchString(name) {
			c.learnSummary(name)
		}
	}
}

func (c *converter) learnSummary(name string) {
	c.summaries[name] = true
	if c.Kind == nil {
		c.known[name] = Native
	}
}

// learnName learns from one name. A suffix such as _max is no proof of a timer, but two of them are.
func (c *converter) learnName(s selector, aggregates map[string]string) {
	switch c.From {
	case StatsDExporter:
		if len(s.find(quantileLabel)) > 0 {
			c.learnSummary(s.name)
		}
		if m, is := observer(s); is {
			c.classic[m.name] = c.classic[m.name] || m.aspect == buckets
			c.parts[s.name] = true
		}
	case Datadog:
		if m, is := datadog(s); is {
			other, seen := aggregates[m.name]
			if seen && other != s.plain || strings.HasSuffix(s.plain, "percentile") {
				c.summaries[m.name] = true
			}
			aggregates[m.name] = s.plain
		}
	}
}
