package report

import (
	"fmt"
	"slices"
	"strings"
)

// RemoteWrite is the cost of the same remote write requests in several databases. It may be
// measured on another day than the rest, since it is not compared with the rest.
type RemoteWrite struct {
	Date     string      `json:"date"` // UTC
	Machine  Machine     `json:"machine"`
	Versions []Version   `json:"versions"`
	Loads    []WriteLoad `json:"loads"`

	Acknowledged []Acknowledged `json:"acknowledged,omitempty"`
}

// Acknowledged says how long Freshet takes for whole requests, and for their necessary part:
// waiting for a worker, appending and committing. Freshet measures both times itself.
type Acknowledged struct {
	Load     string    `json:"load"`
	Pace     string    `json:"pace"`
	Requests uint64    `json:"requests"` // requests in all runs
	Whole    []float64 `json:"p99_ms"`   // for each run: time from the head of a request to its answer
	Push     []float64 `json:"push_p99_ms"`
}

// ratios returns the ratio of the two times, for each run.
func (a Acknowledged) ratios() []float64 { return ratios(a.Whole, a.Push) }

// Acknowledge returns the entry of a load and pace, to which a run can be added. If there is none,
// it makes one.
func (w *RemoteWrite) Acknowledge(load, pace string) *Acknowledged {
	i := slices.IndexFunc(w.Acknowledged, func(a Acknowledged) bool { return a.Load == load && a.Pace == pace })
	if i < 0 {
		i = len(w.Acknowledged)
		w.Acknowledged = append(w.Acknowledged, Acknowledged{Load: load, Pace: pace})
	}
	return &w.Acknowledged[i]
}

// The goals for an acknowledgement, as a multiple of its necessary part: the limit, and the value
// to aim at.
const (
	goalAcknowledge = 1.5
	aimAcknowledge  = 1.2
)

// WriteLoad is a load of remote write.
type WriteLoad struct {
	ID     string      `json:"id"`
	Name   string      `json:"name"`
	Series int         `json:"series"`
	Batch  int         `json:"samples_a_request"`
	Rounds int         `json:"samples_a_series"`
	Late   bool        `json:"late,omitempty"` // as many samples again lie between these, and come after them
	Goals  WriteGoals  `json:"goals"`
	Costs  []WriteCost `json:"costs"`
}

// about says how many samples a load has.
func (l WriteLoad) about() string {
	if l.Late {
		return fmt.Sprintf("%s samples of each series, and then as many between these. The figures are of the latter.",
			thousands(float64(l.Rounds)))
	}
	return thousands(float64(l.Rounds)) + " samples of each series."
}

// WriteGoals are Freshet's goals under a load; 0 means no goal.
type WriteGoals struct {
	Seconds     float64 `json:"cpu_seconds_a_million_samples"` // the largest cost
	Aim         float64 `json:"cpu_seconds_a_million_samples_better,omitempty"`
	Ratio       float64 `json:"ratio"` // the largest ratio to the first peer in the same run
	New         float64 `json:"cpu_microseconds_a_new_series,omitempty"`
	NewAim      float64 `json:"cpu_microseconds_a_new_series_better,omitempty"`
	Resident    float64 `json:"resident_bytes_a_series,omitempty"`
	ResidentAim float64 `json:"resident_bytes_a_series_better,omitempty"`
}

// atMostOrBetter returns a goal and a better value, if there is one, as text.
func atMostOrBetter(goal, better float64, format func(float64) string) string {
	text := "at most " + format(goal)
	if better > 0 {
		text += ", better " + format(better)
	}
	return text
}

// WriteCost is the cost of one database.
type WriteCost struct {
	Name  string `json:"name"`
	Group Group  `json:"group"`
	Not   string `json:"not_measured,omitempty"` // why the database was not measured

	Acknowledged uint64 `json:"acknowledged"` // acknowledged samples in all runs
	Found        uint64 `json:"found"`        // how many of these samples queries found afterwards

	// The lists below have one value for each run.
	Seconds   []float64 `json:"cpu_seconds_a_million_samples,omitempty"`
	Ratio     []float64 `json:"ratio,omitempty"` // ratio to the first peer in the same run
	New       []float64 `json:"cpu_microseconds_a_new_series,omitempty"`
	P50       []float64 `json:"p50_ms,omitempty"` // time from a request to its answer
	P99       []float64 `json:"p99_ms,omitempty"`
	Resident  []float64 `json:"resident_bytes_a_series,omitempty"`
	PerSecond []float64 `json:"samples_a_second,omitempty"`
}

// Cost returns the entry of a database under a load, to which a run can be added. If there is none,
// it makes one.
func (w *RemoteWrite) Cost(load WriteLoad, name string, group Group) *WriteCost {
	at := slices.IndexFunc(w.Loads, func(l WriteLoad) bool { return l.ID == load.ID })
	if at < 0 {
		at = len(w.Loads)
		w.Loads = append(w.Loads, load)
	}
	costs := &w.Loads[at].Costs
	i := slices.IndexFunc(*costs, func(c WriteCost) bool { return c.Name == name })
	if i < 0 {
		i = len(*costs)
		*costs = append(*costs, WriteCost{Name: name, Group: group})
	}
	return &(*costs)[i]
}

