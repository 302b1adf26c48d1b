package tracing

import (
	"fmt"
	"net/url"
	"time"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Config is the section "self.traces" of the configuration file.
type Config struct {
	Keep     int           `yaml:"keep" help:"slow traces held in memory, 1 to 10000"`
	Query    time.Duration `yaml:"query" help:"keep the traces of queries that take longer than this; traces of batches are kept if they exceed a stage's budget"`
	Endpoint string        `yaml:"endpoint" help:"URL that kept traces are sent to by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces; empty: none" show:"url"`
}

// DefaultConfig keeps 300 traces, more than a person looks through. A batch's trace takes about
// 5 kB, a query's up to 100 kB.
func DefaultConfig() Config { return Config{Keep: 300, Query: time.Second} }

const maxKeep = 10_000

// Validate is part of conf.Validator.
func (c Config) Validate() (problems []conf.Problem) {
	if c.Keep < 1 || c.Keep > maxKeep {
		problems = append(problems, conf.Problem{Key: "keep", Text: fmt.Sprintf("must be 1 to %d; set it to 300", maxKeep)})
	}
	if c.Query <= 0 {
		problems = append(problems, conf.Problem{Key: "query", Text: "must be above 0s; set it to 1s"})
	}
	if c.Endpoint != "" {
		if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			problems = append(problems,
				conf.Problem{
					Key: "endpoint", Text: "is not the URL of an OTLP receiver; write it like http://127.0.0.1:4318/v1/traces",
				})
		}
	}
	return problems
}
