package top

import (
	"fmt"
	"strconv"
)

// The rows of each list that a person is shown: by default, and at most.
const (
	DefaultRows = 20
	MaxRows     = 100
)

// ParseRows reads how many rows of each list are wanted; an empty text is DefaultRows.
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