// Lost returns how many acknowledged samples were not found.
func (c WriteCost) Lost() int64 { return int64(c.Acknowledged) - int64(c.Found) }

// row returns the database's row in the table of its load.
func (c WriteCost) row() []string {
	if c.Not != "" {
		return []string{c.Name, c.Not, "", "", "", "", "", ""}
	}
	return []string{c.Name, withSpread(c.Seconds, two), ifAny(c.Ratio, two), withSpread(c.New, significant),
		withSpread(c.P50, significant) + " / " + withSpread(c.P99, significant),
		ifAny(c.Resident, thousands), thousands(Median(c.PerSecond)), thousands(float64(c.Lost()))}
}

// remoteWrite returns a table for each load.
func (r *Results) remoteWrite() string {
	w := r.RemoteWrite
	if w == nil || len(w.Loads) == 0 {
		return notMeasured
	}
	var b strings.Builder
	b.WriteString(measured(w.Date, w.Machine, w.Versions))
	for _, l := range w.Loads {
		fmt.Fprintf(&b, "### %s\n\n%s\n\n", l.Name, l.about())
		var rows [][]string
		for _, c := range l.Costs {
			rows = append(rows, c.row())
		}
		fmt.Fprintf(&b, "%s\n",
			table([]string{"database", "CPU s a million samples:", "ratio:", "CPU us a new series:",
				"acknowledged after ms, p50 / p99:",
				"resident bytes a series:", "samples a second:", "acknowledged and not found:"}, rows))
	}
	if rows := w.acknowledgedRows(); len(rows) > 0 {
		fmt.Fprintf(&b, "### What an acknowledgement takes\n\n%s\n",
			table([]string{"requests to Freshet", "of them:", "acknowledged after ms, p99:", "queue, append and commit, p99:",
				"ratio:"}, rows))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (w *RemoteWrite) acknowledgedRows() (rows [][]string) {
	for _, a := range w.Acknowledged {
		rows = append(rows,
			[]string{
				a.Load + ", " + a.Pace, thousands(float64(a.Requests)), withSpread(a.Whole, significant),
				withSpread(a.Push, significant), withSpread(a.ratios(), two),
			})
	}
	return rows
}

// measured says when, where and with which versions a part was measured.
func measured(date string, m Machine, versions []Version) string {
	var names []string
	for _, v := range versions {
		names = append(names, v.Name+": "+v.Version)
	}
	return fmt.Sprintf("Measured %s on %s, %d cores, %.1f processes running before. %s.\n\n",
		date, m.CPU, m.Cores, m.LoadAverage, strings.Join(names, "; "))
}

// writeGoals compares Freshet with its goals, and with the first peer.
func (r *Results) writeGoals() (rows [][]string) {
	if r.RemoteWrite == nil {
		return nil
	}
	for _, l := range r.RemoteWrite.Loads {
		of := func(g Group) *WriteCost {
			i := slices.IndexFunc(l.Costs, func(c WriteCost) bool { return c.Group == g && c.Not == "" })
			if i < 0 {
				return nil
			}
			return &l.Costs[i]
		}
		ours, peer := of(Ours), of(Peer)
		if ours == nil {
			continue
		}
		bounded := func(how string, runs []float64, format func(float64) string, goal float64, bound string) {
			if goal > 0 && len(runs) > 0 {
				rows = append(rows, runsRow(l.Name, how, runs, format, bound, atMost(goal)))
			}
		}
		row := func(how string, runs []float64, format func(float64) string, goal float64) {
			bounded(how, runs, format, goal, "at most "+format(goal))
		}
		bounded("CPU seconds a million samples", ours.Seconds, two, l.Goals.Seconds,
			atMostOrBetter(l.Goals.Seconds, l.Goals.Aim, two))
		if peer != nil {
			row("ratio to "+peer.Name, ours.Ratio, two, l.Goals.Ratio)
		}
		bounded("CPU microseconds a new series", ours.New, significant, l.Goals.New,
			atMostOrBetter(l.Goals.New, l.Goals.NewAim, significant))
		bounded("resident bytes a series", ours.Resident, thousands, l.Goals.Resident,
			atMostOrBetter(l.Goals.Resident, l.Goals.ResidentAim, thousands))
		if peer != nil {
			rows = append(rows, verdictRow(l.Name, "acknowledged after ms, p99", withSpread(ours.P99, significant),
				"below "+peer.Name+"'s "+withSpread(peer.P99, significant), verdictOfRuns(allRatios(ours.P99, peer.P99), under(1))))
		}
		rows = append(rows,
			goalRow(l.Name, "samples acknowledged and not found", thousands(float64(ours.Lost())), "0", ours.Lost() == 0))
	}
	for _, a := range r.RemoteWrite.Acknowledged {
		rows = append(rows,
			runsRow(a.Load, "p99 of whole requests, divided by the p99 of queue, append and commit, "+a.Pace, a.ratios(), two,
				fmt.Sprintf("at most %.2f, better %.2f", goalAcknowledge, aimAcknowledge), atMost(goalAcknowledge)))
	}
	return rows
}
