package terminal

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// TestMain sets the time zone in which the output is written.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

// golden compares got with testdata/golden/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s\ngot\n%s\nwant\n%s", file, got, want)
	}
}

// recorded reads an answer of Prometheus' own API.
func recorded(tb testing.TB, name string) (kind string, result []byte) {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "answers", name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	var a struct {
		Data struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &a); err != nil {
		tb.Fatal(err)
	}
	return a.Data.ResultType, a.Data.Result
}

// Each golden file holds the text that a person sees: the output, then the notes.
func TestShow(t *testing.T) {
	for _, tt := range []struct{ name, why string }{
		{"columns", "if all series have the same label names, each label has a column"},
		{"sum", "a series without labels is its value"},
		{"mixed", "if label names differ, each series is one cell"},
		{"odd", "a label cannot break the table, and cannot control the terminal"},
		{"none", "notes say that there is nothing, and the output stays empty"},
		{"scalar", "a number alone"},
		{"string", "a text alone"},
		{"selector", "the stored samples, with their times"},
		{"histogram", "bars, with bounds that are open or closed as they were sent"},
		{"negative", "buckets on both sides of zero"},
		{"fine", "many buckets share rows"},
		{"histograms", "a line for each histogram of a range selector"},
		{"range-one", "one series is a line"},
		{"range-many", "without colour, letters distinguish the series"},
		{"range-gap", "a gap stays a gap"},
		{"range-flat", "a constant has an axis of one label"},
		{"range-tiny", "values below the axis' usual digits, of both signs"},
		{"range-vast", "values whose difference no float can hold"},
		{"range-parts", "too many series to distinguish: only the highest are drawn"},
		{"range-histograms", "the last native histogram, and how to draw one"},
		{"range-none", "no series in the range"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, notes bytes.Buffer
			v := New(&out, &notes)
			v.At = time.Unix(3600, 0)
			if strings.HasPrefix(tt.name, "range-") {
				v.Length, v.Step = time.Hour, time.Minute
			}
			if err := v.Show(recorded(t, tt.name)); err != nil {
				t.Fatal(err)
			}
			golden(t, tt.name+".txt", "# "+tt.why+"\n"+out.String()+"---- notes\n"+notes.String())
		})
	}
}

// On a terminal colours distinguish the series, and the plot fills the width of the
// terminal.
func TestShowOnATerminal(t *testing.T) {
	var out bytes.Buffer
	v := View{
		Out: &out, Notes: io.Discard, Columns: 60, Colour: true,
		At: time.Unix(3600, 0), Length: time.Hour, Step: time.Minute,
	}
	if err := v.Show(recorded(t, "range-many")); err != nil {
		t.Fatal(err)
	}
	golden(t, "terminal.txt", strings.ReplaceAll(out.String(), "\x1b", "ESC"))
}

// The quantiles beside the bars equal the quantiles that PromQL computes.
func TestQuantile(t *testing.T) {
	for _, tt := range []struct {
		answer string
		q      float64
		promql string // the recorded answer of histogram_quantile
	}{{"fine", 0.5, "p50"}, {"fine", 0.99, "p99"}, {"negative", 0.5, "balance50"}} {
		histogram, number := vector(t, tt.answer)[0].Histogram, float64(vector(t, tt.promql)[0].Value)
		if got := quantile(tt.q, histogram); math.Abs(got-number) > 1e-9*math.Abs(number) {
			t.Errorf("quantile %g of %s: got %g, want %g as in PromQL", tt.q, tt.answer, got, number)
		}
	}
}

// Classic buckets may have an infinite bound. An estimate must never be infinite if the other bound
// is finite.
func TestQuantileOfInfiniteBuckets(t *testing.T) {
	inf := model.FloatString(math.Inf(1))
	h := &model.SampleHistogram{Count: 30, Buckets: model.HistogramBuckets{
		{Lower: -inf, Upper: 1, Count: 10}, {Lower: 1, Upper: 4, Count: 10}, {Lower: 4, Upper: inf, Count: 10},
	}}
	for _, tt := range []struct{ q, want float64 }{{0, 0}, {1. / 6, 0.5}, {0.5, 2}, {0.99, 4}} {
		if got := quantile(tt.q, h); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%g: got %g, want %g", tt.q, got, tt.want)
		}
	}
	if got := quantile(0.5, &model.SampleHistogram{Count: 3}); !math.IsNaN(got) {
		t.Errorf("without buckets: got %g, want NaN", got)
	}
}

func TestAxisLabel(t *testing.T) {
	for _, tt := range []struct {
		v, largest, gap float64
		want            string
	}{
		{0, 0, 0, "0"},
		{42, 42, 0, "42"},
		{0.25, 1, 0.1, "0.2"},
		{5, 100, 8, "5"},
		{9999, 9999, 700, "9999"},
		{12000, 50000, 4000, "12k"},
		{1000001, 1000012, 1, "1000.001k"},
		{25e6, 250e6, 20e6, "25M"},
		{-3e12, 3e13, 2e12, "-3T"},
		{1.7e308, 1.7e308, 1e307, "1.7e+308"},
		{-1e-5, 1e-5, 1e-6, "-1e-05"},
	} {
		if got := axisLabel(tt.v, tt.largest, tt.gap); got != tt.want {
			t.Errorf("label of %g on an axis up to %g with gaps of %g: got %s, want %s", tt.v, tt.largest, tt.gap, got, tt.want)
		}
	}
}

// vector reads a recorded answer that is a vector.
func vector(t *testing.T, name string) (v model.Vector) {
	t.Helper()
	_, result := recorded(t, name)
	if err := json.Unmarshal(result, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// For any answer of a server, Show ends: it prints the result or returns an error.
func FuzzShow(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "answers", "*.json"))
	if err != nil || len(files) == 0 {
		f.Fatal("no recorded answers: ", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		kind, result := recorded(f, name)
		f.Add(kind, result, strings.HasPrefix(name, "range-"))
	}
	f.Fuzz(func(t *testing.T, kind string, result []byte, plot bool) {
		v := View{Out: io.Discard, Notes: io.Discard, Columns: 80, At: time.Unix(3600, 0), Step: time.Minute}
		if plot {
			v.Length = time.Hour
		}
		_ = v.Show(kind, result)
	})
}

func TestSparkline(t *testing.T) {
	for _, c := range []struct {
		why    string
		values []float64
		want   string
	}{
		{"the highest value has the whole height, and 0 is seen", []float64{0, 1, 7, 14}, "▁▂▅█"},
		{"an unknown value is no 0", []float64{2, math.NaN(), 2}, "█·█"},
		{"nothing is 0 everywhere", []float64{0, 0}, "▁▁"},
		{"nothing is below 0", []float64{-5, 5}, "▁█"},
	} {
		if got := Sparkline(c.values); got != c.want {
			t.Errorf("%s: %s, want %s", c.why, got, c.want)
		}
	}
}
