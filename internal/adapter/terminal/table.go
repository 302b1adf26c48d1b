package terminal

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/common/model"
)

const timeLayout = "2006-01-02 15:04:05.000" // times are in the reader's own zone

// writeVector prints the series and their values in the server's order, which may come from
// sort(). Native histograms come after the numbers, as bars.
func writeVector(w io.Writer, v model.Vector) error {
	var numbers model.Vector
	for _, s := range v {
		if s.Histogram == nil {
			numbers = append(numbers, s)
		}
	}
	if len(numbers) > 0 {
		if err := WriteTable(w, vectorRows(numbers), 1); err != nil {
			return err
		}
	}
	for _, s := range v {
		if s.Histogram != nil {
			if err := writeHistogram(w, s.Metric, s.Histogram); err != nil {
				return err
			}
		}
	}
	return nil
}

// vectorRows gives each label a column if all series have the same label names. Otherwise each series is
// one cell, because the columns would be mostly empty.
func vectorRows(v model.Vector) [][]string {
	names := slices.Sorted(maps.Keys(v[0].Metric)) // __name__ sorts first, because _ is before lower-case letters
	for _, s := range v[1:] {
		if len(s.Metric) != len(names) ||
			slices.ContainsFunc(names, func(n model.LabelName) bool { _, has := s.Metric[n]; return !has }) {
			rows := [][]string{{"series", "value"}}
			for _, s := range v {
				rows = append(rows, []string{s.Metric.String(), s.Value.String()})
			}
			return rows
		}
	}
	header := make([]string, 0, len(names)+1)
	for _, n := range names {
		header = append(header, Printable(string(n)))
	}
	rows := [][]string{append(header, "value")}
	for _, s := range v {
		row := make([]string, 0, len(header)+1)
		for _, n := range names {
			row = append(row, Printable(string(s.Metric[n])))
		}
		rows = append(rows, append(row, s.Value.String()))
	}
	return rows
}

// writeMatrix prints the stored samples that a range selector found.
func writeMatrix(w io.Writer, m model.Matrix) error {
	for _, s := range m {
		if _, err := fmt.Fprintln(w, s.Metric); err != nil {
			return err
		}
		var rows [][]string
		for _, v := range s.Values {
			rows = append(rows, []string{v.Timestamp.Time().Format(timeLayout), v.Value.String()})
		}
		for _, h := range s.Histograms {
			rows = append(rows, []string{h.Timestamp.Time().Format(timeLayout), summary(h.Histogram)})
		}
		if err := WriteTable(w, rows, 1); err != nil {
			return err
		}
	}
	return nil
}

// WriteTable prints rows in columns. It aligns the last `numbers` columns to the right.
func WriteTable(w io.Writer, rows [][]string, numbers int) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Width(cell))
		}
	}
	var line strings.Builder
	for _, row := range rows {
		line.Reset()
		for i, cell := range row {
			gap := strings.Repeat(" ", widths[i]-Width(cell))
			if i > 0 {
				line.WriteString("  ")
			}
			if i >= len(row)-numbers {
				line.WriteString(gap + cell)
			} else {
				line.WriteString(cell + gap)
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// Printable quotes text that would break a table or control the terminal: any client that can send
// a metric can put such text into labels.
func Printable(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}
