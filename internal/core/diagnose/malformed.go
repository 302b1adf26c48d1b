package diagnose

import (
	"cmp"
	"fmt"
	"slices"
)

// Malformed lines: a client writes lines that are not DogStatsD. The client's well-formed lines are
// stored, so only a counter shows that others are missing.
const (
	malformedUsual      = 1 // lines a second
	malformedShareUsual = 0.01
	malformedShareBad   = 0.10 // part of a sender's lines

	malformedListed = 5
)

const malformedMetric, samplesMetric = "freshet_dogstatsd_malformed_lines_total", "freshet_dogstatsd_samples_total"

// malformedLines are the malformed lines of one sender, or of a listener if the sender is
// unknown.
type malformedLines struct {
	tenant, of, reason, example string  // the field `of` names the sender, as in "what 10.0.0.1:53 sends"
	perSecond, share            float64 // share is a part of the sender's lines, 0 to 1
}

func malformed(m *moment) finding {
	rate := m.grownBy(malformedMetric) / m.seconds
	f := finding{fine: fmt.Sprintf("lines: %s a second are malformed%s", count(rate), m.malformedSinceStart())}
	f.Name, f.Title, f.Because, f.Next = Malformed, "No client sends malformed lines now", "no line is malformed",
		"Nothing to do."
	all := slices.DeleteFunc(m.malformedBySender(), func(l malformedLines) bool { return !(l.perSecond > malformedUsual) })
	if len(all) == 0 {
		all = slices.DeleteFunc(m.malformedByListener(), func(l malformedLines) bool {
			return !(l.perSecond > malformedUsual)
		})
	}
	if len(all) == 0 {
		return f
	}
	// The score decides first: a sender of many lines may have more malformed lines than a sender
	// that sends only malformed lines.
	slices.SortStableFunc(all, func(a, b malformedLines) int {
		return cmp.Or(cmp.Compare(b.score(), a.score()), cmp.Compare(b.perSecond, a.perSecond))
	})
	worst := &all[0]
	f.Score = worst.score()
	f.Title = fmt.Sprintf("Malformed lines: %s of %s, %s lines a second",
		percent(worst.share), worst.of, count(worst.perSecond))
	f.Because = fmt.Sprintf("%s of the lines of one sender are malformed: score 0 up to %s, 1 from %s",
		percent(worst.share), percent(malformedShareUsual), percent(malformedShareBad))
	for i := range all[:min(len(all), malformedListed)] {
		f.Evidence = append(f.Evidence, all[i].evidence())
	}
	f.Next = "Fix the client: freshet explain says what is wrong with a line, and freshet tail shows what the client " +
		"sends. docs/dogstatsd.md lists the reasons. Well-formed lines of the same client are stored."
	return f
}

// malformedBySender returns the malformed lines in top.json.
func (m *moment) malformedBySender() (all []malformedLines) {
	for i := range m.tops {
		t := &m.tops[i]
		for _, l := range t.Malformed {
			all = append(all,
				malformedLines{
					t.Tenant, "what " + clip(describe(l.ViewSender)) + " sends", l.Reason, l.Example, l.Malformed, l.Share,
				})
		}
	}
	return all
}

// malformedSinceStart describes the malformed lines since the process started. These lines are no
// cause, since the client may have been fixed.
func (m *moment) malformedSinceStart() string {
	lines, worst := 0.0, labelled{}
	for _, l := range m.end.of(malformedMetric) {
		lines += l.value
		if l.value > worst.value {
			worst = l
		}
	}
	if !(lines > 0) {
		return ""
	}
	return fmt.Sprintf(", and %s since the start, most often %s from %s; freshet top shows who sends them now",
		count(lines), clip(worst.labels["reason"]), clip(worst.labels["listener"]))
}

// malformedByListener returns the malformed lines by listener, for senders that sent before the table of
// senders was switched on. The lines are those of the last 15 s, so they include a flush of a client
// that flushes every 10 s. For an older record the lines are those of the record's 5 s, from /metrics.
func (m *moment) malformedByListener() (all []malformedLines) {
	for i := range m.tops {
		for _, l := range m.tops[i].Listeners {
			all = append(all,
				malformedLines{m.tops[i].Tenant, "what comes to " + clip(l.Listener), l.Reason, "", l.Malformed, l.Share})
		}
	}
	if len(all) > 0 {
		return all
	}
	samples := map[string]float64{}
	for _, l := range m.grown(samplesMetric) {
		samples[l.labels["listener"]] += l.value
	}
	for _, l := range m.grown(malformedMetric) {
		if name := l.labels["listener"]; l.value > 0 {
			all = append(all,
				malformedLines{
					of: "what comes to " + clip(name), reason: l.labels["reason"], perSecond: l.value / m.seconds,
					share: l.value / (l.value + samples[name]),
				})
		}
	}
	return all
}

func (l *malformedLines) score() float64 {
	return ramp(l.share, malformedShareUsual, malformedShareBad)
}

func (l *malformedLines) evidence() Evidence {
	e := Evidence{What: fmt.Sprintf("%s: %s malformed lines a second, %s of its lines",
		l.of, count(l.perSecond), percent(l.share))}
	if l.tenant != "" {
		e.What = fmt.Sprintf("tenant %s, %s", clip(l.tenant), e.What)
	}
	switch {
	case l.example != "":
		e.Figures = []string{fmt.Sprintf("such as %q (%s)", clip(l.example), clip(l.reason))}
	case l.reason != "":
		e.Figures = []string{"reason: " + clip(l.reason)}
	}
	return e
}
