package dogstatsd

import "math"

// Bounds of a line of buckets: what a Prometheus native histogram can have.
const (
	minSchema = -4
	maxSchema = 8
	maxIndex  = 1024 // of schema 0: the bucket of the largest float64; lower ones end at -maxLowest
	maxLowest = 1100 // beyond the smallest float64
)

// parseBuckets reads
//
//	h<schema>,<sum>,<zero>[;[n]<index>,<count>[,<count>]...]...
//
// which docs/format/buckets.md describes. It fills Values as Metric says, and returns
// where raw goes wrong if it does, and what should be there.
func (m *Metric) parseBuckets(raw []byte) (at int, expected string, reason Reason) {
	head, rest, more := cut(raw, ';')
	if len(head) == 0 || head[0] != 'h' {
		return 0, "'h' and the schema, -4 to 8", BadHistogram
	}
	text, numbers, found := cut(head[1:], ',')
	schema, ok := parseIndex(text, minSchema, maxSchema)
	at = 1
	if !ok {
		return at, "a schema from -4 to 8", BadHistogram
	}
	at += len(text)
	if !found {
		return at, "',' and the sum of all values", BadHistogram
	}
	text, numbers, found = cut(numbers, ',')
	at++
	sum, reason := parseNumber(text)
	if reason != wellFormed {
		return at, "the sum of all values, a decimal number", BadHistogram
	}
	at += len(text)
	if !found {
		return at, "',' and how many values are zero", BadHistogram
	}
	at++
	zero, ok := parseCount(numbers)
	if !ok {
		return at, "how many values are zero, a decimal number that is not negative", BadHistogram
	}
	at += len(numbers)
	m.Values = append(m.Values, sum)
	if zero > 0 {
		m.Values = append(m.Values, 0, zero)
	}
	for more {
		var run []byte
		run, rest, more = cut(rest, ';')
		at++
		wrong, expected := m.parseRun(run, schema)
		if expected != "" {
			return at + wrong, expected, BadHistogram
		}
		at += len(run)
	}
	if len(m.Values) == 1 {
		return at, "a bucket that has values", NoValue
	}
	return 0, "", wellFormed
}

// parseRun reads the counts of buckets side by side.
func (m *Metric) parseRun(run []byte, schema int) (at int, expected string) {
	sign := 1.0
	if len(run) > 0 && run[0] == 'n' {
		sign, run, at = -1, run[1:], 1
	}
	// Within 32 bits whatever the schema.
	least, most := -maxLowest<<maxSchema, maxIndex<<max(0, schema)
	if schema < 0 {
		most = maxIndex >> -schema
	}
	text, counts, more := cut(run, ',')
	index, ok := parseIndex(text, least, most)
	if !ok {
		return at, "the index of a bucket of this schema, a whole number"
	}
	at += len(text)
	if !more {
		return at, "',' and how many values are in the bucket"
	}
	width := math.Exp2(-float64(schema)) // of a bucket, in powers of two
	for ; more; index++ {
		text, counts, more = cut(counts, ',')
		at++
		count, ok := parseCount(text)
		if !ok {
			return at, "how many values are in the bucket, a decimal number that is not negative"
		}
		if index > most {
			return at, "no bucket beyond that of the largest number"
		}
		if count > 0 {
			m.Values = append(m.Values, sign*math.Exp2((float64(index)-0.5)*width), count)
		}
		at += len(text)
	}
	return 0, ""
}

// parseCount reads a number that is not negative.
func parseCount(b []byte) (float64, bool) {
	v, reason := parseNumber(b)
	return v, reason == wellFormed && v >= 0
}

// parseIndex reads a whole number from least to most.
func parseIndex(b []byte, least, most int) (int, bool) {
	digits := skipSign(b)
	if len(digits) == 0 || len(digits) > 9 || countDigits(digits) < len(digits) {
		return 0, false
	}
	n := 0
	for _, c := range digits {
		n = n*10 + int(c-'0')
	}
	if b[0] == '-' {
		n = -n
	}
	return n, n >= least && n <= most
}
