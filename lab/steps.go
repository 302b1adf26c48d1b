package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
)

// step is a part of the lab's work. Steps are so small that a person sees progress.
type step struct {
	what  string
	takes time.Duration // estimated time
	do    func(context.Context) error
}

const signalGrace = 200 * time.Millisecond

// progress shows a person what the lab is doing.
type progress struct {
	out  io.Writer
	line *terminal.Line // nil if out is not a terminal
}

// run does the steps in order. Before each step it shows the step and the remaining time. It stops
// at the first step that fails or is interrupted.
func (p progress) run(ctx context.Context, steps []step) error {
	all, begun := total(steps), time.Now()
	for i, s := range steps {
		left := total(steps[i:])
		p.show(fmt.Sprintf("[%d/%d, %s left] %s", i+1, len(steps), minutes(corrected(left, all-left, time.Since(begun))),
			s.what))
		err := s.do(ctx)
		if err != nil {
			// Ctrl-C also reaches the receivers, so their errors may come before the interrupt is seen here.
			_ = wait(ctx, signalGrace)
		}
		switch {
		case ctx.Err() != nil:
			p.line.Clear()
			return fmt.Errorf("interrupted in step %d of %d, %s", i+1, len(steps), s.what)
		case err != nil:
			p.line.Clear()
			return fmt.Errorf("step %d of %d failed, %s: %w", i+1, len(steps), s.what, err)
		}
	}
	p.line.Clear()
	return nil
}

func total(steps []step) (takes time.Duration) {
	for _, s := range steps {
		takes += s.takes
	}
	return takes
}

// corrected scales the estimate of the remaining time by the speed so far, since the estimates hold
// only for a quiet machine.
func corrected(left, done, took time.Duration) time.Duration {
	const enough = 30 * time.Second // after less time than this, the speed says little
	if done < enough {
		return left
	}
	return time.Duration(float64(left) * float64(took) / float64(done))
}

// show replaces the line about the present step.
func (p progress) show(text string) {
	if p.line == nil {
		fmt.Fprintln(p.out, text)
		return
	}
	p.line.Draw(text)
}

// note prints a line that stays.
func (p progress) note(text string) {
	p.line.Clear()
	fmt.Fprintln(p.out, text)
}

func minutes(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}
