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

const signalGrace = 200 * time.Millisecond

// progress tells a person what the lab does.
type progress struct {
	out  io.Writer
	line *terminal.Line // nil if out is no terminal
}

// run does steps in their order, and says before each what it is and how long all
// that is left takes. It ends at the first that fails or is interrupted.
func (p progress) run(ctx context.Context, steps []step) error {
	all, begun := total(steps), time.Now()
	for i, s := range steps {
		left := total(steps[i:])
		p.show(fmt.Sprintf("[%d/%d, %s left] %s", i+1, len(steps), minutes(corrected(left, all-left, time.Since(begun))), s.what))
		err := s.do(ctx)
		if err != nil {
			// A terminal's Ctrl-C meets receivers, too, and theirs may be seen first.
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

// corrected is what is left, if it goes on as fast as what is done did: estimates are
// those of a quiet machine.
func corrected(left, done, took time.Duration) time.Duration {
	const enough = 30 * time.Second // to judge by
	if done < enough {
		return left
	}
	return time.Duration(float64(left) * float64(took) / float64(done))
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
