package mapping

import (
	"strings"
	"unicode/utf8"

	"github.com/prometheus/common/model"
)

// metricName makes a valid metric name of any bytes.
func (m *Mapper) metricName(s string) string {
	if m.utf8 && s != "" {
		return validUTF8(s)
	}
	return underscore(s)
}

// OverflowLabel marks the series under which samples are counted whose own series
// have no place: see core/limit. No sender can give it.
const OverflowLabel = "freshet_overflow"

// labelName makes a label name of any bytes: a valid one, and one that neither
// Prometheus nor our own series give a meaning. The check comes last, since
// "..name.." becomes reserved only by losing its dots.
func (m *Mapper) labelName(s string) string {
	s = m.metricName(s) // the alphabets differ by the colon alone, which both lose
	if s == model.BucketLabel || s == "quantile" || s == OverflowLabel || strings.HasPrefix(s, "__") {
		return "tag_" + s
	}
	return s
}

// isBucket reports whether a name is that of the buckets of a classic histogram.
func isBucket(name string) bool {
	return strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, ".bucket") // the point is for utf8_names
}

// validUTF8 replaces each run of bytes that is not UTF-8 by one U+FFFD.
func validUTF8(s string) string {
	if utf8.ValidString(s) { // looks at eight bytes at a time
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// underscore replaces each character outside [a-zA-Z0-9_], and each byte that is
// no character, by an underscore, and puts one before a leading digit. A colon
// goes too, since those are for the names of recording rules.
func underscore(s string) string {
	i := 0
	for i < len(s) && (isLetter(s[i]) || i > 0 && isDigit(s[i])) {
		i++
	}
	if i == len(s) && s != "" {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 1)
	b.WriteString(s[:i])
	if s == "" || i == 0 && isDigit(s[0]) {
		b.WriteByte('_')
	}
	for i < len(s) {
		if c := s[i]; isLetter(c) || isDigit(c) {
			b.WriteByte(c)
			i++
			continue
		}
		b.WriteByte('_')
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
	}
	return b.String()
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
