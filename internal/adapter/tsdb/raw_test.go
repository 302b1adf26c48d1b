package tsdb

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/recentseries"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/seriescache"
	"github.com/freshet-io/freshet/internal/core/write"
)

// plain are terms that leave labels unchanged. They drop series with the name "dropped". They refuse
// series with the name "refused", because a rule removes the whole name.
var plain = write.Terms{Rules: labelrules.Rules{Relabel: []*relabel.Config{
	{Action: relabel.Drop, SourceLabels: []model.LabelName{"__name__"}, Regex: relabel.MustNewRegexp("dropped"),
		NameValidationScheme: model.UTF8Validation},
	{Action: relabel.Replace, SourceLabels: []model.LabelName{"__name__"}, Regex: relabel.MustNewRegexp("refused"),
		TargetLabel: "__name__", NameValidationScheme: model.UTF8Validation},
}}}

// rawSample is a sample of the text that parseRaw reads.
type rawSample struct {
	series string
	t      int64
	v      float64
	h      bool // a histogram of v observations
	bad    bool // the histogram contradicts itself
	start  int64
}

// parseRaw reads "a@10=1 a@20=stale b@10=h3 c@10=1/5": series, second and value, and after a slash the
// second at which counting began. A quote makes another spelling of the same labels. An exclamation mark
// makes an invalid histogram, whose spans cover more buckets than the histogram has.
func parseRaw(t testing.TB, text string) (all []rawSample) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		name, rest, _ := strings.Cut(word, "@")
		at, val, _ := strings.Cut(rest, "=")
		val, start, _ := strings.Cut(val, "/")
		s := rawSample{series: name}
		val, s.bad = strings.CutSuffix(val, "!")
		second, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		s.t = base + 1000*second
		if start != "" {
			second, err := strconv.ParseInt(start, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			s.start = base + 1000*second
		}
		if val, s.h = strings.CutPrefix(val, "h"); val == "stale" {
			s.v = math.Float64frombits(value.StaleNaN)
		} else if s.v, err = strconv.ParseFloat(val, 64); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func labelsOf(name string) []string {
	base := strings.TrimRight(name, "'")
	if base != name { // write the labels in another order
		return []string{"host", "h", "__name__", base}
	}
	return []string{"__name__", base, "host", "h"}
}

func intHistogram(v float64) *histogram.Histogram {
	if value.IsStaleNaN(v) {
		return &histogram.Histogram{Sum: v}
	}
	return &histogram.Histogram{Schema: 3, Count: uint64(v), Sum: v, ZeroThreshold: 1e-9,
		PositiveSpans: []histogram.Span{{Offset: 0, Length: 1}}, PositiveBuckets: []int64{int64(v)}}
}

// newRequest makes an empty request that arrives a day after base.
func newRequest(terms *write.Terms) *write.Request {
	return &write.Request{
		Request: new(remotewrite.Request), Terms: terms, Window: DefaultConfig().OutOfOrder, Arrival: base + 24*3600_000,
	}
}

// requestOf makes a request of samples. Consecutive samples with one spelling share a message, even if
// some are floats and some are histograms.
func requestOf(t testing.TB, v2 bool, terms *write.Terms, samples []rawSample) *write.Request {
	t.Helper()
	var one prompb.WriteRequest
	var two writev2.Request
	symbols := writev2.NewSymbolTable()
	last := ""
	for _, s := range samples {
		if s.series != last {
			last = s.series
			ls := labelsOf(s.series)
			var pairs []prompb.Label
			var refs []uint32
			for i := 0; i < len(ls); i += 2 {
				pairs = append(pairs, prompb.Label{Name: ls[i], Value: ls[i+1]})
				refs = append(refs, symbols.Symbolize(ls[i]), symbols.Symbolize(ls[i+1]))
			}
			one.Timeseries = append(one.Timeseries, prompb.TimeSeries{Labels: pairs})
			two.Timeseries = append(two.Timeseries, writev2.TimeSeries{LabelsRefs: refs})
		}
		ts1, ts2 := &one.Timeseries[len(one.Timeseries)-1], &two.Timeseries[len(two.Timeseries)-1]
		if s.h {
			h := intHistogram(s.v)
			if s.bad {
				h.PositiveSpans[0].Length = 5
			}
			ts1.Histograms = append(ts1.Histograms, prompb.FromIntHistogram(s.t, h))
			ts2.Histograms = append(ts2.Histograms, writev2.FromIntHistogram(s.start, s.t, h))
		} else {
			ts1.Samples = append(ts1.Samples, prompb.Sample{Timestamp: s.t, Value: s.v})
			ts2.Samples = append(ts2.Samples, writev2.Sample{Timestamp: s.t, Value: s.v, StartTimestamp: s.start})
		}
	}
	r := newRequest(terms)
	if v2 {
		two.Symbols = symbols.Symbols()
		body, err := two.Marshal()
		if err == nil {
			err = r.DecodeV2(body)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	body, err := one.Marshal()
	if err == nil {
		err = r.DecodeV1(body)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// writeRaw writes requests, one for each text, in one commit, in version 2 of remote write.
func (w *world) writeRaw(terms *write.Terms, texts ...string) []outcome.Outcome {
	w.t.Helper()
	var requests []*write.Request
	for _, text := range texts {
		requests = append(requests, requestOf(w.t, true, terms, parseRaw(w.t, text)))
	}
	if err := w.stores.WriteRequests(w.t.Context(), "default", &w.state, requests); err != nil {
		w.t.Fatal(err)
	}
	var all []outcome.Outcome
	for _, r := range requests {
		all = append(all, r.Outcome)
	}
	return all
}

// raw returns everything that queries see of the raw store, by series, as "second=value". The value
// of a histogram is its count.
func (w *world) raw() map[string]string { return w.has(Raw) }

// has returns what raw does, of a store of that kind.
func (w *world) has(kind string) map[string]string {
	w.t.Helper()
	q, err := w.stores.Querier("default", kind, math.MinInt64, math.MaxInt64)
	if err != nil {
		w.t.Fatal(err)
	}
	defer q.Close()
	out := map[string]string{}
	set := q.Select(context.Background(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
	for set.Next() {
		var words []string
		it := set.At().Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			at, text := int64(0), ""
			if kind == chunkenc.ValFloat {
				var v float64
				if at, v = it.At(); value.IsStaleNaN(v) {
					text = "stale"
				} else {
					text = fmt.Sprint(v)
				}
			} else {
				var h *histogram.FloatHistogram
				if at, h = it.AtFloatHistogram(nil); value.IsStaleNaN(h.Sum) {
					text = "stale"
				} else {
					text = fmt.Sprint("h", h.Count)
				}
			}
			words = append(words, fmt.Sprintf("%d=%s", (at-base)/1000, text))
		}
		if it.Err() != nil {
			w.t.Fatal(it.Err())
		}
		out[set.At().Labels().Get("__name__")] = strings.Join(words, " ")
	}
	if set.Err() != nil {
		w.t.Fatal(set.Err())
	}
	return out
}

// Each kind of conflict has one right answer and one right query result.
func TestRawConflicts(t *testing.T) {
	for _, c := range []struct {
		why      string
		requests []string // a bar separates the requests of one commit
		want     string   // stored samples of series a
		written  int
		refused  outcome.Reason
		count    int
	}{
		{"in order", []string{"a@10=1 a@20=2"}, "10=1 20=2", 2, 0, 0},
		{"a repeat is success", []string{"a@10=1", "a@10=1"}, "10=1", 2, 0, 0},
		{"a repeat in one request", []string{"a@10=1 a@10=1"}, "10=1", 2, 0, 0},
		{"a repeat in one commit", []string{"a@10=1 | a@10=1"}, "10=1", 2, 0, 0},
		{"another value at the newest time", []string{"a@10=1", "a@10=2"}, "10=1", 1, outcome.Duplicate, 1},
		{"another value in one request", []string{"a@10=1 a@10=2"}, "10=1", 1, outcome.Duplicate, 1},
		{"another value in one commit", []string{"a@10=1 | a@10=2"}, "10=1", 1, outcome.Duplicate, 1},
		{"another value at an older time, which tsdb would let replace the first", []string{"a@10=1 a@20=2", "a@10=3"},
			"10=1 20=2", 2, outcome.Duplicate, 1},
		{"a repeat at an older time", []string{"a@10=1 a@20=2", "a@10=1"}, "10=1 20=2", 3, 0, 0},
		{"out of order", []string{"a@20=2", "a@10=1"}, "10=1 20=2", 2, 0, 0},
		{"out of order in one request", []string{"a@20=2 a@10=1"}, "10=1 20=2", 2, 0, 0},
		{"out of order in one commit, twice", []string{"a@20=2 | a@10=1 | a@10=1"}, "10=1 20=2", 3, 0, 0},
		{"out of order in one commit, with another value", []string{"a@20=2 | a@10=1 | a@10=7"},
			"10=1 20=2", 2, outcome.Duplicate, 1},
		{"a backlog in the order of time", []string{"a@50=5", "a@10=1 a@20=2 a@30=3", "a@20=2"},
			"10=1 20=2 30=3 50=5", 5, 0, 0},
		{"a backlog against the order of time", []string{"a@50=5", "a@30=3 a@20=2 a@30=4"},
			"20=2 30=3 50=5", 3, outcome.Duplicate, 1},
		{"too old for the out-of-order window", []string{"a@7200=1", "a@10=1"}, "7200=1", 1, outcome.TooOld, 1},
		{"too old behind a sample that waits for the commit", []string{"b@7200=1 a@7200=1 a@5300=0 a@10=1"},
			"7200=1", 1, outcome.TooOld, 2},
		{"too far ahead", []string{"a@10=1 a@100000=1"}, "10=1", 1, outcome.TooFarAhead, 1},
		{"a stale marker", []string{"a@10=1 a@20=stale", "a@20=stale"}, "10=1 20=stale", 3, 0, 0},
		{"a value at the time of a stale marker", []string{"a@10=1 a@20=stale", "a@20=1"},
			"10=1 20=stale", 2, outcome.Duplicate, 1},
		{"histograms", []string{"a@10=h1 a@20=h2", "a@10=h1 a@20=h2"}, "10=h1 20=h2", 4, 0, 0},
		{"another histogram", []string{"a@10=h1 a@20=h2", "a@10=h7 a@20=h7"}, "10=h1 20=h2", 2, outcome.Duplicate, 2},
		{"a histogram at the time of a float", []string{"a@10=1", "a@10=h1"}, "10=1", 1, outcome.Duplicate, 1},
		{"a float at the time of a histogram, in one commit", []string{"a@10=h1 | a@10=1"}, "10=h1", 1, outcome.Duplicate, 1},
		{"a histogram out of order", []string{"a@20=h2 | a@10=h1"}, "10=h1 20=h2", 2, 0, 0},
		{"floats and histograms in turns", []string{"a@10=1 | a@20=h2 | a@30=3"}, "10=1 20=h2 30=3", 3, 0, 0},
		{"floats and histograms in one message", []string{"a@10=1 a@20=h2 a@30=3 a@40=h4"}, "10=1 20=h2 30=3 40=h4", 4, 0, 0},
		{"a float and a histogram at one time", []string{"a@10=h1 a@20=2 a@20=h2"}, "10=h1 20=2", 2, outcome.Duplicate, 1},
		{"a bad histogram among floats", []string{"a@10=1 a@20=h2! a@30=3"}, "10=1 30=3", 2, outcome.BadHistogram, 1},
		{"two spellings in one commit", []string{"a@10=1 a'@20=2 | a@20=2 a'@10=1 | a'@20=3"},
			"10=1 20=2", 4, outcome.Duplicate, 1},
		{"two spellings are one series", []string{"a@10=1 a'@10=1", "a'@10=2 a@20=2"}, "10=1 20=2", 3, outcome.Duplicate, 1},
		{"the zero at which counting began", []string{"a@20=5/10 a@30=7/10"}, "10=0 20=5 30=7", 2, 0, 0},
		{"counting began before a stored sample", []string{"a@20=5", "a@30=7/10"}, "20=5 30=7", 2, 0, 0},
		{"counting began again", []string{"a@20=5/10", "a@40=1/35"}, "10=0 20=5 35=0 40=1", 2, 0, 0},
		{"counting began at the sample itself", []string{"a@20=5/20"}, "20=5", 1, 0, 0},
		{"counting began before the out-of-order window", []string{"a@7200=5/10"}, "7200=5", 1, 0, 0},
		{"counting began as long ago as the out-of-order window", []string{"a@1810=5/10"}, "10=0 1810=5", 1, 0, 0},
		{"a histogram's zero", []string{"a@20=h5/10"}, "10=h0 20=h5", 1, 0, 0},
		{"a bad histogram's zero, which stayed when it was refused", []string{"a@20=h5!/10"}, "", 0, outcome.BadHistogram, 1},
		{"a bad histogram's zero, in a known series", []string{"a@10=h5", "a@30=h1!/20"},
			"10=h5", 1, outcome.BadHistogram, 1},
		{"a bad histogram's zero comes with the next histogram", []string{"a@20=h5!/10 a@30=h6/10"},
			"10=h0 30=h6", 1, outcome.BadHistogram, 1},
		{"the zero of a sample that is too old", []string{"b@7200=1", "a@20=5/10 a@30=h5/10"}, "", 0, outcome.TooOld, 2},
		{"the zero of a sample that is too old, in a known series", []string{"a@10=1 b@7200=1", "a@30=5/20"},
			"10=1", 1, outcome.TooOld, 1},
		{"a zero that is too old, before a sample that is not", []string{"b@7200=1", "a@3700=5/3500"}, "3700=5", 1, 0, 0},
		{"the zero of a sample that is too far ahead", []string{"a@100000=5/99990"}, "", 0, outcome.TooFarAhead, 1},
		{"the zero of another value", []string{"a@20=5", "a@20=6/15"}, "20=5", 1, outcome.Duplicate, 1},
		{"a bad histogram at the time of a good one", []string{"a@10=h5 a@20=h6", "a@10=h5! a@20=h7!"},
			"10=h5 20=h6", 2, outcome.Duplicate, 2},
		{"a sample replaces no zero", []string{"a@20=5/10", "a@10=3"}, "10=0 20=5", 1, outcome.Duplicate, 1},
		{"a rule drops a series", []string{"dropped@10=1 a@10=1 dropped@20=1", "dropped@20=1"}, "10=1", 1, 0, 0},
		{"a rule refuses a series", []string{"refused@10=1 a@10=1", "refused@20=1"}, "10=1", 1, outcome.BadLabels, 2},
	} {
		w := newWorld(t)
		w.now = time.UnixMilli(base).Add(2 * time.Hour)
		var total outcome.Outcome
		for _, commit := range c.requests {
			for _, o := range w.writeRaw(&plain, strings.Split(commit, "|")...) {
				total.Add(&o)
			}
		}
		delete := strings.Count(strings.Join(c.requests, " "), "b@")
		written := total.Written.Total() - delete
		if got := w.raw()["a"]; got != c.want || written != c.written || total.Refused[c.refused].Total() != c.count ||
			total.AllRefused().Total() != c.count {
			t.Errorf("%s: stored %q, want %q; %d counted as written, want %d; refused %s",
				c.why, got, c.want, written, c.written, total.Text())
		}
		before := w.raw()["a"]
		w.close()
		w.open()
		if after := w.raw()["a"]; after != before {
			t.Errorf("%s: %q after a restart, %q before", c.why, after, before)
		}
	}
}

// Stored samples never change, and each answer counts exactly the samples that a query finds. This
// holds for any input in any order and for any grouping into commits, with restarts and with series
// that the head drops.
func TestAnswersAgreeWithQueries(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t)
		terms := plain
		rare := 1 + 39*int(seed%2) // in every other run, a series has many floats between its other samples
		type sent struct {
			samples []rawSample
			outcome outcome.Outcome
		}
		var all []sent
		clock := int64(3600)
		for range 40 {
			clock += random.Int64N(120)
			w.now = time.UnixMilli(base + 1000*clock)
			var requests []*write.Request
			var group []sent
			for range 1 + random.IntN(4) {
				var samples []rawSample
				for range 1 + random.IntN(8) {
					s := rawSample{
						series: []string{"a", "b", "c", "a'", "b'"}[random.IntN(5)],
						t:      base + 1000*(clock-random.Int64N(1+random.Int64N(3000))),
						v:      float64(random.IntN(3)),
						h:      random.IntN(6*rare) == 0,
					}
					if random.IntN(10*rare) == 0 {
						s.v = math.Float64frombits(value.StaleNaN)
					}
					samples = append(samples, s)
				}
				requests = append(requests, requestOf(t, random.IntN(2) == 0, &terms, samples))
				group = append(group, sent{samples: samples})
			}
			if err := w.stores.WriteRequests(t.Context(), "default", &w.state, requests); err != nil {
				t.Fatal(err)
			}
			for i := range group {
				group[i].outcome = requests[i].Outcome
			}
			all = append(all, group...)
			switch random.IntN(12) {
			case 0:
				w.close()
				w.open()
			case 1:
				terms.Generation++
			case 2:
				st, _ := w.stores.forWrite("default", Raw)
				if err := st.db.CompactHead(headOf(st.db)); err != nil {
					t.Fatal(err)
				}
			}
		}
		stored := map[string]bool{}
		for series, words := range w.raw() {
			for _, word := range strings.Fields(words) {
				stored[series+"@"+word] = true
			}
		}
		for _, r := range all {
			var found outcome.Counts
			for _, s := range r.samples {
				text := fmt.Sprint(s.v)
				if s.h {
					text = "h" + text
				}
				if value.IsStaleNaN(s.v) {
					text = "stale"
				}
				if stored[fmt.Sprintf("%s@%d=%s", strings.TrimRight(s.series, "'"), (s.t-base)/1000, text)] {
					if s.h {
						found.Histograms++
					} else {
						found.Samples++
					}
				}
			}
			if found != r.outcome.Written || found.Total()+r.outcome.AllRefused().Total() != len(r.samples) {
				t.Fatalf("seed %d: queries find %d of %d samples, but the answer counts %d as written: %s", seed,
					found.Total(), len(r.samples), r.outcome.Written.Total(), r.outcome.Text())
			}
		}
		w.close()
	}
}

// resolved returns how often the labels of requests were resolved.
func (w *world) resolved() int {
	w.t.Helper()
	st, err := w.stores.forWrite("default", Raw)
	if err != nil {
		w.t.Fatal(err)
	}
	return st.db.raw.lookup.resolved
}

// The labels of a series are resolved only once while it is in memory and the terms stay the same.
func TestLabelsAreResolvedOnce(t *testing.T) {
	w := newWorld(t)
	terms := plain
	for i := range 5 {
		w.writeRaw(&terms, fmt.Sprintf("a@%d=1 b@%d=1 dropped@%d=1", i, i, i))
	}
	if n := w.resolved(); n != 3 {
		t.Errorf("labels were resolved %d times for 3 series, want 3", n)
	}
	terms.Generation++
	w.writeRaw(&terms, "a@10=1 b@10=1 dropped@10=1")
	w.writeRaw(&terms, "a@11=1 b@11=1 dropped@11=1")
	if n := w.resolved(); n != 6 {
		t.Errorf("labels were resolved %d times for 3 series in two generations, want 6", n)
	}
}

// Metadata that comes later than its series is passed on once.
func TestMetadataThatComesLater(t *testing.T) {
	w := newWorld(t)
	heard := 0
	for i, described := range []bool{false, false, true, true, false} {
		r := requestOf(t, true, &plain, parseRaw(t, fmt.Sprintf("a@%d=1", i)))
		if described {
			r.Series[0].Metadata.Type = remotewrite.GaugeType
		}
		if err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
			t.Fatal(err)
		}
		heard += len(r.Described)
		if want := min(1, max(0, i-1)); heard != want || len(r.Described) > 0 &&
			r.Described[0] != (write.Description{Metric: "a", Metadata: r.Series[0].Metadata}) {
			t.Fatalf("request %d: passed on %+v; requests so far passed on %d descriptions, want %d",
				i, r.Described, heard, want)
		}
	}
}

func TestMaxSeries(t *testing.T) {
	w := newWorld(t)
	r := requestOf(t, true, &plain, parseRaw(t, "a@10=1 b@10=1 c@10=1 a@20=1 c@20=1"))
	r.MaxSeries = 2
	if err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
		t.Fatal(err)
	}
	if r.Outcome.Written.Samples != 3 || r.Outcome.Refused[outcome.TooManySeries].Samples != 2 {
		t.Errorf("%+v", r.Outcome)
	}
	if text := r.Outcome.Text(); !strings.Contains(text, `{__name__="c", host="h"}`) ||
		!strings.Contains(text, "allows 2") {
		t.Error(text)
	}
	if got := w.raw(); got["a"] != "10=1 20=1" || got["c"] != "" {
		t.Errorf("%v", got)
	}
}

// A series counts for 2 to 4 h after its last sample, whether the head still has it or not. Formerly, a
// series counted until a compaction cut the head, so the answer depended on the time of the compaction.
func TestMaxSeriesCountsRecentSeries(t *testing.T) {
	const epoch = recentseries.Epoch / 1000
	w := newWorld(t)
	cut := func(end int64, left uint64) {
		st, _ := w.stores.forWrite("default", Raw)
		if err := st.db.CompactHead(tsdb.NewRangeHead(st.db.Head(), 0, base+1000*end-1)); err != nil {
			t.Fatal(err)
		}
		if n := st.db.Head().NumSeries(); n != left {
			t.Fatalf("the head has %d series, so the test shows nothing", n)
		}
	}
	for i, c := range []struct {
		second  int // counted from base, at which an epoch begins
		series  string
		refused string
		before  func()
		why     string
	}{
		{second: 10, series: "a b c", refused: "c", why: "two series are allowed"},
		{second: 11, series: "c a b", refused: "c", why: "known series are still accepted"},
		{second: epoch + 10, series: "a c", refused: "c", why: "b was written to in the epoch before"},
		{second: epoch + 20, series: "c", refused: "c", why: "b is still known", before: func() { cut(epoch, 1) }},
		{second: epoch + 30, series: "b", why: "b is known, though the head does not have it"},
		{second: 2*epoch + 10, series: "a", why: "b is not written to in this epoch"},
		{second: 3*epoch + 10, series: "c b", refused: "b", why: "c takes the place of b"},
		{second: 3*epoch + 20, series: "a b c", refused: "b", why: "b is new, though the head has it"},
		{second: 3*epoch + 30, series: "b a c", refused: "b", why: "they are still accepted after a restart", before: func() {
			cut(3*epoch, 2)
			w.close()
			w.open()
			state, err := w.stores.State(t.Context(), "default")
			if err != nil {
				t.Fatal(err)
			}
			w.state.Newest = state.Newest
			if err := w.state.Recent.Parse(state.Recent.Append(nil)); err != nil {
				t.Fatal(err)
			}
		}},
		{second: 4*epoch + 10, series: "a b", refused: "b", why: "a and c still count, at least for 2 h"},
		{second: 5*epoch + 10, series: "b c", refused: "c", why: "a no longer counts"},
	} {
		if c.before != nil {
			c.before()
		}
		var text, refused []string
		for _, series := range strings.Fields(c.series) {
			text = append(text, fmt.Sprintf("%s@%d=1", series, c.second))
		}
		w.now = time.UnixMilli(base + 1000*int64(c.second))
		for _, one := range text {
			r := requestOf(t, true, &plain, parseRaw(t, one))
			r.Arrival, r.MaxSeries = w.now.UnixMilli(), 2
			if err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
				t.Fatal(err)
			}
			if r.Outcome.Refused[outcome.TooManySeries].Samples == 1 {
				refused = append(refused, one[:1])
			}
			if r.Outcome.Refused[outcome.TooManySeries].Samples+r.Outcome.Written.Samples != 1 {
				t.Errorf("step %d, %s: %+v", i, one, r.Outcome)
			}
		}
		if got := strings.Join(refused, " "); got != c.refused {
			t.Errorf("step %d, %s: refused %q, want %q", i, c.why, got, c.refused)
		}
	}
}

// tsdb makes a series before it refuses the first sample of this series. No query finds such a series,
// but it once counted against distributor.max_series and took the place of others.
func TestRefusedSamplesMakeNoSeries(t *testing.T) {
	for _, c := range []struct {
		why    string
		text   string // written for 20 series, each with a new name
		reason outcome.Reason
	}{
		{"too old", "x@10=1", outcome.TooOld},
		{"too old, with the zero at which counting began", "x@10=1/5", outcome.TooOld},
		{"too old, a histogram", "x@10=h1", outcome.TooOld},
		{"too old, twice in one series", "x@10=1 x@20=1", outcome.TooOld},
		{"too far ahead", "x@100000=1/99999", outcome.TooFarAhead},
		{"a histogram that contradicts itself", "x@7200=h1!", outcome.BadHistogram},
		{"a histogram that contradicts itself, with a zero", "x@7200=h1!/7190", outcome.BadHistogram},
	} {
		for _, window := range []time.Duration{0, DefaultConfig().OutOfOrder} {
			for _, first := range []bool{false, true} { // whether the head is empty before the write
				w := newWorld(t)
				w.close()
				w.cfg.OutOfOrder = window
				w.open()
				w.now = time.UnixMilli(base).Add(2 * time.Hour)
				text := "kept@7200=1 "
				if !first {
					w.writeRaw(&plain, text)
					text = ""
				}
				for i := range 20 {
					text += " " + strings.ReplaceAll(c.text, "x", fmt.Sprint("x", i))
				}
				r := requestOf(t, true, &plain, parseRaw(t, text))
				r.MaxSeries = 10
				if err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
					t.Fatal(err)
				}
				if n := r.Outcome.AllRefused().Total(); n < 20 || r.Outcome.Refused[c.reason].Total() != n {
					t.Errorf("%s, window %v, empty head %v: want 20 or more refused, all for one reason, got %s",
						c.why, window, first, r.Outcome.Text())
				}
				r = requestOf(t, true, &plain, parseRaw(t, "a@7200=1 b@7200=1"))
				r.MaxSeries = 3
				if err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
					t.Fatal(err)
				}
				if got := w.raw(); r.Outcome.AnyRefused() || len(got) != 3 {
					t.Errorf("%s, window %v, empty head %v: %d series, want 3; the last outcome: %s",
						c.why, window, first, len(got), r.Outcome.Text())
				}
			}
		}
	}
}

