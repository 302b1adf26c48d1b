package report

import (
	"fmt"
	"math"
	"strings"
)

// ifAny does the same as withSpread, but returns an empty text if there are no values.
func ifAny(values []float64, format func(float64) string) string {
	if len(values) == 0 {
		return ""
	}
	return withSpread(values, format)
}

const notMeasured = "Not measured.\n"

// significant returns v as text, with two significant digits.
func significant(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := max(0, 1-int(math.Floor(math.Log10(math.Abs(v)))))
	return fmt.Sprintf("%.*f", digits, v)
}

// table returns a Markdown table. The cells of a column whose name ends with a colon are numbers.
func table(head []string, rows [][]string) string {
	if len(rows) == 0 {
		return notMeasured
	}
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	names, rule := make([]string, len(head)), make([]string, len(head))
	for i, name := range head {
		var number bool
		names[i], number = strings.CutSuffix(name, ":")
		rule[i] = "---"
		if number {
			rule[i] = "--:"
		}
	}
	line(names)
	line(rule)
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// grouped empties the first cell of a row if the row above has the same first cell.
func grouped(rows [][]string) [][]string {
	for i := len(rows) - 1; i > 0; i-- {
		if rows[i][0] == rows[i-1][0] {
			rows[i][0] = ""
		}
	}
	return rows
}

func thousands(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// withSpread returns the median and, in brackets, the smallest and the largest value.
func withSpread(values []float64, format func(float64) string) string {
	text := format(Median(values))
	if len(values) > 1 {
		least, largest := spread(values)
		text += fmt.Sprintf(" (%s-%s)", format(least), format(largest))
	}
	return text
}

func micros(v float64) string {
	if v < 0.1 {
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// two formats v with two digits after the decimal point.
func two(v float64) string { return fmt.Sprintf("%.2f", v) }

func megabytes(bytes float64) string { return fmt.Sprintf("%.1f", bytes/1e6) }
