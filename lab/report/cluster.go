package report

import "fmt"

// Cluster says what three nodes cost, compared with one machine that syncs its journal before each
// acknowledgement. All these servers run on the same machine, so that the network costs little and the
// disk is shared.
type Cluster struct {
	Date     string    `json:"date"` // UTC
	Machine  Machine   `json:"machine"`
	Versions []Version `json:"versions"`

	Loads []ClusterLoad `json:"loads"`
}

// ClusterLoad is a load under which three nodes and one machine are compared.
type ClusterLoad struct {
	Name  string      `json:"name"`
	Alone ClusterCost `json:"one_machine"`
	Three ClusterCost `json:"three_nodes"`
}

// ClusterCost is the cost of a load. Each list has one value for each run.
type ClusterCost struct {
	Seconds   []float64 `json:"cpu_s_a_million_samples"` // of all nodes
	Leader    []float64 `json:"leader_cpu_s_a_million_samples,omitempty"`
	Followers []float64 `json:"followers_cpu_s_a_million_samples,omitempty"` // of both
	Log       []float64 `json:"log_write_ms,omitempty"`                      // mean of the leader's writes to its log, with fsync

	PerSecond []float64 `json:"samples_a_second"`
	P50       []float64 `json:"p50_ms,omitempty"` // of acknowledgements
	P99       []float64 `json:"p99_ms,omitempty"`
	Fresh     []float64 `json:"fresh_p99_ms,omitempty"` // from sending an increment until a query finds it

	Acknowledged uint64 `json:"acknowledged"` // samples
	Found        uint64 `json:"found"`        // how many of these samples the node with the fewest has
}

// Goals of three nodes.
const (
	goalClusterCPU   = 5.0  // CPU of all three nodes together, as a multiple of one machine's
	goalClusterFresh = 1500 // ms
)

// Load returns the load of this name, and adds one if there is none.
func (c *Cluster) Load(name string) *ClusterLoad {
	for i := range c.Loads {
		if c.Loads[i].Name == name {
			return &c.Loads[i]
		}
	}
	c.Loads = append(c.Loads, ClusterLoad{Name: name})
	return &c.Loads[len(c.Loads)-1]
}

func (l *ClusterLoad) ratios() []float64 { return ratios(l.Three.Seconds, l.Alone.Seconds) }

// lost returns the number of acknowledged samples that queries did not find.
func (c *ClusterCost) lost() int64 { return int64(c.Acknowledged) - int64(c.Found) }

func (r *Results) cluster() string {
	c := r.Cluster
	if c == nil || len(c.Loads) == 0 {
		return notMeasured
	}
	var rows [][]string
	for i := range c.Loads {
		l := &c.Loads[i]
		rows = append(rows, l.Alone.row(l.Name, "one machine"), l.Three.row("", "three nodes"))
	}
	return measured(c.Date, c.Machine, c.Versions) + table([]string{"load", "", "CPU s a million samples, all:",
		"leader:", "followers:", "write to the log, ms:", "acknowledged after ms, p50 / p99:", "fresh after ms, p99:",
		"samples a second:", "acknowledged and not found:"}, rows)
}

func (c *ClusterCost) row(load, who string) []string {
	acknowledged := ifAny(c.P50, significant)
	if acknowledged != "" {
		acknowledged += " / " + withSpread(c.P99, significant)
	}
	return []string{load, who, withSpread(c.Seconds, significant), ifAny(c.Leader, significant),
		ifAny(c.Followers, significant), ifAny(c.Log, significant), acknowledged, ifAny(c.Fresh, significant),
		thousands(Median(c.PerSecond)), fmt.Sprint(c.lost())}
}

func (r *Results) clusterGoals() (rows [][]string) {
	c := r.Cluster
	if c == nil {
		return nil
	}
	for i := range c.Loads {
		l := &c.Loads[i]
		name := "Three nodes, " + l.Name
		rows = append(rows, runsRow(name, "CPU of all nodes, divided by that of one machine", l.ratios(), two,
			fmt.Sprintf("at most %.2f, better 4.00", goalClusterCPU), atMost(goalClusterCPU)))
		if len(l.Three.Fresh) > 0 {
			rows = append(rows, runsRow(name, "p99 of the freshness of windows, ms", l.Three.Fresh, significant,
				fmt.Sprintf("at most %d", goalClusterFresh), atMost(goalClusterFresh)))
		}
		rows = append(rows, goalRow(name, "samples acknowledged and not found", fmt.Sprint(l.Three.lost()), "0",
			l.Three.lost() == 0))
	}
	return rows
}
