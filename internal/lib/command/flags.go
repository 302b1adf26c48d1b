package command

import (
	"errors"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// DurationFlag adds a flag for a duration, written as in the configuration.
func DurationFlag(flags *pflag.FlagSet, name string, preset time.Duration, help string) *time.Duration {
	d := preset
	flags.Func(name, help, func(text string) (err error) {
		d, err = ParseDuration(text)
		return err
	})
	return &d
}

// ParseDuration reads a duration that a person wrote.
func ParseDuration(text string) (time.Duration, error) {
	d, err := conf.ParseDuration(text)
	if err == nil && d < time.Millisecond {
		err = errors.New("is too short; write at least 1ms")
	}
	return d, err
}

// TimeFlag adds a flag for an instant; the zero time means now.
func TimeFlag(flags *pflag.FlagSet, name, help string) *time.Time {
	var t time.Time
	flags.Func(name, help, func(text string) (err error) {
		t, err = ParseTime(text)
		return err
	})
	return &t
}

// ParseTime reads an instant that a person wrote: Unix seconds or RFC 3339.
func ParseTime(text string) (time.Time, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 && seconds < 1<<33 {
		return time.UnixMilli(int64(seconds * 1000)), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, errors.New("is not a time; write Unix seconds or 2006-01-02T15:04:05Z")
	}
	return t, nil
}
