package forwarder

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// Request is a remote-write request on its way to a backend.
type Request struct {
	Tenant     string
	Version    int // of remote write, 1 or 2
	Samples    int // without histograms
	Histograms int
	Body       []byte // compressed with snappy, block format

	Span entry.Span // where it comes from in the log of a group
}

// docs/format/queue.md shows the layout of a frame's payload.
const (
	requestHeader = 6
	spanBytes     = 16
	flagSpan      = 0x80 // in the first byte: the frame has a span
)

// appendRequest appends the payload of r's frame.
func appendRequest(dst []byte, r *Request) ([]byte, error) {
	if r.Version != 1 && r.Version != 2 {
		return nil, fmt.Errorf("remote write has no version %d", r.Version)
	}
	if err := tenant.Check(r.Tenant); err != nil {
		return nil, err
	}
	version := byte(r.Version)
	if r.Span != (entry.Span{}) {
		version |= flagSpan
	}
	dst = append(dst, version, byte(len(r.Tenant)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(r.Histograms))
	if version&flagSpan != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, r.Span.First)
		dst = binary.LittleEndian.AppendUint64(dst, r.Span.Last)
	}
	dst = append(dst, r.Tenant...)
	return append(dst, r.Body...), nil
}

var errRequest = errors.New("not a frame of the forwarder")

// parseRequest is the inverse of appendRequest. `samples` is the frame's count, histograms
// included. The body is a part of b.
func parseRequest(b []byte, samples uint32) (r Request, err error) {
	if len(b) < requestHeader {
		return r, errRequest
	}
	version, tenantBytes, histograms := b[0]&^flagSpan, int(b[1]), binary.LittleEndian.Uint32(b[2:])
	rest := b[requestHeader:]
	if b[0]&flagSpan != 0 {
		if len(rest) < spanBytes {
			return r, errRequest
		}
		r.Span = entry.Span{First: binary.LittleEndian.Uint64(rest), Last: binary.LittleEndian.Uint64(rest[8:])}
		rest = rest[spanBytes:]
	}
	if version != 1 && version != 2 || len(rest) < tenantBytes || histograms > samples {
		return Request{}, errRequest
	}
	r.Tenant, r.Version = string(rest[:tenantBytes]), int(version)
	r.Samples, r.Histograms = int(samples-histograms), int(histograms)
	r.Body = rest[tenantBytes:]
	return r, nil
}
