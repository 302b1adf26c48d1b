package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/core/growth"
	"github.com/freshet-io/freshet/internal/core/record"
)

// Growth: series that are new all the time, though no limit is reached yet. What counts is
// where that leads.
const (
	// steadyUsual is how many new series a second are nothing to speak of: in three hours
	// they are 54,000.
	steadyUsual = 5

	// A start and a deploy make nothing but new series, until each target was scraped once.
	// Where each series has a value of its own of one label, or a name of its own, that is no
	// deploy, and 30 s tell it. All else is told in four minutes, by which a deploy is over.
	// A tenant that began less than two minutes ago is still starting.
	startSeconds = 120
	ownSteps     = 3

	// Series of a target come once in each scrape interval, which is a minute at most as a
	// rule. A window is a step longer, so that a scrape that is some seconds late is in it.
	windows     = 4
	windowSteps = 60/growth.Step + 1

	// minuteSteps is for which time values of labels and names are counted at least.
	minuteSteps = 60 / growth.Step

	// oneMetricShare is the part of the new series from which on they are one metric's.
	oneMetricShare = 0.5

	// headSeconds is how long a series at most stays in memory after its last sample: three
	// hours. So what grows is level after that.
	headSeconds = 3 * 3600

	// What is reached in three hours, as a part of what there is room for.
	roomUsual = 0.25
	roomFull  = 1

	// labelShare is how many values a label has at least for each new series if it is said to
	// make them: one for the 50 buckets of a histogram.
	labelShare = 0.02

	// Bytes of memory that a series takes: docs/remote-write.md and docs/limits.md.
	rawSeriesBytes  = 1900
	tileSeriesBytes = 6000
)

const raw = "raw" // the store of what comes by remote write and OTLP

// grown is how the series of a tenant grow.
type grown struct {
	*record.GrowingTenant
	steps  int     // of growth.Step, for which they have grown as they do
	rate   float64 // new ones a second
	metric *growth.Metric
	names  bool // it is names of metrics that are new, each time another one
}

// seconds is for how long the series have grown as they do.
func (g *grown) seconds() float64 { return float64(g.steps * growth.Step) }

// grows reports whether series are new in each of the last windows of so many steps.
func grows(t *record.GrowingTenant, windows, each int) (g grown, does bool) {
	steps := windows * each
	last := recent(t.New, steps)
	if len(last) < steps || !(mean(last)/growth.Step > steadyUsual) {
		return g, false
	}
	for window := range slices.Chunk(last, each) {
		if mean(window) < mean(last)/2 {
			return g, false
		}
	}
	return newGrown(t, steps), true
}

// growsInBursts reports whether series are new in each window of all the time that is kept,
// however they are spread in a window. Windows overlap.
func growsInBursts(t *record.GrowingTenant) (g grown, does bool) {
	last := recent(t.New, growth.Steps)
	if len(last) < growth.Steps || !(mean(last)/growth.Step > steadyUsual) {
		return g, false
	}
	for i := range windows {
		from := i * (growth.Steps - windowSteps) / (windows - 1)
		if mean(last[from:from+windowSteps]) < mean(last)/2 {
			return g, false
		}
	}
	return newGrown(t, growth.Steps), true
}

// newGrown says of a tenant that grows whether it is one metric or names.
func newGrown(t *record.GrowingTenant, steps int) grown {
	all := mean(recent(t.New, steps))
	g := grown{GrowingTenant: t, steps: steps, rate: all / growth.Step}
	if of := busiest(t, steps); of != nil && mean(recent(of.New, steps)) >= oneMetricShare*all {
		g.metric = of
	}
	g.names = float64(t.Names) >= oneMetricShare*countedNew(t.Counted, t.New, steps)
	return g
}

// countedNew are the new series of the time for which values are counted. An older record has
// them by their rate in the last steps: the last minute alone may hold no burst.
func countedNew(counted uint64, counts []uint64, steps int) float64 {
	if counted > 0 {
		return float64(counted)
	}
	return mean(recent(counts, steps)) * float64(min(steps, minuteSteps))
}

// ownValues reports whether each new series of the metric has a value of its own of one label,
// as none of a deploy has: a pod or an instance has many series.
func ownValues(of *growth.Metric, steps int) bool {
	return of != nil && len(of.Labels) > 0 && float64(of.Labels[0].Values) >= oneMetricShare*countedNew(of.Counted, of.New, steps)
}

// recent are the last counts but that of the step that is not over.
func recent(counts []uint64, steps int) []uint64 {
	over := max(0, len(counts)-1)
	return counts[max(0, over-steps):over]
}

func mean(counts []uint64) float64 {
	sum := 0.0
	for _, n := range counts {
		sum += float64(n)
	}
	return sum / float64(max(1, len(counts)))
}

