package settings

import (
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Ingester is the "ingester" section of the configuration file.
type Ingester struct {
	Queue   int `yaml:"queue" help:"requests that may wait to be written; further ones get 503"`
	Workers int `yaml:"workers" help:"tenants that are written for at the same time; 0: two per processor, at least 4"`
}

// DefaultIngester lets 1,000 requests wait. With 2,000 samples each, they take at least a second on a
// machine with two cores, and 0.5 GB at 250 bytes a sample. distributor.max_memory bounds them as
// well.
func DefaultIngester() Ingester { return Ingester{Queue: 1000} }

// Validate implements conf.Validator.
func (c Ingester) Validate() []conf.Problem {
	var problems []conf.Problem
	if c.Queue < 1 {
		problems = append(problems, conf.Problem{Key: "queue", Text: "leaves no room for a request; set it to 1 or more"})
	}
	if c.Workers < 0 {
		problems = append(problems, conf.Problem{
			Key:  "workers",
			Text: "is negative; set it to 0 for two per processor, or to a positive number",
		})
	}
	return problems
}