// Whether a sample is too old depends on the tenant's newest sample. tsdb never refuses a sample
// that we accept, whatever state its head is in.
func TestTooOldDependsOnTheNewestSample(t *testing.T) {
	const hour = 3600
	compact := func(w *world, end int64) {
		st, _ := w.stores.forWrite("default", Raw)
		if err := st.db.CompactHead(tsdb.NewRangeHead(st.db.Head(), 0, end)); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, c := range []struct {
		state string
		reach func(w *world) // brings w into the state; no sample is newer than 10 h
	}{
		{"one sample", func(w *world) { w.writeRaw(&plain, "a@36000=1") }},
		{"one, and a restart", func(w *world) {
			w.writeRaw(&plain, "a@36000=1")
			w.close()
			w.open()
		}},
		{"a block and a head", func(w *world) {
			for second := 0; second <= 10*hour; second += hour / 4 {
				w.writeRaw(&plain, fmt.Sprintf("a@%d=1", second))
			}
			compact(w, base+1000*(9*hour+hour/2)-1)
		}},
		{"a block and a head without a sample", func(w *world) {
			w.writeRaw(&plain, "a@0=1 a@36000=1")
			compact(w, base+1000*10*hour)
			w.close()
			if err := os.RemoveAll(filepath.Join(w.dir, "tsdb", "default", Raw, "wal")); err != nil {
				w.t.Fatal(err)
			}
			w.open()
		}},
	} {
		for _, window := range []time.Duration{0, time.Minute, 30 * time.Minute, 3 * time.Hour} {
			w := newWorld(t)
			w.close()
			w.cfg.OutOfOrder = window
			w.open()
			c.reach(w)
			if newest := base + 1000*10*int64(hour); w.state.Newest != newest {
				t.Fatalf("%s: the newest sample is at %d, want %d", c.state, w.state.Newest, newest)
			}
			db := w.rawDatabase()
			refused, taken := 0, 0
			for second := 6 * hour; second <= 10*hour; second += hour / 4 {
				for _, by := range []int64{-60_000, -1, 0} { // ms; the bounds are at quarters of an hour, or a minute before them
					for _, series := range []string{"new", "a"} {
						if series == "new" {
							series = fmt.Sprintf("new%d%d", second, -by)
						}
						sample := parseRaw(t, fmt.Sprintf("%s@%d=77", series, second))
						sample[0].t += by
						oldest := w.state.Newest - window.Milliseconds()
						if series != "a" { // a new series: its sample is the newest of the series
							oldest = min(oldest, w.state.Newest-hour*1000)
						}
						before := db.Head().NumSeries()
						r := requestOf(t, true, &plain, sample)
						r.Window = window
						if err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
							t.Fatal(err)
						}
						if r.Outcome.Refused[outcome.Duplicate].Samples == 1 { // series a already has a sample at this time
							continue
						}
						if old := sample[0].t < oldest; r.Outcome.Refused[outcome.TooOld].Samples == 1 != old ||
							r.Outcome.Written.Samples == 1 == old {
							t.Errorf("%s, window %v, series %s at %d s and %d ms: want too old %t, got the answer %q",
								c.state, window, series, second, by, old, r.Outcome.Text())
						}
						if made := db.Head().NumSeries() - before; series != "a" && made != uint64(r.Outcome.Written.Samples) {
							t.Errorf("%s, window %v, %d s and %d ms: %d series were made for %d samples", c.state, window, second, by, made,
								r.Outcome.Written.Samples)
						}
						refused += r.Outcome.Refused[outcome.TooOld].Samples
						taken += r.Outcome.Written.Samples
					}
				}
			}
			if refused == 0 || taken == 0 {
				t.Errorf("%s, window %v: %d refused, %d taken, so the test covers only one case", c.state, window, refused, taken)
			}
		}
	}
}

