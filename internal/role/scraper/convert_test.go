package scraper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/write"
)

// everyType has metrics of each type and form.
func everyType(series int) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total", Help: "Größe."},
		[]string{"code", "a"})
	size := prometheus.NewGauge(prometheus.GaugeOpts{Name: "size", Help: "x"})
	other := prometheus.NewUntypedFunc(prometheus.UntypedOpts{Name: "other"}, func() float64 { return 2.5 })
	quantiles := prometheus.NewSummary(prometheus.SummaryOpts{
		Name: "quantiles", Help: "x", Objectives: map[float64]float64{0.5: 0.05, 1: 0},
	})
	classic := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "classic", Help: "x",
		Buckets: []float64{-1, 0, 0.25, 1, 1e6}}, []string{"zz"})
	native := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "native", Help: "x",
		NativeHistogramBucketFactor: 1.1}, []string{"job"})
	both := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "both", Help: "x", NativeHistogramBucketFactor: 1.1, Buckets: []float64{1, 10},
	})
	reg.MustRegister(requests, size, other, quantiles, classic, native, both, collectors.NewGoCollector())
	native.WithLabelValues("nothing was observed")
	for i := range series {
		v := float64(i%40) / 3
		requests.WithLabelValues(fmt.Sprint(i), "b").(prometheus.ExemplarAdder).AddWithExemplar(v,
			prometheus.Labels{"trace_id": fmt.Sprint("t", i)})
		classic.WithLabelValues(fmt.Sprint(i%3)).(prometheus.ExemplarObserver).ObserveWithExemplar(v,
			prometheus.Labels{"trace_id": fmt.Sprint("t", i)})
		native.WithLabelValues(fmt.Sprint(i%3)).(prometheus.ExemplarObserver).ObserveWithExemplar(v-5,
			prometheus.Labels{"trace_id": fmt.Sprint("t", i)})
		both.Observe(v)
		quantiles.Observe(v)
	}
	return reg
}

// The scraper stores the same series as a Prometheus that scrapes /metrics with native histograms.
// Prometheus' own parser gives the expected series.
func TestScrapesAsPrometheusDoes(t *testing.T) {
	families, err := everyType(100).Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := parsed(t, families)
	s := New(Options{})
	request := new(write.Incoming)
	var b remotewrite.Builder
	b.Begin(&request.Request, nil)
	s.add(families, 1000, &b)
	b.Finish()
	d := new(taken)
	if _, err := d.Push(t.Context(), "", request); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.SplitSeq(d.pushes[0], "\n") {
		if !strings.HasPrefix(line, "family ") && !strings.Contains(line, "__name__=up ") {
			got = append(got, line)
		}
	}
	slices.Sort(want)
	if len(want) < 150 || !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("%d series, want %d; the first that differs:\n got %s\nwant %s", len(got), len(want), got[i], want[i])
			}
		}
		t.Errorf("%d series, want %d", len(got), len(want))
	}
}

// parsed returns the samples that Prometheus' parser reads, as text in the same form as the pushes in
// `taken`.
func parsed(t *testing.T, families []*dto.MetricFamily) (lines []string) {
	t.Helper()
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeProtoDelim))
	for _, f := range families {
		// Parse one histogram at a time. When histograms follow each other, the parser skips as many
		// exemplars of the next histogram as it has read of the previous one.
		for _, m := range f.Metric {
			one := &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Metric: []*dto.Metric{m}}
			if err := encoder.Encode(one); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := textparse.NewProtobufParser(text.Bytes(), false, false, false, false, labels.NewSymbolTable())
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		if entry != textparse.EntrySeries && entry != textparse.EntryHistogram {
			continue
		}
		var ls labels.Labels
		p.Labels(&ls)
		line := ""
		ls.Range(func(l labels.Label) { line += fmt.Sprintf(" %s=%s", l.Name, l.Value) })
		if entry == textparse.EntrySeries {
			_, _, v := p.Series()
			line += fmt.Sprintf(" %v @1", v)
		} else {
			_, _, h, _ := p.Histogram()
			h = h.Compact(0)
			line += fmt.Sprintf(" {count %d, zero %d below %v, sum %v, schema %d, %v %v %v %v} @1",
				h.Count, h.ZeroCount, h.ZeroThreshold, h.Sum, h.Schema,
				h.PositiveSpans, h.PositiveBuckets, h.NegativeSpans, h.NegativeBuckets)
		}
		for e := new(exemplar.Exemplar); p.Exemplar(e); {
			line += fmt.Sprintf(" exemplar %v", e.Value)
		}
		lines = append(lines, line)
	}
}

// A scrape of known series must allocate nothing, since an idle server does little more than keep its
// own metrics.
func TestKnownSeriesAllocateNothing(t *testing.T) {
	reg := prometheus.NewRegistry()
	of := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total"}, []string{"code"})
	reg.MustRegister(of)
	for i := range 1000 {
		of.WithLabelValues(fmt.Sprint(i)).Inc()
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	s, request := New(Options{Labels: map[string]string{"job": "freshet"}}), new(remotewrite.Request)
	body := make([]byte, 0, 1<<20)
	var b remotewrite.Builder
	if n := testing.AllocsPerRun(10, func() {
		b.Begin(request, body)
		s.add(families, 1000, &b)
		b.Finish()
	}); n > 10 {
		t.Errorf("%v allocations for a scrape of 1000 series, want at most 10", n)
	}
}

// counted is a gatherer that counts the scrapes.
type counted struct{ times int }

func (c *counted) Gather() ([]*dto.MetricFamily, error) { c.times++; return nil, nil }

// Scrapes must be rare: a scrape costs an idle server as much as five seconds of its other
// work.
func TestScrapesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(counted)
		s := New(Options{
			Gatherer: c, Distributor: new(taken), Interval: 5 * time.Second, Now: time.Now,
			Logger: slog.New(slog.DiscardHandler),
		})
		ended := make(chan error)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute+time.Second)
		defer stop()
		go func() { ended <- s.Run(ctx) }()
		if err := <-ended; err != nil || c.times < 12 || c.times > 13 {
			t.Errorf("%d scrapes in a minute, want 12 or 13; Run returned %v", c.times, err)
		}
	})
}
