package tile

import (
	"time"

	"github.com/freshet-io/freshet/internal/core/series"
)

// Config says how long series live. All shards share one.
type Config struct {
	CounterTTL time.Duration // of counters, timers and sets, after their last sample
	GaugeTTL   time.Duration
	CheckTTL   time.Duration
	UpDownTTL  time.Duration
	OutOfOrder time.Duration // how far before the last boundary a |T gauge may lie, from the next boundary on

	// Full are the tenants for which no more may wait to be stored. Their tiles repeat no
	// series, or what waits would grow with each boundary though nothing is counted. They
	// are those of one boundary: what shards share has none.
	Full []string
}

// ttl is in milliseconds.
func (c *Config) ttl(kind series.Kind) int64 {
	switch kind {
	case series.Gauge:
		return c.GaugeTTL.Milliseconds()
	case series.Check:
		return c.CheckTTL.Milliseconds()
	case series.UpDown:
		return c.UpDownTTL.Milliseconds()
	default:
		return c.CounterTTL.Milliseconds()
	}
}
