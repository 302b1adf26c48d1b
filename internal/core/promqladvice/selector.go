package promqladvice

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// selector returns why a selector has no series. `whole` is the selector as the query has it, maybe with a window.
func (s *search) selector(v *parser.VectorSelector, whole parser.Expr, window time.Duration) (string, error) {
	name, others := split(v.LabelMatchers)
	if name != "" {
		if found, err := s.any(name, nil); err != nil {
			return "", err
		} else if !found {
			return s.unknownName(name)
		}
	}
	for i, m := range others {
		if name == "" && m.Matches("") {
			continue // a server refuses a selector that each series fits
		}
		if found, err := s.any(name, others[i:i+1]); err != nil {
			return "", err
		} else if !found {
			return s.unknownValue(name, m)
		}
	}
	text := selectorText(name, others)
	if found, err := s.any(name, others); err != nil {
		return "", err
	} else if !found {
		return fmt.Sprintf("each matcher of %s fits some series, but no series fits all of them", cut(text)), nil
	}
	last, err := s.lastSeen(text)
	if err != nil {
		return "", err
	}
	if last.IsZero() {
		return fmt.Sprintf("%s had data, but not in the 30 days before %s", cut(text), moment(s.End)), nil
	}
	about := fmt.Sprintf("%s last had some at about %s", cut(text), moment(last))
	switch {
	case v.OriginalOffset != 0 || v.OriginalOffsetExpr != nil || v.Timestamp != nil || v.StartOrEnd != 0:
		return fmt.Sprintf("%s has no data: offset and @ say when; %s", short(whole), about), nil
	case window > 0:
		return fmt.Sprintf("%s has no samples; %s; use a longer window%s, or ask for an earlier time", short(whole), about,
			longer(max(window, s.End.Sub(last)))), nil
	}
	return fmt.Sprintf("%s; ask for that time", about), nil
}

// split returns the name that matchers select, or "", and the other matchers.
func split(matchers []*labels.Matcher) (name string, others []*labels.Matcher) {
	for _, m := range matchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual && name == "" {
			name = m.Value
		} else {
			others = append(others, m)
		}
	}
	return name, others
}

func selectorText(name string, matchers []*labels.Matcher) string {
	v := parser.VectorSelector{Name: name, LabelMatchers: matchers}
	if name != "" && !model.LegacyValidation.IsValidMetricName(name) {
		v.Name = ""
		v.LabelMatchers = append([]*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, name)},
			matchers...)
	}
	return v.String()
}

// any reports whether there has ever been a series of a name that fits the matchers.
func (s *search) any(name string, matchers []*labels.Matcher) (bool, error) {
	if s.left--; s.left < 0 {
		return false, errLong
	}
	found, err := s.server.Values(model.MetricNameLabel, selectorText(name, matchers))
	return len(found) > 0, err
}

func (s *search) unknownName(name string) (string, error) {
	all, err := s.server.Values(model.MetricNameLabel, "")
	if err != nil {
		return "", err
	}
	reason := "no metric is named " + cut(name)
	if len(all) == 0 {
		return reason + ": nothing has been stored yet", nil
	}
	if joined, ok := minus(s.Expr, name); ok && slices.Contains(all, joined) {
		return fmt.Sprintf("%s, and - subtracts; did you mean %s?", reason, joined), nil
	}
	if part := s.histogramPart(name, all); part != "" {
		return reason + "; " + part, nil
	}
	if near := conf.Nearest(name, all); near != "" {
		return fmt.Sprintf("%s; did you mean %s?", reason, near), nil
	}
	return reason, nil
}

// histogramPart returns what to write in place of a series that a classic histogram has, if the histogram is a native
// one, as timers are.
func (s *search) histogramPart(name string, all []string) string {
	for _, part := range []struct{ suffix, form string }{
		{"_count", "histogram_count(%s)"}, {"_sum", "histogram_sum(%s)"},
		{"_bucket", "histogram_quantile(0.99, rate(%s[5m]))"},
	} {
		of, cuts := strings.CutSuffix(name, part.suffix)
		if cuts && slices.Contains(all, of) && s.server.Type(of) == string(model.MetricTypeHistogram) {
			return fmt.Sprintf("%s is a native histogram: write "+part.form, of, of)
		}
	}
	return ""
}

// minus returns the name of a metric that a client writes with a minus, such as queue-depth, which PromQL reads as a
// difference. Freshet stores it with an underscore.
func minus(e parser.Expr, name string) (joined string, ok bool) {
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if b, is := n.(*parser.BinaryExpr); is && b.Op == parser.SUB {
			left, isLeft := b.LHS.(*parser.VectorSelector)
			right, isRight := b.RHS.(*parser.VectorSelector)
			if isLeft && isRight && (left.Name == name || right.Name == name) {
				joined, ok = left.Name+"_"+right.Name, true
			}
		}
		return nil
	})
	return joined, ok
}

// maxKnown is how many values of a label a reason lists.
const maxKnown = 5

func (s *search) unknownValue(name string, m *labels.Matcher) (string, error) {
	of := ""
	if name != "" {
		of = selectorText(name, nil)
	}
	known, err := s.server.Values(m.Name, of)
	if err != nil {
		return "", err
	}
	reason := fmt.Sprintf("no series has %s", cut(m.String()))
	if of != "" {
		reason = fmt.Sprintf("no series of %s has %s", cut(of), cut(m.String()))
	}
	if len(known) == 0 && of == "" {
		return fmt.Sprintf("%s; there is no label %s", reason, m.Name), nil
	}
	if len(known) == 0 {
		return fmt.Sprintf("%s; it has no label %s", reason, m.Name), nil
	}
	if near := conf.Nearest(m.Value, known); near != "" && m.Type == labels.MatchEqual {
		return fmt.Sprintf("%s; did you mean %s?", reason, quoted(near)), nil
	}
	var list []string
	for _, v := range known[:min(len(known), maxKnown)] {
		list = append(list, quoted(v))
	}
	more := ""
	if n := len(known) - maxKnown; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s; %s is %s%s", reason, m.Name, strings.Join(list, ", "), more), nil
}

// lastSeen returns when a selector last had data in the 30 days before the end, or the zero time.
func (s *search) lastSeen(selector string) (time.Time, error) {
	const day = 24 * time.Hour
	for _, length := range []time.Duration{s.End.Sub(s.Start) + day, 30 * day} {
		step := stepOf(length)
		at, err := s.last(selector, s.End.Add(-length), s.End, step)
		if err != nil {
			return at, err
		}
		if at.IsZero() {
			continue
		}
		// The step looks back to the one before, so the sample may be older by a step.
		finer, err := s.last(selector, at.Add(-step), at, stepOf(step))
		if err != nil || !finer.IsZero() {
			return finer, err
		}
		return at, nil
	}
	return time.Time{}, nil
}

// last returns the last step at which a selector has a sample since the step before.
func (s *search) last(selector string, start, end time.Time, step time.Duration) (time.Time, error) {
	text := fmt.Sprintf("count(last_over_time(%s[%s]))", selector, model.Duration(step))
	found, err := s.server.AskRange(text, start, end, step)
	if err != nil || len(found) == 0 || len(found[0].Values) == 0 {
		return time.Time{}, err
	}
	return found[0].Values[len(found[0].Values)-1].Timestamp.Time(), nil
}

// stepOf returns the step that divides a length into at most 300.
func stepOf(length time.Duration) time.Duration {
	return time.Duration(math.Ceil(max(length.Seconds()/300, 1))) * time.Second
}
