package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// checkJournal says when there is nothing in the journal although tiles were stored: then
// it was deleted, or a part of a backup was restored.
func (s *server) checkJournal(report journal.Report) {
	missing := promauto.With(s.registry).NewGauge(prometheus.GaugeOpts{Name: "freshet_aggregator_journal_missing",
		Help: "1 if the journal was empty at the start of the process although there are stores of tiles: totals of counters began anew, those of up/down counters are lost, and what was not stored yet is lost. Put journal/ and tsdb/ of one backup back together, or let it be: the next start with a journal says 0."})
	nothing := report.Checkpoint == "" && report.Sections == 0 && report.Segments == 0 && len(report.Damage) == 0
	if !nothing || !s.stores.Exist(tile.Width10s.String(), tile.Width1m.String()) {
		return
	}
	missing.Set(1)
	s.logger.Error("the journal is empty, but tiles were stored: it was deleted, or a part of a backup was restored. "+
		"Totals of counters begin anew at 0, which rate() and increase() take for a reset, and those of up/down counters are wrong from now on; open tiles and what was not stored yet are lost",
		"journal", s.path("journal"), "way_out", "stop the server and put journal/ and tsdb/ of one backup back together, or go on without")
}
