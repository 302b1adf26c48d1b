package report

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
)

// Plots returns the contents of the files with plots, by name.
func (r *Results) Plots() map[string]string {
	files := map[string]string{}
	for _, l := range r.Loads {
		files[l.ID+".svg"] = l.plot()
	}
	return files
}

// The dimensions of the picture, in pixels.
const (
	plotWidth  = 760
	plotTop    = 62  // room above the first bar for title and legend
	plotBottom = 34  // room below the last bar for the name of the axis
	plotLeft   = 236 // where the bars begin, to the right of their names
	plotGap    = 8   // distance between a bar and its value
	plotRight  = 150 // room for the text behind the longest bar: "12.34, lost under 0.01 %"
	rowHeight  = 26
	barHeight  = 14
)

// plotStyle is readable on light and dark pages. Grey bars are bare receivers, which show the
// kernel's cost. Blue bars are Freshet, and pale bars are other servers.
const plotStyle = `<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.t { font-weight: 600 }
.n { font-size: 12px; fill: #57606a }
.page { fill: #ffffff }
.bare { fill: #8c959f }
.ours { fill: #0969da }
.peer { fill: #d8b4a0 }
.grid { stroke: #d0d7de }
.spread { stroke: #24292f; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .n { fill: #9198a1 }
  .page { fill: #0d1117 }
  .bare { fill: #6e7681 }
  .ours { fill: #4493f8 }
  .peer { fill: #7d5a4a }
  .grid { stroke: #30363d }
  .spread { stroke: #e6edf3 }
}
</style>
`

var legend = []struct {
	group Group
	text  string
}{
	{Bare, "receives and counts, nothing else: the kernel's price"},
	{Ours, "Freshet"},
	{Peer, "other servers"},
}

// plot draws a bar for each receiver, in rising order of cost. A line across the end of a bar shows
// the spread of the runs.
func (l *Load) plot() string {
	costs := l.sorted()
	largest := 0.0
	for _, c := range costs {
		if len(c.Micros) > 0 {
			_, most := spread(c.Micros)
			largest = max(largest, most)
		}
	}
	step := gridStep(largest)
	x := func(v float64) float64 {
		return plotLeft + v/max(largest, step)*(plotWidth-plotLeft-plotRight)
	}
	bottom := plotTop + rowHeight*len(costs)
	height := bottom + plotBottom

	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img" aria-label="%s">`+"\n",
		plotWidth, height, plotWidth, escape(l.description()))
	b.WriteString(plotStyle)
	fmt.Fprintf(&b, `<rect class="page" width="%d" height="%d"/>`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<text class="t" x="16" y="24">%s</text>`+"\n", escape(l.Name))
	l.drawLegend(&b)
	for i := 0; float64(i)*step <= largest; i++ {
		at := x(float64(i) * step)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, at, plotTop-4, at, bottom)
		fmt.Fprintf(&b, `<text class="n" x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", at, bottom+15,
			strconv.FormatFloat(float64(i)*step, 'g', 3, 64))
	}
	fmt.Fprintf(&b, `<text class="n" x="%d" y="%d" text-anchor="end">microseconds of CPU a metric</text>`+"\n",
		plotLeft-24, bottom+15)
	for i, c := range costs {
		c.drawBar(&b, plotTop+rowHeight*i, x)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// drawBar draws a name, a bar, its spread and its value.
func (c Cost) drawBar(b *strings.Builder, top int, x func(float64) float64) {
	if len(c.Micros) == 0 {
		return
	}
	median := Median(c.Micros)
	least, most := spread(c.Micros)
	bar, text := top+(rowHeight-barHeight)/2, top+rowHeight/2+5
	style := ""
	if c.Group == Ours {
		style = ` class="t"`
	}
	fmt.Fprintf(b, `<text%s x="%d" y="%d" text-anchor="end">%s</text>`, style, plotLeft-10, text, escape(c.Name))
	fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`, c.Group, plotLeft, bar,
		max(1, x(median)-plotLeft), barHeight)
	if most > least {
		fmt.Fprintf(b, `<line class="spread" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, x(least), bar+barHeight/2, x(most),
			bar+barHeight/2)
	}
	fmt.Fprintf(b, `<text%s x="%.1f" y="%d">%s</text>`+"\n", style, x(most)+plotGap, text, micros(median)+c.lost())
}

// drawLegend names the groups in the plot.
func (l *Load) drawLegend(b *strings.Builder) {
	const letter = 6 // the approximate width of a letter in the legend
	at := 16.0
	for _, entry := range legend {
		if len(l.of(entry.group)) == 0 {
			continue
		}
		fmt.Fprintf(b,
			`<rect class="%s" x="%.0f" y="35" width="11" height="11" rx="2"/><text class="n" x="%.0f" y="45">%s</text>`+"\n",
			entry.group, at, at+17, escape(entry.text))
		at += 17 + letter*float64(len(entry.text)) + 18
	}
}

// description describes the plot in words, for readers who cannot see it.
func (l *Load) description() string {
	var all []string
	for _, c := range l.sorted() {
		all = append(all, fmt.Sprintf("%s %s", c.Name, micros(Median(c.Micros))))
	}
	return fmt.Sprintf("Microseconds of CPU a metric, %s: %s.", l.Name, strings.Join(all, "; "))
}

// gridStep returns 1, 2 or 5 times a power of ten, such that 3 to 8 steps fit below largest.
func gridStep(largest float64) float64 {
	for step := 0.001; ; step *= 10 {
		for _, s := range []float64{step, 2 * step, 5 * step} {
			if largest/s <= 8 {
				return s
			}
		}
	}
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // writing to a strings.Builder never fails
	return b.String()
}
