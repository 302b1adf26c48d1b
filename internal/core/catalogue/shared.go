package catalogue

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/lib/fields"
)

// Shared is the catalogue of a group. The members claim names in the order of the group's log, and
// decide only by the claims and their terms. So all members have the same owners. A Shared knows no raw
// names, units or help.
//
// One goroutine at a time claims and finds names. Any goroutine may ask for the metadata, and peek.
type Shared struct {
	c     *Catalogue
	swept int64 // time at which unused names were last forgotten, in Unix milliseconds
}

// Terms are the time and the limits by which a claim is decided. They come with the claim. Times are Unix
// milliseconds, and durations milliseconds.
type Terms struct {
	Now      int64
	MaxNames int                        // limit on the names of each tenant
	Kept     [series.LastKind + 1]int64 // by kind: see Catalogue.KeepFor
	Unused   int64                      // names are forgotten after this time without samples
}

const (
	// formLives is how long a form of timers blocks its name for other forms after its last claim, in
	// milliseconds. Names in use are claimed again after ClaimAgain.
	formLives = 3 * ClaimAgain

	// ClaimAgain is the time after which a name in use is claimed again, in milliseconds. It must be
	// shorter than TouchedEvery.
	ClaimAgain = int64(10 * time.Minute / time.Millisecond)

	// forgetEvery is how often unused names are forgotten, in milliseconds.
	forgetEvery = int64(time.Hour / time.Millisecond)
)

// NewShared returns an empty catalogue.
func NewShared() *Shared {
	c := New(math.MaxInt)
	c.began = 1 // LastSeen is exact, whichever process claimed the name
	return &Shared{c: c}
}

// Claim gives a name to the owner of the claim. The claim has no raw name, unit or help. A process gets
// the report about a claim only once.
func (s *Shared) Claim(terms *Terms, claim *Claim) Report {
	c := s.c
	c.mu.Lock()
	c.maxNames = terms.MaxNames
	c.kept = func(kind series.Kind) time.Duration { return time.Duration(terms.Kept[kind]) * time.Millisecond }
	t := c.tenant(claim.Tenant)
	t.fresh = terms.Now - formLives
	c.mu.Unlock()
	if terms.Now-s.swept >= forgetEvery {
		s.swept = terms.Now
		c.Forget(terms.Now, terms.Now-terms.Unused)
	}
	own := *claim
	own.Raw, own.Named = []byte(claim.Name), true
	_, report := c.Resolve(terms.Now, &own)
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := t.owned(own.owner()); m != nil {
		m.LastSeen = max(m.LastSeen, terms.Now)
		m.used, m.claimed = m.LastSeen, false // LastSeen says whether the name is in use
	}
	clear(c.dirty) // a Shared is saved only as a whole
	clear(c.gone)
	return report
}

// Names has the names of a tenant in a Shared. It is valid until the next claim.
type Names struct{ t *tenant }

// Of returns the names of a tenant.
func (s *Shared) Of(tenant string) Names { return Names{s.c.tenants[tenant]} }

// Find returns the name under which the series of an owner are stored, and when the name was last
// claimed. `known` is false if the owner has no name. Find allocates nothing if the owner has the name
// that it claims.
func (n Names) Find(name []byte, kind series.Kind, buckets string) (stored string, seen int64, known bool) {
	if n.t == nil {
		return "", 0, false
	}
	m := n.t.stored[string(name)]
	if m == nil || !m.owned || m.Kind != kind || m.Buckets != buckets || m.Name != string(name) || m.Base != string(name) {
		if m = n.t.aside[owner{string(name), kind, buckets}]; m == nil {
			return "", 0, false
		}
	}
	return m.Name, m.LastSeen, true
}

// Full reports whether the tenant has no room for a new claim. If so, it also returns the name under
// which the series of the claim are stored.
func (n Names) Full(terms *Terms, claim *Claim) (stored string, full bool) {
	if n.t == nil || n.t.names < terms.MaxNames {
		return "", false
	}
	if wait := n.t.searchAt - terms.Now; wait <= 0 || wait > searchEvery {
		return "", false
	}
	return unremembered(claim), true
}

