package settings

import (
	"time"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Recorder is the section "self.recorder" of the configuration file.
type Recorder struct {
	Budgets bool          `yaml:"budgets" help:"record when a stage is over its budget, and not only when asked"`
	Flight  bool          `yaml:"flight" help:"keep an execution trace of the last seconds in memory while anybody sends, for records to have the time before: that takes up to a tenth of the processor where requests are many and small, and nothing to speak of elsewhere"`
	Every   time.Duration `yaml:"every" help:"the shortest time between two of those; at least 30s"`
	Records int           `yaml:"records" help:"how many are kept, 1 to 1000; the oldest go first"`
	Bytes   conf.Bytes    `yaml:"bytes" help:"how much room they take together, at least 16MiB"`
}

// DefaultRecorder keeps some records of 1 to 5 MB.
func DefaultRecorder() Recorder {
	return Recorder{Budgets: true, Flight: true, Every: 5 * time.Minute, Records: 20, Bytes: 256 << 20}
}

// Validate is part of conf.Validator.
func (c Recorder) Validate() (problems []conf.Problem) {
	for _, of := range []struct {
		key, text string
		wrong     bool
	}{
		{"every", "must be at least 30s, since a record takes 6 s; set it to 5m", c.Every < 30*time.Second},
		{"records", "must be 1 to 1000; set it to 20", c.Records < 1 || c.Records > 1000},
		{"bytes", "must be at least 16MiB, the room of some records; set it to 256MiB", c.Bytes < 16<<20},
	} {
		if of.wrong {
			problems = append(problems, conf.Problem{Key: of.key, Text: of.text})
		}
	}
	return problems
}
