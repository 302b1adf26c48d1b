package report

import "fmt"

// mostContexts returns the load with the most contexts.
func (r *Results) mostContexts() (most Load) {
	for _, l := range r.Loads {
		if l.Contexts >= most.Contexts {
			most = l
		}
	}
	return most
}

// receivers returns the table of the receivers' memory under the load with the most contexts.
func (r *Results) receivers() string {
	most := r.mostContexts()
	var rows [][]string
	for _, c := range most.Costs {
		allocations := ""
		if len(c.Allocations) > 0 {
			allocations = fmt.Sprintf("%.5f", Median(c.Allocations))
		}
		rows = append(rows, []string{c.Name, withSpread(c.Resident, megabytes), allocations})
	}
	return table([]string{"receiver, " + thousands(float64(most.Contexts)) + " contexts", "resident MB:",
		"allocations a metric:"}, rows)
}

func (r *Results) scale() string {
	var rows [][]string
	row := func(name, value string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(value, args...)})
	}
	if m := r.Scale.Million; m != nil {
		row(thousands(float64(m.Contexts))+" live contexts, resident memory",
			"%s MB before, %s MB with them: %.0f bytes a context",
			megabytes(m.ResidentBefore), megabytes(m.ResidentAfter), m.ResidentEntry())
		row("the same, heap in use", "%s MB before, %s MB with them: %.0f bytes a context", megabytes(m.HeapBefore),
			megabytes(m.HeapAfter), m.HeapEntry())
	}
	for _, s := range r.Scale.storms() {
		row(s.name, "%s", s.sentence())
	}
	return table([]string{"", ""}, rows)
}

// namedStorm is a storm with its name in the tables.
type namedStorm struct {
	name          string
	ofNewContexts bool
	*Storm
}

// storms returns the storms that were measured.
func (s Scale) storms() (all []namedStorm) {
	if s.Flush != nil {
		all = append(all, namedStorm{"flushing a million contexts each second under load", false, s.Flush})
	}
	if s.Storm != nil {
		all = append(all, namedStorm{"a storm of new contexts", true, s.Storm})
	}
	return all
}

func (s Storm) rate() string {
	return fmt.Sprintf("%s metrics a second for %.0f s", thousands(s.Rate), s.Seconds)
}

func (s Storm) sentence() string {
	text := s.rate()
	if s.NewContexts > 0 {
		text += fmt.Sprintf(", %s of them of new contexts", thousands(s.NewContexts))
	}
	text += fmt.Sprintf(": %s sent, %s received, %s datagrams dropped by the kernel",
		thousands(float64(s.Sent)), thousands(float64(s.Received)), thousands(float64(s.KernelDropped)))
	if s.Folded > 0 || s.Refused > 0 {
		text += fmt.Sprintf("; %s counted in the series of those without a place, %s refused",
			thousands(float64(s.Folded)), thousands(float64(s.Refused)))
	}
	return text + fmt.Sprintf("; the ledger differs by %d", s.Difference)
}
