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
	"github.com/freshet-io/freshet/internal/core/top"
)

// Growth: new series keep coming, though no limit is reached yet. The score depends on how much of
// the remaining room they will take.
const (
	// steadyUsual is a harmless number of new series a second: 54,000 in three hours.
	steadyUsual = 5

	// During a start and a deploy all series are new, until each target was scraped once. If each
	// series has a label value or a name that no other has, the cause is no deploy, and 30 s are
	// enough to see that. Otherwise it takes four minutes, because after that time a deploy is over. A
	// tenant that began less than two minutes ago is still starting.
	startSeconds = 120
	ownSteps     = 3

	// Series of a target come once in a scrape interval, which is usually a minute at most. A window
	// is one step longer than a minute, so that it includes a scrape that is some seconds late.
	windows     = 4
	windowSteps = 60/growth.Step + 1

	// minuteSteps is the shortest time over which values of labels and names are counted.
	minuteSteps = 60 / growth.Step

	// A metric is named as the origin of the new series if it has at least oneMetricShare of them.
	oneMetricShare = 0.5

	// headSeconds is how long a series stays in memory at most after its last sample: three hours.
	// Growth levels off after that.
	headSeconds = 3 * 3600

	// New series in three hours, as a part of the room that is left.
	roomUsual = 0.25
	roomFull  = 1

	// labelShare is the least number of values per new series with which a label is named as the origin
	// of the series: one value for the 50 buckets of a histogram.
	labelShare = 0.02

	// Bytes of memory per series: docs/remote-write.md and docs/limits.md.
	rawSeriesBytes  = 1900
	tileSeriesBytes = 6000
)

const raw = "raw" // the store of remote write and OTLP

// grown describes how the series of a tenant grow.
type grown struct {
	*record.GrowingTenant
	steps  int     // for how many steps of growth.Step the series have grown like this
	rate   float64 // new series a second
	metric *growth.Metric
	names  bool // most new series are metrics with new names
}

// seconds returns how long the series have grown like this.
func (g *grown) seconds() float64 { return float64(g.steps * growth.Step) }

// grows reports whether new series came in each of the last windows. `each` is the length of a
// window in steps.
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

// growsInBursts reports whether new series came in each window of the time that the tracker keeps.
// Their distribution within a window does not matter. Windows overlap.
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

// newGrown finds out whether the new series of a tenant belong to one metric, or are metrics with
// new names.
func newGrown(t *record.GrowingTenant, steps int) grown {
	all := mean(recent(t.New, steps))
	g := grown{GrowingTenant: t, steps: steps, rate: all / growth.Step}
	if of := busiest(t, steps); of != nil && mean(recent(of.New, steps)) >= oneMetricShare*all {
		g.metric = of
	}
	g.names = float64(t.Names) >= oneMetricShare*countedNew(t.Counted, t.New, steps)
	return g
}

// countedNew returns the number of new series in the time over which values are counted. A record
// of an older version lacks this number. Then countedNew estimates it from the rate of the last
// steps: the last minute alone may hold no burst.
func countedNew(counted uint64, counts []uint64, steps int) float64 {
	if counted > 0 {
		return float64(counted)
	}
	return mean(recent(counts, steps)) * float64(min(steps, minuteSteps))
}

// ownValues reports whether each new series of the metric has a label value that no other has.
// After a deploy no series has such a value, because each pod or instance has many series.
func ownValues(of *growth.Metric, steps int) bool {
	return of != nil && len(of.Labels) > 0 &&
		float64(of.Labels[0].Values) >= oneMetricShare*countedNew(of.Counted, of.New, steps)
}

// recent returns the last counts, without the current step.
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

// growingTenants returns the tenants whose series grow, without tenants that have just started.
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

// room is a bound on the number of a tenant's series.
type room struct {
	what   string
	series float64 // how many more fit
	now    float64
}

