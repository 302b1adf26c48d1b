package remoteload

import "encoding/binary"

// A role says how a byte of a request changes between rounds.
type role byte

const (
	constant role = 0 // the byte is the same in all rounds

	// Roles of the bytes of a time, one role for each byte. The byte is the same in all samples of a
	// round.
	firstTime role = 1
	lastTime  role = timeBytes

	free role = 255 // the byte differs in each place and round
)

// written is the place of a byte that changes. The output has that byte in a literal.
type written struct {
	from uint32 // position in the input
	at   uint32 // position in the output
}

// compressor writes snappy's block format. Some bytes of its output are overwritten afterwards. So it
// never copies free bytes, and copies a byte of a time only from the same byte of another time. Like
// other compressors it looks for the last place with the same four bytes.
type compressor struct {
	places [1 << 14]int32 // position in the input plus 1, by hash of four bytes
}

const (
	maxOffset = 1<<16 - 1 // the largest offset of a copy that takes three bytes
	minCopy   = 4
	maxCopy   = 64 // bytes per copy
)

// compress returns `src` compressed, and the positions of the bytes that change.
func (c *compressor) compress(src []byte, roles []role) (dst []byte, changing []written) {
	clear(c.places[:])
	dst = binary.AppendUvarint(dst, uint64(len(src)))
	from := 0 // the first byte that is not written yet
	literal := func(to int) {
		if from == to {
			return
		}
		dst = appendLiteralHead(dst, to-from)
		for i := from; i < to; i++ {
			if roles[i] != constant {
				changing = append(changing, written{uint32(i), uint32(len(dst) + i - from)})
			}
		}
		dst = append(dst, src[from:to]...)
	}
	same := func(i, j int) bool { return src[i] == src[j] && roles[i] == roles[j] && roles[i] != free }
	for i := 0; i+minCopy <= len(src); {
		p := &c.places[binary.LittleEndian.Uint32(src[i:])*0x1e35a7bd>>18]
		match := int(*p) - 1
		*p = int32(i + 1)
		n := 0
		if match >= 0 && i-match <= maxOffset {
			for i+n < len(src) && same(match+n, i+n) {
				n++
			}
		}
		if n < minCopy {
			i++
			continue
		}
		literal(i)
		dst = appendCopy(dst, i-match, n)
		i += n
		from = i
	}
	literal(len(src))
	return dst, changing
}

func appendLiteralHead(b []byte, n int) []byte {
	n--
	switch {
	case n < 60:
		return append(b, byte(n<<2))
	case n < 1<<8:
		return append(b, 60<<2, byte(n))
	case n < 1<<16:
		return append(b, 61<<2, byte(n), byte(n>>8))
	default:
		return append(b, 62<<2, byte(n), byte(n>>8), byte(n>>16))
	}
}

// appendCopy appends a copy of n bytes.
func appendCopy(b []byte, offset, n int) []byte {
	for n > 0 {
		size := min(n, maxCopy)
		if size >= minCopy && size < 12 && offset < 1<<11 {
			b = append(b, byte(offset>>8<<5|(size-4)<<2|1), byte(offset))
		} else {
			b = append(b, byte((size-1)<<2|2), byte(offset), byte(offset>>8))
		}
		n -= size
	}
	return b
}
