package dogstatsd

import "math"

// Bounds of a line of buckets: the range of a Prometheus native histogram.
const (
	minSchema = -4
	maxSchema = 8
	maxIndex  = 1024 // in schema 0, the index of the largest float64's bucket
	maxLowest = 1100 // in schema 0, -maxLowest is below the index of the smallest float64's bucket
)

// parseBuckets reads
//
//	h<schema>,<sum>,<zero>[;[n]<index>,<count>[,<count>]...]...
//
// which docs/format/buckets.md describes. It fills Values as described at Metric.
func (p *Parser) parseBuckets(m *Metric, raw []byte) Reason {
	head, rest, more := cut(raw, ';')
	if len(head) == 0 || head[0] != 'h' {
		return p.fail(BadHistogram, raw, "'h' and the schema, -4 to 8")
	}
	text, numbers, found := cut(head[1:], ',')
	schema, ok := parseIndex(text, minSchema, maxSchema)
	if !ok {
		return p.fail(BadHistogram, text, "a schema from -4 to 8")
	}
	if !found {
		return p.fail(BadHistogram, text[len(text):], "',' and the sum of all values")
	}
	text, numbers, found = cut(numbers, ',')
	sum, reason := parseNumber(text)
	if reason != wellFormed {
		return p.fail(BadHistogram, text, "the sum of all values, a decimal number")
	}
	if !found {
		return p.fail(BadHistogram, text[len(text):], "',' and how many values are zero")
	}
	zero, ok := parseCount(numbers)
	if !ok {
		return p.fail(BadHistogram, numbers, "how many values are zero, a decimal number that is not negative")
	}
	m.Values = append(m.Values, sum)
	if zero > 0 {
		m.Values = append(m.Values, 0, zero)
	}
	for more {
		var run []byte
		run, rest, more = cut(rest, ';')
		if reason := p.parseRun(m, run, schema); reason != wellFormed {
			return reason
		}
	}
	if len(m.Values) == 1 {
		return p.fail(NoValue, raw[len(raw):], "a bucket that has values")
	}
	return wellFormed
}

// parseRun reads the counts of adjacent buckets.
func (p *Parser) parseRun(m *Metric, run []byte, schema int) Reason {
	sign := 1.0
	if len(run) > 0 && run[0] == 'n' {
		sign, run = -1, run[1:]
	}
	// Both bounds fit 32 bits for any schema.
	least, most := -maxLowest<<maxSchema, maxIndex<<max(0, schema)
	if schema < 0 {
		most = maxIndex >> -schema
	}
	text, counts, more := cut(run, ',')
	index, ok := parseIndex(text, least, most)
	if !ok {
		return p.fail(BadHistogram, text, "the index of a bucket of this schema, a whole number")
	}
	if !more {
		return p.fail(BadHistogram, text[len(text):], "',' and how many values are in the bucket")
	}
	width := math.Exp2(-float64(schema)) // width of a bucket, in powers of two
	for ; more; index++ {
		text, counts, more = cut(counts, ',')
		count, ok := parseCount(text)
		if !ok {
			return p.fail(BadHistogram, text, "how many values are in the bucket, a decimal number that is not negative")
		}
		if index > most {
			return p.fail(BadHistogram, text, "no index above that of the largest float64's bucket")
		}
		if count > 0 {
			m.Values = append(m.Values, sign*math.Exp2((float64(index)-0.5)*width), count)
		}
	}
	return wellFormed
}

// parseCount reads a nonnegative number.
func parseCount(b []byte) (float64, bool) {
	v, reason := parseNumber(b)
	return v, reason == wellFormed && v >= 0
}

// parseIndex reads a whole number between `least` and `most`.
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
