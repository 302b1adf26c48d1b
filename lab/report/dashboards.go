package report

import (
	"fmt"
	"slices"
)

// Dashboards says how long writes wait for their acknowledgement, alone and while dashboards are
// refreshed. It may be measured on another day than the rest.
type Dashboards struct {
	Date     string    `json:"date"` // UTC
	Machine  Machine   `json:"machine"`
	Versions []Version `json:"versions"`

	Dashboards int     `json:"dashboards"`
	Panels     int     `json:"panels"`          // panels of each dashboard
	Every      float64 `json:"refresh_seconds"` // time from one refresh to the next
	Series     int     `json:"series"`
	History    float64 `json:"history_hours"`
	Interval   float64 `json:"history_interval_seconds"`
	Rate       float64 `json:"samples_a_second"`
	Batch      int     `json:"samples_a_request"`

	OthersAtMost  float64 `json:"others_at_most"`  // allowed share of other processes; above it, a run is repeated
	RepeatsAtMost int     `json:"repeats_at_most"` // how often a run is repeated

	Databases []DashboardCost `json:"databases"`
}

// DashboardCost is the result of one database.
type DashboardCost struct {
	Name  string `json:"name"`
	Group Group  `json:"group"`

	// The next two fields cover all runs, including the repeated ones.
	Acknowledged uint64 `json:"acknowledged"` // acknowledged samples, including the history
	Found        uint64 `json:"found"`        // how many of these samples queries found afterwards
	Repeated     int    `json:"repeated"`

	// The next fields cover the runs that count.
	Queries uint64 `json:"queries"`
	Refused uint64 `json:"refused"`
	Failed  uint64 `json:"failed"`  // queries that failed in another way
	Empty   uint64 `json:"empty"`   // answers without a series
	Delayed uint64 `json:"delayed"` // refreshes that had to wait for the previous one
	Why     string `json:"why,omitempty"`

	// The lists below have one value for each run that counts.
	Alone    WritesBeside `json:"alone"`
	Beside   WritesBeside `json:"beside"`
	QueryP50 []float64    `json:"query_p50_ms"`
	QueryP99 []float64    `json:"query_p99_ms"`
	Others   []float64    `json:"others"` // share of the processor time that other processes took
}

// WritesBeside describes the writes of one phase, alone or beside the dashboards. A list has one
// value for each run.
type WritesBeside struct {
	P50     []float64 `json:"p50_ms"` // time of a request, from when it was due to its answer
	P99     []float64 `json:"p99_ms"`
	Longest []float64 `json:"longest_ms"`
	CPU     []float64 `json:"percent_of_a_core"`

	Fresh        []float64            `json:"fresh_p50_ms"` // time from sending a sample until an instant query finds it
	FreshLongest []float64            `json:"fresh_longest_ms"`
	Own          map[string][]float64 `json:"freshness_p99_ms,omitempty"` // by path, as Freshet's own probes measure it
}

// goalBeside is the limit for a write beside the dashboards, in milliseconds: 99 of 100 writes must
// take less.
const goalBeside = 15.0

// goalFresh is, by path, the limit for Freshet's own probes beside the dashboards, in milliseconds:
// queries must return 99 of 100 probes sooner. A datagram waits for the end of its second.
var goalFresh = map[string]float64{"dogstatsd": 1300, "remote_write": 100}

// Cost returns the entry of a database, to which a run can be added. If there is none, it makes one.
func (d *Dashboards) Cost(name string, group Group) *DashboardCost {
	i := slices.IndexFunc(d.Databases, func(c DashboardCost) bool { return c.Name == name })
	if i < 0 {
		i = len(d.Databases)
		d.Databases = append(d.Databases, DashboardCost{Name: name, Group: group})
	}
	return &d.Databases[i]
}

// Lost returns how many acknowledged samples were not found.
func (c DashboardCost) Lost() int64 { return int64(c.Acknowledged) - int64(c.Found) }

// others returns the share of the processor time that other processes took, for each run that
// counts, and how many runs were repeated.
func (d *Dashboards) others() (all []float64, repeated int) {
	if d == nil {
		return nil, 0
	}
	for _, c := range d.Databases {
		all = append(all, c.Others...)
		repeated += c.Repeated
	}
	return all, repeated
}

// disturbed returns the number of runs in which other processes took more than the allowed share.
func disturbed(others []float64, atMost float64) (n int) {
	for _, o := range others {
		if o > atMost {
			n++
		}
	}
	return n
}

// disturbedRule says which runs, or rounds, are repeated.
func disturbedRule(run string, atMost float64, repeats int) string {
	return fmt.Sprintf("A %s is repeated if others take more than %.0f %% of the processors, %d times at most.",
		run, 100*atMost, repeats)
}

// repeatedRuns returns a sentence about how many runs were repeated, and how many of the runs that
// count were still disturbed too much.
func repeatedRuns(run string, others []float64, repeated int, atMost float64) string {
	text := fmt.Sprintf("%d of %d %ss were repeated.", repeated, len(others), run)
	if n := disturbed(others, atMost); n > 0 {
		text += fmt.Sprintf(" **%d count although others took more.**", n)
	}
	return text
}

