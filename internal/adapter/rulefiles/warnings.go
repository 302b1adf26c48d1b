package rulefiles

import (
	"context"
	"log/slog"
)

// warnings is a log handler that notes whether rulefmt warned. It warns of a second YAML document only,
// and has no other way to tell its caller.
type warnings struct{ any bool }

func (*warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (w *warnings) Handle(context.Context, slog.Record) error {
	w.any = true
	return nil
}

func (w *warnings) WithAttrs([]slog.Attr) slog.Handler { return w }
func (w *warnings) WithGroup(string) slog.Handler      { return w }
