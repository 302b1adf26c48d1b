package promapi

import (
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/core/promqlguard"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Config is what a query may cost.
type Config struct {
	Timeout          time.Duration `yaml:"timeout" help:"how long a query may wait and run"`
	LookbackDelta    time.Duration `yaml:"lookback_delta" help:"how old the sample may be that an instant selector takes"`
	MaxSamples       int           `yaml:"max_samples" help:"samples that one query may hold in memory"`
	MaxConcurrency   int           `yaml:"max_concurrency" help:"queries that run at once; further ones wait"`
	MaxQueryBytes    conf.Bytes    `yaml:"max_query_bytes" help:"longest text of a query, or of all match[] of a request"`
	MaxQueryDepth    int           `yaml:"max_query_depth" help:"levels of a query, at most 2000; each bracket and each operator of a chain is one"`
	MaxSubquerySteps int64         `yaml:"max_subquery_steps" help:"steps that all subqueries of a query may take together"`
	MaxWindowSamples int64         `yaml:"max_window_samples" help:"samples that functions of ranges may look at in one series, at all steps together"`
	Experimental     bool          `yaml:"experimental" help:"let queries use the experimental functions and aggregations of PromQL"`
}

// DefaultConfig has Prometheus' limits where Prometheus has any. A sample in
// memory takes 16 bytes, so a query takes up to 800 MB, and 16 MB before it sees
// a sample if it has a million subquery steps: two years of minutes. A billion
// window samples are a panel of 2900 points, each over 40 days of 10 s tiles.
func DefaultConfig() Config {
	return Config{
		Timeout:          2 * time.Minute,
		LookbackDelta:    5 * time.Minute,
		MaxSamples:       50_000_000,
		MaxConcurrency:   20,
		MaxQueryBytes:    256 << 10,
		MaxQueryDepth:    500,
		MaxSubquerySteps: 1_000_000,
		MaxWindowSamples: 1_000_000_000,
	}
}

// Validate returns all that is wrong with the section.
func (c Config) Validate() []conf.Problem {
	var problems []conf.Problem
	positive := func(key string, ok bool, least string) {
		if !ok {
			problems = append(problems, conf.Problem{Key: key, Text: fmt.Sprintf("lets no query pass; set it to %s or more", least)})
		}
	}
	positive("timeout", c.Timeout >= time.Millisecond, "1ms")
	positive("lookback_delta", c.LookbackDelta >= time.Millisecond, "1ms")
	positive("max_samples", c.MaxSamples > 0, "1")
	positive("max_concurrency", c.MaxConcurrency > 0, "1")
	positive("max_query_bytes", c.MaxQueryBytes > 0, "1")
	positive("max_query_depth", c.MaxQueryDepth > 0, "1")
	positive("max_subquery_steps", c.MaxSubquerySteps > 0, "1")
	positive("max_window_samples", c.MaxWindowSamples > 0, "1")
	if c.MaxQueryDepth > maxDepth {
		problems = append(problems, conf.Problem{Key: "max_query_depth",
			Text: fmt.Sprintf("is more than the parser and the engine can take in good time; set it to %d or less", maxDepth)})
	}
	return problems
}

// maxDepth bounds MaxQueryDepth. Work grows with its square: to parse and run a
// chain of 2000 operators takes an eighth of a second, of 100,000 minutes.
const maxDepth = 2000

func (c Config) limits() promqlguard.Limits {
	return promqlguard.Limits{
		Bytes:         int(c.MaxQueryBytes),
		Depth:         c.MaxQueryDepth,
		SubquerySteps: c.MaxSubquerySteps,
		WindowSamples: c.MaxWindowSamples,
	}
}
