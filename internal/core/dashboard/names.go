package dashboard

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/util/strutil"
)

// quantileLabel is the label of a summary's series, and leLabel the label of classic buckets.
const quantileLabel, leLabel = "quantile", "le"

// aspect is what a series of the old system shows of a metric.
type aspect int

const (
	itself       aspect = iota // all of it
	quantileOf                 // of a timer's values
	mean                       // of a timer's values
	deviation                  // of a timer's values
	total                      // how many values a timer had, as a counter
	totalSum                   // the sum of a timer's values, as a counter
	buckets                    // of a timer with classic buckets
	perSecond                  // the rate of a counter
	perFlush                   // what a counter counted between two flushes
	timesASecond               // the rate of a timer's values
	timesAFlush                // how many values a timer had between two flushes
	sumOfAFlush                // their sum
)

// meaning is what a series of the old system is here.
type meaning struct {
	aspect    aspect
	name      string   // the metric's name here, with variables
	plain     string   // the same with the variables masked
	quantiles []string // numbers or variables; several only of statsd_exporter's summaries
	assumed   bool     // whether the quantiles are those that statsd_exporter has by default
	not       Reason   // why there is nothing here
}

// setName gives the metric another name. A name that changes has no variable.
func (m *meaning) setName(name string) {
	if name != m.name {
		m.name, m.plain = name, name
	}
}

// flush is the time between two flushes of StatsD and the Datadog Agent, in seconds, unless they are
// configured otherwise.
const flush = "10"

// now returns the expression for the value of a meaning at one time. `window` is the time that it covers.
func (m *meaning) now(s selector, window string) string {
	s.name = m.name
	rate := "rate(" + s.over(window) + ")"
	switch m.aspect {
	case quantileOf:
		return "histogram_quantile(" + m.quantiles[0] + ", " + rate + ")"
	case mean:
		return "histogram_avg(" + rate + ")"
	case deviation:
		return "histogram_stddev(" + rate + ")"
	case total:
		return "histogram_count(" + s.text("") + ")"
	case totalSum:
		return "histogram_sum(" + s.text("") + ")"
	case perSecond:
		return rate
	case perFlush:
		return "(" + rate + " * " + flush + ")"
	case timesASecond:
		return "histogram_count(" + rate + ")"
	case timesAFlush:
		return "(histogram_count(" + rate + ") * " + flush + ")"
	case sumOfAFlush:
		return "(histogram_sum(" + rate + ") * " + flush + ")"
	}
	return s.text("")
}

// ofRange returns the expression for a function over a range of the old series. In it, %s stands for the range of
// the metric. ofRange returns "" if there is no such expression.
func (m *meaning) ofRange(function string) string {
	cumulative := function == "rate" || function == "increase" || function == "irate"
	switch {
	case m.aspect == itself:
		return function + "(%s)"
	case m.aspect == total && cumulative:
		return "histogram_count(" + function + "(%s))"
	case m.aspect == totalSum && cumulative:
		return "histogram_sum(" + function + "(%s))"
	case m.aspect == perFlush && function == "sum_over_time":
		return "increase(%s)"
	case m.aspect == timesAFlush && function == "sum_over_time":
		return "histogram_count(increase(%s))"
	case m.aspect == sumOfAFlush && function == "sum_over_time":
		return "histogram_sum(increase(%s))"
	case m.aspect == perSecond && function == "avg_over_time":
		return "rate(%s)"
	case m.aspect == timesASecond && function == "avg_over_time":
		return "histogram_count(rate(%s))"
	}
	return ""
}

var (
	statsdTimer = regexp.MustCompile(`^stats[._]timers[._](.+)[._](mean|median|upper|lower|count|count_ps|sum|std|` +
		`sum_squares|(?:mean|upper|lower|sum|count|sum_squares)_(\d+(?:_\d+)?))$`)
	statsdCounter = regexp.MustCompile(`^stats[._]counters[._](.+)[._](rate|count)$`)
	statsdCount   = regexp.MustCompile(`^stats_counts[._](.+)()$`)
	statsdGauge   = regexp.MustCompile(`^stats[._]gauges[._](.+)()$`)
	statsdSet     = regexp.MustCompile(`^stats[._]sets[._](.+)[._](count)$`)
	datadogTimer  = regexp.MustCompile(`^(.+)[._](avg|median|max|min|count|sum|(\d{1,2}(?:_\d)?)percentile)$`)
	observed      = regexp.MustCompile(`^(.+)_(sum|count|bucket)$`)
)

// statsd returns the meaning of a name that StatsD gives to a series. `ok` is false for other names.
func statsd(s selector) (m meaning, ok bool) {
	for _, of := range []struct {
		form  *regexp.Regexp
		means func(suffix, percent string) meaning
	}{
		{statsdTimer, statsdTimerOf},
		{statsdCounter, func(suffix, _ string) meaning {
			return meaning{aspect: map[string]aspect{"rate": perSecond, "count": perFlush}[suffix]}
		}},
		{statsdCount, func(string, string) meaning { return meaning{aspect: perFlush} }},
		{statsdGauge, func(string, string) meaning { return meaning{} }},
		{statsdSet, func(string, string) meaning { return meaning{} }},
	} {
		if found := of.form.FindStringSubmatchIndex(s.plain); found != nil {
			percent := ""
			if len(found) > 6 && found[6] >= 0 {
				percent = s.plain[found[6]:found[7]]
			}
			m = of.means(s.plain[found[4]:found[5]], percent)
			m.name, m.plain = s.name[found[2]:found[3]], s.plain[found[2]:found[3]]
			return m, true
		}
	}
	if strings.HasPrefix(s.plain, "stats_") || strings.HasPrefix(s.plain, "statsd_") {
		return meaning{not: Reason{
			s.name + " is StatsD's own, or has a prefix of the time before StatsD 0.6 (legacyNamespace)",
			"ask for the name that clients send"}}, true
	}
	return m, false
}