// A write that failed before its commit must leave no traces. Otherwise the same samples, when they
// come again, would count as repeats.
func TestAFailedWriteIsForgotten(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@10=1 a@30=3")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	r := requestOf(t, true, &plain, parseRaw(t, "b@40=4 a@20=2"))
	if err := w.stores.WriteRequests(canceled, "default", &w.state, []*write.Request{r}); err == nil {
		t.Fatal("the look-up at 20 s was not canceled, so this test shows nothing")
	}
	if r.Outcome.Written.Total() != 0 {
		t.Errorf("a write that failed stored %+v", r.Outcome)
	}
	w.writeRaw(&plain, "b@40=4 a@20=2")
	if got := w.raw(); got["a"] != "10=1 20=2 30=3" || got["b"] != "40=4" {
		t.Error(got)
	}
}

func TestRawExemplars(t *testing.T) {
	w := newWorld(t)
	symbols := writev2.NewSymbolTable()
	refs := []uint32{symbols.Symbolize("__name__"), symbols.Symbolize("a")}
	trace := []uint32{symbols.Symbolize("trace_id"), symbols.Symbolize("x")}
	long := []uint32{symbols.Symbolize("trace_id"), symbols.Symbolize(strings.Repeat("x", 200))}
	m := writev2.Request{Timeseries: []writev2.TimeSeries{{LabelsRefs: refs,
		Samples: []writev2.Sample{{Timestamp: base, Value: 1}},
		Exemplars: []writev2.Exemplar{
			{LabelsRefs: trace, Value: 1, Timestamp: base},
			{LabelsRefs: trace, Value: 1, Timestamp: base},
			{LabelsRefs: trace, Value: 1},
			{LabelsRefs: long, Value: 1, Timestamp: base + 1},
		}}}, Symbols: symbols.Symbols()}
	body, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a repeat is also a success
		r := newRequest(&plain)
		if err := r.DecodeV2(body); err != nil {
			t.Fatal(err)
		}
		if err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
			t.Fatal(err)
		}
		if r.Outcome.Written != (outcome.Counts{Samples: 1, Exemplars: 2}) ||
			r.Outcome.Refused[outcome.BadExemplar].Exemplars != 2 {
			t.Errorf("%+v", r.Outcome)
		}
	}
	q, err := w.stores.ExemplarQuerier(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	got, err := q.Select(base-1, base+1, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", "a")})
	if err != nil || len(got) != 1 || len(got[0].Exemplars) != 1 || got[0].Exemplars[0].Labels.Get("trace_id") != "x" {
		t.Errorf("got the exemplars %v, want one with trace_id x; error %v", got, err)
	}
}

// Exemplars were once stored with any labels, so the JSON of queries could have a duplicate key or
// invalid text. Refusing an exemplar does not affect its sample.
func TestLabelsOfExemplars(t *testing.T) {
	for _, c := range []struct {
		why    string
		labels []string
		want   string // the kept exemplar
		cause  string // the cause of the refusal
	}{
		{"no labels are valid", nil, `{}`, ""},
		{"unsorted labels are valid", []string{"b", "ä", "a", "1"}, `{a="1", b="ä"}`, ""},
		{"a label without a value does not count", []string{"a", "", "b", "1", "b", ""}, `{b="1"}`, ""},
		{"a name twice", []string{"b", "1", "a", "2", "b", "3"}, "", "the label b of the exemplar occurs twice"},
		{"a name and a value twice", []string{"b", "1", "b", "1"}, "", "the label b of the exemplar occurs twice"},
		{"no name", []string{"a", "1", "", "2"}, "", "label 2 of the exemplar has no name"},
		{"a name that is not UTF-8", []string{"a\xff", "1"}, "", `the label name "a\xff" of the exemplar is not UTF-8`},
		{"a value that is not UTF-8", []string{"a", "\xff"}, "", `the value "\xff" of the exemplar's label a is not UTF-8`},
	} {
		for _, v2 := range []bool{false, true} {
			symbols := writev2.NewSymbolTable()
			name := []uint32{symbols.Symbolize("__name__"), symbols.Symbolize("a")}
			var pairs []prompb.Label
			var refs []uint32
			for i := 0; i < len(c.labels); i += 2 {
				pairs = append(pairs, prompb.Label{Name: c.labels[i], Value: c.labels[i+1]})
				refs = append(refs, symbols.Symbolize(c.labels[i]), symbols.Symbolize(c.labels[i+1]))
			}
			one := prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{Labels: []prompb.Label{{Name: "__name__", Value: "a"}},
				Samples:   []prompb.Sample{{Timestamp: base, Value: 1}},
				Exemplars: []prompb.Exemplar{{Labels: pairs, Timestamp: base}}}}}
			two := writev2.Request{Timeseries: []writev2.TimeSeries{{LabelsRefs: name,
				Samples:   []writev2.Sample{{Timestamp: base, Value: 1}},
				Exemplars: []writev2.Exemplar{{LabelsRefs: refs, Timestamp: base}}}},
				Symbols: symbols.Symbols()}
			r := newRequest(&plain)
			body, err := one.Marshal()
			decode := r.DecodeV1
			if v2 {
				body, err = two.Marshal()
				decode = r.DecodeV2
			}
			if err == nil {
				err = decode(body)
			}
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t)
			if err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
				t.Fatal(err)
			}
			q, err := w.stores.ExemplarQuerier(t.Context(), "default")
			if err != nil {
				t.Fatal(err)
			}
			results, err := q.Select(base-1, base+1,
				[]*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", "a")})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, result := range results {
				got += result.Exemplars[0].Labels.String()
			}
			refused := r.Outcome.Refused[outcome.BadExemplar].Exemplars == 1
			if got != c.want || r.Outcome.Written.Samples != 1 || refused != (c.cause != "") ||
				!strings.HasSuffix(r.Outcome.Text(), c.cause) {
				t.Errorf("%s, version 2 %v: kept %q, want %q; written %+v; %s",
					c.why, v2, got, c.want, r.Outcome.Written, r.Outcome.Text())
			}
		}
	}
}