// bounds returns the bounds of a tenant's series, sorted by room, the smallest first.
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
			all = append(all,
				room{fmt.Sprintf("%s (%s)", clip(l.Setting), count(float64(l.Series))), math.Max(0, float64(l.Series)-at), at})
		}
	}
	if used := sum(m.end.of("process_resident_memory_bytes")); used > 0 && m.growing.MemoryBytes > 0 {
		free := math.Max(0, float64(m.growing.MemoryBytes)-used)
		all = append(all,
			room{
				fmt.Sprintf("the memory of %s (%s, %s of it used; %s per series)",
					clip(m.growing.MemoryOf), bytesText(float64(m.growing.MemoryBytes)), bytesText(used), bytesText(bytes)),
				free / bytes, now,
			})
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

// seriesOf returns how many series the growing metric has, from the tables of the sockets.
func (m *moment) seriesOf(g *grown) float64 {
	if g.metric == nil {
		return 0
	}
	for i := range m.tops {
		for _, of := range m.tops[i].Metrics {
			if m.tops[i].Tenant == g.Tenant.Tenant && of.Name == g.metric.Name {
				return float64(of.Series)
			}
		}
	}
	return 0
}

func growing(m *moment) finding {
	f := finding{fine: fmt.Sprintf("growth: no tenant keeps getting more than %s new series a second, apart from a start",
		count(steadyUsual))}
	f.Name, f.Title, f.Because = Growth, "Series do not grow", "no tenant keeps getting new series"
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
		f.fine = fmt.Sprintf("growth: tenant %s gets %s new series a second, which in three hours take %s of the room "+
			"that is left", clip(g.Tenant.Tenant), count(g.rate), percent(part))
		if score < f.Score || score == 0 {
			continue
		}
		f.Score = score
		f.Title = fmt.Sprintf("Series grow: %s new ones a second, %s an hour%s; %s",
			count(g.rate), count(3600*g.rate), m.culprit(&g), leadsTo(narrowest, g.rate))
		f.Because = fmt.Sprintf("new series kept coming for at least %s; in the three hours that a series stays in memory "+
			"they become %s, %s of the room that is left (score 0 up to %s, 1 from %s)",
			seconds(g.seconds()), count(after), percent(part), percent(roomUsual), percent(roomFull))
		f.Evidence = m.growthEvidence(&g.GrowingTenant.Tenant, g.steps)
		for _, r := range all {
			f.Evidence = append(f.Evidence, Evidence{What: "if the growth goes on: " + leadsTo(r, g.rate)})
		}
	}
	return f
}

// leadsTo describes when a bound is reached.
func leadsTo(r room, rate float64) string {
	switch after := r.series / rate; {
	case after < 1:
		return r.what + " is reached"
	case after <= headSeconds:
		return fmt.Sprintf("%s is reached in %s", r.what, time.Duration(after*1e9).Round(time.Second))
	}
	return fmt.Sprintf("%s is not reached: a series leaves memory at most three hours after its last sample", r.what)
}

// culprit names the metric, the label and the sender of the new series.
func (m *moment) culprit(g *grown) string {
	text, of := fmt.Sprintf(": tenant %s", clip(g.Tenant.Tenant)), cmp.Or(g.metric, busiest(g.GrowingTenant, g.steps))
	switch {
	case g.names:
		text += ", with ever new metric names"
		if of != nil {
			text += ", such as " + clip(of.Name)
		}
	case g.metric != nil:
		text += ", metric " + clip(g.metric.Name)
		if l := GrowingLabel(g.metric, g.steps); l.Name != "" {
			text += ", label " + clip(l.Name)
		}
	default:
		return text + ", spread over many metrics"
	}
	if of != nil {
		if from := m.sentBy(g.Tenant.Tenant, of); from != "" {
			text += ", from " + from
		}
	}
	return text
}

// GrowingLabel returns the metric's label with the most new values, if these explain the new series
// of the last steps. Otherwise it returns a label without a name. Refused series do not count,
// because the same series are refused again and again.
func GrowingLabel(of *growth.Metric, steps int) (l growth.Label) {
	if len(of.Labels) == 0 ||
		float64(of.Labels[0].Values) < math.Max(2, labelShare*countedNew(of.Counted, of.New, steps)) {
		return l
	}
	return of.Labels[0]
}

// busiest returns the metric with the most new series in the last steps, including refused series.
// It returns nil if there are none.
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

// sentBy names the sender of most new series of a metric, or for DogStatsD the sender of the newest
// series.
func (m *moment) sentBy(tenant string, of *growth.Metric) string {
	if len(of.Senders) > 0 {
		return clip(of.Senders[0])
	}
	for i := range m.tops {
		for j := range m.tops[i].Newest {
			if n := &m.tops[i].Newest[j]; m.tops[i].Tenant == tenant && n.Metric == of.Name && n.Sender != (top.ViewSender{}) {
				return clip(describe(n.Sender))
			}
		}
	}
	return ""
}

// growthEvidence describes the metrics with the most new series of a tenant in the last steps.
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
		e := Evidence{What: fmt.Sprintf("tenant %s, metric %s: %s series a second are new",
			clip(t.Tenant), clip(of.Name), count(rate))}
		if over > 0 {
			e.What += fmt.Sprintf(", and %s a second are refused", count(over))
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
		all = append(all,
			Evidence{What: fmt.Sprintf("tenant %s: %s series a second are new, spread over about %s metrics",
				clip(t.Tenant), count(whole), count(float64(t.Names)))})
	}
	return all
}

// floodNext is the advice about new series.
const floodNext = "Remove the label from the application. Until then drop it by a rule, without a restart: " +
	"for DogStatsD mapping.rules: [{match: METRIC, drop_labels: [LABEL]}] (docs/limits.md), " +
	"for remote write and OTLP distributor.relabel: [{action: labeldrop, regex: LABEL}] (docs/remote-write.md). " +
	"If the series are wanted, raise the limit; a series takes 6 kB of memory from DogStatsD and 2 kB from other inputs."
