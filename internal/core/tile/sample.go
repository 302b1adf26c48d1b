package tile

import (
	"math"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/series"
)

// Width is the length of a tile, as an index into widths. Each width has its own store.
type Width uint8

const (
	Width10s Width = iota
	Width1m
	NumWidths = 2
)

var widths = [NumWidths]struct {
	ms   int64
	name string
}{{10_000, "10s"}, {60_000, "1m"}}

// Millis returns the width in milliseconds.
func (w Width) Millis() int64 { return widths[w].ms }

// Duration returns the width as a time.Duration.
func (w Width) Duration() time.Duration { return time.Duration(widths[w].ms) * time.Millisecond }

// String returns the name of the width and its store: "10s" or "1m".
func (w Width) String() string { return widths[w].name }

// finest is the shortest width. Tiles close at its ends, and other widths are multiples of it.
const finest = Width10s

// tileMillis is finest.Millis() as a constant, since the compiler turns division by a constant
// into multiplication.
const tileMillis = 10_000

// noTime is a time that never comes, in Unix milliseconds.
const noTime = math.MaxInt64

func startOfMinute(ms int64) int64 { return ms - ms%Width1m.Millis() }

// MaxAhead is how many tiles may be open at once. A window further ahead joins the last open tile:
// a sender with a fast clock must not open tiles that would stay open for hours.
const MaxAhead = 6

// Series is a series as the stores know it. As long as a shard holds the series, the shard owns the
// Series.
//
// Stores identify a Series by its address (see adapter/tsdb), and never change it.
type Series struct {
	Labels labels.Labels
	Kind   series.Kind // 0 if a restart restored it from waiting samples alone
}

// Sample is a value of a series on its way to the store of one width. It has 56 bytes, 8 of them
// for Raw.
type Sample struct {
	Series *Series
	T      int64                     // Unix milliseconds
	V      float64                   // value.StaleNaN marks the end of a series
	H      *histogram.FloatHistogram // instead of V; never changed once handed out
	Raw    uint64                    // number of wire values; each counts in one finest-width sample
	Timed  bool                      // the sender chose T (DogStatsD's |T), so two samples with one T may differ

	Exemplar *batch.Exemplar // of the tile of the finest width, or nil; never changed once handed out
}

// Point is one value at one time.
type Point struct {
	T int64                     // Unix milliseconds
	V float64                   // if H is nil
	H *histogram.FloatHistogram // never changed once handed out
}

// Live has the points of a series that are not stored yet: one or a few, in order of time. The last
// point is at the end of the last complete window.
type Live struct {
	Labels labels.Labels
	Points []Point
}

// Held is a series that a shard holds.
type Held struct {
	Tenant string
	Key    string // series.AppendKey
	Source uint64

	LastSeen int64 // Unix ms, end of the last window with a sample
	Delta    bool  // its increments are the sender's own deltas, received by OTLP
}
