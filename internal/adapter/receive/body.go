package receive

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/lib/buf"
)

const (
	// readTime is how long a sender may take for a whole request.
	readTime = time.Minute

	// stallTime is how long a sender may take for the next stallBytes of a request, or for the rest of
	// a request if that is shorter. TCP resends a lost packet after 0.2, 0.4, 0.8, 1.6 and 3.2 s, so a
	// packet that is lost five times in a row is not a stall.
	stallTime  = 10 * time.Second
	stallBytes = 16 << 10
)

// errStalled is the error of a request whose body stopped arriving. With the error the request ends, and
// its memory is free for other requests.
var errStalled = fmt.Errorf("fewer than %d bytes of the request came in %v, or the whole request took longer than %v",
	stallBytes, stallTime, readTime)

// stalled is the error of a request that was cut off because its body came too slowly.
// The sender may retry the request.
type stalled struct{ error }

// RetryAfter returns how long the sender should wait.
func (stalled) RetryAfter() time.Duration { return time.Second }

// paced reads the body of a request. It cuts the request off when the sender stalls.
type paced struct {
	body    io.Reader
	control *http.ResponseController // nil if the connection has no deadlines, because this process sends the request
	end     time.Time                // deadline of the whole body
	left    int                      // bytes that must come before the sender gets more time
}

func newPaced(w http.ResponseWriter, request *http.Request) *paced {
	p := &paced{body: request.Body, control: http.NewResponseController(w), end: time.Now().Add(readTime)}
	p.allow()
	return p
}

// allow gives the sender time for the next stallBytes.
func (p *paced) allow() {
	p.left = stallBytes
	at := time.Now().Add(stallTime)
	if at.After(p.end) {
		at = p.end
	}
	p.deadline(at)
}

func (p *paced) deadline(at time.Time) {
	if p.control != nil && p.control.SetReadDeadline(at) != nil {
		p.control = nil
	}
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, errStalled
	case err != nil:
		p.deadline(time.Time{}) // the next request on the connection has its own deadline
	case n >= p.left:
		p.allow()
	default:
		p.left -= n
	}
	return n, err
}

// firstRead is the memory that a body gets before its first bytes come, in bytes.
const firstRead = 16 << 10

// readBody reads a body of about `expected` and at most `limit` bytes to its end. It takes memory
// only as bytes come, because a sender may announce a length and send nothing.
func readBody(body *buf.Buf, from io.Reader, expected, limit int, held *holding) error {
	// The buffer has room for one more byte than the body, so that the same read returns the last
	// bytes and finds the end.
	for room := min(expected, firstRead, limit) + 1; ; room = min(2*room, limit+1) {
		if err := held.grow(room); err != nil {
			return err
		}
		body.B = slices.Grow(body.B, room-len(body.B))
		for len(body.B) < room {
			n, err := from.Read(body.B[len(body.B):room])
			body.B = body.B[:len(body.B)+n]
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return fmt.Errorf("the body ended after %d bytes: %w", len(body.B), err)
			}
		}
		if len(body.B) > limit {
			return &remotewrite.SizeError{Size: uint64(len(body.B)), Limit: limit}
		}
	}
}
