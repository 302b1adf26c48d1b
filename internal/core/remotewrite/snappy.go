package remotewrite

import (
	"errors"
	"fmt"

	"github.com/golang/snappy"
)

// maxRatio is how many bytes one byte of a snappy block can become: a copy of 64 bytes takes 3.
// Source: the format description of snappy.
const maxRatio = 64.0 / 3

// ErrFramed means that a body is in snappy's framed format, which most libraries write for
// streams, and not in the block format.
var ErrFramed = errors.New("the body is compressed in snappy's framed format; remote write uses the block format")

// SizeError means that a decompressed body would be larger than the limit.
type SizeError struct {
	Size  uint64 // bytes, from its header
	Limit int    // bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("the body has %d bytes decompressed, and the limit is %d; send fewer samples in a request",
		e.Size, e.Limit)
}

// DecompressedSize returns how many bytes Decompress will return. It refuses a body if that number is
// above `limit`, or more than a body of this length can yield.
func DecompressedSize(body []byte, limit int) (int, error) {
	if len(body) >= 10 && string(body[:10]) == "\xff\x06\x00\x00sNaPpY" {
		return 0, ErrFramed
	}
	size, at := varint(body, 0)
	if at < 0 {
		return 0, errors.New("the body is not compressed with snappy: it does not begin with a size")
	}
	if size > uint64(limit) {
		return 0, &SizeError{size, limit}
	}
	if float64(size) > maxRatio*float64(len(body)) {
		return 0,
			fmt.Errorf("the body is not compressed with snappy: %d bytes cannot become the %d bytes that its header states",
				len(body), size)
	}
	return int(size), nil
}

// Decompress returns the decompressed body, in the memory of `to` if that is large enough. Before it
// allocates, it refuses any body that DecompressedSize refuses.
func Decompress(to, body []byte, limit int) ([]byte, error) {
	if _, err := DecompressedSize(body, limit); err != nil {
		return nil, err
	}
	decoded, err := snappy.Decode(to[:cap(to)], body)
	if err != nil {
		return nil, fmt.Errorf("the body is not compressed with snappy: %w", err)
	}
	return decoded, nil
}