// Peek returns what a claim would get: see Catalogue.Peek.
func (s *Shared) Peek(claim *Claim) (name string, known bool, report Report) {
	own := *claim
	own.Raw, own.Named = nil, true
	return s.c.Peek(&own)
}

// Metadata returns the names of a tenant, in order.
func (s *Shared) Metadata(tenant string) []Metric { return s.c.Metadata(tenant) }

// Load puts the names of one machine into an empty catalogue.
func (s *Shared) Load(metrics []Metric) {
	own := slices.Clone(metrics)
	for i := range own {
		own[i].Raw, own[i].Unit, own[i].Help = own[i].Name, "", ""
	}
	s.c.Load(own)
	for _, t := range s.c.tenants {
		for m := range t.all() {
			m.used = m.LastSeen
		}
	}
}

// sharedVersion is the first byte of a saved Shared. Layout: docs/format/groupcheckpoint.md.
const sharedVersion = 1

const (
	flagClassic = 1 << iota
	flagOwned
)

// Append appends the state. Members that claimed the same names append the same bytes.
func (s *Shared) Append(b []byte) []byte {
	b = append(b, sharedVersion)
	b = binary.AppendVarint(b, s.swept)
	for _, name := range slices.Sorted(maps.Keys(s.c.tenants)) {
		t := s.c.tenants[name]
		if t.names == 0 && t.searchAt == 0 {
			continue
		}
		b = fields.AppendBytes(b, name)
		b = binary.AppendVarint(b, t.searchAt)
		b = binary.AppendUvarint(b, uint64(t.names))
		all := make([]*metric, 0, t.names)
		for m := range t.all() {
			all = append(all, m)
		}
		slices.SortFunc(all, func(x, y *metric) int { return strings.Compare(x.Name, y.Name) })
		for _, m := range all {
			b = m.append(b)
		}
	}
	return b
}

func (m *metric) append(b []byte) []byte {
	b = fields.AppendBytes(b, m.Name)
	b = fields.AppendBytes(b, m.Base)
	flags := byte(0)
	if m.Classic {
		flags |= flagClassic
	}
	if m.owned {
		flags |= flagOwned
	}
	b = append(b, byte(m.Kind), flags)
	b = fields.AppendBytes(b, m.Buckets)
	b = binary.AppendVarint(b, m.First)
	return binary.AppendVarint(b, m.LastSeen)
}

var errShared = errors.New("the names are malformed")

// Parse reads what Append wrote.
func (s *Shared) Parse(b []byte) error {
	r := fields.Reader{B: b}
	parsed := NewShared()
	version := r.Byte()
	parsed.swept = r.Varint()
	for len(r.B) > 0 && !r.Bad {
		t := parsed.c.tenant(r.Text())
		t.searchAt = r.Varint()
		for n := r.Uvarint(); n > 0 && !r.Bad; n-- {
			m := &metric{Metric: Metric{Name: r.Text(), Base: r.Text(), Kind: series.Kind(r.Byte())}}
			flags := r.Byte()
			m.Classic, m.owned, m.Buckets = flags&flagClassic != 0, flags&flagOwned != 0, r.Text()
			m.First, m.LastSeen = r.Varint(), r.Varint()
			m.used, m.Raw = m.LastSeen, m.Name
			if r.Bad || !m.Kind.Valid() || t.taken(&m.Metric) {
				return errShared
			}
			t.put(m)
			if m.owned {
				t.own(m)
			}
		}
	}
	if r.Bad || version != sharedVersion || string(parsed.Append(nil)) != string(b) {
		return errShared
	}
	for name, t := range parsed.c.tenants {
		for m := range t.all() {
			m.Tenant = name
		}
	}
	*s = *parsed
	return nil
}
