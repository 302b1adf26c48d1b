// Package pure keeps the rules: durations and instants are handed in.
package pure

import (
	"time"

	_ "github.com/freshet-io/freshet/internal/core/clock"
	_ "github.com/freshet-io/freshet/internal/lib/index"
)

// Age is arithmetic, which asks nobody for the time.
func Age(now, then time.Time) time.Duration { return now.Sub(then) }
