package querier

import (
	"time"

	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/tile"
)

// pointsPerRange is the smallest number of tiles in a range selector. Four tiles give rate() three
// intervals, so that a missing interval at either end does not halve the result.
const pointsPerRange = 4

// resolution chooses the width of the tiles that answer a select. For a range query, it chooses the
// coarsest width that has a tile for each step and four tiles for each range (for an instant selector,
// the range is the look-back delta). For any other query, it chooses the finest width. If the store
// does not keep tiles of the chosen width back to the start of the query, resolution chooses the
// finest width whose tiles go back that far, or else the width that is kept longest.
// docs/decisions/resolution.md gives the reasons.
func resolution(hints *storage.SelectHints, lookback time.Duration, now time.Time,
	retention [tile.NumWidths]time.Duration) tile.Width {
	const finest, coarsest = tile.Width(0), tile.Width(tile.NumWidths - 1)
	reaches := func(w tile.Width) bool {
		return hints.Start >= now.Add(-retention[w]).UnixMilli()
	}

	chosen := finest
	if hints.Step > 0 {
		covered := hints.Range
		if covered == 0 {
			covered = lookback.Milliseconds()
		}
		for w := coarsest; w > finest; w-- {
			if w.Millis() <= min(hints.Step, covered/pointsPerRange) {
				chosen = w
				break
			}
		}
	}
	if reaches(chosen) {
		return chosen
	}
	longest := finest
	for w := finest; w <= coarsest; w++ {
		if reaches(w) {
			return w
		}
		if retention[w] > retention[longest] {
			longest = w
		}
	}
	return longest
}
