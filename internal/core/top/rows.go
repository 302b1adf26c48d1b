package top

import (
	"fmt"
	"strconv"
)

// These are the numbers of rows of each list that a person is shown: by default, and at most.
const (
	DefaultRows = 20
	MaxRows     = 100
)

// ParseRows parses the number of rows of each list; an empty text means DefaultRows.
func ParseRows(text string) (int, error) {
	if text == "" {
		return DefaultRows, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > MaxRows {
		return 0, fmt.Errorf("limit = %s: is not a number from 1 to %d", text, MaxRows)
	}
	return limit, nil
}
