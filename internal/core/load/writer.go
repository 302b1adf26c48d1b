package load

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// contextsPerName is how many contexts share a name, like the hosts or routes of a metric. This
// number is below any limit of series per metric.
const contextsPerName = 10

// newDigits is the number of digits that identify a new context.
const newDigits = 12

// nouns are the middle parts of names, by kind, so that each name has one kind. All nouns are
// equally long.
var nouns = [NumKinds]string{"requests", "sessions", "duration", "payloads", "response", "visitors"}

// filler pads lines to their length.
var filler = strings.Repeat("-checkout-backend", 10)

// writer renders lines. All lines have the same length.
type writer struct {
	Config
	random *rand.Rand
	line   int // bytes
	value  []byte
}

func newWriter(c Config) *writer {
	return &writer{Config: c, random: newRandom(c.Seed), line: c.LineBytes()}
}

// appendKnown appends a line of context i.
func (w *writer) appendKnown(b []byte, i int, t *tally) []byte {
	k := w.Kinds.at(i, w.Contexts)
	start := len(b)
	b = append(append(b, "bench."...), nouns[k]...)
	b = append(b, '.')
	if w.Tags == 0 {
		return w.appendRest(appendPadded(b, i, 7), start, k, t)
	}
	b = w.appendRest(appendPadded(b, i/contextsPerName, 6), start, k, t)
	b = appendPadded(append(b, "pod:web-"...), i, 7)
	return w.appendTags(b, start)
}

// appendNew appends a line of a new context, and returns where to write the digits of the context.
func (w *writer) appendNew(b []byte, t *tally) (line []byte, digits int) {
	total := w.Kinds.total()
	k := w.Kinds.at(w.random.IntN(total), total)
	t.news++
	start := len(b)
	b = append(append(b, "bench."...), nouns[k]...)
	b = w.appendRest(append(b, ".new"...), start, k, t)
	b = append(b, "pod:"...)
	digits = len(b)
	b = appendPadded(b, 0, newDigits)
	return w.appendTags(b, start), digits
}

// appendRest appends the part after the name, up to the tags.
func (w *writer) appendRest(b []byte, start int, k Kind, t *tally) []byte {
	w.setValue(k, t)
	if w.Tags == 0 { // without tags, only the name can be padded
		missing := w.line - (len(b) - start) - len(w.value)
		return append(append(b, filler[:missing]...), w.value...)
	}
	return append(append(b, w.value...), "|#"...)
}

// setValue makes the value and type of a line. All values of a kind are equally long.
func (w *writer) setValue(k Kind, t *tally) {
	t.kinds[k]++
	v := append(w.value[:0], ':')
	switch k {
	case Counter:
		n := 1 + w.random.IntN(9)
		t.counterSum += uint32(n)
		v = strconv.AppendInt(v, int64(n), 10)
	case Set:
		v = appendPadded(append(v, 'u'), w.random.IntN(100_000), 5)
	case Gauge:
		v = appendPadded(append(appendPadded(v, 100+w.random.IntN(900), 3), '.'), w.random.IntN(100), 2)
	default:
		v = appendPadded(append(appendPadded(v, 10+w.random.IntN(90), 2), '.'), w.random.IntN(10), 1)
	}
	w.value = append(append(v, '|'), kindNames[k]...)
}

// appendTags appends all tags after the first, and pads the line with the last tag.
func (w *writer) appendTags(b []byte, start int) []byte {
	for i := 1; i < w.Tags; i++ {
		b = append(b, ',')
		switch i {
		case 1:
			b = append(b, "env:production"...)
		case 2:
			b = append(b, "region:eu-west"...)
		case 3:
			b = append(b, "service:shop"...)
		default:
			b = appendPadded(append(b, "tag"...), i, 2)
			b = append(b, ":value-a"...)
		}
	}
	return append(b, filler[:w.line-(len(b)-start)]...)
}

func appendPadded(b []byte, n, width int) []byte {
	for range width {
		b = append(b, '0')
	}
	putDigits(b[len(b)-width:][:width], uint64(n))
	return b
}

// putDigits overwrites the digits at the front of b with n.
func putDigits(b []byte, n uint64) {
	width := min(len(b), newDigits)
	for i := width - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}
