package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/freshet-io/freshet/internal/core/capture"
)

// each calls `do` now and at every interval, until `do` fails or `ctx` is done.
func each(ctx context.Context, interval time.Duration, do func() error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := do(); err != nil {
			if ctx.Err() != nil {
				return nil // the user interrupted the command
			}
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// ended returns nil if the stream ended because the user interrupted the command.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, capture.ErrCut) {
		return errors.New("the server ended the stream; the part received before that is kept")
	}
	return err
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
