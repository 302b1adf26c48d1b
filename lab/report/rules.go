package report

import "fmt"

// Rules says what databases spend on rules. In each run all databases get the same samples at the same time, and
// evaluate the same rules. It may be measured on another day than the rest.
type Rules struct {
	Date     string    `json:"date"` // UTC
	Machine  Machine   `json:"machine"`
	Versions []Version `json:"versions"`

	Rules  int     `json:"rules"`
	Groups int     `json:"groups"`
	Every  float64 `json:"interval_seconds"` // from one evaluation of a rule to the next; as long as the measurement
	Series int     `json:"series"`
	Rate   float64 `json:"samples_a_second"`

	Databases []RulesCost `json:"databases"`
}

// RulesCost is the result of one database.
type RulesCost struct {
	Name  string `json:"name"`
	Group Group  `json:"group"`

	// The next fields cover all runs.
	Evaluations uint64 `json:"evaluations"` // of rules, within the measurements
	Failed      uint64 `json:"failed"`      // how many of these failed
	Found       uint64 `json:"found"`       // series of results that a query found afterwards

	// The lists below have one value for each run.
	Seconds  []float64 `json:"cpu_seconds"`     // CPU of the process in one interval
	Ratio    []float64 `json:"ratio,omitempty"` // to the first database in the same run
	Resident []float64 `json:"resident_bytes"`
}

// goalRules is the limit for Freshet's CPU, as a multiple of Prometheus' in the same run.
const goalRules = 1.10

// Cost returns the entry of a database, to which a run can be added. If there is none, it makes one.
func (r *Rules) Cost(name string, group Group) *RulesCost {
	for i := range r.Databases {
		if r.Databases[i].Name == name {
			return &r.Databases[i]
		}
	}
	r.Databases = append(r.Databases, RulesCost{Name: name, Group: group})
	return &r.Databases[len(r.Databases)-1]
}

// least returns how many evaluations the runs of a database should have: one of each rule. Some groups begin just
// before a measurement, and end in it, or the other way round.
func (r *Rules) least(c *RulesCost) uint64 { return uint64(r.Rules*len(c.Seconds)) * 99 / 100 }

func (r *Results) rules() string {
	rules := r.Rules
	if rules == nil || len(rules.Databases) == 0 {
		return notMeasured
	}
	var rows [][]string
	for i := range rules.Databases {
		c := &rules.Databases[i]
		rows = append(rows, []string{c.Name, withSpread(c.Seconds, significant), ifAny(c.Ratio, two),
			withSpread(c.Resident, func(v float64) string { return thousands(v / 1e6) }),
			thousands(float64(c.Evaluations)), thousands(float64(c.Failed)), thousands(float64(c.Found))})
	}
	return measured(rules.Date, rules.Machine, rules.Versions) +
		fmt.Sprintf("%s rules in %d groups each %.0f s, on %s series with %s samples a second.\n\n",
			thousands(float64(rules.Rules)), rules.Groups, rules.Every, thousands(float64(rules.Series)),
			thousands(rules.Rate)) +
		table([]string{"", "CPU s in an interval:", "ratio in a run:", "resident, MB:", "evaluations:", "failed:",
			"series of results:"}, rows)
}

func (r *Results) rulesGoals() (rows [][]string) {
	rules := r.Rules
	if rules == nil {
		return nil
	}
	name := fmt.Sprintf("%s rules each %.0f s", thousands(float64(rules.Rules)), rules.Every)
	var found uint64 // by the first database
	for i := range rules.Databases {
		c := &rules.Databases[i]
		if i == 0 {
			found = c.Found
		}
		if c.Group != Ours {
			continue
		}
		done, least := c.Evaluations-c.Failed, rules.least(c)
		rows = append(rows,
			runsRow(name, "CPU, divided by that of Prometheus in the same run", c.Ratio, two,
				fmt.Sprintf("at most %.2f", goalRules), atMost(goalRules)),
			goalRow(name, "evaluations that succeeded", thousands(float64(done)),
				"at least "+thousands(float64(least)), done >= least),
			goalRow(name, "series of results, as many as those of Prometheus", thousands(float64(c.Found)),
				thousands(float64(found)), c.Found == found))
	}
	return rows
}
