package cli

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/top"
)

// topPage lays out the busiest metrics and senders for people.
type topPage struct {
	columns, rows int // size of the window; 0 for no limit
	colour        bool
	notice        string // a line at the top
}

// topList is a list with its title.
type topList struct {
	title   []string
	rows    [][]string
	numbers int    // the number of cells at the end of a row that are numbers
	colour  string // the colour of the rows
}

// lines returns the lines of the page.
func (p topPage) lines(page *answer.TopAll) []string {
	lines := []string{p.paint(bold,
		p.cut(fmt.Sprintf("tenant %s at %s%s: %s samples/s, %s datagrams/s, %s/s, %s series, in the last %d s",
			terminal.Printable(page.Tenant), terminal.Printable(onNode(page.Node)),
			time.Unix(page.End, 0).Format(time.TimeOnly), perSecond(page.Samples), perSecond(page.Datagrams),
			size(int64(page.Bytes)), terminal.Thousands(uint64(page.Series)), page.Seconds)))}
	if p.notice != "" {
		lines = append(lines, p.paint(red, p.cut(p.notice)))
	}
	lists := listsOf(page)
	room := p.allot(len(lines), lists)
	for i, s := range lists {
		if room[i] > 0 {
			s.rows = s.rows[:room[i]]
			lines = append(append(lines, ""), p.table(s)...)
		}
	}
	return lines
}

// allot shares the window's lines among the lists. A list that needs fewer lines leaves the rest to
// the others.
func (p topPage) allot(used int, lists []topList) []int {
	rooms := make([]int, len(lists))
	left := math.MaxInt
	if p.rows > 0 {
		left = p.rows - used
	}
	const around = 2 // the blank line above, and the title
	for i, s := range lists {
		if len(s.rows) > 0 && left > around {
			rooms[i] = 1
			left -= 1 + around
		}
	}
	for grown := true; grown && left > 0; {
		grown = false
		for i, s := range lists {
			if rooms[i] > 0 && rooms[i] < len(s.rows) && left > 0 {
				rooms[i]++
				left--
				grown = true
			}
		}
	}
	return rooms
}

func (p topPage) table(s topList) (lines []string) {
	rows := append([][]string{s.title}, s.rows...)
	if p.columns > 0 {
		narrow(rows, s.numbers, p.columns)
	}
	var text bytes.Buffer
	_ = terminal.WriteTable(&text, rows, s.numbers) // writing to a buffer never fails
	for line := range strings.Lines(text.String()) {
		colour := s.colour
		if len(lines) == 0 {
			colour = bold
		}
		lines = append(lines, p.paint(colour, p.cut(strings.TrimSuffix(line, "\n"))))
	}
	return lines
}

func (p topPage) paint(colour, line string) string {
	if !p.colour || colour == "" {
		return line
	}
	return colour + line + plain
}

// cut makes a line fit the window.
func (p topPage) cut(line string) string {
	if p.columns == 0 {
		return line
	}
	return shorten(line, p.columns)
}

