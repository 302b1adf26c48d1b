package aggregator

import (
	"time"

	"github.com/freshet-io/freshet/internal/core/series"
)

// stopTime bounds how long the end of the process waits for the stores.
const stopTime = 10 * time.Second

// stop lets the writes in progress finish and checkpoints everything, so that the next start has
// nothing to replay. Samples that are not stored by then are in the checkpoint.
func (a *Aggregator) stop() error {
	a.abandonCheckpoint()
	a.finishWrites()
	for _, b := range a.backlogs {
		a.logger.Warn("samples wait for a store; they are in the checkpoint, and the next start stores them",
			"tenant", b.tenant, "samples", b.samples, "bytes", b.bytes, "error", b.reason())
	}
	if a.beginCheckpoint(a.now()); a.checkpoint != nil {
		a.continueCheckpoint(series.Shards)
		if a.checkpoint != nil {
			a.endCheckpoint(<-a.checkpoint.commit)
		}
	}
	return a.log.Close()
}

// abandonCheckpoint ends the checkpoint in progress.
func (a *Aggregator) abandonCheckpoint() {
	switch c := a.checkpoint; {
	case c == nil:
	case c.commit != nil:
		a.endCheckpoint(<-c.commit)
	default:
		c.Abort()
		a.checkpoint = nil
	}
}

// finishWrites waits until all stores except hanging ones have all their tiles. An older program cannot
// read a shard with waiting tiles. If no tiles wait, it can read the checkpoint.
func (a *Aggregator) finishWrites() {
	deadline := time.After(stopTime)
	check := time.NewTicker(tick)
	defer check.Stop()
	for {
		waits := false
		for _, b := range a.backlogs {
			waits = waits || b.onItsWay && time.Since(b.begun) < stalled
		}
		if !waits {
			return
		}
		select {
		case w := <-a.written:
			a.settle(w)
			a.writeDue()
		case <-check.C:
		case <-deadline:
			return
		}
	}
}
