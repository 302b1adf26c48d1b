package dogstatsd

import (
	"bytes"
	"math"
	"strconv"
	"unsafe"
)

// pow10 has the powers of ten that parseShort needs, all exact in a float64. A number of 19 bytes
// has at most 18 digits after the point.
var pow10 = [...]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
}

// parseNumber reads a decimal number with an optional point and exponent, and returns the nearest
// float64, exactly as strconv.ParseFloat does. It refuses the hexadecimal numbers and underscores
// of Go: no client writes them, and other servers read them differently.
func parseNumber(b []byte) (float64, Reason) {
	if v, ok := parseShort(b); ok {
		return v, wellFormed
	}
	if !isDecimal(b) {
		if isNotFinite(b) {
			return 0, NotFinite
		}
		return 0, BadValue
	}
	// ParseFloat keeps no reference to the string, and its errors have a copy. So the bytes need
	// not be copied.
	v, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(b), len(b)), 64)
	if err != nil { // isDecimal accepted the syntax, so the number is out of range
		return 0, NotFinite
	}
	return v, wellFormed
}

// parseShort reads numbers of up to 19 bytes without an exponent, the form that clients send nearly
// always. It returns false for everything else, well-formed or not. A mantissa of up to 2^53 and a power
// of ten of up to 10^22 are exact, so their division rounds correctly.
func parseShort(b []byte) (float64, bool) {
	if len(b) == 0 || len(b) > 19 { // a uint64 can hold any 19 digits
		return 0, false
	}
	digits := skipSign(b)
	var mantissa uint64
	point := -1
	for i, c := range digits {
		if d := c - '0'; d <= 9 {
			mantissa = mantissa*10 + uint64(d)
		} else if c == '.' && point < 0 {
			point = i
		} else {
			return 0, false
		}
	}
	decimals, count := 0, len(digits)
	if point >= 0 {
		decimals, count = len(digits)-1-point, len(digits)-1
	}
	if count == 0 || mantissa > 1<<53 {
		return 0, false
	}
	v := float64(mantissa)
	if decimals > 0 {
		v /= pow10[decimals]
	}
	if b[0] == '-' {
		v = -v
	}
	return v, true
}

// isDecimal reports whether b is [+-] digits [. digits] [e [+-] digits] with a digit before or
// after the point.
func isDecimal(b []byte) bool {
	n, whole := readDecimal(b)
	return whole && n == len(b)
}

// decimalPrefix takes a text that is not a decimal number. It returns the index of the first wrong
// byte, or the text's length if something is missing.
func decimalPrefix(b []byte) int {
	n, _ := readDecimal(b)
	return n
}

// readDecimal returns how far b reads like a decimal number, and whether that part is complete.
func readDecimal(b []byte) (n int, whole bool) {
	n = len(b) - len(skipSign(b))
	digits := countDigits(b[n:])
	n += digits
	if n < len(b) && b[n] == '.' {
		decimals := countDigits(b[n+1:])
		n += 1 + decimals
		digits += decimals
	}
	if digits == 0 || n == len(b) || b[n] != 'e' && b[n] != 'E' {
		return n, digits > 0
	}
	n++
	n += len(b[n:]) - len(skipSign(b[n:]))
	digits = countDigits(b[n:])
	return n + digits, digits > 0
}

// isNotFinite reports whether b spells an infinity or NaN, in upper or lower case.
func isNotFinite(b []byte) bool {
	b = skipSign(b)
	return bytes.EqualFold(b, []byte("nan")) || bytes.EqualFold(b, []byte("inf")) || bytes.EqualFold(b, []byte("infinity"))
}

func isSigned(b []byte) bool { return len(b) > 0 && (b[0] == '+' || b[0] == '-') }

func skipSign(b []byte) []byte {
	if isSigned(b) {
		return b[1:]
	}
	return b
}

func countDigits(b []byte) int {
	for i, c := range b {
		if c < '0' || c > '9' {
			return i
		}
	}
	return len(b)
}

// IsTrace reports whether b is the id of a trace: 1 to MaxTrace hexadecimal digits.
func IsTrace(b []byte) bool {
	for _, c := range b {
		if c-'0' > 9 && (c|0x20)-'a' > 5 {
			return false
		}
	}
	return len(b) > 0 && len(b) <= MaxTrace
}

// parseUint reads digits only. Numbers too large for any datagram or clock become math.MaxInt64.
func parseUint(b []byte) (int64, bool) {
	if len(b) == 0 || countDigits(b) != len(b) {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if n > (math.MaxInt64-9)/10 {
			return math.MaxInt64, true
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// parseUnix reads Unix seconds from 1 to MaxTime.
func parseUnix(b []byte) (int64, bool) {
	t, ok := parseUint(b)
	return t, ok && t >= 1 && t <= MaxTime
}
