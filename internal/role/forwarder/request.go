package forwarder

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// Request is a remote-write request on its way to a backend.
type Request struct {
	Tenant     string
	Version    int // of remote write, 1 or 2
	Samples    int // without histograms
	Histograms int
	Body       []byte // compressed with snappy, block format
}

// docs/format/queue.md shows the layout of a frame's payload.
const requestHeader = 6

// appendRequest appends the payload of r's frame.
func appendRequest(dst []byte, r *Request) ([]byte, error) {
	if r.Version != 1 && r.Version != 2 {
		return nil, fmt.Errorf("remote write has no version %d", r.Version)
	}
	if err := tenant.Check(r.Tenant); err != nil {
		return nil, err
	}
	dst = append(dst, byte(r.Version), byte(len(r.Tenant)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(r.Histograms))
	dst = append(dst, r.Tenant...)
	return append(dst, r.Body...), nil
}

var errRequest = errors.New("not a frame of the forwarder")

// parseRequest is the inverse of appendRequest. `samples` is the frame's count, histograms
// included. The body is a part of b.
func parseRequest(b []byte, samples uint32) (r Request, err error) {
	if len(b) < requestHeader || b[0] != 1 && b[0] != 2 || len(b) < requestHeader+int(b[1]) {
		return r, errRequest
	}
	end := requestHeader + int(b[1])
	histograms := binary.LittleEndian.Uint32(b[2:])
	if histograms > samples {
		return r, errRequest
	}
	return Request{
		Tenant:     string(b[requestHeader:end]),
		Version:    int(b[0]),
		Samples:    int(samples - histograms),
		Histograms: int(histograms),
		Body:       b[end:],
	}, nil
}
