package settings

import (
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/tracing"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Self is the "self" section of the configuration file: what Freshet records and measures about
// itself.
type Self struct {
	Metrics  bool           `yaml:"metrics" help:"store Freshet's own metrics in the tenant freshet, for the web page" reload:"restart"`
	Interval time.Duration  `yaml:"interval" help:"interval at which Freshet's own metrics are stored; 1s to 1m" reload:"restart"`
	Probe    bool           `yaml:"probe" help:"measure freshness: every two seconds send the gauge freshet_probe to a DogStatsD address of each tenant and by remote write, and query it until it appears" reload:"restart"`
	Budgets  Budgets        `yaml:"budgets"`
	Traces   tracing.Config `yaml:"traces" reload:"restart"`
	Recorder Recorder       `yaml:"recorder" reload:"restart"`
}

// DefaultSelf stores about 800 series every 5 s. A Prometheus that scrapes 2,400 series every 15 s
// stores as many samples a second.
func DefaultSelf() Self {
	return Self{
		Metrics: true, Interval: 5 * time.Second, Probe: true,
		Budgets: defaultBudgets(), Traces: tracing.DefaultConfig(), Recorder: DefaultRecorder(),
	}
}

// Validate implements conf.Validator.
func (c Self) Validate() (problems []conf.Problem) {
	if c.Interval < time.Second || c.Interval > time.Minute {
		problems = append(problems, conf.Problem{Key: "interval", Text: "must be 1s to 1m; set it to 5s"})
	}
	return problems
}

// Budgets is the "self.budgets" section of the configuration file.
type Budgets struct {
	Read       time.Duration `yaml:"read" help:"budget for reading a batch of datagrams, or the body of a request; 0s: no budget, here and below"`
	Parse      time.Duration `yaml:"parse" help:"budget for parsing and counting, or decoding"`
	Window     time.Duration `yaml:"window" help:"budget from the end of a second until its batches are made"`
	Forward    time.Duration `yaml:"forward" help:"budget until the aggregator has accepted the batches"`
	Journal    time.Duration `yaml:"journal" help:"budget for writing to the journal"`
	Tile       time.Duration `yaml:"tile" help:"budget for folding into tiles"`
	Distribute time.Duration `yaml:"distribute" help:"budget for applying rules and limits"`
	Queue      time.Duration `yaml:"queue" help:"budget for a request's wait for a worker"`
	Append     time.Duration `yaml:"append" help:"budget for the commit in the store"`
	Visible    time.Duration `yaml:"visible" help:"budget for all stages together, until queries see the data"`
}

// defaultBudgets are at least ten times the usual durations of the stages on a laptop, so that a stage
// over its budget is worth a look. The budget of the stage visible includes the second of a window.
func defaultBudgets() Budgets {
	const usual = 250 * time.Millisecond
	return Budgets{
		Read: usual, Parse: usual, Window: usual, Forward: time.Second, Journal: usual, Tile: usual,
		Distribute: usual, Queue: usual, Append: time.Second, Visible: 2 * time.Second,
	}
}

// Stages returns the budgets by stage.
func (c Budgets) Stages() stage.Budgets {
	return stage.Budgets{
		stage.Read: c.Read, stage.Parse: c.Parse, stage.Window: c.Window, stage.Forward: c.Forward,
		stage.Journal: c.Journal, stage.Tile: c.Tile,
		stage.Distribute: c.Distribute, stage.Queue: c.Queue, stage.Append: c.Append, stage.Visible: c.Visible,
	}
}

// Validate implements conf.Validator.
func (c Budgets) Validate() (problems []conf.Problem) {
	for s, budget := range c.Stages() {
		if budget < 0 {
			problems = append(problems, conf.Problem{
				Key:  stage.Stage(s).String(),
				Text: fmt.Sprintf("must not be negative (%v); set it to 0s for no budget", budget),
			})
		}
	}
	return problems
}