// If the disk does not accept the WAL, the write returns an error and writes nothing. The same request
// succeeds once the disk accepts the WAL again.
func TestRawAfterAFailedCommit(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@10=1")
	st, _ := w.stores.forWrite("default", Raw)
	st.damaged.Store(true) // as after a failed commit
	w.writeRaw(&plain, "a@20=2 a@10=1 b@20=1")
	if got := w.raw(); got["a"] != "10=1 20=2" || got["b"] != "20=1" {
		t.Errorf("%v", got)
	}
	if _, err := os.Stat(st.dir); err != nil {
		t.Error(err)
	}
}

// The series of a commit that failed do not count as recent: they would take the places of others. When
// the same request is sent again, there is room for all of its series.
func TestAFailedCommitTakesNoPlaces(t *testing.T) {
	if !alone(t) {
		return
	}
	const series = 5000
	w := newWorld(t)
	w.writeRaw(&plain, "a@10=1")
	text := "a@20=1"
	for i := range series {
		text += fmt.Sprintf(" series_with_a_long_name_%d@20=%d", i, i)
	}
	r := requestOf(t, true, &plain, parseRaw(t, text))
	r.MaxSeries, r.Arrival = 1+series, r.Arrival+recentseries.Epoch // the request begins an epoch, too
	before := w.state.Append(nil)
	unlimited := limitFiles(t)
	err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r})
	unlimited()
	if err == nil || !strings.Contains(err.Error(), "file too large") {
		t.Fatalf("the commit did not reach the file size limit: %v", err)
	}
	if got := w.state.Append(nil); !bytes.Equal(got, before) {
		t.Errorf("%d series count as recent after a failed commit, want 1", w.state.Recent.Len())
	}
	if err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
		t.Fatal(err)
	}
	if r.Outcome.AnyRefused() || w.state.Recent.Len() != 1+series {
		t.Errorf("%d series count as recent, want %d; the outcome is %s", w.state.Recent.Len(), 1+series, r.Outcome.Text())
	}
}

