package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// askedTime is how long a node may take to say whether it takes an import. After that the block is sent anyway: the
	// node imports another one before.
	askedTime = time.Minute

	// stallTime is how long an import may wait for the next bytes of its client. The server's limit for a whole request
	// is a minute.
	stallTime = time.Minute
)

// body is the body of a request.
type body interface {
	// read returns the body from its beginning, for the next node.
	read() io.ReadCloser

	// unread reports whether another node can have the whole body, and takes it from the one before.
	unread() bool

	// broken reports whether the client did not send the body to its end.
	broken() bool
}

// bodyKey is the key of a request's body in its context.
type bodyKey struct{}

func withBody(r *http.Request, b body) *http.Request {
	r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, b))
	r.Body = b.read() // RoundTrip gives each node its own
	return r
}

func bodyOf(r *http.Request) body { return r.Context().Value(bodyKey{}).(body) }

// whole is a body in memory.
type whole []byte

func (w whole) read() io.ReadCloser {
	if len(w) == 0 {
		return http.NoBody
	}
	return io.NopCloser(bytes.NewReader(w))
}

func (w whole) unread() bool { return true }
func (w whole) broken() bool { return false }

// stream is a body that passes through as it comes. The first node that takes something of it must take all.
type stream struct {
	from    io.Reader
	control *http.ResponseController
	last    *part
	failed  atomic.Bool
}

func newStream(w http.ResponseWriter, from io.Reader) *stream {
	return &stream{from: from, control: http.NewResponseController(w)}
}

func (s *stream) read() io.ReadCloser {
	s.last = &part{stream: s}
	return s.last
}

func (s *stream) unread() bool { return s.last.state.CompareAndSwap(untouched, over) }
func (s *stream) broken() bool { return s.failed.Load() }

// part is a stream as one node reads it. The transport may read it until after the node has answered.
type part struct {
	*stream
	state atomic.Int32
}

// States of a part.
const (
	untouched = iota
	begun
	over // the next node has the stream
)

var errOver = errors.New("another node has the body of this request")

// Read implements io.Reader.
func (p *part) Read(b []byte) (int, error) {
	if p.state.CompareAndSwap(untouched, begun); p.state.Load() == over {
		return 0, errOver
	}
	_ = p.control.SetReadDeadline(time.Now().Add(stallTime)) // fails only on connections without deadlines
	n, err := p.from.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		p.failed.Store(true)
	}
	return n, err
}

// Close implements io.Closer. The server closes the body.
func (p *part) Close() error { return nil }
