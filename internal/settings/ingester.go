package settings

import (
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Ingester is the "ingester" section of the configuration file.
type Ingester struct {
	Queue   int `yaml:"queue" help:"requests that may wait to be written; further ones are answered with 503"`
	Workers int `yaml:"workers" help:"goroutines that write, each for one tenant at a time; 0 for two a processor, at least 4"`
}

// DefaultIngester lets a second's worth of requests wait on a machine of two cores, which
// writes 2 million samples a second at most: 1,000 requests of 2,000 samples, 0.5 GB with
// 250 bytes a sample. What waits is bounded by distributor.max_memory besides.
func DefaultIngester() Ingester { return Ingester{Queue: 1000} }

// Validate is part of conf.Validator.
func (c Ingester) Validate() []conf.Problem {
	var problems []conf.Problem
	if c.Queue < 1 {
		problems = append(problems, conf.Problem{Key: "queue", Text: "leaves no room for a request; set it to 1 or more"})
	}
	if c.Workers < 0 {
		problems = append(problems, conf.Problem{Key: "workers", Text: "is negative; set it to 0 for two a processor, or to a number"})
	}
	return problems
}
