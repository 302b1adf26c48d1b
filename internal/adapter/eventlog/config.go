package eventlog

import (
	"time"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Config is the "events" section of the configuration file.
type Config struct {
	MaxEvents int           `yaml:"max_events" help:"events kept for each tenant; new ones replace the oldest"`
	Retention time.Duration `yaml:"retention" help:"age at which events are deleted; at least 1m"`
}

// DefaultConfig gives events the retention of 1 min tiles, so that both begin at the same place
// on a dashboard. 100,000 events of 500 bytes are 50 MB on disk.
func DefaultConfig() Config {
	return Config{MaxEvents: 100_000, Retention: 40 * 24 * time.Hour}
}

// Validate returns all problems of the section.
func (c Config) Validate() (problems []conf.Problem) {
	if c.MaxEvents < 1 {
		problems = append(problems,
			conf.Problem{Key: "max_events", Text: "leaves no room for any event; set it to 1 or more"})
	}
	if c.Retention < time.Minute {
		problems = append(problems,
			conf.Problem{Key: "retention", Text: "is too short to see an event; set it to 1m or more"})
	}
	return problems
}
