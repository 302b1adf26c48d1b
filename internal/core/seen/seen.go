// Package seen remembers the requests that were applied recently. So a request that is sent again,
// perhaps to another node, does not count twice. The package is for increments of OTLP, since no
// store can recognize a repeated increment. All members remember the same requests, since they fold
// them from the entries of their log.
package seen

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet-io/freshet/internal/core/sender"
)

const (
	// Keep is how long a request is known, in milliseconds of the log's time. Senders stop retrying
	// earlier: the OpenTelemetry Collector after 5 minutes.
	Keep = 10 * 60 * 1000

	// MaxRequests is how many requests of a tenant are known: 109 a second for all of Keep. If more
	// come, the oldest are forgotten early. MaxRequests requests take 5 MiB of memory, and 0.7 MiB in
	// a saved state. store.max_tenants bounds the tenants.
	MaxRequests = 1 << 16
)

// Hash is the hash of a request.
type Hash uint64

// Of returns the hash of a request: of its sender and its whole decompressed body, as received,
// before it is cut into parts or sorted by shard. The same body from two hosts is two requests.
func Of(from sender.Sender, body []byte) Hash {
	var head [1 + 16 + 4]byte
	at := head[:1]
	if address := from.Addr.Addr(); address.Is4() {
		ip := address.As4()
		at = append(at, ip[:]...)
	} else if address.IsValid() {
		ip := address.As16()
		at = append(at, ip[:]...)
	}
	head[0] = byte(len(at) - 1)
	at = binary.LittleEndian.AppendUint32(at, uint32(len(from.Agent)))
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(at)
	_, _ = d.WriteString(from.Agent)
	_, _ = d.Write(body)
	return Hash(d.Sum64())
}

// Part returns the hash of the nth part, from 0, of a request that is too large for one entry. If a
// request comes again after the rules have changed, its parts may differ. Then only the times of
// its increments show that they are repeats.
func (h Hash) Part(n int) Hash { return h + Hash(n) }

// Seen has the requests of all tenants. The zero value is empty and ready.
type Seen struct {
	// Early counts requests that were forgotten before their time. It is not saved.
	Early uint64

	now     int64 // Unix milliseconds, the log's time
	swept   int64 // Unix milliseconds, when old requests of idle tenants were last forgotten
	tenants map[string]*tenant
}

// tenant has a tenant's requests.
type tenant struct {
	known map[Hash]struct{}
	queue []request // by age; the oldest is at index first
	first int
}

type request struct {
	t    int64 // the log's time when it was applied
	hash Hash
}

// sweepEvery is the interval, in milliseconds, at which old requests of tenants that send nothing
// are forgotten.
const sweepEvery = 10_000

// Advance moves the log's time, in Unix milliseconds, to the time of the entry that is being applied.
// An earlier time does nothing: another leader's clock may be behind.
func (s *Seen) Advance(now int64) {
	s.now = max(s.now, now)
	if s.now-s.swept < sweepEvery {
		return
	}
	s.swept = s.now
	for name, t := range s.tenants {
		if t.forget(s.now); t.size() == 0 {
			delete(s.tenants, name)
		}
	}
}

// Has reports whether a tenant's request was applied in the last 10 minutes.
func (s *Seen) Has(name string, hash Hash) bool {
	t := s.tenants[name]
	if t == nil {
		return false
	}
	t.forget(s.now)
	_, ok := t.known[hash]
	return ok
}

// Add remembers a tenant's request, unless it is known.
func (s *Seen) Add(name string, hash Hash) {
	if s.Has(name, hash) {
		return
	}
	t := s.tenants[name]
	if t == nil {
		t = newTenant()
		if s.tenants == nil {
			s.tenants = map[string]*tenant{}
		}
		s.tenants[strings.Clone(name)] = t
	}
	if t.size() == MaxRequests {
		t.forgetFirst()
		s.Early++
	}
	t.add(request{s.now, hash})
}

// Remove forgets a tenant that moved to another group.
func (s *Seen) Remove(name string) { delete(s.tenants, name) }

func newTenant() *tenant { return &tenant{known: map[Hash]struct{}{}} }

