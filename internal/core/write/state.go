package write

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/freshet-io/freshet/internal/core/recentseries"
)

// State is the part of a tenant's state, besides the stored samples, that decides the fates of its
// requests. It is folded from the requests in their order. The zero value is the state before the
// first request.
type State struct {
	Requests uint64           // that were folded
	Newest   int64            // Unix milliseconds, the time of the tenant's newest sample; 0 before the first
	Recent   recentseries.Set // which series Request.MaxSeries counts
}

// stateVersion is the version of the saved form. Layout: docs/format/entry.md.
const stateVersion = 1

var errMalformed = errors.New("state of requests: malformed")

// Append appends the saved form. It is equal on all members that have applied the same entries.
func (s *State) Append(b []byte) []byte {
	b = append(b, stateVersion)
	b = binary.AppendUvarint(b, s.Requests)
	b = binary.AppendUvarint(b, uint64(s.Newest))
	return s.Recent.Append(b)
}

// AppendKept is Append for the state at the last Recent.Keep, when Requests and Newest were `requests`
// and `newest`. It may run while another goroutine writes requests with the state.
func (s *State) AppendKept(b []byte, requests uint64, newest int64) []byte {
	b = append(b, stateVersion)
	b = binary.AppendUvarint(b, requests)
	b = binary.AppendUvarint(b, uint64(newest))
	return s.Recent.AppendKept(b)
}

// ParseState returns a state from its saved form.
func ParseState(b []byte) (*State, error) {
	if len(b) == 0 {
		return nil, errMalformed
	}
	if b[0] != stateVersion {
		return nil, fmt.Errorf("state of requests: has version %d, and this program reads %d", b[0], stateVersion)
	}
	requests, b, ok := cutNumber(b[1:])
	newest, b, okToo := cutNumber(b)
	if !ok || !okToo || newest > math.MaxInt64 {
		return nil, errMalformed
	}
	s := &State{Requests: requests, Newest: int64(newest)}
	if err := s.Recent.Parse(b); err != nil {
		return nil, err
	}
	return s, nil
}

// cutNumber takes a uvarint in its shortest form from the front of b.
func cutNumber(b []byte) (x uint64, rest []byte, ok bool) {
	x, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, nil, false
	}
	return x, b[n:], true
}
