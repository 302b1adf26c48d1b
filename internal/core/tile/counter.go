package tile

import "github.com/freshet-io/freshet/internal/core/batch"

// counter adds up nonnegative increments.
type counter struct{ upDown }

func (c counter) add(e *entry, t *openTile, inc *batch.Increment) bool {
	return inc.Value >= 0 && c.upDown.add(e, t, inc)
}

func (counter) rises() bool { return true }
