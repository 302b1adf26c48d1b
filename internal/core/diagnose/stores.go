package diagnose

import (
	"fmt"
	"slices"
	"time"
)

// Stores: some cannot be opened, or what they had was lost. Whatever else is wrong, this
// is what somebody has to mend.
const (
	brokenMetric  = "freshet_store_broken"
	cutMetric     = "freshet_store_wal_cut_bytes_total"
	missingMetric = "freshet_aggregator_journal_missing"

	// lostScore is that of a loss which has happened: it is said until the process ends,
	// and nothing waits for it.
	lostScore = 0.5

	storesListed = 5

	// pendingMetric is by tenant how old its oldest tile is that is not stored. With the
	// largest aggregator.lateness, 30 s, half a minute is usual.
	pendingMetric  = "freshet_aggregator_pending_seconds"
	pendingSeconds = 60
)

func stores(m *moment) finding {
	f := finding{fine: "the stores: all that were tried can be opened, and no repair cut anything off"}
	f.Name, f.Title, f.Because, f.Next = Stores, "Stores are in order", "none is broken, and nothing was cut off", "Nothing is to be done."
	broken, cut, missing := above(m.end, brokenMetric), above(m.end, cutMetric), above(m.end, missingMetric)
	for _, b := range m.broken[:min(len(m.broken), storesListed)] {
		f.Evidence = append(f.Evidence, Evidence{
			What:    fmt.Sprintf("tenant %s, store %s, since %s: %s", clip(b.Tenant), clip(b.Store), b.Since.UTC().Format(time.DateTime), b.Error),
			Figures: []string{"way out: " + b.WayOut},
		})
	}
	if len(m.broken) == 0 { // a record that is older than stores.json
		for _, l := range broken[:min(len(broken), storesListed)] {
			f.Evidence = append(f.Evidence, Evidence{What: fmt.Sprintf("tenant %s, store %s: the log has the cause and the way out", clip(l.labels["tenant"]), clip(l.labels["store"]))})
		}
	}
	for _, l := range cut[:min(len(cut), storesListed)] {
		f.Evidence = append(f.Evidence, Evidence{What: fmt.Sprintf("tenant %s, store %s: its log was damaged, and the repair cut off %s of it since the process began", clip(l.labels["tenant"]), clip(l.labels["store"]), bytesText(l.value))})
	}
	if len(missing) > 0 {
		f.Evidence = append(f.Evidence, Evidence{What: "the journal was empty at the start although tiles were stored: totals of counters began anew"})
	}
	slow := slices.DeleteFunc(above(m.end, pendingMetric), func(l labelled) bool { return l.value < pendingSeconds })
	for _, l := range slow[:min(len(slow), storesListed)] {
		f.Evidence = append(f.Evidence, Evidence{What: fmt.Sprintf("tenant %s: its tiles have waited for its store for %s", clip(l.labels["tenant"]), seconds(l.value))})
	}
	n, open := max(len(broken), len(m.broken)), 0
	for _, b := range m.broken {
		if b.Open {
			open++
		}
	}
	switch {
	case open > 0:
		f.Score = 1
		f.Title = fmt.Sprintf("Stores that broke while they are open: %d; what they take is refused, or lost when the process ends", open)
		if n > open {
			f.Title += fmt.Sprintf("; and %d that cannot be opened", n-open)
		}
		f.Because = fmt.Sprintf("broken stores: %d; one is enough", n)
		f.Next = "Do what the way out says, and stop the process only if it says so: what a store has in memory is lost then."
	case n > 0:
		f.Score = 1
		f.Title = fmt.Sprintf("Stores that cannot be opened: %d, which answer nothing and take nothing", n)
		f.Because = fmt.Sprintf("broken stores: %d; one is enough", n)
		f.Next = "Do what the way out says. The store opens by itself within a minute; no restart is needed."
	case len(slow) > 0:
		f.Score = 1
		f.Title = fmt.Sprintf("Tenants whose store takes nothing: %d; their tiles wait", len(slow))
		f.Because = fmt.Sprintf("a tile waits for more than %s: it is stored in 6 s", seconds(pendingSeconds))
		f.Next = "The log and `freshet ledger` have the store's error. What was acknowledged is kept, and new samples of the tenant are refused once store.pending is reached."
	case len(cut) > 0 || len(missing) > 0:
		f.Score = lostScore
		f.Title = "Stored samples were lost when the process began"
		f.Because = "a repair cut off a log, or the journal was missing; that has happened and is said until the process ends"
		f.Next = "Look at the disk (dmesg, smartctl): logs are never changed once they are written. A backup has what is missing: docs/operations.md."
	}
	return f
}

// above are the values of a metric that are more than 0, the largest first.
func above(s samples, name string) (all []labelled) {
	for _, l := range s.of(name) {
		if l.value > 0 {
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b labelled) int { return int(max(-1, min(1, b.value-a.value))) })
	return all
}