// growingTenants are those whose series grow and are not those of a start.
func (m *moment) growingTenants() (all []grown) {
	for i := range m.growing.Tenants {
		t := &m.growing.Tenants[i]
		g, does := grows(t, ownSteps, 1)
		if !does || !g.names && !ownValues(g.metric, ownSteps) {
			g, does = growsInBursts(t)
		}
		if does && m.growing.At-t.Began >= startSeconds+int64(g.seconds()) {
			all = append(all, g)
		}
	}
	return all
}

// room is what bounds the series of a tenant.
type room struct {
	what   string
	series float64 // for which there is room besides those that there are
	now    float64
}

// bounds are what bounds the series of a tenant, the narrowest first.
func (m *moment) bounds(g *grown) (all []room) {
	store := raw
	if g.metric != nil {
		store = g.metric.Store
	} else if of := busiest(g.GrowingTenant, g.steps); of != nil {
		store = of.Store
	}
	bytes, now := float64(tileSeriesBytes), 0.0
	for _, l := range m.end.of("prometheus_tsdb_head_series") {
		if l.labels["tenant"] == g.Tenant.Tenant && l.labels["store"] == store {
			now = l.value
		}
	}
	if store == raw {
		bytes = rawSeriesBytes
	}
	for _, l := range g.Limits {
		at := now
		if l.PerMetric {
			at = m.seriesOf(g)
		}
		if l.Store == store && (!l.PerMetric || at > 0) {
			all = append(all, room{fmt.Sprintf("%s (%s)", clip(l.Setting), count(float64(l.Series))), math.Max(0, float64(l.Series)-at), at})
		}
	}
	if used := sum(m.end.of("process_resident_memory_bytes")); used > 0 && m.growing.MemoryBytes > 0 {
		free := math.Max(0, float64(m.growing.MemoryBytes)-used)
		all = append(all, room{fmt.Sprintf("the memory of %s (%s, of which %s is used; %s each)", clip(m.growing.MemoryOf), bytesText(float64(m.growing.MemoryBytes)), bytesText(used), bytesText(bytes)), free / bytes, now})
	}
	slices.SortStableFunc(all, func(a, b room) int { return cmp.Compare(a.series, b.series) })
	return all
}

func sum(all []labelled) (n float64) {
	for _, l := range all {
		n += l.value
	}
	return n
}

// seriesOf is how many series the metric has that grows, by the tables of the sockets.
func (m *moment) seriesOf(g *grown) float64 {
	if g.metric == nil {
		return 0
	}
	for i := range m.tops {
		for _, of := range m.tops[i].Metrics {
			if m.tops[i].Tenant == g.Tenant.Tenant && of.Metric == g.metric.Name {
				return float64(of.Series)
			}
		}
	}
	return 0
}

func growing(m *moment) finding {
	f := finding{fine: fmt.Sprintf("growth: no tenant has more than %s new series a second all the time, but for a start", count(steadyUsual))}
	f.Name, f.Title, f.Because = Growth, "Series do not grow", "no tenant has new series all the time"
	f.Next = floodNext
	for _, g := range m.growingTenants() {
		narrowest := room{what: "nothing", series: math.Inf(1)}
		all := m.bounds(&g)
		if len(all) > 0 {
			narrowest = all[0]
		}
		after := g.rate * headSeconds
		part := after / math.Max(1, narrowest.series)
		score := ramp(part, roomUsual, roomFull)
		f.fine = fmt.Sprintf("growth: %s series a second of tenant %s are new, and in three hours take %s of the room that there is", count(g.rate), clip(g.Tenant.Tenant), percent(part))
		if score < f.Score || score == 0 {
			continue
		}
		f.Score = score
		f.Title = fmt.Sprintf("Series grow: %s new ones a second, %s an hour%s; %s", count(g.rate), count(3600*g.rate), m.culprit(&g), leadsTo(narrowest, g.rate))
		f.Because = fmt.Sprintf("series were new all the time for %s at least; in the three hours for which one stays in memory they become %s, %s of those for which there is room (nothing below %s, all from %s on)",
			seconds(g.seconds()), count(after), percent(part), percent(roomUsual), percent(roomFull))
		f.Evidence = m.growthEvidence(&g.GrowingTenant.Tenant, g.steps)
		for _, r := range all {
			f.Evidence = append(f.Evidence, Evidence{What: "it leads to this: " + leadsTo(r, g.rate)})
		}
	}
	return f
}

// leadsTo says when a bound is reached.
func leadsTo(r room, rate float64) string {
	switch after := r.series / rate; {
	case after < 1:
		return r.what + " is reached"
	case after <= headSeconds:
		return fmt.Sprintf("%s is reached in %s", r.what, time.Duration(after*1e9).Round(time.Second))
	}
	return fmt.Sprintf("%s is not reached: a series is out of memory three hours after its last sample at the latest", r.what)
}

