package group

import (
	"cmp"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/skip"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/tiling"
)

// take takes the member's output and passes it on.
func (g *Group) take() error {
	out, err := g.node.Take()
	if err != nil {
		return err
	}
	if len(out.Messages) > 0 && g.Network != nil {
		all, applied, short := make([]member.Message, len(out.Messages)), g.node.State().Index(), g.short()
		for i, m := range out.Messages {
			all[i] = member.Message{Message: m, Sent: g.now, Applied: applied, Short: short}
		}
		g.Network.Send(all)
	}
	for _, w := range out.Writes {
		g.queue = append(g.queue, &logJob{write: w})
	}
	for i := range out.Applied {
		g.post(&out.Applied[i])
	}
	for i := range out.Answers {
		g.answer(&out.Answers[i])
	}
	g.tried = time.Time{}
	g.begin(out.Work)
	if out.Members != nil {
		g.changed(out.Members)
	}
	if out.YieldsTo != 0 {
		g.yields.Inc()
		g.Logger.Warn("this member leads, but its entries have been stuck for 2 s, or a store refuses requests, so it asks "+
			"another member to lead; if that happens often, its disk is slow or full, or its network is slow",
			"asks", g.nodeOf(out.YieldsTo))
	}
	g.follow(out.Leadership)
	g.send(g.node.Sends())
	g.sayHeld()
	return g.broke
}

// sayHeld logs when this member stops taking entries since its stores do not keep up, and when it goes on.
func (g *Group) sayHeld() {
	tenant, held := g.node.Held()
	if held == g.pauses {
		return
	}
	if g.pauses = held; held {
		g.Logger.Error("the stores of a tenant do not keep up on this member: it takes no more entries until they do, and "+
			"lags behind the others", "tenant", tenant)
		return
	}
	g.Logger.Info("the member takes entries again", "entries_behind", g.node.Committed()-g.node.State().Index())
}

// changed notes whether this member is now the only voter.
func (g *Group) changed(m *replica.Members) {
	g.members = *m
	g.alone = len(m.Voters) == 1 && len(m.Leaving) == 0 && m.Voters[0] == g.Member
	g.others.Store(!g.alone)
}

// post passes on what an entry did: to the books, the metrics and Told.
func (g *Group) post(done *member.Applied) {
	g.books.Folded(done.Windows.Folded)
	g.metrics.Tiled.Add(float64(done.Closed.Samples))
	g.books.Duplicates(done.Closed.Duplicates)
	g.damaged(done.Windows.Damaged)
	g.sayRefused(done.Windows.Folded)
	g.counted(&done.Windows)
	if done.Kind == entry.KindForwarded {
		g.settleForwarded()
	}
	g.sayNames(done.Names)
	g.saySkipped(done.Skipped)
	if g.Told != nil {
		tellApplied(g.Told, done)
	}
}

// sayRefused logs that a tenant of some windows is not admitted, at most once in `complaint`.
func (g *Group) sayRefused(folded map[string]*tile.Folded) {
	for tenant, f := range folded {
		if f.NoTenant > 0 && time.Since(g.saidAt) >= complaint {
			g.saidAt = time.Now()
			g.Logger.Error(tiling.NotAdmitted, "tenant", tenant, "samples", f.NoTenant)
		}
	}
}

// sayNames logs and counts claims that got another name.
func (g *Group) sayNames(all []member.Conflict) {
	for _, c := range all {
		g.conflicts.WithLabelValues(c.Finding.String()).Inc()
		text := "two kinds have the same name; they are stored under different names"
		if c.Finding == catalogue.FormConflict {
			text = "timers with the same name have different buckets, and are kept apart; give them one rule, or different names"
		}
		g.Logger.Warn(text, "tenant", c.Tenant, "name", c.Owner.Name, "owner_kind", c.Owner.Kind,
			"owner_buckets", c.Owner.Buckets, "stored_as", c.StoredAs)
	}
}

// saySkipped counts and logs an entry that was left out.
func (g *Group) saySkipped(e *skip.Entry) {
	if e == nil {
		return
	}
	g.skipped.entries.Inc()
	g.skipped.samples.Add(float64(e.Samples))
	g.Logger.Error("an entry of the log is left out, as freshet cluster skip said", "entry", e.Index, "what", e.What,
		"samples", e.Samples)
}

func (g *Group) damaged(batches int) {
	if batches > 0 {
		g.metrics.Damaged.Add(float64(batches))
		g.Logger.Error("batches are damaged; their readable part is counted", "batches", batches)
	}
}

// answer gives an answer to its caller.
func (g *Group) answer(a *member.Answer) {
	asked, waits := g.waiting[a.ID]
	if !waits {
		return // see breaks
	}
	delete(g.waiting, a.ID)
	if asked.push != nil {
		g.pushed -= int64(len(asked.push.bytes))
	}
	if asked.answered {
		return
	}
	if asked.call != nil {
		asked.call.begun = g.tried
	}
	if full, is := a.Err.(*batch.FullError); is {
		for tenant := range full.Samples {
			b := g.backlogOf(tenant)
			full.Cause = cmp.Or(full.Cause, b.reason())
			from := asked.push.begins(tenant)
			if !b.refused {
				b.refused, b.refusedFrom = true, from
			}
			b.refusedFrom = min(b.refusedFrom, from)
			g.publish(b)
		}
	}
	asked.answer <- *a
}

// broken says that the member cannot go on, and why.
func (g *Group) broken(err error) error {
	return fmt.Errorf("member %d of group %d stops: %w", g.Member, g.Number, err)
}
