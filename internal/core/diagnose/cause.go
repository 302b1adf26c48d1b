package diagnose

// The causes, by the names that programs know them by.
const (
	Cardinality   = "cardinality"
	CPUThrottling = "cpu_throttling"
	Disk          = "disk"
	Garbage       = "garbage"
	Goroutines    = "goroutines"
	Growth        = "growth"
	KernelDrops   = "kernel_drops"
	Lock          = "lock"
	Malformed     = "malformed"
	Queries       = "queries"
	SmallRequests = "small_requests"
	StackGrowth   = "stack_growth"
	Starvation    = "starvation"
	Stores        = "stores"
)

const (
	// Listed is the score from which on a cause is named: below it the figures are what a
	// healthy process under load has, too.
	Listed = 0.2

	// Clear is the score from which on a cause is taken for one, so that what it brings
	// about ranks below it. Who is asked for an alarm should ask for this.
	Clear = 0.5
)

// Cause is something that was wrong, most likely.
type Cause struct {
	Name     string     `json:"name"`
	Title    string     `json:"title"`
	Score    float64    `json:"score"`   // 0 to 1
	Because  string     `json:"because"` // what the score is made of
	Evidence []Evidence `json:"evidence"`
	Next     string     `json:"next"` // what to do
}

// Evidence is something in the record that speaks for a cause.
type Evidence struct {
	What    string   `json:"what"`
	Figures []string `json:"figures,omitempty"`
	Stack   []string `json:"stack,omitempty"` // innermost first
}

// finding is what a look for one cause came to. Fine says what was looked at, with figures,
// and is all there is if the score is low.
type finding struct {
	Cause
	fine string
}

// ramp is 0 up to from, 1 from to on, and in proportion between them. What is no number is
// nothing.
func ramp(x, from, to float64) float64 {
	if !(x > from) {
		return 0
	}
	return min(1, (x-from)/(to-from))
}
