package statsdexporter

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// header lists the differences that all converted files have.
const header = `# Converted from a mapping file of statsd_exporter. The same line gets the same
# name and labels. Whatever the file, this is not as before:
#
# - Timers that were summaries are native histograms: in place of
#   NAME{quantile="0.9"} ask histogram_quantile(0.9, rate(NAME[5m])).
# - Series end 5 minutes after their last sample (see aggregator.counter_ttl and
#   gauge_ttl), where statsd_exporter shows them until its ttl, or for ever.
# - Of several dashes in a row each becomes an underscore, not all of them one.
# - Tags are read in the DogStatsD style only: name:1|c|#tag:value.
`

// write writes the configuration file.
func (c *converter) write() string {
	var b strings.Builder
	b.WriteString(header)
	comment(&b, "", "ATTENTION: ", notesOf(c.notes, 0))
	comment(&b, "", "", c.comments)
	b.WriteString("\ndogstatsd:\n  relative_gauges: true   # +5|g changes a gauge\n  host_label: " +
		"false       # no label that was not there before\n\n")
	if ttl := c.file.Defaults.TTL.Duration; ttl > 0 {
		ttl = max(ttl, shortestTTL)
		fmt.Fprintf(&b, "aggregator:   # defaults.ttl\n  counter_ttl: %v\n  gauge_ttl: %v\n\n", ttl, ttl)
	}
	b.WriteString("mapping:\n  rules:\n")
	for i := range c.rules {
		c.rules[i].write(&b)
	}
	return b.String()
}

func notesOf(notes []Note, line int) (texts []string) {
	for _, n := range notes {
		if n.Line == line {
			texts = append(texts, n.Text)
		}
	}
	return texts
}

// comment writes each text as a comment, in lines of 80 columns.
func comment(b *strings.Builder, indent, mark string, texts []string) {
	for _, text := range texts {
		b.WriteString(indent + "#")
		column := len(indent) + 1
		for _, word := range strings.Fields(mark + text) {
			if column+1+len(word) > 80 {
				b.WriteString("\n" + indent + "#  ")
				column = len(indent) + 3
			}
			b.WriteString(" " + word)
			column += 1 + len(word)
		}
		b.WriteByte('\n')
	}
}

func (r *rule) write(b *strings.Builder) {
	const indent = "      "
	comment(b, "    ", "", []string{r.source})
	comment(b, "    ", "", r.comments)
	comment(b, "    ", "ATTENTION: ", r.notes)
	fmt.Fprintf(b, "    - match: %s\n", quote(r.Match))
	text := func(key, value string) {
		if value != "" {
			fmt.Fprintf(b, indent+"%s: %s\n", key, value)
		}
	}
	text("match_type", r.MatchType)
	text("match_metric_type", r.MetricType)
	text("action", r.Action)
	if r.Name != "" {
		text("name", quote(r.Name))
	}
	if len(r.Labels) > 0 {
		b.WriteString(indent + "labels:\n")
		for _, label := range slices.Sorted(maps.Keys(r.Labels)) {
			fmt.Fprintf(b, indent+"  %s: %s\n", label, quote(r.Labels[label]))
		}
	}
	if len(r.Relabel) > 0 {
		b.WriteString(indent + "relabel:\n")
		for _, step := range r.Relabel {
			if step.Action != "" {
				fmt.Fprintf(b, indent+"  - {regex: %s, action: %s}\n", quote(step.Regex.Text), step.Action)
				continue
			}
			fmt.Fprintf(b, indent+"  - {source_labels: [%s], separator: %s, regex: %s, target_label: %s, replacement: %s}\n",
				strings.Join(step.SourceLabels, ", "), quote(step.Separator.Text), quote(step.Regex.Text), step.TargetLabel,
				quote(step.Replacement.Text))
		}
	}
	if len(r.Buckets) > 0 {
		var bounds []string
		for _, bound := range r.Buckets {
			bounds = append(bounds, number(bound))
		}
		text("buckets", "["+strings.Join(bounds, ", ")+"]")
	}
	if r.Scale != 0 {
		text("scale", number(r.Scale))
	}
	if r.Help != "" {
		text("help", quote(r.Help))
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// quote writes a YAML scalar. Backslashes in single quotes are plain text. Text that single quotes
// cannot hold is escaped as in Go, and YAML reads it in the same way.
func quote(s string) string {
	for _, c := range s {
		if c < ' ' || c > '~' {
			return strconv.QuoteToASCII(s)
		}
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}
