// Package seen remembers the requests that were applied recently. So a request that is sent again,
// perhaps to another node, does not count twice. The package is for increments of OTLP, since no store
// can recognize a repeated increment. All members remember the same requests, since they fold them from
// the entries of their log. If a part of a request was refused, they also remember the refusals, so that
// the request has the same outcome when it comes again.
package seen

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/sender"
)

const (
	// Keep is how long a request is known, in milliseconds of the log's time. Senders stop retrying
	// earlier: the OpenTelemetry Collector after 5 minutes.
	Keep = 10 * 60 * 1000

	// MaxRequests is how many requests of a tenant are known. This is enough for 109 requests a second
	// during all of Keep. If more come, the oldest are forgotten early. MaxRequests requests take 5 MiB
	// of memory, and 0.7 MiB in a saved state. store.max_tenants bounds the tenants.
	MaxRequests = 1 << 16

	// MaxRefused bounds the memory, in bytes, of the refusals of a tenant's requests. It has room for
	// 10,000 requests with series of 100 bytes, or for 3,500 with the longest series. Beyond it, the
	// oldest refusals are forgotten early: when such a request comes again, its outcome says that all of
	// it is written. In a saved state, the refusals take less than MaxRefused.
	MaxRefused = 2 << 20
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

// Part returns the hash of an entry with the nth part, from 0, of a request. The parts are of the request as
// received: see remotewrite.Request.Cuts. If the rules make a part too large for one entry, it has several
// entries, with numbers from 0. Only these numbers depend on the rules.
func (h Hash) Part(n, entry int) Hash { return h + Hash(n) + Hash(entry)<<32 }

// Seen has the requests of all tenants. The zero value is empty and ready.
type Seen struct {
	// Early counts the requests that were forgotten before Keep was over. EarlyRefused counts the
	// requests whose refusals alone were forgotten early. Neither is saved.
	Early, EarlyRefused uint64

	now     int64 // Unix milliseconds, the log's time
	swept   int64 // Unix milliseconds, when old requests of idle tenants were last forgotten
	tenants map[string]*tenant
}

// tenant has a tenant's requests.
type tenant struct {
	known map[Hash]struct{}
	queue []request // by age; the oldest is at index first
	first int

	// The refusals of requests that were refused in part, encoded: see encoding.go.
	refused map[Hash]string
	partial []Hash // keys of refused, by age
	bytes   int    // of refused
}

type request struct {
	t    int64 // the log's time when it was applied
	hash Hash
}

// sweepEvery is the interval, in milliseconds, at which old requests of tenants that send nothing
// are forgotten.
const sweepEvery = 10_000

// Advance moves the log's time, in Unix milliseconds, to the time of the entry that is being applied.
// An earlier time changes nothing: another leader's clock may be behind.
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

// Add remembers a tenant's request and its refusals, unless the request is known.
func (s *Seen) Add(name string, hash Hash, o *outcome.Outcome) {
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
	if refused := o.AllRefused(); refused.Samples+refused.Histograms+refused.Series > 0 {
		s.EarlyRefused += t.refuse(hash, string(appendRefused(nil, o)))
	}
}

// Refused sets in `o` the remembered refusals of a tenant's request, and reports whether there are any.
func (s *Seen) Refused(name string, hash Hash, o *outcome.Outcome) bool {
	if !s.Has(name, hash) {
		return false
	}
	text, ok := s.tenants[name].refused[hash]
	if ok && !parseRefused(text, o) {
		panic(fmt.Sprintf("BUG: refusals of a request are remembered as %x", text))
	}
	return ok
}

// Remove forgets a tenant that moved to another group.
func (s *Seen) Remove(name string) { delete(s.tenants, name) }

func newTenant() *tenant { return &tenant{known: map[Hash]struct{}{}, refused: map[Hash]string{}} }

func (t *tenant) size() int { return len(t.queue) - t.first }

func (t *tenant) add(r request) {
	t.known[r.hash] = struct{}{}
	t.queue = append(t.queue, r)
}

// refuse remembers the refusals of the newest request. It returns the number of requests whose refusals it
// forgets to make room.
func (t *tenant) refuse(hash Hash, text string) (early uint64) {
	t.refused[hash] = text
	t.partial = append(t.partial, hash)
	for t.bytes += costOf(text); t.bytes > MaxRefused; early++ {
		t.forgetRefused()
	}
	return early
}

// costOf returns about how many bytes of memory the refusals of a request take.
func costOf(text string) int { return 96 + len(text) }

func (t *tenant) forgetRefused() {
	hash := t.partial[0]
	t.bytes -= costOf(t.refused[hash])
	delete(t.refused, hash)
	t.partial = t.partial[1:]
}

// forget forgets requests that are older than Keep.
func (t *tenant) forget(now int64) {
	for t.size() > 0 && t.queue[t.first].t <= now-Keep {
		t.forgetFirst()
	}
}

func (t *tenant) forgetFirst() {
	hash := t.queue[t.first].hash
	delete(t.known, hash)
	if _, ok := t.refused[hash]; ok {
		t.forgetRefused() // these refusals are the oldest
	}
	t.first++
	if t.first > len(t.queue)/2 { // at most half of the queue is unused, and each request is moved once
		t.queue = append(t.queue[:0], t.queue[t.first:]...)
		t.first = 0
	}
}

// Versions of the saved form. Layout: docs/format/entry.md. The second version has refusals. It is used
// only if there are any.
const (
	version     = 1
	withRefused = 2
)

// maxTime is the largest value of the log's time, in Unix milliseconds. Entries have the same bound.
const maxTime = 9_000_000_000_000

var errMalformed = errors.New("the state of the seen requests is malformed")

// Append appends the saved form. It is equal on all members that have applied the same entries.
func (s *Seen) Append(b []byte) []byte {
	v := byte(version)
	for _, t := range s.tenants {
		if t.forget(s.now); len(t.partial) > 0 {
			v = withRefused
		}
	}
	b = binary.AppendUvarint(append(b, v), uint64(s.now))
	var section []byte
	for _, name := range slices.Sorted(maps.Keys(s.tenants)) {
		if section = s.appendTenant(section[:0], name, v); len(section) == 0 {
			continue
		}
		b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
		b = append(binary.AppendUvarint(b, uint64(len(section))), section...)
	}
	return b
}

// AppendTenant appends a tenant's section, the form in which the tenant's requests move to another
// group. It appends nothing if the tenant has no requests.
func (s *Seen) AppendTenant(b []byte, name string) []byte {
	return s.appendTenant(b, name, withRefused)
}

func (s *Seen) appendTenant(b []byte, name string, v byte) []byte {
	t := s.tenants[name]
	if t == nil {
		return b
	}
	t.forget(s.now)
	before := int64(0)
	for _, r := range t.queue[t.first:] {
		b = binary.AppendUvarint(b, uint64(r.t-before))
		b = binary.LittleEndian.AppendUint64(b, uint64(r.hash))
		if v == withRefused {
			refused := t.refused[r.hash]
			b = append(binary.AppendUvarint(b, uint64(len(refused))), refused...)
		}
		before = r.t
	}
	return b
}

// Parse replaces all requests by those in a saved form. After an error nothing is replaced.
func (s *Seen) Parse(b []byte) error {
	if len(b) == 0 {
		return errMalformed
	}
	v := b[0]
	if v != version && v != withRefused {
		return fmt.Errorf("the state of the seen requests has version %d, but this program reads versions %d and %d",
			v, version, withRefused)
	}
	now, rest, ok := cutNumber(b[1:], maxTime)
	parsed := Seen{Early: s.Early, EarlyRefused: s.EarlyRefused, now: int64(now), swept: int64(now)}
	for ok && len(rest) > 0 {
		var name, section []byte
		if name, rest, ok = cutBytes(rest); !ok {
			break
		}
		if section, rest, ok = cutBytes(rest); ok {
			ok = parsed.parseTenant(string(name), section, v) == nil
		}
	}
	if !ok || !bytes.Equal(parsed.Append(nil), b) { // requests are out of order, repeated or too old
		return errMalformed
	}
	*s = parsed
	return nil
}

// ParseTenant replaces a tenant's requests by those of a section, which may come from another group. If
// the other group's time is ahead, the requests get this group's time. After an error nothing is
// replaced.
func (s *Seen) ParseTenant(name string, section []byte) error {
	return s.parseTenant(name, section, withRefused)
}

func (s *Seen) parseTenant(name string, section []byte, v byte) error {
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
		if section = rest[8:]; v == version {
			continue
		}
		var refused []byte
		if refused, section, ok = cutBytes(section); !ok {
			return errMalformed
		}
		if len(refused) == 0 {
			continue
		}
		if !parseRefused(string(refused), new(outcome.Outcome)) || t.refuse(hash, string(refused)) > 0 {
			return errMalformed
		}
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
