package settings

import (
	"time"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Recorder is the "self.recorder" section of the configuration file.
type Recorder struct {
	Budgets bool          `yaml:"budgets" help:"make a record when a stage exceeds its budget"`
	Flight  bool          `yaml:"flight" help:"keep an execution trace of the last seconds for records; costs up to a tenth of the processor with many small requests, else almost nothing; a collector alone keeps one only while it makes a record, and up to a minute longer"`
	Every   time.Duration `yaml:"every" help:"shortest time between two records of exceeded budgets; at least 30s"`
	Records int           `yaml:"records" help:"records kept, 1 to 1000; the oldest are deleted first"`
	Bytes   conf.Bytes    `yaml:"bytes" help:"disk space for all records, at least 16MiB"`
}

// DefaultRecorder keeps up to 20 records of 1 to 5 MB each.
func DefaultRecorder() Recorder {
	return Recorder{Budgets: true, Flight: true, Every: 5 * time.Minute, Records: 20, Bytes: 256 << 20}
}

// Validate implements conf.Validator.
func (c Recorder) Validate() (problems []conf.Problem) {
	for _, of := range []struct {
		key, text string
		wrong     bool
	}{
		{"every", "must be at least 30s, since a record takes 6 s; set it to 5m", c.Every < 30*time.Second},
		{"records", "must be 1 to 1000; set it to 20", c.Records < 1 || c.Records > 1000},
		{"bytes", "must be at least 16MiB, the size of a few records; set it to 256MiB", c.Bytes < 16<<20},
	} {
		if of.wrong {
			problems = append(problems, conf.Problem{Key: of.key, Text: of.text})
		}
	}
	return problems
}
