package mapping

import (
	"strings"
	"unicode/utf8"

	"github.com/prometheus/common/model"
)

// metricName turns any bytes into a valid metric name.
func (m *Mapper) metricName(s string) string {
	if m.utf8 && s != "" {
		return validUTF8(s)
	}
	return underscore(s)
}

// OverflowLabel marks overflow series, under which samples of series without a place are
// counted: see core/limit. No sender can set it.
const OverflowLabel = "freshet_overflow"

// labelName turns any bytes into a valid label name without a special meaning to Prometheus or to
// our own series. It looks for reserved names last, since "..name.." becomes reserved only once its
// dots are replaced.
func (m *Mapper) labelName(s string) string {
	s = m.metricName(s) // label names may not have a colon, and metricName removes colons, too
	if s == model.BucketLabel || s == "quantile" || s == OverflowLabel || strings.HasPrefix(s, "__") {
		return "tag_" + s
	}
	return s
}

// isBucket reports whether a name is the name of a classic histogram's buckets.
func isBucket(name string) bool {
	return strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, ".bucket") // utf8_names keeps dots
}

// validUTF8 replaces each run of bytes that is not UTF-8 by one U+FFFD.
func validUTF8(s string) string {
	if utf8.ValidString(s) { // fast: looks at eight bytes at a time
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// underscore replaces each character outside [a-zA-Z0-9_], and each byte that is not UTF-8, by an
// underscore, and puts an underscore before a leading digit. It replaces colons too, since only
// names of recording rules should have colons.
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