// headOf returns the part of the head that a compaction writes: all but the newest hour.
func headOf(db *database) *tsdb.RangeHead {
	head := db.Head()
	return tsdb.NewRangeHead(head, head.MinTime(), head.MaxTime()-time.Hour.Milliseconds())
}

// A backlog comes in the order of time, beside the present samples of its series. The store is read once for many of
// its samples, and not once for each.
func TestABacklogSeldomReadsTheStore(t *testing.T) {
	w := newWorld(t)
	w.now = time.UnixMilli(base).Add(time.Hour)
	terms := plain
	send := func(second int) {
		t.Helper()
		if o := w.writeRaw(&terms, fmt.Sprintf("a@%d=1 b@%d=1", second, second)); o[0].Written.Samples != 2 {
			t.Fatalf("second %d: %s", second, o[0].Text())
		}
	}
	const n = 4 * pastSamples
	for i := range n {
		send(10 * i)
	}
	before := 0
	reads := func() int {
		all := int(testutil.ToFloat64(w.stores.metrics.lateReads.WithLabelValues(Raw)))
		defer func() { before = all }()
		return all - before
	}
	for i := range n {
		send(10*i + 5)
		send(10 * (n + i))
	}
	if got, most := reads(), 2*(n/pastSamples+2); got > most || got == 0 {
		t.Errorf("the store was read %d times for %d samples between others, want 1 to %d", got, 2*n, most)
	}
	for i := range n {
		send(10*i + 5)
	}
	if got, most := reads(), 2*(2*n/pastSamples+2); got > most || got == 0 {
		t.Errorf("the store was read %d times for %d repeats, want 1 to %d", got, 2*n, most)
	}
	for i := n; i < 2*n; i++ {
		send(10*(n+i) + 10)
		send(10*(n+i) + 3)
	}
	if got := reads(); got > 2 {
		t.Errorf("the store was read %d times for %d samples of 2 series that are a little late, want at most 2", got, 2*n)
	}
	for i := range 2 * pastSamples { // what is not remembered any more is in the store
		if o := w.writeRaw(&terms, fmt.Sprintf("a@%d=2", 10*(3*n-1-i)+3)); o[0].Refused[outcome.Duplicate].Samples != 1 {
			t.Fatalf("another value at the time of the late sample before %d others is not refused: %s", i, o[0].Text())
		}
	}
	w.now = w.now.Add(time.Hour)
	r := requestOf(t, true, &terms, parseRaw(t, "a@5000=1"))
	r.Arrival += 2 * pastIdle
	if err := w.stores.WriteRequests(t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
		t.Fatal(err)
	}
	st, _ := w.stores.forWrite("default", Raw)
	if st.db.raw.pasts.pages != nil {
		t.Error("the memory for late samples is still there long after the last of them")
	}
}

