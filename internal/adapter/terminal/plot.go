package terminal

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"
	"github.com/prometheus/common/model"
)

const (
	plotRows   = 12
	plotSeries = 8 // people cannot distinguish more colours
)

// plotColumns returns the columns of a terminal that remain beside the y axis.
func plotColumns(terminal int) int { return max(terminal-14, 20) }

// PlotStep returns the step at which each column of the plot has a point. The step is in whole
// seconds, because no series has more than one sample per second.
func (v View) PlotStep() time.Duration {
	return time.Duration(math.Ceil(v.Length.Seconds()/float64(plotColumns(v.Columns)-1))) * time.Second
}

// Series differ by colour on a terminal, by letter elsewhere.
var (
	plotColours = [plotSeries]asciigraph.AnsiColor{
		asciigraph.Blue, asciigraph.Green, asciigraph.Red, asciigraph.Yellow,
		asciigraph.Magenta, asciigraph.Cyan, asciigraph.Orange, asciigraph.Gray,
	}
	plotLetters = [plotSeries]string{"a", "b", "c", "d", "e", "f", "g", "h"}
)

// curve is a series on the columns of the plot. If a column has several points, the curve keeps the
// highest, so that no peak is lost.
type curve struct {
	name           string
	points         []float64 // NaN where there is no finite value
	min, max, last float64   // over all values of the series
}

// draw plots the series in m whose samples are numbers. For a series of native histograms it shows only
// the last histogram.
func (v View) draw(m model.Matrix) error {
	start := v.Start()
	var curves []curve
	for _, s := range m {
		if c := v.curveOf(s, start); !math.IsNaN(c.last) {
			curves = append(curves, c)
		}
	}
	if len(curves) > plotSeries {
		fmt.Fprintf(v.Notes,
			"note: only the %d of %d series with the highest values are drawn; choose by topk, or sum by fewer labels\n",
			plotSeries, len(curves))
		slices.SortStableFunc(curves, func(a, b curve) int { return cmp.Compare(b.max, a.max) })
		curves = curves[:plotSeries]
	}
	if len(curves) > 0 {
		if err := v.plot(curves, start); err != nil {
			return err
		}
	}
	histograms := 0
	for _, s := range m {
		if n := len(s.Histograms); n > 0 {
			histograms++
			if err := writeHistogram(v.Out, s.Metric, s.Histograms[n-1].Histogram); err != nil {
				return err
			}
		}
	}
	if histograms > 0 {
		fmt.Fprintf(v.Notes,
			"note: only the last native histogram is shown; to draw a curve, query a number: histogram_quantile(0.99, ...)\n")
	} else if len(curves) == 0 {
		return v.nothing()
	}
	return nil
}

// curveOf puts the samples of s into columns.
func (v View) curveOf(s *model.SampleStream, start time.Time) curve {
	c := curve{name: s.Metric.String(), min: math.Inf(1), max: math.Inf(-1), last: math.NaN()}
	columns := min(plotColumns(v.Columns), int(v.Length/v.Step)+1)
	span := max(v.At.Sub(start), v.Step) // if there is only one point, any span will do
	c.points = slices.Repeat([]float64{math.NaN()}, columns)
	for _, point := range s.Values {
		y := float64(point.Value)
		i := int(math.Round(point.Timestamp.Time().Sub(start).Seconds() / span.Seconds() * float64(columns-1)))
		if i < 0 || i >= columns || math.IsNaN(y) || math.IsInf(y, 0) {
			continue
		}
		if !(c.points[i] > y) { // also replaces NaN
			c.points[i] = y
		}
		c.min, c.max, c.last = min(c.min, y), max(c.max, y), y
	}
	return c
}

