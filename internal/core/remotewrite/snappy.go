package remotewrite

import (
	"errors"
	"fmt"

	"github.com/golang/snappy"
)

// maxRatio is how many bytes one byte of a snappy block can become: a copy of 64 bytes is
// written in 3. Source: the format description of snappy.
const maxRatio = 64.0 / 3

// ErrFramed means that a body is not in the block format. Whoever compresses a stream gets
// the framed format from most libraries.
var ErrFramed = errors.New("the body is compressed in snappy's framed format; remote write uses the block format")

// SizeError says that a body is larger than it may be once decompressed.
type SizeError struct {
	Size  uint64 // bytes, as its header says
	Limit int    // bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("the body has %d bytes decompressed, and at most %d are taken; send fewer samples in a request", e.Size, e.Limit)
}

// DecompressedSize is how many bytes Decompress will return. A body is refused if they are
// more than limit, or more than it can become.
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
		return 0, fmt.Errorf("the body is not compressed with snappy: %d bytes cannot become the %d of its header", len(body), size)
	}
	return int(size), nil
}

// Decompress returns what the body is compressed from, in to's memory if it is enough. A
// body that DecompressedSize refuses is refused before any memory is asked for.
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