// A backlog in no order may push a sample that waits for the commit out of what is remembered. Another value at
// its time is a conflict all the same, and the first value stays.
func TestALateSampleThatIsForgottenWhileItWaits(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@3700=1")
	text := ""
	for i := range pastSamples {
		text += fmt.Sprintf(" a@%d=%d", 2000+100*i, i)
	}
	for i := range 40 { // more than an out-of-order chunk of tsdb
		text += fmt.Sprintf(" a@%d=1", 2099-i)
	}
	o := w.writeRaw(&plain, (text + " a@3500=77")[1:])
	if got := o[0].Refused[outcome.Duplicate].Samples; got != 1 {
		t.Errorf("%d conflicts, want 1", got)
	}
	if got := w.raw()["a"]; !strings.Contains(got, " 3500=15 ") {
		t.Errorf("stored: %s\nwant 3500=15", got)
	}
}

// Two series may have the same place, which then belongs to the later one.
func TestSeriesTakeEachOthersPlaces(t *testing.T) {
	var spare atomic.Int64
	spare.Store(1)
	pasts := rawPasts{spare: &spare}
	var first, second seriescache.Series
	pasts.place(1, &first).to = 10
	if p := pasts.of(1, &first); !p.covers(10) {
		t.Error("nothing is remembered of the first series")
	}
	if p := pasts.of(1+pastPage*pastPages, &second); p.covers(10) {
		t.Error("what is remembered of one series is taken for another one's")
	}
	pasts.place(1+pastPage*pastPages, &second)
	if p := pasts.of(1, &first); p.covers(10) {
		t.Error("what is remembered of one series is taken for another one's, which was there before")
	}
}

