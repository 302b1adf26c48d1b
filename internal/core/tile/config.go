package tile

import (
	"time"

	"github.com/freshet-io/freshet/internal/core/series"
)

// Config has the times to live of series. All shards share one Config.
type Config struct {
	CounterTTL time.Duration // of counters, timers and sets, after their last sample
	GaugeTTL   time.Duration
	CheckTTL   time.Duration
	UpDownTTL  time.Duration
	OutOfOrder time.Duration // how far before the last boundary a |T gauge may lie; a change applies at the next boundary

	// Full lists the tenants whose backlog of samples to be stored is full. Their tiles repeat no
	// values: otherwise the backlog would grow at each boundary even if no increments came. Full holds
	// for one boundary; it is empty in the Config that shards share.
	Full []string
}

// ttl returns the time to live of a kind, in milliseconds.
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
