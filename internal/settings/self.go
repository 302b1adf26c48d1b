package settings

import (
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/tracing"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Self is the "self" section of the configuration file: what Freshet keeps and
// measures of itself.
type Self struct {
	Metrics  bool           `yaml:"metrics" help:"keep Freshet's own metrics in the tenant freshet, where the page reads them" reload:"restart"`
	Interval time.Duration  `yaml:"interval" help:"how often they are stored; 1s to 1m" reload:"restart"`
	Probe    bool           `yaml:"probe" help:"measure freshness: every two seconds send the gauge freshet_probe to a DogStatsD address of every tenant, and as a remote write, and ask until a query has it; all of it is stored in the tenant freshet" reload:"restart"`
	Budgets  Budgets        `yaml:"budgets"`
	Traces   tracing.Config `yaml:"traces" reload:"restart"`
	Recorder Recorder       `yaml:"recorder" reload:"restart"`
}

// DefaultSelf keeps about 800 series, which at 5 s are as many samples a second as 2,400
// series of a Prometheus that scrapes each 15 s.
func DefaultSelf() Self {
	return Self{Metrics: true, Interval: 5 * time.Second, Probe: true, Budgets: defaultBudgets(), Traces: tracing.DefaultConfig(), Recorder: DefaultRecorder()}
}

// Validate is part of conf.Validator.
func (c Self) Validate() (problems []conf.Problem) {
	if c.Interval < time.Second || c.Interval > time.Minute {
		problems = append(problems, conf.Problem{Key: "interval", Text: "must be 1s to 1m; set it to 5s"})
	}
	return problems
}

// Budgets is the section "self.budgets" of the configuration file.
type Budgets struct {
	Read       time.Duration `yaml:"read" help:"what a batch of datagrams may take to be read out of the kernel, or a request's body until it is there; 0s for any time, as with the others"`
	Parse      time.Duration `yaml:"parse" help:"to be parsed and counted, or decoded"`
	Window     time.Duration `yaml:"window" help:"from the end of a second until its batches are made"`
	Forward    time.Duration `yaml:"forward" help:"until the aggregator takes the batches"`
	Journal    time.Duration `yaml:"journal" help:"to be journalled"`
	Tile       time.Duration `yaml:"tile" help:"to be folded into tiles"`
	Distribute time.Duration `yaml:"distribute" help:"for rules and limits"`
	Queue      time.Duration `yaml:"queue" help:"until a worker writes it"`
	Append     time.Duration `yaml:"append" help:"to be committed in the store"`
	Visible    time.Duration `yaml:"visible" help:"all together, from the first packet of a second or the begin of a request until queries see it"`
}

// defaultBudgets are ten and more times what the stages take on a laptop, so that what
// breaks them is worth a look. A window is a second long: visible has that in it.
func defaultBudgets() Budgets {
	const usual = 250 * time.Millisecond
	return Budgets{
		Read: usual, Parse: usual, Window: usual, Forward: time.Second, Journal: usual, Tile: usual,
		Distribute: usual, Queue: usual, Append: time.Second, Visible: 2 * time.Second,
	}
}

// Stages has them by stage.
func (c Budgets) Stages() stage.Budgets {
	return stage.Budgets{
		stage.Read: c.Read, stage.Parse: c.Parse, stage.Window: c.Window, stage.Forward: c.Forward, stage.Journal: c.Journal, stage.Tile: c.Tile,
		stage.Distribute: c.Distribute, stage.Queue: c.Queue, stage.Append: c.Append, stage.Visible: c.Visible,
	}
}

// Validate is part of conf.Validator.
func (c Budgets) Validate() (problems []conf.Problem) {
	for s, budget := range c.Stages() {
		if budget < 0 {
			problems = append(problems, conf.Problem{Key: stage.Stage(s).String(), Text: fmt.Sprintf("is %v, and nothing is done in less than no time; set it to 0s for no budget", budget)})
		}
	}
	return problems
}