// All stores share one bound. A late sample of a series without a place reads the store, and has the same fate. A store
// that closes gives its share back.
func TestLateSamplesWithoutAPlace(t *testing.T) {
	w := newWorld(t)
	w.stores.sparePages.Store(0)
	unplaced := w.stores.metrics.unplaced.WithLabelValues(Raw)
	w.writeRaw(&plain, "a@100=1", "a@10=1", "a@20=2")
	if o := w.writeRaw(&plain, "a@10=5"); o[0].Refused[outcome.Duplicate].Samples != 1 {
		t.Errorf("another value for a late sample: %s", o[0].Text())
	}
	if got := testutil.ToFloat64(unplaced); got != 3 {
		t.Errorf("%v late samples had no place, want 3", got)
	}
	w.stores.sparePages.Store(1)
	w.writeRaw(&plain, "a@30=1")
	if spare := w.stores.sparePages.Load(); spare != 0 {
		t.Errorf("%d pages are spare, want 0", spare)
	}
	w.passes(2*w.cfg.Idle, 0, "nobody uses the store")
	if spare := w.stores.sparePages.Load(); spare != 1 {
		t.Errorf("the store is closed, and %d pages are spare, want 1", spare)
	}
	if got := w.raw()["a"]; got != "10=1 20=2 30=1 100=1" {
		t.Errorf("stored: %s", got)
	}
}

