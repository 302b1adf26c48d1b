package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/lib/run"
)

// pages shows one page, or page after page until the user interrupts the command.
type pages struct {
	terminal.View
	raw    bool             // pages are a server's answers, unchanged
	live   bool             // show page after page
	screen *terminal.Screen // nil if the output is not a terminal
}

func newPages(cmd *cobra.Command, raw, live bool) pages {
	return pages{View: terminal.New(cmd.OutOrStdout(), cmd.ErrOrStderr()), raw: raw, live: live}
}

// run calls show, which draws a page, once or each second.
func (p *pages) run(ctx context.Context, show func(context.Context) error) (err error) {
	if !p.live {
		return show(ctx)
	}
	ctx, cancel := run.WithSignals(ctx)
	defer cancel()
	if err := show(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // the user interrupted the command
		}
		return err
	}
	if screen := terminal.NewScreen(p.Out); screen != nil && !p.raw {
		if err := screen.Open(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, screen.Close()) }()
		p.screen = screen
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := show(ctx); err != nil && ctx.Err() == nil {
				// The command goes on: the server may be restarting, and users want to watch that.
				if err := p.draw(err.Error()); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// draw shows a page.
func (p *pages) draw(text string) error {
	text = strings.TrimSuffix(text, "\n")
	if p.screen != nil {
		return p.screen.Draw(strings.Split(text, "\n"))
	}
	if p.live {
		text += "\n" // separates pages
	}
	_, err := fmt.Fprintln(p.Out, text)
	return err
}
