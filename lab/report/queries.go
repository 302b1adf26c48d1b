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
	Text  string      `json:"text"`
	Hours float64     `json:"hours"` // its time range; 0 for a query at one time
	Goal  float64     `json:"goal_cpu_ms,omitempty"`
	Costs []QueryCost `json:"costs"`
}

// QueryCost is what a database spends on a query. The list has one value for each run.
type QueryCost struct {
	Name   string    `json:"name"`
	Group  Group     `json:"group"`
	Millis []float64 `json:"cpu_ms"`
}

// Query returns the query with this text, and adds it if there is none.
func (q *Queries) Query(text string, hours, goal float64) *Query {
	i := slices.IndexFunc(q.Queries, func(one Query) bool { return one.Text == text })
	if i < 0 {
		i = len(q.Queries)
		q.Queries = append(q.Queries, Query{Text: text, Hours: hours, Goal: goal})
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

// names returns the names of all databases, in the order of the page.
func (q *Queries) names() (names []string) {
	for i := range q.Queries {
		for _, c := range q.Queries[i].Costs {
			if !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

func (r *Results) queries() string {
	q := r.Queries
	if q == nil || len(q.Queries) == 0 {
		return notMeasured
	}
	names := q.names()
	head := []string{"query", "time range"}
	for _, name := range names {
		head = append(head, name+", CPU ms:")
	}
	var rows [][]string
	for i := range q.Queries {
		one := &q.Queries[i]
		row := []string{"`" + one.Text + "`", timeRange(one.Hours)}
		for _, name := range names {
			i := slices.IndexFunc(one.Costs, func(c QueryCost) bool { return c.Name == name })
			if i < 0 {
				row = append(row, "")
				continue
			}
			row = append(row, withSpread(one.Costs[i].Millis, significant))
		}
		rows = append(rows, row)
	}
	return measured(q.Date, q.Machine, q.Versions) + table(head, rows)
}

func timeRange(hours float64) string {
	switch {
	case hours == 0:
		return "one time"
	case hours >= 48:
		return fmt.Sprintf("%.0f days", hours/24)
	default:
		return fmt.Sprintf("%.0f h", hours)
	}
}

func (r *Results) queryGoals() (rows [][]string) {
	if r.Queries == nil {
		return nil
	}
	for i := range r.Queries.Queries {
		q := &r.Queries.Queries[i]
		for _, c := range q.Costs {
			if c.Group == Ours && q.Goal > 0 {
				rows = append(rows, runsRow("queries", fmt.Sprintf("CPU ms of `%s` over %s", q.Text, timeRange(q.Hours)),
					c.Millis, significant, fmt.Sprintf("at most %.0f", q.Goal), atMost(q.Goal)))
			}
		}
	}
	return rows
}