// The head drops a series without new samples. It may do so between two samples of a commit, before
// the cache hears of it. When the series comes back, it must have its own labels.
func TestASeriesThatTheHeadLetGo(t *testing.T) {
	for _, heard := range []bool{false, true} {
		w := newWorld(t)
		w.writeRaw(&plain, "a@0=1 b@0=1 c@0=1")
		w.writeRaw(&plain, "b@10000=2")
		st, _ := w.stores.forWrite("default", Raw)
		if err := st.db.CompactHead(headOf(st.db)); err != nil {
			t.Fatal(err)
		}
		if len(st.db.raw.deleted) != 2 {
			t.Fatalf("the head dropped %d series, too few for the test", len(st.db.raw.deleted))
		}
		dropped := st.db.raw.deleted
		if !heard {
			st.db.raw.deleted = nil
		}
		w.writeRaw(&plain, "b@10010=3 a@10010=3")
		w.writeRaw(&plain, "b@10020=4 a@10020=4 a@0=1 a@0=7")
		if got := w.raw(); got["a"] != "0=1 10010=3 10020=4" || got["b"] != "0=1 10000=2 10010=3 10020=4" {
			t.Errorf("heard: %v: %v", heard, got)
		}
		w.writeRaw(&plain, "a@10030=5")
		if n := w.resolved(); n != 5 { // once for each series, once when series a returned, and once for its repeat
			t.Errorf("deletion heard %v: labels were resolved %d times, want 5", heard, n)
		}
		for _, ref := range dropped {
			if heard && st.db.raw.lookup.cache.ByRef(ref) != 0 {
				t.Errorf("the cache has the reference %d, and the head does not", ref)
			}
		}
	}
}

// The first databases get many stripes, since they may grow. Later ones get few, unless their log is large or another
// one closes.
func TestStripesAreForTheFirstAndTheLarge(t *testing.T) {
	w := newWorld(t)
	open := func(tenant string) *store {
		t.Helper()
		st, err := w.stores.forWrite(tenant, Raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		st.release()
		return st
	}
	closes := func(st *store) {
		t.Helper()
		st.mu.Lock()
		defer st.mu.Unlock()
		if err := st.shut(); err != nil {
			t.Fatal(err)
		}
	}
	var first *store
	for i := range mostWide {
		if first = open(fmt.Sprint("first", i)); !first.isWide {
			t.Fatalf("database %d has few stripes", i)
		}
	}
	late := open("late")
	if late.isWide {
		t.Error("a small database has many stripes, although enough others have them")
	}
	closes(late)
	log := filepath.Join(late.dir, "wal", "00000009")
	if err := os.WriteFile(log, make([]byte, largeWAL+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if !late.takeStripes() {
		t.Error("a database with a large log gets few stripes")
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	late.wide.Add(-1)
	closes(first)
	if open("late"); !late.isWide {
		t.Error("a database gets few stripes, although another one was closed")
	}
	closes(late)
	if n := w.stores.wide.Load(); n != mostWide-1 {
		t.Errorf("%d databases are counted, want %d", n, mostWide-1)
	}
}

// pushExemplar pushes a sample of a series with an exemplar.
func (w *world) pushExemplar(name, trace string, t int64) {
	w.t.Helper()
	symbols := writev2.NewSymbolTable()
	m := writev2.Request{Timeseries: []writev2.TimeSeries{{
		LabelsRefs: []uint32{symbols.Symbolize("__name__"), symbols.Symbolize(name)},
		Samples:    []writev2.Sample{{Timestamp: t, Value: 1}},
		Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{symbols.Symbolize("trace_id"), symbols.Symbolize(trace)},
			Value: 1, Timestamp: t}},
	}}}
	m.Symbols = symbols.Symbols()
	body, err := m.Marshal()
	if err != nil {
		w.t.Fatal(err)
	}
	r := newRequest(&plain)
	if err := r.DecodeV2(body); err != nil {
		w.t.Fatal(err)
	}
	if err := w.stores.WriteRequests(w.t.Context(), "default", &w.state, []*write.Request{r}); err != nil {
		w.t.Fatal(err)
	}
}

// Only open stores have series in memory: counting them opens no store.
func TestSeriesInMemory(t *testing.T) {
	w := newWorld(t)
	for tenant, text := range map[string]string{"a": "x@10=1 y@10=1", "b": "x@10=1"} {
		if err := w.stores.WriteRequests(t.Context(), tenant, new(write.State),
			[]*write.Request{requestOf(t, true, &plain, parseRaw(t, text))}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := w.stores.InMemory(Raw), map[string]int{"a": 2, "b": 1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	w.close()
	w.open()
	if got, want := w.stores.InMemory(Raw), map[string]int{"a": 0, "b": 0}; !maps.Equal(got, want) {
		t.Errorf("series in memory of closed stores: %v, want %v", got, want)
	}
	if _, err := w.stores.Stats("a", Raw, "__name__", 1); err != nil { // opens the store
		t.Fatal(err)
	}
	if got, want := w.stores.InMemory(Raw), map[string]int{"a": 2, "b": 0}; !maps.Equal(got, want) {
		t.Errorf("in memory after one store was read: %v, want %v", got, want)
	}
}
