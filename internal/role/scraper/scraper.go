// Package scraper is the role that keeps the process' own metrics in its own store, as a
// Prometheus that scrapes /metrics would: whoever looks at Freshet needs nothing else.
package scraper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/lib/buf"
)

// Distributor lets samples in: see distributor.Push.
type Distributor interface {
	Push(tenant string, r *remotewrite.Request, body *buf.Buf, done func()) (outcome.Outcome, error)
}

// Options is what a Scraper is made of. All fields are needed.
type Options struct {
	Gatherer    prometheus.Gatherer
	Distributor Distributor
	Tenant      string
	Labels      map[string]string // of every series, where it has none of that name
	Interval    time.Duration
	Now         func() time.Time
	Logger      *slog.Logger
}

// Scraper is the role's state, which belongs to Run.
type Scraper struct {
	Options
	builder labels.ScratchBuilder
	symbols *labels.SymbolTable
	known   map[string]labels.Labels // the series of the last time, by their text
}

// New makes a scraper. It starts nothing.
func New(o Options) *Scraper {
	return &Scraper{Options: o, symbols: labels.NewSymbolTable(), known: map[string]labels.Labels{}}
}

// Run stores the metrics at each multiple of the interval, until ctx is done. What cannot
// be stored is logged, and missing: the next time has what was counted by then.
func (s *Scraper) Run(ctx context.Context) error {
	for {
		now := s.Now()
		timer := time.NewTimer(now.Truncate(s.Interval).Add(s.Interval).Sub(now))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		if err := s.scrape(s.Now()); err != nil {
			s.Logger.Warn("Freshet's own metrics of this moment are not stored", "error", err)
		}
	}
}

// scrape stores what there is at a time.
func (s *Scraper) scrape(now time.Time) error {
	text, err := s.gather()
	if err != nil {
		return err
	}
	body, request := buf.Get(), new(remotewrite.Request)
	defer body.Release()
	var b remotewrite.Builder
	b.Begin(request, body.B)
	seen, err := s.convert(text, now.UnixMilli(), &b)
	b.Finish()
	body.B = b.Body
	if err != nil {
		return err
	}
	// The request and its body are used by nobody else once Push has returned, unless a
	// replica lags behind, and then the last of them gives the body back.
	o, err := s.Distributor.Push(s.Tenant, request, body.Keep(), body.Release)
	if err != nil {
		return err // and what is gone gets its stale markers the next time
	}
	s.known = seen
	if o.AnyRefused() {
		return errors.New(o.Text())
	}
	return nil
}

// gather is what /metrics has, in the format that has native histograms.
func (s *Scraper) gather() ([]byte, error) {
	families, err := s.Gatherer.Gather()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeProtoDelim))
	for _, f := range families {
		// Each native histogram as a family of its own: of one with several, Prometheus' parser
		// goes on among the exemplars of the next where it ended among those of the one before.
		metrics := f.Metric
		for len(metrics) > 0 {
			n := len(metrics)
			if f.GetType() == dto.MetricType_HISTOGRAM {
				n = 1
			}
			f.Metric, metrics = metrics[:n], metrics[n:]
			if err := encoder.Encode(f); err != nil {
				return nil, fmt.Errorf("encode %s: %w", f.GetName(), err)
			}
		}
	}
	return text.Bytes(), nil
}

// convert adds the samples of a scrape at t, Unix milliseconds, and a stale marker for each
// series that is gone.
// It returns the series that there are.
func (s *Scraper) convert(text []byte, t int64, b *remotewrite.Builder) (map[string]labels.Labels, error) {
	seen := make(map[string]labels.Labels, len(s.known))
	begin := func(ls labels.Labels) {
		seen[ls.String()] = ls
		b.Series()
		ls.Range(func(l labels.Label) { b.Label(l.Name, l.Value) })
	}
	if err := s.parse(text, t, b, begin); err != nil {
		return nil, err
	}
	begin(s.labels(labels.FromStrings(model.MetricNameLabel, "up")))
	b.Sample(remotewrite.Sample{Value: 1, Time: t})
	for key, ls := range s.known {
		if _, there := seen[key]; there {
			continue
		}
		b.Series()
		ls.Range(func(l labels.Label) { b.Label(l.Name, l.Value) })
		b.Sample(remotewrite.Sample{Value: math.Float64frombits(value.StaleNaN), Time: t})
	}
	return seen, nil
}

