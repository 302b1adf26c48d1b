package ledger

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Claim has the books that another process tells of itself.
type Claim struct {
	Producer uint64 // the collector's number, which survives its process
	Started  int64  // Unix ms, when the process and its books started
	Boundary int64  // Unix ms, end of the last window; 0 before the first
	Final    bool   // the process ends, and counts nothing more
	Tenants  map[string]Tenant
}

// Of returns the books of a tenant in the claim.
func (c *Claim) Of(tenant string) Tenant { return Books{Tenants: c.Tenants}.Of(tenant) }

const (
	// MaxClaim bounds an encoded Claim, in bytes of the tenants' names and JSON. There is room for about 20 tenants.
	MaxClaim = 16 << 10

	// restRoom is the part of MaxClaim that is kept for the sum of the tenants without room.
	restRoom = 4 << 10

	// maxReasons bounds the reasons of a state, and maxReason the bytes of a reason.
	maxReasons = 64
	maxReason  = 32

	// maxCount bounds each count, so that a sum over 1,000 processes cannot overflow. A process that gets a
	// million samples a second reaches it after 35 years.
	maxCount = 1 << 50
)

// Encode returns the books of the tenants with the most samples, as many as there is room for, and the sum of
// the other tenants as the books of Others. The books are JSON, for ParseTenant.
func (c *Claim) Encode() map[string][]byte {
	came := func(tenant string) uint64 {
		return c.Tenants[tenant].Samples.Received + c.Tenants[tenant].Samples.Restored
	}
	names := slices.SortedFunc(maps.Keys(c.Tenants), func(x, y string) int {
		return cmp.Or(cmp.Compare(came(y), came(x)), strings.Compare(x, y))
	})
	all, room := map[string][]byte{}, MaxClaim-restRoom
	var rest []Tenant
	for _, name := range names {
		text := encodeTenant(c.Tenants[name])
		if size := len(name) + len(text); name != Others && size <= room {
			all[name] = text
			room -= size
			continue
		}
		if rest = append(rest, c.Tenants[name]); name != Others {
			room = 0 // later tenants have fewer samples
		}
	}
	if len(rest) > 0 {
		all[Others] = encodeTenant(Sum(rest, Samples{}))
	}
	return all
}

func encodeTenant(t Tenant) []byte {
	text, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("BUG: books cannot be written as JSON: %v", err)) // only a count of clients could be no number
	}
	return text
}

var errClaim = errors.New("the books are malformed")

// ParseTenant reads the books of a tenant that Encode wrote, perhaps in a process that does not tell the truth.
// Reasons are short words, their number and all counts are bounded, and the differences follow from the counts.
func ParseTenant(text []byte) (Tenant, error) {
	var t Tenant
	if err := json.Unmarshal(text, &t); err != nil {
		return Tenant{}, fmt.Errorf("%w: %w", errClaim, err)
	}
	s, d := &t.Samples, &t.Datagrams
	for _, reasons := range []*map[string]uint64{&s.Malformed, &s.Refused, &s.Late, &s.Unsent, &s.Discarded} {
		if *reasons == nil {
			*reasons = map[string]uint64{} // it must not be null in JSON
		}
		if len(*reasons) > maxReasons {
			return Tenant{}, fmt.Errorf("%w: a state has %d reasons, and at most %d are allowed", errClaim, len(*reasons),
				maxReasons)
		}
		for reason, n := range *reasons {
			if !isReason(reason) || n > maxCount {
				return Tenant{}, fmt.Errorf("%w: %d samples for the reason %.40q", errClaim, n, reason)
			}
		}
	}
	for _, n := range []uint64{
		s.Received, s.Restored, s.Collected, s.HandedOver, s.Window, s.Tile, s.Stored,
		s.OfWhich.Folded, s.OfWhich.LateKept, s.OfWhich.Ahead, s.OfWhich.Respelled,
		d.Read, d.KernelDropped, d.Oversized, d.CutFrames, d.RefusedConnections,
	} {
		if n > maxCount {
			return Tenant{}, fmt.Errorf("%w: a count is %d, and at most %d is possible", errClaim, n, uint64(maxCount))
		}
	}
	maps.DeleteFunc(t.Clients, func(name string, n float64) bool {
		return !slices.Contains(clientNames[:], name) || !(n >= 0 && n <= math.MaxFloat32)
	})
	s.Difference = s.difference()
	d.Received = d.Read + d.KernelDropped + d.Oversized + d.CutFrames
	return t, nil
}

// isReason reports whether a text may be the reason of a state.
func isReason(text string) bool {
	return text != "" && len(text) <= maxReason && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