// shorten cuts off the end of a text.
func shorten(text string, columns int) string {
	if terminal.Width(text) <= columns {
		return text
	}
	used := 0
	for i, r := range text {
		if used += terminal.Width(string(r)); used > columns-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// narrow shortens text cells until the table fits, starting with the widest column.
func narrow(rows [][]string, numbers, columns int) {
	widths := make([]int, len(rows[0]))
	total := 2 * (len(widths) - 1)
	for i := range widths {
		for _, row := range rows {
			widths[i] = max(widths[i], terminal.Width(row[i]))
		}
		total += widths[i]
	}
	const readable = 8
	texts := widths[:len(widths)-numbers]
	for ; total > columns && slices.Max(texts) > readable; total-- {
		texts[slices.Index(texts, slices.Max(texts))]--
	}
	for _, row := range rows {
		for i, width := range texts {
			row[i] = shorten(row[i], width)
		}
	}
}

// listsOf returns the lists of a page, problems first.
func listsOf(page *answer.TopAll) []topList {
	over := topList{
		title: []string{"OVER A LIMIT", "limit", "label", "sender", "values", "samples"}, numbers: 2, colour: red,
	}
	for _, o := range page.Over {
		over.rows = append(over.rows, []string{
			terminal.Printable(o.Metric), strings.TrimPrefix(o.Limit, "limits."), terminal.Printable(o.Label),
			shorten(terminal.Printable(o.Sender), 60),
			terminal.Thousands(o.Values), terminal.Thousands(o.Samples) + " " + o.Fate,
		})
	}
	malformed := topList{
		title: []string{"MALFORMED LINES", "reason", "such as", "lines/s", "share"}, numbers: 2, colour: red,
	}
	for _, m := range page.Malformed {
		malformed.rows = append(malformed.rows, []string{
			describeSender(m.ViewSender), terminal.Printable(m.Reason), shorten(terminal.Printable(m.Example), 60),
			perSecond(m.Malformed), percent(m.Share),
		})
	}
	metrics := topList{title: []string{"METRICS", "kind", "samples/s", "share", "series"}, numbers: 3}
	for _, m := range page.Metrics {
		name, series := terminal.Printable(m.Name), terminal.Thousands(uint64(m.Series))
		if m.Others > 0 {
			name, series = others(m.Others), ""
		}
		metrics.rows = append(metrics.rows, []string{name, m.Kind, perSecond(m.Samples), percent(m.Share), series})
	}
	senders := topList{title: []string{"SENDERS", "datagrams/s", "bytes/s", "share"}, numbers: 3}
	for _, s := range page.Senders {
		name := describeSender(s.ViewSender)
		if s.Others > 0 {
			name = others(s.Others)
		}
		senders.rows = append(senders.rows, []string{name, perSecond(s.Datagrams), size(int64(s.Bytes)), percent(s.Share)})
	}
	return []topList{over, malformed, metrics, senders, requestList(page), labelList(page.View), newestList(page.View)}
}

func requestList(page *answer.TopAll) topList {
	s := topList{title: []string{"REQUESTS", "by", "requests/s", "samples/s", "bytes/s"}, numbers: 3}
	for _, r := range page.Requests {
		s.rows = append(s.rows, []string{
			describeRequester(r), strings.ReplaceAll(r.Input, "_", " "), perSecond(r.Requests), perSecond(r.Samples),
			size(int64(r.Bytes)),
		})
	}
	return s
}

// describeRequester formats a sender of requests for a cell.
func describeRequester(r answer.TopRequester) string {
	parts := []string{}
	for _, text := range []string{r.Name, r.Address, r.Agent} {
		if text != "" {
			parts = append(parts, terminal.Printable(text))
		}
	}
	if len(parts) == 0 {
		return "unknown"
	}
	return strings.Join(parts, " ")
}

func labelList(of *top.View) topList {
	s := topList{title: []string{"LABELS", "of metric", "such as", "values"}, numbers: 1}
	for _, l := range of.Labels {
		var examples []string
		for _, e := range l.Examples {
			examples = append(examples, shorten(terminal.Printable(e), 20))
		}
		s.rows = append(s.rows, []string{
			terminal.Printable(l.Label), shorten(terminal.Printable(l.Metric), 40), strings.Join(examples, ", "),
			terminal.Thousands(uint64(l.Values)),
		})
	}
	return s
}

func newestList(of *top.View) topList {
	s := topList{title: []string{"NEW SERIES", "sender", "age"}, numbers: 1}
	for _, n := range of.Newest {
		name := terminal.Printable(n.Metric) // Labels.String quotes the label values itself
		if !n.Labels.IsEmpty() {
			name += n.Labels.String()
		}
		age := time.Duration((float64(of.End) - n.At) * float64(time.Second)).Round(time.Second)
		s.rows = append(s.rows,
			[]string{terminal.Printable(name), shorten(describeSender(n.Sender), 40), max(age, 0).String()})
	}
	return s
}

func others(n int) string {
	if n == 1 {
		return "others"
	}
	return terminal.Thousands(uint64(n)) + " others"
}

// describeSender formats a sender for a cell.
func describeSender(s top.ViewSender) string {
	var parts []string
	if s.Address != "" {
		parts = append(parts, s.Address)
	}
	if p := s.Process; p != nil {
		if p.Command != "" {
			parts = append(parts, terminal.Printable(p.Command))
		}
		parts = append(parts, fmt.Sprintf("pid %d uid %d", p.PID, p.UID))
	}
	if s.Container != "" {
		parts = append(parts, "container "+shorten(terminal.Printable(s.Container), 13))
	}
	if len(parts) == 0 {
		return "unknown"
	}
	return strings.Join(parts, " ")
}

// perSecond formats a rate so that low rates do not appear as 0.
func perSecond(rate float64) string {
	if rate < 100 {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return terminal.Thousands(uint64(math.Round(rate)))
}

func percent(share float64) string {
	if share > 0 && share < 0.001 {
		return "<0.1 %"
	}
	return strconv.FormatFloat(100*share, 'f', 1, 64) + " %"
}