// parse adds what a scrape has. begin begins a series.
func (s *Scraper) parse(text []byte, t int64, b *remotewrite.Builder, begin func(labels.Labels)) error {
	p := textparse.NewProtobufParser(text, false, false, false, false, s.symbols)
	family, help := "", ""
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("parse our own metrics: %w", err)
		}
		switch entry {
		case textparse.EntryHelp:
			_, text := p.Help()
			help = string(text)
		case textparse.EntryType:
			name, kind := p.Type()
			if string(name) != family { // it may come in several pieces
				family = string(name)
				b.Family(family, help, "", metricTypes[kind])
			}
		case textparse.EntrySeries:
			_, _, v := p.Series()
			begin(s.seriesOf(p))
			b.Sample(remotewrite.Sample{Value: v, Time: t})
			exemplars(p, t, b)
		case textparse.EntryHistogram:
			_, _, integer, float := p.Histogram()
			begin(s.seriesOf(p))
			if integer != nil {
				b.Histogram(histogramOf(integer, t))
			} else {
				return fmt.Errorf("a float histogram of our own, which nobody makes: %v", float)
			}
			exemplars(p, t, b)
		}
	}
}

// metricTypes are Prometheus' in the numbers of remote write.
var metricTypes = map[model.MetricType]remotewrite.MetricType{
	model.MetricTypeCounter: remotewrite.CounterType, model.MetricTypeGauge: remotewrite.GaugeType,
	model.MetricTypeHistogram: remotewrite.HistogramType, model.MetricTypeSummary: remotewrite.SummaryType,
}

func (s *Scraper) seriesOf(p textparse.Parser) labels.Labels {
	var ls labels.Labels
	p.Labels(&ls)
	return s.labels(ls)
}

// labels adds those of every series.
func (s *Scraper) labels(ls labels.Labels) labels.Labels {
	s.builder.Reset()
	ls.Range(func(l labels.Label) { s.builder.Add(l.Name, l.Value) })
	for name, value := range s.Labels {
		if !ls.Has(name) {
			s.builder.Add(name, value)
		}
	}
	s.builder.Sort()
	return s.builder.Labels()
}

func exemplars(p textparse.Parser, t int64, b *remotewrite.Builder) {
	var e exemplar.Exemplar
	for p.Exemplar(&e) {
		at := t
		if e.HasTs {
			at = e.Ts
		}
		b.Exemplar(e.Value, at)
		e.Labels.Range(func(l labels.Label) { b.Label(l.Name, l.Value) })
		e = exemplar.Exemplar{}
	}
}

func histogramOf(h *histogram.Histogram, t int64) remotewrite.Histogram {
	count := func(n uint64) remotewrite.Count {
		return remotewrite.Count{Form: remotewrite.IntegerCount, Integer: n}
	}
	return remotewrite.Histogram{
		Count: count(h.Count), ZeroCount: count(h.ZeroCount), Sum: h.Sum, Schema: h.Schema, ZeroThreshold: h.ZeroThreshold,
		PositiveSpans: spansOf(h.PositiveSpans), PositiveDeltas: h.PositiveBuckets,
		NegativeSpans: spansOf(h.NegativeSpans), NegativeDeltas: h.NegativeBuckets, Time: t,
	}
}

func spansOf(all []histogram.Span) (out []remotewrite.Span) {
	for _, s := range all {
		out = append(out, remotewrite.Span{Offset: s.Offset, Length: s.Length})
	}
	return out
}