// culprit is the metric, the label and the sender of what grows.
func (m *moment) culprit(g *grown) string {
	text, of := fmt.Sprintf(": tenant %s", clip(g.Tenant.Tenant)), cmp.Or(g.metric, busiest(g.GrowingTenant, g.steps))
	switch {
	case g.names:
		text += ", ever new names of metrics"
		if of != nil {
			text += ", such as " + clip(of.Name)
		}
	case g.metric != nil:
		text += ", metric " + clip(g.metric.Name)
		if l := GrowingLabel(g.metric, g.steps); l.Name != "" {
			text += ", label " + clip(l.Name)
		}
	default:
		return text + ", many metrics alike"
	}
	if of != nil {
		if from := m.sentBy(g.Tenant.Tenant, of); from != "" {
			text += ", from " + from
		}
	}
	return text
}

// GrowingLabel is the label of a metric with most new values, if it has so many that it can make
// the new series of the last steps; its name is empty if none has. Series that a limit refuses
// come again and again, so that they say nothing of that.
func GrowingLabel(of *growth.Metric, steps int) (l growth.Label) {
	if len(of.Labels) == 0 || float64(of.Labels[0].Values) < math.Max(2, labelShare*countedNew(of.Counted, of.New, steps)) {
		return l
	}
	return of.Labels[0]
}

// busiest is the metric with most new series in the last steps, those without a place among
// them; nil if there is none.
func busiest(t *record.GrowingTenant, steps int) (most *growth.Metric) {
	highest := 0.0
	for i := range t.Metrics {
		of := &t.Metrics[i]
		if n := mean(recent(of.New, steps)) + mean(recent(of.Refused, steps)); n > highest {
			most, highest = of, n
		}
	}
	return most
}

// sentBy is who sent most new series of a metric, which of datagrams the newest says.
func (m *moment) sentBy(tenant string, of *growth.Metric) string {
	if len(of.Senders) > 0 {
		return clip(of.Senders[0])
	}
	for i := range m.tops {
		for j := range m.tops[i].Newest {
			if n := &m.tops[i].Newest[j]; m.tops[i].Tenant == tenant && n.Metric == of.Name && n.Sender.known() {
				return clip(n.Sender.String())
			}
		}
	}
	return ""
}

// growthEvidence are the metrics of a tenant with most new series in the last steps.
func (m *moment) growthEvidence(t *growth.Tenant, steps int) (all []Evidence) {
	both := func(new, refused []uint64) (float64, float64) {
		return mean(recent(new, steps)) / growth.Step, mean(recent(refused, steps)) / growth.Step
	}
	whole, refused := both(t.New, t.Refused)
	metrics := slices.Clone(t.Metrics)
	slices.SortStableFunc(metrics, func(a, b growth.Metric) int {
		rateA, overA := both(a.New, a.Refused)
		rateB, overB := both(b.New, b.Refused)
		return cmp.Compare(rateB+overB, rateA+overA)
	})
	for i := range metrics {
		of := &metrics[i]
		rate, over := both(of.New, of.Refused)
		if len(all) == 3 || rate+over < shownShare*(whole+refused) || rate+over == 0 {
			continue
		}
		e := Evidence{What: fmt.Sprintf("tenant %s, metric %s: %s series a second are new", clip(t.Tenant), clip(of.Name), count(rate))}
		if over > 0 {
			e.What += fmt.Sprintf(", and %s a second have no place", count(over))
		}
		var labels []string
		for _, l := range of.Labels[:min(3, len(of.Labels))] {
			labels = append(labels, fmt.Sprintf("%s about %s", clip(l.Name), count(float64(l.Values))))
		}
		if len(labels) > 0 {
			e.Figures = append(e.Figures, "values among them: label "+strings.Join(labels, ", "))
		}
		if from := m.sentBy(t.Tenant, of); from != "" {
			e.Figures = append(e.Figures, "sent by "+from)
		}
		if of.Example != "" {
			e.Figures = append(e.Figures, "such as "+clip(of.Example))
		}
		all = append(all, e)
	}
	if len(all) == 0 && whole+refused > 0 {
		all = append(all, Evidence{What: fmt.Sprintf("tenant %s: %s series a second are new, of about %s metrics, none of which has many", clip(t.Tenant), count(whole), count(float64(t.Names)))})
	}
	return all
}

// floodNext is what to do about new series.
const floodNext = "Take the label out of the application, or meanwhile let a rule drop it, which needs no restart: for DogStatsD mapping.rules: [{match: METRIC, drop_labels: [LABEL]}] (docs/limits.md), for remote write and OTLP distributor.relabel: [{action: labeldrop, regex: LABEL}] (docs/remote-write.md). If the series are wanted, raise the limit, at 6 kB for each of DogStatsD and 2 kB for each other."
