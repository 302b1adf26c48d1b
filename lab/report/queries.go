package report

import (
	"fmt"
	"slices"
)

// Queries says what databases spend on queries. All have the same samples, from the same requests.
type Queries struct {
	Date     string    `json:"date"` // UTC
	Machine  Machine   `json:"machine"`
	Versions []Version `json:"versions"`

	Repeats int     `json:"repeats"` // how often each query is sent in a run
	Queries []Query `json:"queries"`
}

// Query is a query and its costs.
type Query struct {
	Text  string     `json:"text"`
	Hours float64    `json:"hours"` // its time range; 0 for a query at one time
	Goals QueryGoals `json:"goals_cpu_ms,omitzero"`

	// Refreshed means that each time the query ends a step later, and may use what the database keeps.
	Refreshed bool `json:"refreshed,omitempty"`

	Costs []QueryCost `json:"costs"`
}

// QueryGoals are what Freshet may spend on a query, in ms of CPU time; 0 means no goal.
type QueryGoals struct {
	Most float64 `json:"must"`
	Aim  float64 `json:"aim"` // below Most, and missing it is no failure
}

// QueryCost is what a database spends on a query. The list has one value for each run.
type QueryCost struct {
	Name   string    `json:"name"`
	Group  Group     `json:"group"`
	Millis []float64 `json:"cpu_ms"`
}

// Query returns the query with this text, refreshed or not, and adds it if there is none.
func (q *Queries) Query(text string, hours float64, refreshed bool, goals QueryGoals) *Query {
	i := slices.IndexFunc(q.Queries, func(one Query) bool { return one.Text == text && one.Refreshed == refreshed })
	if i < 0 {
		i = len(q.Queries)
		q.Queries = append(q.Queries, Query{Text: text, Hours: hours, Refreshed: refreshed, Goals: goals})
	}
	return &q.Queries[i]
}

// Cost returns the cost of a database, and adds it if there is none.
func (q *Query) Cost(name string, group Group) *QueryCost {
	i := slices.IndexFunc(q.Costs, func(c QueryCost) bool { return c.Name == name })
	if i < 0 {
		i = len(q.Costs)
		q.Costs = append(q.Costs, QueryCost{Name: name, Group: group})
	}
	return &q.Costs[i]
}

// names returns the names of the databases of a group, in the order of the page.
func (q *Queries) names(of Group) (names []string) {
	for i := range q.Queries {
		for _, c := range q.Queries[i].Costs {
			if c.Group == of && !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

// millis returns what a database spends, for each run; nil if the query was not measured there.
func (q *Query) millis(name string) []float64 {
	i := slices.IndexFunc(q.Costs, func(c QueryCost) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return q.Costs[i].Millis
}

// queries has a row for each query: the costs, Freshet's costs as ratios to the peers in the same run, and the goals.
func (r *Results) queries() string {
	q := r.Queries
	if q == nil || len(q.Queries) == 0 {
		return notMeasured
	}
	peers, all := q.names(Peer), q.names(Ours)
	if len(all) == 0 {
		return notMeasured
	}
	ours := all[0]
	head := []string{"query", "time range"}
	for _, name := range append(slices.Clone(peers), all...) {
		head = append(head, name+", CPU ms:")
	}
	for _, name := range peers {
		head = append(head, "ratio to "+name+":")
	}
	head = append(head, "must:", "aim:")
	var rows [][]string
	for i := range q.Queries {
		one := &q.Queries[i]
		row := []string{"`" + one.Text + "`", one.timeRange()}
		for _, name := range append(slices.Clone(peers), all...) {
			row = append(row, ifAny(one.millis(name), significant))
		}
		for _, name := range peers {
			row = append(row, ifAny(ratios(one.millis(ours), one.millis(name)), two))
		}
		rows = append(rows, append(row, judged(one.millis(ours), one.Goals.Most), judged(one.millis(ours), one.Goals.Aim)))
	}
	return measured(q.Date, q.Machine, q.Versions) + table(head, rows)
}

func (q *Query) timeRange() string {
	switch {
	case q.Refreshed:
		return fmt.Sprintf("%.0f h, refreshed", q.Hours)
	case q.Hours == 0:
		return "one time"
	case q.Hours >= 48:
		return fmt.Sprintf("%.0f days", q.Hours/24)
	default:
		return fmt.Sprintf("%.0f h", q.Hours)
	}
}

func (r *Results) queryGoals() (rows [][]string) {
	if r.Queries == nil {
		return nil
	}
	for i := range r.Queries.Queries {
		q := &r.Queries.Queries[i]
		for _, c := range q.Costs {
			if c.Group == Ours && q.Goals.Most > 0 {
				rows = append(rows, runsRow("queries", fmt.Sprintf("CPU ms of `%s` over %s", q.Text, q.timeRange()),
					c.Millis, significant, fmt.Sprintf("at most %.0f, better %.0f", q.Goals.Most, q.Goals.Aim),
					atMost(q.Goals.Most)))
			}
		}
	}
	return rows
}
