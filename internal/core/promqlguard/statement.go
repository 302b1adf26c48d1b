package promqlguard

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// DefaultStep is the step of a subquery that states no step, as in x[1h:].
const DefaultStep = time.Minute

// sampleSpacing is the time that is assumed between two samples of a range selector: the width of
// the finest tiles.
const sampleSpacing = 10 * time.Second

// CheckStatement refuses a query whose steps would take more memory or time than the limits allow. The
// engine must have prepared s, since the preparation wraps the parts that are the same at each step.
//
// The steps of a subquery cover its own range and all ranges around it, because the engine
// evaluates the subquery once for all ranges. Each step takes 16 bytes before any sample is read.
//
// Window samples are the samples that range functions look at in one series, over all steps. With
// one sample per 10 s, 1000 steps that each look at 30 days are 259 million window samples. The
// engine checks the deadline and cancellation only between two series, so this limit bounds how
// long a query runs on after it should have stopped. For each billion samples, max_over_time runs
// for about a second, and quantile_over_time for minutes.
func (l Limits) CheckStatement(s *parser.EvalStmt) error {
	if s.Interval > 0 && s.Interval < time.Millisecond {
		return fmt.Errorf("the query's step is %v; make it 1ms or more", s.Interval)
	}
	outer := window{steps: 1}
	if s.Interval > 0 {
		outer = newWindow(milliseconds(s.End.Sub(s.Start)), s.Interval)
	}
	c := counter{limits: l}
	return c.walk(s.Expr, outer)
}

// window is the time over which an expression is evaluated. A float64 holds milliseconds exactly
// for 285,000 years, and products of such numbers do not overflow.
type window struct {
	span  float64 // milliseconds from the first step to the last
	steps float64
}

func newWindow(span float64, step time.Duration) window {
	return window{span, float64(int64(span/milliseconds(step))) + 1}
}

func milliseconds(d time.Duration) float64 { return float64(d.Milliseconds()) }

type counter struct {
	limits         Limits
	steps, samples float64
}

// walk counts the node n and all nodes below it. n is evaluated over w. The depth of the recursion
// is bounded, since a Parser accepted the query.
func (c *counter) walk(n parser.Node, w window) error {
	switch n := n.(type) {
	case *parser.StepInvariantExpr:
		w = window{steps: 1}
	case *parser.MatrixSelector:
		if err := c.addSamples(n.Range, sampleSpacing, w); err != nil {
			return err
		}
	case *parser.SubqueryExpr:
		step := n.Step
		if step == 0 {
			step = DefaultStep
		}
		if step < time.Millisecond {
			return errors.New("a subquery's step is below 1ms; make it 1ms or more")
		}
		inner := newWindow(w.span+milliseconds(n.Range), step)
		if c.steps += inner.steps; c.steps > float64(c.limits.SubquerySteps) {
			return fmt.Errorf("with [%s:%s] the query's subqueries take %.0f steps; the limit is %d "+
				"(query.max_subquery_steps): lengthen the step or shorten the range",
				model.Duration(n.Range), model.Duration(step), c.steps, c.limits.SubquerySteps)
		}
		if err := c.addSamples(n.Range, step, w); err != nil {
			return err
		}
		w = inner
	}
	for child := range parser.ChildrenIter(n) {
		if err := c.walk(child, w); err != nil {
			return err
		}
	}
	return nil
}

// addSamples counts the samples that a range function looks at, over all steps of w.
func (c *counter) addSamples(length, spacing time.Duration, w window) error {
	c.samples += w.steps * newWindow(milliseconds(length), spacing).steps
	if c.samples > float64(c.limits.WindowSamples) {
		return fmt.Errorf("with [%s] at %.0f steps the query looks at about %.0f samples a series; "+
			"the limit is %d (query.max_window_samples): lengthen the step of the query or subquery, or shorten the range",
			model.Duration(length), w.steps, c.samples, c.limits.WindowSamples)
	}
	return nil
}
