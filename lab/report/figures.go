package report

import (
	"fmt"
	"slices"
)

// Figures are the results of a part whose table has a row for each figure. They may be measured on another day than
// the rest.
type Figures struct {
	Date     string    `json:"date"` // UTC
	Machine  Machine   `json:"machine"`
	Versions []Version `json:"versions"`

	Figures []Figure `json:"figures"`
}

// Figure is something that was measured in several runs. It may have a bound that it must keep, and a lower one
// that we aim for.
type Figure struct {
	What  string    `json:"what"`
	Unit  string    `json:"unit"`
	Must  float64   `json:"must,omitempty"`       // bound of each run; 0: none
	Worst float64   `json:"must_worst,omitempty"` // if it is set, it bounds each run, and Must bounds their median
	Aim   float64   `json:"aim,omitempty"`
	Runs  []float64 `json:"runs"`
}

// Add adds a run to the figure with the same text and unit, or begins the figure behind those with the same text.
func (p *Figures) Add(f Figure) {
	at := len(p.Figures)
	for i := range p.Figures {
		g := &p.Figures[i]
		switch {
		case g.What == f.What && g.Unit == f.Unit:
			g.Runs = append(g.Runs, f.Runs...)
			return
		case g.What == f.What:
			at = i + 1
		}
	}
	p.Figures = slices.Insert(p.Figures, at, f)
}

// number returns v as text: a whole number, or a small one with two digits after the decimal point.
func (f Figure) number(v float64) string {
	if max(f.Must, v) < 100 {
		return two(v)
	}
	return thousands(v)
}

// verdict judges the runs by the bounds of the figure.
func (f Figure) verdict() Verdict {
	if f.Worst == 0 {
		return verdictOfRuns(f.Runs, atMost(f.Must))
	}
	return verdict(len(f.Runs) > 0 && Median(f.Runs) <= f.Must && slices.Max(f.Runs) <= f.Worst)
}

// most returns the bounds as text.
func (f Figure) most() string {
	text := bound(f.Must)
	if f.Worst > 0 {
		text += fmt.Sprintf(", the worst %s", bound(f.Worst))
	}
	return text
}

// must returns the bounds as text, with their verdict unless they are kept; an empty text if there are none.
func (f Figure) must() string {
	if f.Must == 0 {
		return ""
	}
	text := f.most()
	if v := f.verdict(); v != Reached {
		text += fmt.Sprintf(", **%s**", v)
	}
	return text
}

// aim returns the lower bound as text, with its verdict unless it is kept; an empty text if there is none.
func (f Figure) aim() string { return judged(f.Runs, f.Aim) }

// table has a row for each figure.
func (p *Figures) table() string {
	if p == nil || len(p.Figures) == 0 {
		return notMeasured
	}
	var rows [][]string
	for _, f := range p.Figures {
		rows = append(rows, []string{f.What, f.Unit, withSpread(f.Runs, f.number), f.must(), f.aim()})
	}
	return measured(p.Date, p.Machine, p.Versions) +
		table([]string{"what", "figure", "is:", "must be at most:", "aim:"}, grouped(rows))
}

// goals has a row for each figure that must keep a bound.
func (p *Figures) goals() (rows [][]string) {
	if p == nil {
		return nil
	}
	for _, f := range p.Figures {
		if f.Must == 0 {
			continue
		}
		most := "at most " + f.most()
		if f.Aim > 0 {
			most += ", better " + bound(f.Aim)
		}
		rows = append(rows, verdictRow(f.What, f.Unit, withSpread(f.Runs, f.number), most, f.verdict()))
	}
	return rows
}
