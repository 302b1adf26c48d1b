package dogstatsd

import (
	"encoding/binary"
	"math/bits"
)

// parseHead reads the part name:value|type of a line in the usual form: the part has at most 64
// bytes, and the value is a set's, or one number that parsePlain reads. It returns where the type
// ends. For any other line, well-formed or not, it returns 0, and parseLine reads the line.
func (p *Parser) parseHead(m *Metric) int {
	if !marking {
		return 0
	}
	ends, colons := p.view(p.at)
	colon, bar := bits.TrailingZeros64(colons), bits.TrailingZeros64(ends)
	end := bits.TrailingZeros64(ends & (ends - 1))
	line := (*[64]byte)(p.packet[p.at:])
	if colon == 0 || colon >= bar-1 || end == 64 || line[bar&63] != '|' || line[0] == '_' {
		return 0 // an event or a check begins with '_'
	}
	t := typeByLetter[line[(bar+1)&63]]
	if end-bar-1 != typeLength[t&7] || (t == Timing) != (line[(bar+2)&63] == 's') {
		return 0
	}
	m.Set = nil
	if t == Set {
		m.Values = m.Values[:0]
		m.Set = line[colon+1 : bar]
	} else if v, ok := parsePlain((*[24]byte)(p.packet[p.at+colon+1:]), bar-colon-1); ok {
		m.Values = append(m.Values[:0], v)
	} else {
		return 0
	}
	m.Type, m.Name, m.Tags, m.Rate, m.Relative = t, line[:colon], nil, 1, false
	if m.rare {
		m.rare = false
		m.Time, m.Origin, m.Exemplar = 0, Origin{}, Exemplar{}
	}
	return p.at + end
}

// typeByLetter has, for each letter, the type that begins with it, or 0. typeLength has the number of
// letters of each type.
var (
	typeByLetter = [256]Type{'c': Count, 'g': Gauge, 'm': Timing, 'h': Histogram, 'd': Distribution, 's': Set}
	typeLength   = [8]int{0: -1, Count: 1, Gauge: 1, Timing: 2, Histogram: 1, Distribution: 1, Set: 1}
)

// parseFields reads the optional fields from `at` on, where the type ends, and moves to the next
// line.
func (p *Parser) parseFields(m *Metric, at int) Reason {
	for at < p.end && p.packet[at] == '|' {
		from := at + 1
		at = p.endFrom(from)
		field := p.packet[from:at]
		if n := len(field); n > 0 && field[n-1] == '\r' && (at == p.end || p.packet[at] == '\n') {
			field = field[:n-1]
		}
		if len(field) > 0 && field[0] == '#' {
			m.Tags = field[1:]
			continue
		}
		if len(field) > 0 && field[0] != '@' {
			m.rare = true
		}
		if _, reason := p.parseMetricField(m, field); reason != wellFormed {
			_, rest := cutLine(p.packet[at:p.end])
			p.at = p.end - len(rest)
			return reason
		}
	}
	p.at = at + 1
	return wellFormed
}

// endFrom returns the place of the first '|' or line break from `at` on, or the datagram's end.
func (p *Parser) endFrom(at int) int {
	ends, _ := p.view(at)
	for ends == 0 {
		at += blockSize
		ends, _ = p.view(at)
	}
	return at + bits.TrailingZeros64(ends)
}

// parsePlain reads the number in the first n bytes of b, before a '|': up to 8 digits and, after a
// point, up to 7 more. It returns false for everything else, well-formed or not. It reads both
// parts even if one is absent: lengths differ from line to line, and a mispredicted branch takes
// longer. The mantissa is below 2^53. So mantissa and power of ten are exact, and their division
// rounds correctly.
func parsePlain(b *[24]byte, n int) (float64, bool) {
	whole := binary.LittleEndian.Uint64(b[:]) ^ zeros
	digits := uint(bits.TrailingZeros64(notDigits(whole))) / 8
	decimals := uint(n) - digits // includes the point
	fraction := binary.LittleEndian.Uint64(b[digits&15+1:]) ^ zeros
	fraction <<= 72 - 8*decimals // with leading zeros; zero if there are no decimals
	if digits == 0 || decimals > 8 || !endsDigits[b[digits&15]] || notDigits(fraction) != 0 {
		return 0, false
	}
	mantissa := eightDigits(whole<<(64-8*digits))*shift[decimals&15] + eightDigits(fraction)
	return float64(int64(mantissa)) / float64(shift[decimals&15]), true
}

// endsDigits has the bytes that may follow the digits before the point.
var endsDigits = [256]bool{'.': true, '|': true}

// shift has powers of ten: 10^n at the index n+1. For n decimals, n+1 is their length with the
// point.
var shift = [16]uint64{1, 1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7}

// zeros is eight digits 0 in ASCII. The functions below take eight digits as one number: each byte
// is the value of a digit, and the lowest byte is the first digit.
const zeros = 0x3030303030303030

// notDigits returns 0 if no byte exceeds 9. Otherwise the lowest bit set is the highest bit of the
// first such byte.
func notDigits(w uint64) uint64 {
	return (w + 0x7676767676767676 | w) & 0x8080808080808080
}

// eightDigits returns the number that eight digits stand for. It first joins pairs of digits, then
// all four pairs.
func eightDigits(w uint64) uint64 {
	w = w*10 + w>>8
	return (w&0x000000FF000000FF*(100+1000000<<32) + w>>16&0x000000FF000000FF*(1+10000<<32)) >> 32
}