func statsdTimerOf(suffix, percent string) meaning {
	switch suffix {
	case "mean":
		return meaning{aspect: mean}
	case "median":
		return meaning{aspect: quantileOf, quantiles: []string{"0.5"}}
	case "upper":
		return meaning{aspect: quantileOf, quantiles: []string{"1"}}
	case "lower":
		return meaning{aspect: quantileOf, quantiles: []string{"0"}}
	case "std":
		return meaning{aspect: deviation}
	case "count":
		return meaning{aspect: timesAFlush}
	case "count_ps":
		return meaning{aspect: timesASecond}
	case "sum":
		return meaning{aspect: sumOfAFlush}
	case "upper_" + percent:
		return meaning{aspect: quantileOf, quantiles: []string{fraction(percent)}}
	}
	return meaning{not: Reason{"a histogram has no " + suffix, "ask for the mean, a quantile or the count"}}
}

// fraction writes a percentage as a quantile: 95 as 0.95, and 99_9 as 0.999.
func fraction(percent string) string {
	whole, decimals, _ := strings.Cut(percent, "_")
	if len(whole) > 2 {
		return "1"
	}
	return strings.TrimRight("0."+strings.Repeat("0", 2-len(whole))+whole+decimals, "0")
}

// datadog returns the meaning of a name that the Datadog Agent gives to an aggregate of a histogram.
func datadog(s selector) (m meaning, ok bool) {
	found := datadogTimer.FindStringSubmatchIndex(s.plain)
	if found == nil {
		return m, false
	}
	switch suffix := s.plain[found[4]:found[5]]; suffix {
	case "avg":
		m.aspect = mean
	case "median":
		m.aspect, m.quantiles = quantileOf, []string{"0.5"}
	case "max":
		m.aspect, m.quantiles = quantileOf, []string{"1"}
	case "min":
		m.aspect, m.quantiles = quantileOf, []string{"0"}
	case "count":
		m.aspect = timesASecond
	case "sum":
		m.aspect = sumOfAFlush
	default:
		m.aspect, m.quantiles = quantileOf, []string{fraction(s.plain[found[6]:found[7]])}
	}
	m.name, m.plain = s.name[found[2]:found[3]], s.plain[found[2]:found[3]]
	return m, true
}

// observer returns the meaning of a name that statsd_exporter gives to the sum, the count or the buckets of a timer.
func observer(s selector) (m meaning, ok bool) {
	found := observed.FindStringSubmatchIndex(s.plain)
	if found == nil {
		return m, false
	}
	m.aspect = map[string]aspect{"sum": totalSum, "count": total, "bucket": buckets}[s.plain[found[4]:found[5]]]
	m.name, m.plain = s.name[found[2]:found[3]], s.plain[found[2]:found[3]]
	return m, true
}

// quantiles returns the quantiles that matchers of the label select: those that they name, or else those of the
// summary that match.
func (r *rewriter) quantiles(name string, matchers []matcher) (all []string, assumed bool, not Reason) {
	if len(matchers) == 1 {
		if named := namedQuantiles(matchers[0]); named != nil {
			return named, false, r.variablesIn(matchers[0], named)
		}
	}
	all, assumed = r.SummaryQuantiles, r.SummaryQuantiles == nil
	if assumed {
		all = DefaultQuantiles
	}
	for _, m := range matchers {
		matches, err := m.compiled()
		if err != nil {
			return nil, false, Reason{"selects quantiles by " + m.text + ", whose value only Grafana knows",
				"write the quantiles, or nothing but a variable"}
		}
		all = slices.DeleteFunc(slices.Clone(all), func(q string) bool { return !matches.Matches(q) })
	}
	if len(all) == 0 {
		return nil, false, Reason{"selects none of the quantiles of " + name,
			"--summary-quantiles says which there are; or ask histogram_quantile for another"}
	}
	return all, assumed, Reason{}
}

// variablesIn says whether a pattern has a variable with several values: histogram_quantile takes one number.
func (r *rewriter) variablesIn(m matcher, quantiles []string) Reason {
	for _, q := range quantiles {
		if name := variableName.FindString(q); m.op == "=~" && variable.MatchString(q) && r.several[name] {
			return Reason{"selects quantiles by the variable " + name + ", which may have several values; " +
				"histogram_quantile takes one", "turn off Multi-value and Include All, or write the quantiles"}
		}
	}
	return Reason{}
}

// namedQuantiles returns the quantiles that a matcher names: one, or several between |. Each is a number or a variable.
// It returns nil for another matcher.
func namedQuantiles(m matcher) []string {
	value, err := strutil.Unquote(m.value)
	if err != nil || m.op != "=" && m.op != "=~" {
		return nil
	}
	all := []string{value}
	if m.op == "=~" {
		value = strings.TrimSuffix(strings.TrimPrefix(value, "^"), "$")
		if inner, ok := strings.CutPrefix(value, "("); ok {
			value = strings.TrimSuffix(inner, ")")
		}
		all = strings.Split(strings.ReplaceAll(value, `\.`, "."), "|")
	}
	for _, q := range all {
		if variable.FindString(q) == q && q != "" {
			continue
		}
		if f, err := strconv.ParseFloat(q, 64); err != nil || f < 0 || f > 1 {
			return nil
		}
	}
	return all
}
