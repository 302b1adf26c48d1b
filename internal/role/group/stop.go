package group

import (
	"math"
	"time"
)

// stopTime bounds the wait for the stores and the log at the end.
const stopTime = 10 * time.Second

// stop lets writes under way finish and saves everything, so that the next start has nothing to replay.
// Samples that are not stored by then are in the checkpoint.
func (g *Group) stop() error {
	g.abandonSaving()
	if err := g.finish(); err != nil {
		return g.broken(err)
	}
	for _, b := range g.backlogs {
		if waits := g.node.State().Waiting(b.tenant); waits.Tiles > 0 {
			g.Logger.Warn("samples wait for a store; they are in the checkpoint, and the next start stores them",
				"tenant", b.tenant, "samples", waits.Samples, "bytes", waits.Bytes, "error", b.reason())
		}
	}
	if g.beginSaving(g.Now()); g.saving != nil {
		g.continueSaving(math.MaxInt)
		g.abandonSaving()
	}
	return g.finish()
}

// abandonSaving ends the checkpoint that is being written.
func (g *Group) abandonSaving() {
	switch c := g.saving; {
	case c == nil:
	case c.commit != nil:
		g.endSaving(<-c.commit)
	default:
		c.Abort()
		g.noted.Abort()
		g.saving = nil
	}
}

// finish waits for the log and for the writes under way, but not for hanging ones.
func (g *Group) finish() error {
	deadline := time.After(stopTime)
	check := time.NewTicker(100 * time.Millisecond)
	defer check.Stop()
	for g.busy() {
		select {
		case g.nextJob() <- g.firstJob():
			g.sent()
		case j := <-g.done:
			if err := g.logged(j); err != nil {
				return err
			}
		case err := <-g.failing:
			g.fail(err)
		case j := <-g.written:
			g.settle(j)
		case <-check.C:
		case <-deadline:
			return nil
		}
		if err := g.take(); err != nil {
			return err
		}
	}
	return nil
}

// busy reports whether the log or a store that does not hang has work under way.
func (g *Group) busy() bool {
	if g.sick == nil && (len(g.queue) > 0 || g.appending) {
		return true
	}
	for _, b := range g.backlogs {
		if b.job != nil && b.job.onItsWay && time.Since(b.job.begun) < stalled {
			return true
		}
	}
	if j := g.events; j != nil && j.onItsWay && time.Since(j.begun) < stalled {
		return true
	}
	for _, j := range g.requested {
		if j.onItsWay && time.Since(j.begun) < stalled {
			return true
		}
	}
	return false
}
