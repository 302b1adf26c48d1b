package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/freshet-io/freshet/slogring"
	"github.com/rs/zerolog"
	"github.com/sirupsen/logrus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger writes the three lines of a request in the way that the logger's authors recommend for hot paths.
type logger interface {
	received(method, path, origin, destination string)
	found(routes int, cheapest string, cached bool)
	done(status, bytes int, took time.Duration)
}

// names are the loggers, beginning with the base of comparison. Each writes its default format: logrus and
// slog write text, zap and zerolog JSON.
var names = []string{none, again, "logrus", "logrus, no lock", "zap", "zerolog", "slog", ring, ringAll}

const (
	none    = "no log"
	again   = "no log, again"
	ring    = "slogring"      // with its defaults, it writes ten records of each message a second
	ringAll = "slogring, all" // suppresses nothing
)

// goals are the loggers that are measured for the goals: in short turns, each one is compared with a
// service that logs nothing.
var goals = []string{none, again, ring, ringAll}

func newLogger(name string, out *os.File) (logger, *slogring.Handler) {
	switch name {
	case "logrus", "logrus, no lock":
		l := logrus.New()
		l.SetOutput(out)
		if name != "logrus" {
			l.SetNoLock()
		}
		return logrusLogger{l}, nil
	case "zap":
		encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
		return zapLogger{zap.New(zapcore.NewCore(encoder, zapcore.Lock(out), zap.InfoLevel))}, nil
	case "zerolog":
		return zerologLogger{zerolog.New(out).With().Timestamp().Logger()}, nil
	case "slog":
		return slogLogger{slog.New(slog.NewTextHandler(out, nil))}, nil
	case ring:
		h := slogring.New(out, slogring.Options{})
		return slogLogger{slog.New(h)}, h
	case ringAll:
		h := slogring.New(out, slogring.Options{Unsampled: slogring.EveryLevel})
		return slogLogger{slog.New(h)}, h
	}
	return noLogger{}, nil
}

type noLogger struct{}

func (noLogger) received(method, path, origin, destination string) {}
func (noLogger) found(routes int, cheapest string, cached bool)    {}
func (noLogger) done(status, bytes int, took time.Duration)        {}

type logrusLogger struct{ *logrus.Logger }

func (l logrusLogger) received(method, path, origin, destination string) {
	l.WithFields(logrus.Fields{"method": method, "path": path, "origin": origin,
		"destination": destination}).Info("request received")
}

func (l logrusLogger) found(routes int, cheapest string, cached bool) {
	l.WithFields(logrus.Fields{"routes": routes, "cheapest": cheapest, "cached": cached}).Info("coverage found")
}

func (l logrusLogger) done(status, bytes int, took time.Duration) {
	l.WithFields(logrus.Fields{"status": status, "bytes": bytes, "took": took}).Info("request done")
}

type zapLogger struct{ *zap.Logger }

func (l zapLogger) received(method, path, origin, destination string) {
	l.Info("request received", zap.String("method", method), zap.String("path", path), zap.String("origin", origin),
		zap.String("destination", destination))
}

func (l zapLogger) found(routes int, cheapest string, cached bool) {
	l.Info("coverage found", zap.Int("routes", routes), zap.String("cheapest", cheapest), zap.Bool("cached", cached))
}

func (l zapLogger) done(status, bytes int, took time.Duration) {
	l.Info("request done", zap.Int("status", status), zap.Int("bytes", bytes), zap.Duration("took", took))
}

type zerologLogger struct{ zerolog.Logger }

func (l zerologLogger) received(method, path, origin, destination string) {
	l.Info().Str("method", method).Str("path", path).Str("origin", origin).Str("destination",
		destination).Msg("request received")
}

func (l zerologLogger) found(routes int, cheapest string, cached bool) {
	l.Info().Int("routes", routes).Str("cheapest", cheapest).Bool("cached", cached).Msg("coverage found")
}

func (l zerologLogger) done(status, bytes int, took time.Duration) {
	l.Info().Int("status", status).Int("bytes", bytes).Dur("took", took).Msg("request done")
}

type slogLogger struct{ *slog.Logger }

func (l slogLogger) received(method, path, origin, destination string) {
	l.LogAttrs(context.Background(), slog.LevelInfo, "request received", slog.String("method", method),
		slog.String("path", path),
		slog.String("origin", origin), slog.String("destination", destination))
}

func (l slogLogger) found(routes int, cheapest string, cached bool) {
	l.LogAttrs(context.Background(), slog.LevelInfo, "coverage found", slog.Int("routes", routes),
		slog.String("cheapest", cheapest), slog.Bool("cached", cached))
}

func (l slogLogger) done(status, bytes int, took time.Duration) {
	l.LogAttrs(context.Background(), slog.LevelInfo, "request done", slog.Int("status", status), slog.Int("bytes", bytes),
		slog.Duration("took", took))
}
