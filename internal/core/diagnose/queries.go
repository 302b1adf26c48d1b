package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/querycost"
)

// Queries take the processors, or wait for each other because more queries come than may run at
// once. Usually dashboards send them.
const (
	// The part of the processors that queries take. This part does not matter while processors are
	// free.
	queriesUsual = 0.20
	queriesBad   = 0.50

	// Other work suffers when this part of the processors is in use.
	fullUsual = 0.70
	fullBad   = 0.90

	// The queries' part of the processor time that the process gets. This part counts if goroutines
	// wait for a processor, since other processes may use most of the machine.
	queriesOfOwn    = 0.40
	queriesOfOwnBad = 0.70

	// The average number of queries that wait for their turn. A dashboard that is opened sends 40
	// queries at once, which are answered within a second.
	waitingUsual = 2
	waitingBad   = 8

	queriesListed = 5
)

// askedQuery is a query and its cost. Queries that differ only in values count as one.
type askedQuery struct {
	querycost.Row
	cores float64 // processors that the query keeps busy, from cpu.pprof
}

func queries(m *moment) finding {
	all := m.askedQueries()
	cores := 0.0
	for _, q := range all {
		cores += q.cores
	}
	share := cores / float64(max(1, m.GOMAXPROCS))
	waiting, tenants := m.waitingQueries()
	felt := max(ramp(m.full(), fullUsual, fullBad), ramp(waiting, waitingUsual, waitingBad), starvation(m).Score)

	f := finding{fine: fmt.Sprintf("queries take %s of %d processors, and on average %s queries wait for their turn",
		average(cores), m.GOMAXPROCS, average(waiting))}
	f.Name = Queries
	own := ramp(cores/max(m.cores(), 1e-9), queriesOfOwn, queriesOfOwnBad) * m.active()
	f.Score = max(ramp(share, queriesUsual, queriesBad)*felt, own*starvation(m).Score,
		ramp(waiting, waitingUsual, waitingBad))
	f.Because = fmt.Sprintf("queries take %s of the processors (score 0 up to %s, 1 from %s), or, "+
		"if goroutines wait for a processor, %s of those that the process gets (%s to %s), "+
		"less if processors are free and no query waits; or on average %s queries wait for their turn (%d to %d); "+
		"the larger score counts",
		percent(share), percent(queriesUsual), percent(queriesBad), percent(min(1, cores/max(m.cores(), 1e-9))),
		percent(queriesOfOwn), percent(queriesOfOwnBad), average(waiting), waitingUsual, waitingBad)
	f.Title = fmt.Sprintf("Queries take %s of %d processors", average(cores), m.GOMAXPROCS)
	if ramp(share, queriesUsual, queriesBad) == 0 {
		f.Title = fmt.Sprintf("Queries wait for their turn: %s on average", average(waiting))
	}
	if len(all) > 0 && (all[0].cores > 0 || all[0].Running > 0) {
		f.Title += ": " + all[0].title()
	}
	for i := range all[:min(queriesListed, len(all))] {
		if q := &all[i]; q.cores >= shownShare*cores && (q.cores > 0 || q.Running > 0 || q.Active > 0) {
			f.Evidence = append(f.Evidence, q.evidence(cores))
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(tenants), func(a, b string) int {
		return cmp.Or(cmp.Compare(tenants[b], tenants[a]), cmp.Compare(a, b))
	})[:min(queriesListed, len(tenants))] {
		f.Evidence = append(f.Evidence,
			Evidence{What: fmt.Sprintf("tenant %s: on average %s of its queries wait for their turn",
				clip(name), average(tenants[name]))})
	}
	f.Next = "Make the panel ask for less: fewer series, a shorter range, a longer step, a slower refresh. " +
		"Tenants take turns, so other tenants wait for the panel no longer than a turn (docs/limits.md); " +
		"query.max_concurrency bounds the processors of long queries. If all queries are wanted, the machine is too small."
	return f
}

// askedQueries returns the queries of the last minute. The queries that keep the most processors
// busy come first. If the profile has no queries, those that ran longest come first.
func (m *moment) askedQueries() (all []askedQuery) {
	cores := map[string]float64{}
	for _, s := range m.cpu {
		if s.query != "" {
			cores[s.query] += s.value / 1e9 / m.seconds
		}
	}
	for _, r := range m.queries {
		all = append(all, askedQuery{r, cores[r.ID]})
		delete(cores, r.ID)
	}
	for _, id := range slices.Sorted(maps.Keys(cores)) { // queries that the table has forgotten or had no room for
		all = append(all, askedQuery{querycost.Row{ID: id, Query: "queries that are not listed"}, cores[id]})
	}
	slices.SortStableFunc(all, func(a, b askedQuery) int {
		return cmp.Or(cmp.Compare(b.cores, a.cores), cmp.Compare(b.Running, a.Running))
	})
	return all
}

// waitingQueries returns how many queries wait for their turn on average, in total and by tenant.
func (m *moment) waitingQueries() (all float64, tenants map[string]float64) {
	tenants = map[string]float64{}
	for _, moment := range []samples{m.begin, m.end} {
		for _, l := range moment.of("freshet_query_waiting") {
			if l.value > 0 {
				tenants[l.labels["tenant"]] += l.value / 2
				all += l.value / 2
			}
		}
	}
	// The sum of the waits that ended, in seconds per second, is the average number of waiting
	// queries.
	return math.Max(all, m.grownBy("freshet_query_wait_seconds")/m.seconds), tenants
}

// title describes a query in one line: its tenant, its text, its sender and its cost.
func (q *askedQuery) title() string {
	const most = 120 // bytes of the query's text
	text := q.Query
	if len(text) > most {
		text = clip(text[:most]) + "..."
	}
	if q.Tenant == "" {
		return text
	}
	title := fmt.Sprintf("tenant %s asks %s", clip(q.Tenant), text)
	if len(q.Askers) > 0 {
		title += ", from " + clip(q.Askers[0])
	}
	if q.cores > 0 {
		title += fmt.Sprintf(", which takes %s of a core", average(q.cores))
	}
	return title
}

func (q *askedQuery) evidence(cores float64) Evidence {
	e := Evidence{What: fmt.Sprintf("tenant %s: %s", clip(q.Tenant), clip(q.Query))}
	if cores > 0 {
		e.Figures = append(e.Figures, fmt.Sprintf("%s of a core, %s of what queries take", average(q.cores),
			percent(q.cores/cores)))
	}
	if q.Queries > 0 {
		n := float64(q.Queries)
		e.Figures = append(e.Figures,
			fmt.Sprintf("in the last minute %s queries; on average each took %s after %s of waiting, "+
				"and read %s series and %s samples; %s failed, and %d are under way",
				count(n), seconds(q.Running/n), seconds(q.Waited/n), count(float64(q.Series)/n), count(float64(q.Samples)/n),
				count(float64(q.Failed)), q.Active))
	} else if q.Active > 0 {
		e.Figures = append(e.Figures, fmt.Sprintf("%d are under way", q.Active))
	}
	if q.Example != "" {
		when := ""
		if q.Range > 0 {
			when = fmt.Sprintf(", over %s in steps of %s", span(q.Range), span(q.Step))
		}
		e.Figures = append(e.Figures, fmt.Sprintf("such as %s%s, which took %s", clip(q.Example), when, seconds(q.Longest)))
	}
	for _, a := range q.Askers[:min(2, len(q.Askers))] {
		e.Figures = append(e.Figures, "asked by "+clip(a))
	}
	return e
}

// span formats a range of time, which may be years.
func span(seconds float64) string {
	const most = 100 * 365 * 24 * 3600
	return time.Duration(min(most, max(0, seconds)) * 1e9).String()
}
