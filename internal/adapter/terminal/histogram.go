package terminal

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
)

const (
	barRows    = 20 // maximum number of rows; if there are more buckets, neighbours are joined
	barColumns = 40
)

// writeHistogram draws the buckets of h as bars.
func writeHistogram(w io.Writer, series model.Metric, h *model.SampleHistogram) error {
	if _, err := fmt.Fprintf(w, "%s\n%s\n", series, summary(h)); err != nil {
		return err
	}
	bars := barsOf(h.Buckets)
	largest, wide, long := 0.0, 0, 0
	for _, b := range bars {
		largest, wide, long = max(largest, b.count), max(wide, len(b.bounds())), max(long, len(brief(b.count)))
	}
	for _, b := range bars {
		if _, err := fmt.Fprintf(w, "  %*s  %*s  %s\n", wide, b.bounds(), long, brief(b.count),
			block(b.count/largest)); err != nil {
			return err
		}
	}
	return nil
}

// summary describes a histogram in one line.
func summary(h *model.SampleHistogram) string {
	text := "count " + brief(float64(h.Count)) + "  sum " + brief(float64(h.Sum))
	if h.Count > 0 {
		text += "  mean " + brief(float64(h.Sum/h.Count))
		for _, q := range []float64{0.5, 0.9, 0.99} {
			text += fmt.Sprintf("  p%g %s", q*100, brief(quantile(q, h)))
		}
	}
	return text
}

// quantile returns an estimate, like histogram_quantile for exponential buckets: it interpolates on a
// logarithmic scale within a bucket, and on a linear scale in the bucket around zero. PromQL
// interpolates custom buckets on a linear scale, but an answer does not show whether its buckets are
// custom. For the upper half, quantile counts observations from the highest bucket down, as PromQL does.
// The direction matters if the rank lies in a gap between buckets.
func quantile(q float64, h *model.SampleHistogram) float64 {
	rank, seen, fromTop := q*float64(h.Count), 0.0, q >= 0.5
	if fromTop {
		rank = (1 - q) * float64(h.Count)
	}
	for i := range h.Buckets {
		if fromTop {
			i = len(h.Buckets) - 1 - i
		}
		count := float64(h.Buckets[i].Count)
		seen += count
		if seen < rank || count <= 0 {
			continue
		}
		fraction := (rank - (seen - count)) / count
		if fromTop {
			fraction = 1 - fraction
		}
		return within(h.Buckets[i], fraction, i == 0)
	}
	return math.NaN() // the rank is among observations of NaN, which no bucket counts
}

// within returns a quantile of one bucket: the given fraction of the bucket's values lies at or below
// the result.
func within(b *model.HistogramBucket, fraction float64, lowest bool) float64 {
	lower, upper := float64(b.Lower), float64(b.Upper)
	switch {
	case math.IsInf(lower, -1) && upper <= 0:
		return upper
	case math.IsInf(upper, 1):
		return lower
	case lower < 0 && upper > 0 && lowest:
		lower = 0 // the bucket around zero of a histogram without negative values
	}
	switch {
	case lower > 0:
		return lower * math.Pow(upper/lower, fraction)
	case upper < 0:
		return upper * math.Pow(lower/upper, 1-fraction)
	}
	return lower + (upper-lower)*fraction
}

// bar is one bucket, or several neighbours in one row.
type bar struct {
	lower, upper             float64
	closedBelow, closedAbove bool
	count                    float64
}

// barsOf joins neighbouring buckets until all bars fit on a screen.
func barsOf(buckets model.HistogramBuckets) []bar {
	together := (len(buckets) + barRows - 1) / barRows
	var bars []bar
	for i, b := range buckets {
		// Boundaries in the API: 0 is open below, 1 open above, 2 open on both sides, 3 closed on both
		// sides.
		closedBelow, closedAbove := b.Boundaries == 1 || b.Boundaries == 3, b.Boundaries == 0 || b.Boundaries == 3
		if i%together == 0 {
			bars = append(bars, bar{lower: float64(b.Lower), closedBelow: closedBelow})
		}
		last := &bars[len(bars)-1]
		last.upper, last.closedAbove = float64(b.Upper), closedAbove
		last.count += float64(b.Count)
	}
	return bars
}

func (b bar) bounds() string {
	opening, closing := "(", ")"
	if b.closedBelow {
		opening = "["
	}
	if b.closedAbove {
		closing = "]"
	}
	return opening + brief(b.lower) + ", " + brief(b.upper) + closing
}

// block draws a share, from 0 to 1, exact to an eighth of a column.
func block(share float64) string {
	eighths := int(math.Round(share * barColumns * 8))
	if eighths <= 0 {
		return ""
	}
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text
}

// brief writes v with four digits, enough for a bar.
func brief(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e9 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
