package seen

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/freshet-io/freshet/internal/core/outcome"
)

// maxSeries bounds the text of a series, in bytes: see outcome.Tell.
const maxSeries = 520

// errBefore is the cause in the outcome of a repeat. The original cause is not remembered: after a
// restart, a member no longer knows the totals of that time.
var errBefore = errors.New("it was refused when the request came for the first time")

// appendRefused appends the refusals of an outcome. Layout: docs/format/entry.md.
func appendRefused(b []byte, o *outcome.Outcome) []byte {
	for reason, c := range o.Refused {
		if c.Samples+c.Histograms+c.Series == 0 { // totals have no exemplars
			continue
		}
		b = append(b, byte(reason)+1)
		for _, n := range [...]int{c.Samples, c.Histograms, c.Series} {
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	b = append(b, 0)
	return append(b, o.First.Series...)
}

// parseRefused sets the refusals of an outcome from a text, and reports whether appendRefused can have
// written the text.
func parseRefused(text string, o *outcome.Outcome) bool {
	b := []byte(text)
	next := outcome.Reason(0)
	for len(b) > 0 && b[0] > 0 {
		reason := outcome.Reason(b[0] - 1)
		if reason < next || reason >= outcome.NumReasons {
			return false
		}
		next = reason + 1
		b = b[1:]
		c := &o.Refused[reason]
		for _, n := range [...]*int{&c.Samples, &c.Histograms, &c.Series} {
			v, rest, ok := cutNumber(b, math.MaxInt32)
			if !ok {
				return false
			}
			*n, b = int(v), rest
		}
		if *c == (outcome.Counts{}) {
			return false
		}
	}
	if next == 0 || len(b) == 0 || len(b)-1 > maxSeries {
		return false
	}
	o.Tell(string(b[1:]), errBefore)
	return true
}

func cutNumber(b []byte, most uint64) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 || v > most {
		return 0, nil, false
	}
	return v, b[n:], true
}

func cutBytes(b []byte) (cut, rest []byte, ok bool) {
	n, b, ok := cutNumber(b, math.MaxInt32)
	if !ok || n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
