package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
)

// parseError is what Prometheus' API writes before what is wrong with a query: the line and
// the column of its place, both from 1, the column in bytes.
var parseError = regexp.MustCompile(`(?:^|: )(\d+):(\d+): parse error: `)

// pointed is an error of a query with the line that it is about, and a caret below the
// place. An error that names no place is as it was, behind the query.
func pointed(expr string, err error) error {
	line, column, ok := placeIn(expr, err.Error())
	if !ok {
		return fmt.Errorf("query %s: %w", expr, err)
	}
	text := terminal.Show([]byte(line))
	return fmt.Errorf("query: %w\n  %s\n  %s^", err, text.Text, strings.Repeat(" ", text.Column(column)))
}

// placeIn is the line of a query that a message is about, and the bytes before the place. At
// the end of a query the place is behind its last byte.
func placeIn(expr, message string) (line string, column int, ok bool) {
	found := parseError.FindStringSubmatch(message)
	if found == nil {
		return "", 0, false
	}
	row, rowErr := strconv.Atoi(found[1])
	column, columnErr := strconv.Atoi(found[2])
	lines := strings.Split(expr, "\n")
	if rowErr != nil || columnErr != nil || row < 1 || row > len(lines) || column < 1 || column > len(lines[row-1])+1 {
		return "", 0, false // the server was asked something else
	}
	return lines[row-1], column - 1, true
}