// plot draws a legend and the curves. All curves share one pair of axes.
func (v View) plot(curves []curve, start time.Time) error {
	low, high := math.Inf(1), math.Inf(-1)
	for _, c := range curves {
		low, high = min(low, c.min), max(high, c.max)
	}
	// The library uses the values as they are, and fails for very large ones. So we pass
	// the library fractions of the axis, 0 to 1, and write the labels ourselves.
	span := high/2 - low/2 // halved, because the difference may exceed a float
	points := make([][]float64, len(curves))
	for i, c := range curves {
		points[i] = make([]float64, len(c.points))
		for j, y := range c.points {
			points[i][j] = (y/2 - low/2) / span
			if span == 0 && !math.IsNaN(y) {
				points[i][j] = 0
			}
		}
	}
	options := []asciigraph.Option{
		asciigraph.Height(plotRows),
		asciigraph.YAxisValueFormatter(func(share float64) string {
			return axisLabel(low*(1-share)+high*share, max(math.Abs(low), math.Abs(high)), 2*(span/plotRows))
		}),
		asciigraph.XAxisRange(float64(start.UnixMilli()), float64(v.At.UnixMilli())),
		asciigraph.XAxisTickCount(max(len(points[0])/14, 2)),
		asciigraph.XAxisValueFormatter(v.timeLabel),
	}
	switch {
	case v.Colour:
		options = append(options, asciigraph.SeriesColors(plotColours[:]...))
	case len(curves) > 1:
		var letters []asciigraph.CharSet
		for _, letter := range plotLetters {
			letters = append(letters, asciigraph.CreateCharSet(letter))
		}
		options = append(options, asciigraph.SeriesChars(letters...))
	}
	if _, err := fmt.Fprintf(v.Out, "%s\n\n", asciigraph.PlotMany(points, options...)); err != nil {
		return err
	}
	return v.legend(curves)
}

// axisLabel writes v for an axis whose labels are `gap` apart and at most `largest`.
func axisLabel(v, largest, gap float64) string {
	if math.Abs(v) < gap/1e6 {
		v = 0 // v differs from 0 only by a rounding error
	}
	if gap == 0 || largest >= 1e15 || largest < 1e-3 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	unit, suffix := 1.0, ""
	for _, u := range []struct {
		size   float64
		suffix string
	}{{1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}} {
		if largest >= 10*u.size {
			unit, suffix = u.size, u.suffix
		}
	}
	decimals := min(max(math.Ceil(-math.Log10(gap/unit)), 0), 9)
	return strconv.FormatFloat(v/unit, 'f', int(decimals), 64) + suffix
}

// timeLabel writes a time of the x axis, as exactly as the range needs.
func (v View) timeLabel(ms float64) string {
	layout := "01-02 15:04"
	switch {
	case v.Length <= 10*time.Minute:
		layout = "15:04:05"
	case v.Length <= 24*time.Hour:
		layout = "15:04"
	}
	return time.UnixMilli(int64(ms)).Format(layout)
}

// legend names the curves below the plot.
func (v View) legend(curves []curve) error {
	rows := [][]string{{"series", "min", "max", "last"}}
	for _, c := range curves {
		rows = append(rows, []string{c.name, brief(c.min), brief(c.max), brief(c.last)})
	}
	var table strings.Builder
	if err := WriteTable(&table, rows, 3); err != nil {
		return err
	}
	marks := []string{" "} // the header has no mark
	for i := range curves {
		switch {
		case v.Colour:
			marks = append(marks, plotColours[i].String()+"■"+asciigraph.Default.String())
		case len(curves) > 1:
			marks = append(marks, plotLetters[i])
		default:
			marks = append(marks, "─")
		}
	}
	i := 0
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintf(v.Out, "%s %s", marks[i], line); err != nil {
			return err
		}
		i++
	}
	return nil
}

// Sparkline draws values in one line, a column each, from 0 to the highest. NaN is a dot.
func Sparkline(values []float64) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	most := 0.0
	for _, v := range values {
		if v > most {
			most = v
		}
	}
	var b strings.Builder
	for _, v := range values {
		switch {
		case math.IsNaN(v):
			b.WriteRune('·')
		case most == 0:
			b.WriteRune(levels[0])
		default:
			b.WriteRune(levels[int(math.Round(max(v, 0)/most*float64(len(levels)-1)))])
		}
	}
	return b.String()
}
