package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
)

// step is one thing to do, small enough that a person sees the lab get on.
type step struct {
	what  string
	takes time.Duration // about
	do    func(context.Context) error
}

// progress tells a person what the lab does.
type progress struct {
	out  io.Writer
	line *terminal.Line // nil if out is no terminal
}

// run does steps in their order, and says before each what it is and how long all
// that is left takes.
func (p progress) run(ctx context.Context, steps []step) error {
	var left time.Duration
	for _, s := range steps {
		left += s.takes
	}
	for i, s := range steps {
		p.show(fmt.Sprintf("[%d/%d, %s left] %s", i+1, len(steps), minutes(left), s.what))
		if err := s.do(ctx); err != nil {
			p.line.Clear()
			return fmt.Errorf("%s: %w", s.what, err)
		}
		left -= s.takes
	}
	p.line.Clear()
	return nil
}

// show says what is being done, in the place of what was.
func (p progress) show(text string) {
	if p.line == nil {
		fmt.Fprintln(p.out, text)
		return
	}
	p.line.Draw(text)
}

// note says what is to be read afterwards, too.
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
