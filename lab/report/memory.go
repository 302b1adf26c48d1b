package report

import (
	"fmt"
	"slices"
)

// Memory says what a whole server spends on each series, context and tenant that it holds. It may be measured
// on another day than the rest.
type Memory struct {
	Date     string    `json:"date"` // UTC
	Machine  Machine   `json:"machine"`
	Versions []Version `json:"versions"`

	Figures []Figure `json:"figures"`
}

// Figure is something that was measured in several runs. It has a bound that it must keep, and a lower one
// that we aim for.
type Figure struct {
	What string    `json:"what"`
	Unit string    `json:"unit"`
	Must float64   `json:"must"`
	Aim  float64   `json:"aim"`
	Runs []float64 `json:"runs"`
}

// Add adds a run to the figure with the same text and unit, or begins the figure.
func (m *Memory) Add(f Figure) {
	i := slices.IndexFunc(m.Figures, func(g Figure) bool { return g.What == f.What && g.Unit == f.Unit })
	if i < 0 {
		m.Figures = append(m.Figures, f)
		return
	}
	m.Figures[i].Runs = append(m.Figures[i].Runs, f.Runs...)
}

// number returns v as text: a whole number, or a small one with two digits after the decimal point.
func (f Figure) number(v float64) string {
	if max(f.Must, v) < 100 {
		return two(v)
	}
	return thousands(v)
}

func (r *Results) memory() string {
	if r.Memory == nil || len(r.Memory.Figures) == 0 {
		return notMeasured
	}
	var rows [][]string
	for _, f := range r.Memory.Figures {
		rows = append(rows, []string{f.What, f.Unit, withSpread(f.Runs, f.number), judged(f.Runs, f.Must), bound(f.Aim)})
	}
	return measured(r.Memory.Date, r.Memory.Machine, r.Memory.Versions) +
		table([]string{"what", "figure", "is:", "must be at most:", "aim:"}, grouped(rows))
}

func (r *Results) memoryBounds() (rows [][]string) {
	if r.Memory == nil {
		return nil
	}
	for _, f := range r.Memory.Figures {
		rows = append(rows,
			runsRow(f.What, f.Unit, f.Runs, f.number, fmt.Sprintf("at most %s, better %s", bound(f.Must), bound(f.Aim)),
				atMost(f.Must)))
	}
	return rows
}
