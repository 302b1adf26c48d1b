package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

const (
	rateInterval = "$__rate_interval"

	// shortestRange is the range in which tiles of one minute always have two samples.
	shortestRange = 2 * time.Minute

	// longRange is the range from which on a subquery has its default step.
	longRange = time.Hour
)

// bySample are functions whose answer depends on how many samples a range has: of a scrape, as many as there were
// scrapes; here, one in 10 s, or in 1 min where only the wider tiles remain. All other functions tell something
// about the time that the range covers.
var bySample = map[string]string{
	"count_over_time":              "counts samples",
	"sum_over_time":                "adds up samples",
	"idelta":                       "subtracts the last two samples",
	"changes":                      "compares each sample with the next",
	"double_exponential_smoothing": "weighs each sample by how many come after it",
}

const (
	ofSamples = ", of which Freshet has one in 10 s, and of old data one in 1 min"
	askSteps  = "ask for a subquery with a step of its own, such as [1h:1m], or for another function"
)

// timeOfSample are functions that give the time of a sample.
var timeOfSample = []string{"timestamp", "start_timestamp", "ts_of_first_over_time", "ts_of_last_over_time"}

// ofCounters are functions that take a value which falls for a counter that began again.
var ofCounters = []string{"rate", "increase", "irate", "resets"}

// rangeOf returns the text of a range without its brackets, and what follows them: offset, @, anchored or smoothed.
func (r *rewriter) rangeOf(matrix *parser.MatrixSelector) (over, tail string) {
	after := r.source[matrix.VectorSelector.PositionRange().End:matrix.EndPos]
	open, end := strings.IndexByte(after, '['), strings.IndexByte(after, ']')
	if strings.HasPrefix(after[open:], "[[[") {
		end = strings.Index(after, "]]]") + 2
	}
	return strings.TrimSpace(after[open+1 : end]), after[end+1:]
}

// ranged rewrites a range of a selector, with the function around it if that changes, too.
func (r *rewriter) ranged(m meaning, s selector, matrix *parser.MatrixSelector, call *parser.Call, path []parser.Node) {
	over, tail := r.rangeOf(matrix)
	s.tail = tail
	old := r.selectorAt(matrix.VectorSelector.PositionRange())
	old.tail = tail
	was := old.over(over)
	function := ""
	if call != nil {
		function = call.Func.Name
	}
	whole := func(name, over string) string {
		named := s
		named.name = name
		return named.over(over)
	}
	switch {
	case m.aspect == itself:
		if does, is := bySample[function]; is {
			r.note(function+" "+does+ofSamples, askSteps)
		}
		over = r.longEnough(function, over, matrix, &s)
		r.replace(matrix.PositionRange(), was, whole(m.name, over))
	case m.aspect == buckets:
		if r.quantileOfBuckets(s, path) {
			over = r.longEnough(function, over, matrix, &s)
			r.replace(matrix.PositionRange(), was, whole(m.name, over))
		}
	case m.ofRange(function) != "":
		become := m.ofRange(function)
		inner, _, _ := strings.Cut(become, "(%s)")
		over = r.longEnough(inner[strings.LastIndexByte(inner, '(')+1:], over, matrix, &s)
		r.replace(call.PositionRange(), was, fmt.Sprintf(become, whole(m.name, over)))
	case m.aspect != total && m.aspect != totalSum && slices.Contains(ofCounters, function):
		r.refuse(fmt.Sprintf("takes %s of %s, which is not a counter", function, s.name),
			"ask for deriv or delta, or for the rate of what is counted")
	case bySample[function] != "":
		r.refuse(function+" "+bySample[function]+ofSamples, askSteps)
	default:
		s.tail = ""
		r.replace(matrix.PositionRange(), was,
			r.labelled(m, s, matrix, path)+"["+over+":"+stepOf(over, matrix)+"]"+tail)
	}
}

// stepOf returns the step of a subquery: the width of a tile, unless the range is long.
func stepOf(over string, matrix *parser.MatrixSelector) string {
	if strings.ContainsAny(over, "$[") || matrix.Range >= longRange {
		return ""
	}
	return "10s"
}

// quantileOfBuckets reports whether buckets are only used for histogram_quantile, perhaps of a sum. If so, it
// takes the label le out of the sum.
func (r *rewriter) quantileOfBuckets(s selector, path []parser.Node) bool {
	const do = "ask histogram_fraction for the part of the values in a range, histogram_count for all of them, or " +
		"draw the histogram itself"
	if len(s.find(leLabel)) > 0 {
		r.refuse("selects some of the buckets of "+s.name+", which are no series of a native histogram", do)
		return false
	}
	var sums []parser.Node
	for _, node := range slices.Backward(path) {
		switch node := node.(type) {
		case *parser.MatrixSelector, *parser.ParenExpr:
			continue
		case *parser.AggregateExpr:
			if (node.Op == parser.SUM || node.Op == parser.AVG) &&
				node.Without != slices.Contains(node.Grouping, leLabel) {
				sums = append(sums, node)
				continue
			}
		case *parser.Call:
			switch node.Func.Name {
			case "rate", "increase", "irate":
				continue
			case "histogram_quantile":
				for _, sum := range sums {
					if !sum.(*parser.AggregateExpr).Without {
						r.leave[sum] = append(r.leave[sum], leLabel)
					}
				}
				return true
			}
		}
		break
	}
	r.refuse("uses the buckets of "+s.name+" for other things than histogram_quantile; those of a native histogram "+
		"are no series", do)
	return false
}

// longEnough returns a range in which tiles of one minute, which answer for older data, have as many samples as
// the function needs.
func (r *rewriter) longEnough(function, over string, matrix *parser.MatrixSelector, s *selector) string {
	isInterval := slices.Contains([]string{"$__interval", "${__interval}", "[[__interval]]"}, over)
	if !isInterval && (strings.ContainsAny(over, "$[") || matrix.Range >= shortestRange) {
		return over
	}
	if series, ok := matrix.VectorSelector.(*parser.VectorSelector); ok && (series.Anchored || series.Smoothed) {
		return over
	}
	switch function {
	case "increase", "delta", "resets":
		s.tail = " anchored" + s.tail
	case "rate", "irate", "deriv":
		if r.in.ofVariable {
			return "5m"
		}
		return rateInterval
	default:
		if !isInterval && matrix.Range < time.Minute {
			r.note(function+" over "+over+" has no answer from tiles of 1 min, which remain after 2 days",
				"make the range 1m or longer")
		}
	}
	return over
}
