package diagnose

// The names of the causes: the values of "name" in the JSON answers, by which programs tell the
// causes apart.
const (
	Cardinality   = "cardinality"
	Clocks        = "clocks"
	CPUThrottling = "cpu_throttling"
	Disk          = "disk"
	Garbage       = "garbage"
	Goroutines    = "goroutines"
	Growth        = "growth"
	KernelDrops   = "kernel_drops"
	Lock          = "lock"
	Malformed     = "malformed"
	Parted        = "parted"
	Queries       = "queries"
	SlowLog       = "slow_log"
	SlowNode      = "slow_node"
	SmallRequests = "small_requests"
	StackGrowth   = "stack_growth"
	Starvation    = "starvation"
	Stores        = "stores"
)

const (
	// Listed is the lowest score at which a cause is named. A healthy process under load may
	// reach lower scores.
	Listed = 0.2

	// Clear is the lowest score at which a cause counts as found. Its effects then rank below it.
	// Alarms should use this threshold.
	Clear = 0.5
)

// Cause is something that was most likely wrong.
type Cause struct {
	Name     string     `json:"name"`
	Title    string     `json:"title"`
	Score    float64    `json:"score"`   // 0 to 1
	Because  string     `json:"because"` // how the score was computed
	Evidence []Evidence `json:"evidence"`
	Next     string     `json:"next"` // what to do
}

// Evidence is something in the record that speaks for a cause.
type Evidence struct {
	What    string   `json:"what"`
	Figures []string `json:"figures,omitempty"`
	Stack   []string `json:"stack,omitempty"` // innermost first
}

// finding is the result of checking for one cause. The field `fine` says what was checked, with
// figures. If the score is low, only this text is shown.
type finding struct {
	Cause
	fine string
}

// ramp returns 0 for x up to the lower bound `from`, 1 for x above the bound `to`, and grows evenly
// in between. It returns 0 for NaN.
func ramp(x, from, to float64) float64 {
	if !(x > from) {
		return 0
	}
	return min(1, (x-from)/(to-from))
}
