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
	// readTime is how long a sender may take for one request, whatever comes meanwhile.
	readTime = time.Minute

	// stallTime is how long a sender may take for the next stallBytes of a request, or for
	// its end. TCP sends again what was lost after 0.2, 0.4, 0.8, 1.6 and 3.2 s, so that
	// five packets lost in a row are no stall.
	stallTime  = 10 * time.Second
	stallBytes = 16 << 10
)

// errStalled is a request that did not come: its memory is for others.
var errStalled = fmt.Errorf("less than %d bytes of the request came in %v, or not all of it in %v", stallBytes, stallTime, readTime)

// stalled is a request that was cut off. It may come again.
type stalled struct{ error }

// RetryAfter is how long the sender should wait.
func (stalled) RetryAfter() time.Duration { return time.Second }

// paced is the body of a request, which is cut off when it does not come.
type paced struct {
	body    io.Reader
	control *http.ResponseController // nil if the connection takes no deadline: a request of this process
	end     time.Time                // of all of it
	left    int                      // bytes until the sender is given time again
}

func newPaced(w http.ResponseWriter, request *http.Request) *paced {
	p := &paced{body: request.Body, control: http.NewResponseController(w), end: time.Now().Add(readTime)}
	p.allow()
	return p
}

// allow gives the sender time for the next bytes.
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

// Read is part of io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, errStalled
	case err != nil:
		p.deadline(time.Time{}) // the next request on the connection has time of its own
	case n >= p.left:
		p.allow()
	default:
		p.left -= n
	}
	return n, err
}

// firstRead is for how much of a body there is memory before any of it came, in bytes.
const firstRead = 16 << 10

// readBody reads to the end of a body, of which so many bytes are expected, and at most
// limit are taken. It takes memory as they come: a sender that says how much it will send
// has sent nothing yet.
func readBody(body *buf.Buf, from io.Reader, expected, limit int, held *holding) error {
	// One byte more, so that the end is found without another read that finds no room.
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
