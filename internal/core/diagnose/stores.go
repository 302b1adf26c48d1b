package diagnose

import (
	"fmt"
	"slices"
	"time"
)

// Some stores cannot be opened, or have lost data. A person must fix this, whatever else is wrong.
const (
	brokenMetric  = "freshet_store_broken"
	cutMetric     = "freshet_store_wal_cut_bytes_total"
	missingMetric = "freshet_aggregator_journal_missing"

	// lostScore is the score of a loss in the past. Such a loss is reported until the process ends,
	// and is not urgent.
	lostScore = 0.5

	storesListed = 5

	// pendingMetric has, for each tenant, the age of its oldest tile that is not stored, in seconds.
	// Half a minute is usual with the largest aggregator.lateness, 30 s.
	pendingMetric  = "freshet_aggregator_pending_seconds"
	pendingSeconds = 60
)

func stores(m *moment) finding {
	f := finding{fine: "the stores: all that were tried can be opened, and no repair lost data"}
	f.Name, f.Title, f.Because, f.Next = Stores, "Stores are in order", "no store is broken, and no data was lost",
		"Nothing to do."
	broken, cut, missing := above(m.end, brokenMetric), above(m.end, cutMetric), above(m.end, missingMetric)
	for _, b := range m.broken[:min(len(m.broken), storesListed)] {
		f.Evidence = append(f.Evidence, Evidence{
			What: fmt.Sprintf("tenant %s, store %s, since %s: %s",
				clip(b.Tenant), clip(b.Store), b.Since.UTC().Format(time.DateTime), b.Error),
			Figures: []string{"way out: " + b.WayOut},
		})
	}
	if len(m.broken) == 0 { // an older record has no stores.json
		for _, l := range broken[:min(len(broken), storesListed)] {
			f.Evidence = append(f.Evidence,
				Evidence{What: fmt.Sprintf("tenant %s, store %s: see the server's log for the cause and the way out",
					clip(l.labels["tenant"]), clip(l.labels["store"]))})
		}
	}
	for _, l := range cut[:min(len(cut), storesListed)] {
		f.Evidence = append(f.Evidence,
			Evidence{What: fmt.Sprintf("tenant %s, store %s: its log was damaged, and repairs have cut off %s since "+
				"the process started", clip(l.labels["tenant"]), clip(l.labels["store"]), bytesText(l.value))})
	}
	if len(missing) > 0 {
		f.Evidence = append(f.Evidence,
			Evidence{What: "the journal was empty at the start although tiles were stored: " +
				"totals of counters restarted from zero"})
	}
	slow := slices.DeleteFunc(above(m.end, pendingMetric), func(l labelled) bool { return l.value < pendingSeconds })
	for _, l := range slow[:min(len(slow), storesListed)] {
		f.Evidence = append(f.Evidence,
			Evidence{What: fmt.Sprintf("tenant %s: its tiles have waited for its store for %s",
				clip(l.labels["tenant"]), seconds(l.value))})
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
		f.Title = fmt.Sprintf("Stores that broke while open: %d; new samples are refused, or lost when the process ends",
			open)
		if n > open {
			f.Title += fmt.Sprintf("; and %d that cannot be opened", n-open)
		}
		f.Because = fmt.Sprintf("broken stores: %d; one is enough", n)
		f.Next = "Follow the way out, and stop the process only if it says so: a stop loses what a store has in memory."
	case n > 0:
		f.Score = 1
		f.Title = fmt.Sprintf("Stores that cannot be opened: %d; they answer no query and take no sample", n)
		f.Because = fmt.Sprintf("broken stores: %d; one is enough", n)
		f.Next = "Follow the way out. The store then opens within a minute, without a restart."
	case len(slow) > 0:
		f.Score = 1
		f.Title = fmt.Sprintf("Tenants whose store takes nothing: %d; their tiles wait", len(slow))
		f.Because = fmt.Sprintf("a tile has waited for more than %s; usually it is stored within 6 s",
			seconds(pendingSeconds))
		f.Next = "The server's log and `freshet ledger` have the store's error. Acknowledged samples are kept; " +
			"new samples of the tenant are refused once store.pending is reached."
	case len(cut) > 0 || len(missing) > 0:
		f.Score = lostScore
		f.Title = "Stored samples were lost when the process started"
		f.Because = "a repair cut off a log, or the journal was missing; reported until the process ends"
		f.Next = "Check the disk (dmesg, smartctl): Freshet never changes a log once it is written. " +
			"Restore the lost data from a backup: docs/operations.md."
	}
	return f
}

// above(s, name) returns the values of a metric that exceed 0, the largest first.
func above(s samples, name string) (all []labelled) {
	for _, l := range s.of(name) {
		if l.value > 0 {
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b labelled) int { return int(max(-1, min(1, b.value-a.value))) })
	return all
}
