package dashboard

import (
	"fmt"
	"regexp"
	"strings"
)

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
	aspect   aspect
	name     string // the metric's name here, with variables
	plain    string // the same with the variables masked
	quantile string // a number or a variable
	reason   string // why there is nothing here
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
		return "histogram_quantile(" + m.quantile + ", " + rate + ")"
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
		return meaning{reason: s.name + " is StatsD's own, or has a prefix of the time before StatsD 0.6 (legacyNamespace)"},
			true
	}
	return m, false
}

func statsdTimerOf(suffix, percent string) meaning {
	switch suffix {
	case "mean":
		return meaning{aspect: mean}
	case "median":
		return meaning{aspect: quantileOf, quantile: "0.5"}
	case "upper":
		return meaning{aspect: quantileOf, quantile: "1"}
	case "lower":
		return meaning{aspect: quantileOf, quantile: "0"}
	case "std":
		return meaning{aspect: deviation}
	case "count":
		return meaning{aspect: timesAFlush}
	case "count_ps":
		return meaning{aspect: timesASecond}
	case "sum":
		return meaning{aspect: sumOfAFlush}
	case "upper_" + percent:
		return meaning{aspect: quantileOf, quantile: fraction(percent)}
	}
	return meaning{reason: fmt.Sprintf("a histogram has no %s: ask for the mean, a quantile or the count", suffix)}
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
		m.aspect, m.quantile = quantileOf, "0.5"
	case "max":
		m.aspect, m.quantile = quantileOf, "1"
	case "min":
		m.aspect, m.quantile = quantileOf, "0"
	case "count":
		m.aspect = timesASecond
	case "sum":
		m.aspect = sumOfAFlush
	default:
		m.aspect, m.quantile = quantileOf, fraction(s.plain[found[6]:found[7]])
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
