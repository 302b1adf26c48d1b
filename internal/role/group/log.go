package group

import (
	"errors"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
)

// logJob is work for the goroutine of the log.
type logJob struct {
	write   *replica.Write // nil to compact
	compact uint64         // the last index that may be removed
	keep    int64          // bytes to be kept
	err     error          // ErrDamaged, or why compaction failed
}

// nextJob returns the channel of the log's goroutine, or nil if there is nothing for it.
func (g *Group) nextJob() chan *logJob {
	if len(g.queue) == 0 {
		return nil
	}
	return g.jobs
}

func (g *Group) firstJob() *logJob {
	if len(g.queue) == 0 {
		return nil
	}
	return g.queue[0]
}

// sent removes the first job from the queue: the log has taken it.
func (g *Group) sent() {
	g.queue, g.appending = g.queue[1:], true
}

// runLog does the work of the log, one job after the other, until Run ends.
func (g *Group) runLog() {
	for {
		select {
		case j := <-g.jobs:
			g.do(j)
			select {
			case g.done <- j:
			case <-g.ended:
				return
			}
		case <-g.ended:
			return
		}
	}
}

// do does a job. It tries a write until the disk takes it, since the member cannot take the write back.
func (g *Group) do(j *logJob) {
	if j.write == nil {
		j.err = g.log.Compact(j.compact, j.keep)
		return
	}
	defer g.appends.written()
	var saidAt time.Time
	for {
		began := g.appends.begin()
		err := g.log.Append(&j.write.Write)
		g.appends.end(began)
		if err == nil || errors.Is(err, entrylog.ErrDamaged) {
			j.err = err
			return
		}
		g.metrics.JournalErrors.Inc()
		if time.Since(saidAt) >= complaint {
			saidAt = time.Now()
			g.Logger.Error("windows and requests wait until the log of the group can be written", "error", err)
		}
		select {
		case g.failing <- err:
		case <-g.ended:
		}
		select {
		case <-time.After(retryPause):
		case <-g.ended:
			j.err = err
			return
		}
	}
}

// fail remembers that the log cannot be written, and answers the callers that need not wait. The member
// keeps their windows and requests: these may still count, and are repeats if the callers send them
// again.
func (g *Group) fail(err error) {
	g.sick = cannotWrite(err)
	for id, asked := range g.waiting {
		if !asked.answered && g.sickness(asked.proposes()) != nil {
			asked.answer <- member.Answer{ID: id, Err: g.sick}
			asked.answered = true
			g.waiting[id] = asked
		}
	}
}

// takeover is more than the time until another member leads in place of a stuck leader.
const takeover = 5 * time.Second

// sickness returns why a call fails at once, namely that the log cannot be written, or nil if the call
// may wait. Only a proposal in a group of several members waits for the next leader, for at most
// `takeover`: a leader whose log is stuck asks another member to lead, and the callers then learn of
// that.
func (g *Group) sickness(proposes bool) error {
	if proposes && !g.alone && (!g.leads || g.appends.stuck() < takeover) {
		return nil
	}
	return g.sick
}

func cannotWrite(err error) error {
	return fmt.Errorf("the log of the group cannot be written: %w", err)
}

// logged takes back a job that is done.
func (g *Group) logged(j *logJob) error {
	g.appending = false
	switch {
	case j.write == nil && j.err != nil:
		g.metrics.JournalErrors.Inc()
		g.Logger.Error("old entries of the group's log stay until the next checkpoint", "error", j.err)
	case j.write == nil:
	case j.err != nil:
		return j.err
	default:
		g.sick = nil
		g.count(j.write)
		g.node.Stored(j.write.Number)
	}
	return nil
}

// count counts the bytes of a write.
func (g *Group) count(w *replica.Write) {
	for i := range w.Entries {
		g.grown.Add(int64(len(w.Entries[i].Data)))
	}
}