func (t *tenant) size() int { return len(t.queue) - t.first }

func (t *tenant) add(r request) {
	t.known[r.hash] = struct{}{}
	t.queue = append(t.queue, r)
}

// forget forgets requests that are older than Keep.
func (t *tenant) forget(now int64) {
	for t.size() > 0 && t.queue[t.first].t <= now-Keep {
		t.forgetFirst()
	}
}

func (t *tenant) forgetFirst() {
	delete(t.known, t.queue[t.first].hash)
	t.first++
	if t.first > len(t.queue)/2 { // at most half of the queue is unused, and each request is moved once
		t.queue = append(t.queue[:0], t.queue[t.first:]...)
		t.first = 0
	}
}

// version is the version of the saved form. Layout: docs/format/entry.md.
const version = 1

// maxTime bounds the log's time in Unix milliseconds, as in entries.
const maxTime = 9_000_000_000_000

var errMalformed = errors.New("the state of the seen requests is malformed")

// Append appends the saved form. It is equal on all members that have applied the same entries.
func (s *Seen) Append(b []byte) []byte {
	b = append(b, version)
	b = binary.AppendUvarint(b, uint64(s.now))
	var section []byte
	for _, name := range slices.Sorted(maps.Keys(s.tenants)) {
		if section = s.AppendTenant(section[:0], name); len(section) == 0 {
			continue
		}
		b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
		b = append(binary.AppendUvarint(b, uint64(len(section))), section...)
	}
	return b
}

// AppendTenant appends the section of a tenant, the form in which it moves to another group. It
// appends nothing if the tenant has no requests.
func (s *Seen) AppendTenant(b []byte, name string) []byte {
	t := s.tenants[name]
	if t == nil {
		return b
	}
	t.forget(s.now)
	before := int64(0)
	for _, r := range t.queue[t.first:] {
		b = binary.AppendUvarint(b, uint64(r.t-before))
		b = binary.LittleEndian.AppendUint64(b, uint64(r.hash))
		before = r.t
	}
	return b
}

// Parse replaces all requests by those in a saved form. After an error nothing is replaced.
func (s *Seen) Parse(b []byte) error {
	if len(b) == 0 {
		return errMalformed
	}
	if b[0] != version {
		return fmt.Errorf("the state of the seen requests has version %d, but this program reads version %d", b[0], version)
	}
	now, rest, ok := cutNumber(b[1:], maxTime)
	parsed := Seen{Early: s.Early, now: int64(now), swept: int64(now)}
	for ok && len(rest) > 0 {
		var name, section []byte
		if name, rest, ok = cutBytes(rest); !ok {
			break
		}
		if section, rest, ok = cutBytes(rest); ok {
			ok = parsed.ParseTenant(string(name), section) == nil
		}
	}
	if !ok || !bytes.Equal(parsed.Append(nil), b) { // requests are out of order, repeated or too old
		return errMalformed
	}
	*s = parsed
	return nil
}

// ParseTenant replaces a tenant's requests by a section, which may come from another group. If
// that group's time is ahead, its requests get this group's time. After an error nothing is
// replaced.
func (s *Seen) ParseTenant(name string, section []byte) error {
	t := newTenant()
	for at := int64(0); len(section) > 0; {
		n, rest, ok := cutNumber(section, uint64(maxTime-at))
		if !ok || len(rest) < 8 || t.size() == MaxRequests {
			return errMalformed
		}
		at += int64(n)
		hash := Hash(binary.LittleEndian.Uint64(rest))
		if _, twice := t.known[hash]; twice {
			return errMalformed
		}
		t.add(request{min(at, s.now), hash})
		section = rest[8:]
	}
	s.Remove(name)
	if t.forget(s.now); t.size() > 0 {
		if s.tenants == nil {
			s.tenants = map[string]*tenant{}
		}
		s.tenants[strings.Clone(name)] = t
	}
	return nil
}

func cutNumber(b []byte, most uint64) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 || v > most {
		return 0, nil, false
	}
	return v, b[n:], true
}

func cutBytes(b []byte) (cut, rest []byte, ok bool) {
	n, b, ok := cutNumber(b, math.MaxInt32)
	if !ok || n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