func (r *Results) dashboards() string {
	d := r.Dashboards
	others, repeated := d.others()
	if len(others) == 0 {
		return notMeasured
	}
	var writes, fresh, queries [][]string
	for _, c := range d.Databases {
		if len(c.Others) == 0 { // no run was finished
			continue
		}
		writes = append(writes,
			[]string{c.Name, c.Alone.times(), c.Beside.times(),
				withSpread(c.Alone.CPU, wholes) + " / " + withSpread(c.Beside.CPU, wholes),
				thousands(float64(c.Lost()))})
		fresh = append(fresh, []string{c.Name, c.Alone.fresh(), c.Beside.fresh()})
		queries = append(queries,
			[]string{c.Name, withSpread(c.QueryP50, significant), withSpread(c.QueryP99, significant),
				thousands(float64(c.Queries)),
				thousands(float64(c.Refused)), thousands(float64(c.Failed)), thousands(float64(c.Empty)),
				thousands(float64(c.Delayed))})
		for _, path := range c.paths() {
			fresh = append(fresh,
				[]string{
					c.Name + ", `freshet_freshness_seconds`, " + path + ", p99", ifAny(c.Alone.Own[path], significant),
					ifAny(c.Beside.Own[path], significant),
				})
		}
	}
	text := measured(d.Date, d.Machine, d.Versions) +
		fmt.Sprintf("%s samples a second, %d a request, of %s series with %g hours of history, a sample each %g s; "+
			"%d dashboards of %d panels, each refreshed every %g s.\n\n",
			thousands(d.Rate), d.Batch, thousands(float64(d.Series)), d.History, d.Interval, d.Dashboards, d.Panels, d.Every) +
		disturbedRule("run", d.OthersAtMost, d.RepeatsAtMost) + " " +
		repeatedRuns("run", others, repeated, d.OthersAtMost) + "\n\n" +
		table([]string{"database", "writes acknowledged after ms, p50 / p99 / longest, alone:", "beside the dashboards:",
			"CPU, % of a core, alone / beside:", "acknowledged and not found:"}, writes) + "\n" +
		table([]string{"database", "a query has a sample after ms, median / longest, alone:", "beside the dashboards:"},
			fresh) + "\n" +
		table([]string{"database", "queries of the dashboards, ms, p50:", "p99:", "answered:", "refused:", "failed:",
			"without a series:", "refreshes that waited for the one before:"}, queries)
	for _, c := range d.Databases {
		if c.Why != "" {
			text += fmt.Sprintf("\nThe first query that %s did not answer as it should: %s\n", c.Name, c.Why)
		}
	}
	return text
}

// times returns the latencies of writes as text.
func (w WritesBeside) times() string {
	return withSpread(w.P50, significant) + " / " + withSpread(w.P99, significant) + " / " +
		withSpread(w.Longest, significant)
}

func (w WritesBeside) fresh() string {
	return withSpread(w.Fresh, significant) + " / " + withSpread(w.FreshLongest, significant)
}

// paths returns the paths by which Freshet measures itself.
func (c DashboardCost) paths() (all []string) {
	for path := range c.Beside.Own {
		all = append(all, path)
	}
	slices.Sort(all)
	return all
}

func wholes(v float64) string { return fmt.Sprintf("%.0f", v) }

func (r *Results) dashboardGoals() (rows [][]string) {
	d := r.Dashboards
	others, _ := d.others()
	if len(others) == 0 {
		return nil
	}
	name := fmt.Sprintf("Writes beside %d dashboards", d.Dashboards)
	for _, c := range d.Databases {
		if c.Group != Ours || len(c.Beside.P99) == 0 {
			continue
		}
		bad := c.Refused + c.Failed + c.Empty
		rows = append(rows,
			runsRow(name, "acknowledged after ms, p99", c.Beside.P99, significant,
				fmt.Sprintf("under %.0f", goalBeside), under(goalBeside)),
			goalRow(name, "queries refused, failed, or answered without a series", thousands(float64(bad)), "0", bad == 0),
			goalRow(name, "samples acknowledged and not found", thousands(float64(c.Lost())), "0", c.Lost() == 0))
		for _, path := range c.paths() {
			goal := goalFresh[path]
			if goal > 0 {
				rows = append(rows, runsRow(name, "`freshet_freshness_seconds`, "+path+", p99, ms", c.Beside.Own[path],
					significant, "under "+thousands(goal), under(goal)))
			}
		}
	}
	if len(rows) > 0 {
		n := disturbed(others, d.OthersAtMost)
		rows = append(rows,
			goalRow(name, fmt.Sprintf("runs in which others took more than %.0f %% of the processors", 100*d.OthersAtMost),
				fmt.Sprint(n), "0", n == 0))
	}
	return rows
}
