package write

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/freshet-io/freshet/internal/core/recentseries"
)

// State decides the fates of a tenant's requests, together with the stored samples. It is folded
// from the requests in their order. The zero value is the state before the first request.
type State struct {
	Requests uint64           // number of folded requests
	Newest   int64            // Unix milliseconds, the time of the tenant's newest sample; 0 before the first
	Recent   recentseries.Set // which series Request.MaxSeries counts
}

// stateVersion is the version of the saved form. Layout: docs/format/entry.md.
const stateVersion = 1

var errMalformed = errors.New("state of requests: malformed")

// Append appends the saved form. It is equal on all members that have applied the same entries.
func (s *State) Append(b []byte) []byte {
	return s.Recent.Append(appendNumbers(append(b, stateVersion), s.Requests, s.Newest))
}

// AppendKept is Append for the state at the last Recent.Keep, when Requests and Newest were `requests`
// and `newest`. It may run while another goroutine writes requests with the state.
func (s *State) AppendKept(b []byte, requests uint64, newest int64) []byte {
	return s.Recent.AppendKept(appendNumbers(append(b, stateVersion), requests, newest))
}

// AppendRecorded appends the changes since the last call, if the state records changes: see
// recentseries.Set.Record.
func (s *State) AppendRecorded(b []byte) []byte {
	return s.Recent.AppendRecorded(appendNumbers(b, s.Requests, s.Newest))
}

// Repeat applies recorded changes to a state. That state must equal the recording state before these
// changes. After an error nothing is changed.
func (s *State) Repeat(b []byte) error {
	requests, newest, b, ok := cutNumbers(b)
	if !ok || requests < s.Requests || newest < s.Newest {
		return errMalformed
	}
	if err := s.Recent.Repeat(b); err != nil {
		return err
	}
	s.Requests, s.Newest = requests, newest
	return nil
}

// ParseState returns a state from its saved form.
func ParseState(b []byte) (*State, error) {
	if len(b) == 0 {
		return nil, errMalformed
	}
	if b[0] != stateVersion {
		return nil, fmt.Errorf("state of requests: has version %d, and this program reads %d", b[0], stateVersion)
	}
	requests, newest, b, ok := cutNumbers(b[1:])
	if !ok {
		return nil, errMalformed
	}
	s := &State{Requests: requests, Newest: newest}
	if err := s.Recent.Parse(b); err != nil {
		return nil, err
	}
	return s, nil
}

func appendNumbers(b []byte, requests uint64, newest int64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, requests), uint64(newest))
}

// cutNumbers reads the numbers that appendNumbers wrote, and cuts them off the front of b.
func cutNumbers(b []byte) (requests uint64, newest int64, rest []byte, ok bool) {
	requests, b, ok = cutNumber(b)
	v, b, okToo := cutNumber(b)
	return requests, int64(v), b, ok && okToo && v <= math.MaxInt64
}

// cutNumber takes a uvarint in its shortest form from the front of b.
func cutNumber(b []byte) (x uint64, rest []byte, ok bool) {
	x, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, nil, false
	}
	return x, b[n:], true
}
