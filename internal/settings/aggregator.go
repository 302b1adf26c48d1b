package settings

import (
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Aggregator is the "aggregator" section of the configuration file.
type Aggregator struct {
	Lateness    time.Duration `yaml:"lateness" help:"time for which a tile stays open after its end, 0s to 30s"`
	CounterTTL  time.Duration `yaml:"counter_ttl" help:"time for which counters, timers and sets repeat their value after the last sample; at least 10s"`
	GaugeTTL    time.Duration `yaml:"gauge_ttl" help:"time for which gauges repeat their value after the last sample; at least 10s"`
	CheckTTL    time.Duration `yaml:"check_ttl" help:"time for which service checks repeat their status after the last sample; at least 10s"`
	UpDownTTL   time.Duration `yaml:"updown_ttl" help:"time for which up/down counters repeat their total after the last sample; at least 10s"`
	TimedWindow time.Duration `yaml:"timed_window" help:"largest age of a timestamp of a gauge or check (|T, d:); at most store.out_of_order"`
	Fsync       string        `yaml:"fsync" help:"when the journal is synced, against power loss: interval (every second) or commit (before each acknowledgement)"`
	Checkpoint  conf.Bytes    `yaml:"checkpoint" help:"journal bytes between checkpoints, at least 1MiB; on one machine at least twice the size of the last checkpoint; a start replays at most about twice as many"`
}

// Values of Aggregator.Fsync.
const (
	FsyncInterval = "interval"
	FsyncCommit   = "commit"
)

// DefaultAggregator works on a laptop. A collector's window arrives some milliseconds after its
// end, so a lateness of 2 s is a hundred times what is needed. 64 MiB of journal hold six minutes of
// 2,000 series that change every second, and are read in a second. An up/down counter may keep its
// value for weeks and matters as long as tiles show it. So it lives for 40 days, like the tiles
// (store.retention.1m).
func DefaultAggregator() Aggregator {
	return Aggregator{
		Lateness:    2 * time.Second,
		CounterTTL:  5 * time.Minute,
		GaugeTTL:    5 * time.Minute,
		CheckTTL:    time.Hour,
		UpDownTTL:   40 * 24 * time.Hour,
		TimedWindow: 10 * time.Minute,
		Fsync:       FsyncInterval,
		Checkpoint:  64 << 20,
	}
}

// Validate returns the problems of c, with keys relative to the section.
func (c Aggregator) Validate() []conf.Problem {
	var problems []conf.Problem
	add := func(key, text string, args ...any) {
		problems = append(problems, conf.Problem{Key: key, Text: fmt.Sprintf(text, args...)})
	}
	if c.Lateness < 0 || c.Lateness > 30*time.Second {
		add("lateness", "must be 0s to 30s: at most six tiles of 10s are open at once; set it to 2s")
	}
	for key, ttl := range map[string]time.Duration{
		"counter_ttl": c.CounterTTL, "gauge_ttl": c.GaugeTTL, "check_ttl": c.CheckTTL, "updown_ttl": c.UpDownTTL,
	} {
		if ttl < 10*time.Second {
			add(key, "must be at least 10s, the width of a tile")
		}
	}
	if c.TimedWindow < 0 {
		add("timed_window", "must not be negative; set it to 0s to refuse timestamps that lie in closed tiles")
	}
	if c.Fsync != FsyncInterval && c.Fsync != FsyncCommit {
		add("fsync", "must be %s or %s", FsyncInterval, FsyncCommit)
	}
	if c.Checkpoint < 1<<20 {
		add("checkpoint", "must be at least 1MiB")
	}
	return problems
}
