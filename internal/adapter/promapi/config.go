package promapi

import (
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/core/promqlguard"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Config limits what a query may cost.
type Config struct {
	Timeout          time.Duration `yaml:"timeout" help:"time that a query may take, waiting and running"`
	LookbackDelta    time.Duration `yaml:"lookback_delta" help:"age of the oldest sample that an instant selector takes"`
	MaxSamples       int           `yaml:"max_samples" help:"samples that one query may hold in memory"`
	MaxMemory        conf.Bytes    `yaml:"max_memory" help:"memory of all queries and their answers; 0: a quarter of what the machine, the cgroup or GOMEMLIMIT allows"`
	MaxConcurrency   int           `yaml:"max_concurrency" help:"long queries that run at once, beside short ones; 0: half of the processors, at least 1"`
	MaxWaiting       int           `yaml:"max_waiting" help:"queries of one tenant that may wait in each lane: short, long, own and lookup"`
	MaxQueryBytes    conf.Bytes    `yaml:"max_query_bytes" help:"longest text of a query, or of all match[] of a request"`
	MaxQueryDepth    int           `yaml:"max_query_depth" help:"nesting levels of a query (brackets, operators of a chain), at most 2000"`
	MaxSubquerySteps int64         `yaml:"max_subquery_steps" help:"steps of all subqueries of a query together"`
	MaxWindowSamples int64         `yaml:"max_window_samples" help:"samples of a series that range functions may read, over all steps"`
	Verify           int           `yaml:"verify" help:"one in so many queries is evaluated by Prometheus' engine, too, to compare the results; 0: none"`
	StepCache        conf.Bytes    `yaml:"step_cache" help:"memory of results of range queries that are kept, so that a panel that is refreshed computes its new steps only; 0: none"`
	Experimental     bool          `yaml:"experimental" help:"allow experimental functions and aggregations of PromQL"`
}

// DefaultConfig uses Prometheus' limits where Prometheus has any. Exceptions are memory and concurrency,
// which depend on the machine. A sample takes 16 bytes of memory. So queries reach the limit of memory
// before the limit of samples, except on large machines: see lanes. The million subquery steps take 16
// MB before a query reads a sample, and cover two years in steps of a minute. The billion window samples
// are enough for a panel of 2900 points, each over 40 days of 10 s tiles. MaxWaiting allows for ten
// people who open dashboards of 20 panels at once. StepCache has room for a hundred panels of a hundred series with 360
// steps.
func DefaultConfig() Config {
	return Config{
		Timeout:          2 * time.Minute,
		LookbackDelta:    5 * time.Minute,
		MaxSamples:       50_000_000,
		MaxWaiting:       200,
		MaxQueryBytes:    256 << 10,
		MaxQueryDepth:    500,
		MaxSubquerySteps: 1_000_000,
		MaxWindowSamples: 1_000_000_000,
		Verify:           1000,
		StepCache:        64 << 20,
	}
}

// Validate returns all problems of the section.
func (c Config) Validate() []conf.Problem {
	var problems []conf.Problem
	positive := func(key string, ok bool, least string) {
		if !ok {
			problems = append(problems,
				conf.Problem{Key: key, Text: fmt.Sprintf("allows no query; set it to %s or more", least)})
		}
	}
	positive("timeout", c.Timeout >= time.Millisecond, "1ms")
	positive("lookback_delta", c.LookbackDelta >= time.Millisecond, "1ms")
	positive("max_samples", c.MaxSamples > 0, "1")
	positive("max_waiting", c.MaxWaiting > 0, "1")
	if c.MaxConcurrency < 0 {
		problems = append(problems,
			conf.Problem{Key: "max_concurrency", Text: "is negative; set it to 1 or more, or to 0 for half of the processors"})
	}
	if c.MaxMemory < 0 || c.MaxMemory > 0 && c.MaxMemory < leastMemory {
		problems = append(problems,
			conf.Problem{
				Key: "max_memory",
				Text: fmt.Sprintf("leaves too little for each query; set it to %d MiB or more, "+
					"or to 0 for a quarter of the available memory", leastMemory>>20),
			})
	}
	if c.Verify < 0 {
		problems = append(problems,
			conf.Problem{Key: "verify", Text: "is negative; set it to 1 or more, or to 0 to compare no query"})
	}
	if c.StepCache < 0 {
		problems = append(problems,
			conf.Problem{Key: "step_cache", Text: "is negative; set it to 1 MiB or more, or to 0 to keep no results"})
	}
	positive("max_query_bytes", c.MaxQueryBytes > 0, "1")
	positive("max_query_depth", c.MaxQueryDepth > 0, "1")
	positive("max_subquery_steps", c.MaxSubquerySteps > 0, "1")
	positive("max_window_samples", c.MaxWindowSamples > 0, "1")
	if c.MaxQueryDepth > maxDepth {
		problems = append(problems, conf.Problem{Key: "max_query_depth",
			Text: fmt.Sprintf("takes the parser and the engine too long; set it to %d or less", maxDepth)})
	}
	return problems
}

// leastMemory is the smallest valid MaxMemory: a short query then has 300 kB.
const leastMemory = 16 << 20

// maxDepth bounds MaxQueryDepth. The time to parse and run a query grows with the square of its
// depth: an eighth of a second for a chain of 2000 operators, minutes for a chain of 100,000.
const maxDepth = 2000

func (c Config) limits() promqlguard.Limits {
	return promqlguard.Limits{
		Bytes:         int(c.MaxQueryBytes),
		Depth:         c.MaxQueryDepth,
		SubquerySteps: c.MaxSubquerySteps,
		WindowSamples: c.MaxWindowSamples,
	}
}

const prefix = "/api/v1"
