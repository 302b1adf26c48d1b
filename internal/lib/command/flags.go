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
	flags.Func(name, help, func(text string) error {
		read, err := conf.ParseDuration(text)
		if err == nil && read < time.Millisecond {
			err = errors.New("is too short; write at least 1ms")
		}
		d = read
		return err
	})
	return &d
}

// TimeFlag adds a flag for an instant; the zero time means now.
func TimeFlag(flags *pflag.FlagSet, name, help string) *time.Time {
	var t time.Time
	flags.Func(name, help, func(text string) error {
		if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 && seconds < 1<<33 {
			t = time.UnixMilli(int64(seconds * 1000))
			return nil
		}
		read, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return errors.New("is not a time; write Unix seconds or 2006-01-02T15:04:05Z")
		}
		t = read
		return nil
	})
	return &t
}
