package ruleset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/lib/fields"
)

// Errors about what is not there. The texts are Mimir's, by which clients go.
var (
	ErrNoGroup     = errors.New("group does not exist")
	ErrNoNamespace = errors.New("group namespace does not exist")
)

// MaxKept bounds the bytes of the groups that the nodes of a cluster keep, of all tenants. Each has them in memory,
// and in each checkpoint.
const MaxKept = 64 << 20

// Text is a group of rules as YAML.
type Text struct {
	Namespace, Name string
	Rules           int    // how many it has
	YAML            []byte // of a Group; it is not changed
}

func (t *Text) size() int { return len(t.Namespace) + len(t.Name) + len(t.YAML) }

// Kept has the groups of all tenants, as the members of a group of nodes fold them from entries of the kind ruleset.
// Other goroutines than the one that folds entries may call Of, Tenants and Changed.
type Kept struct {
	mu    sync.RWMutex
	of    map[string]*texts
	bytes int
	hash  uint64
	folds uint64 // in this process
}

// texts are the groups of a tenant that has some, or had some.
type texts struct {
	all     []Text // in the order in which they came; the slice is not changed
	changed uint64 // Kept.folds at the last change
}

// NewKept returns a Kept without groups.
func NewKept() *Kept { return &Kept{of: map[string]*texts{}} }

// Of returns the groups of a tenant, in the order in which they came.
func (k *Kept) Of(tenant string) []Text {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if t := k.of[tenant]; t != nil {
		return t.all
	}
	return nil
}

// Tenants returns the tenants that have groups, or had some.
func (k *Kept) Tenants() []string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.Sorted(maps.Keys(k.of))
}

// Changed returns the tenants whose groups have changed since an earlier call returned `since`.
func (k *Kept) Changed(since uint64) (tenants []string, now uint64) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for name, t := range k.of {
		if t.changed > since {
			tenants = append(tenants, name)
		}
	}
	slices.Sort(tenants)
	return tenants, k.folds
}

// Check returns why an entry would change nothing: ErrNoGroup, ErrNoNamespace, or Mistakes if a limit of the entry is
// exceeded.
func (k *Kept) Check(e *entry.RuleSet) error {
	_, err := k.next(e)
	return err
}

// Fold does what an entry says. It keeps no memory of the entry. The error is one of Check.
func (k *Kept) Fold(e *entry.RuleSet) error {
	next, err := k.next(e)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.folds++
	k.set(strings.Clone(e.Tenant), next)
	k.of[e.Tenant].changed = k.folds
	return nil
}

// next returns the groups of the entry's tenant after the entry.
func (k *Kept) next(e *entry.RuleSet) (next []Text, err error) {
	var all []Text
	t := k.of[e.Tenant]
	if t != nil {
		all = t.all
	}
	is := func(x Text) bool { return x.Namespace == e.Namespace && (e.Group == "" || x.Name == e.Group) }
	at := slices.IndexFunc(all, is)
	next = slices.Clone(all)
	switch {
	case len(e.Text) > 0:
		one := Text{strings.Clone(e.Namespace), strings.Clone(e.Group), e.Rules, bytes.Clone(e.Text)}
		if at < 0 {
			next = append(next, one)
		} else {
			next[at] = one
		}
		return next, k.exceeds(e, t == nil, all, next)
	case at >= 0:
		return slices.DeleteFunc(next, is), nil
	case e.Group == "":
		return nil, ErrNoNamespace
	}
	return nil, ErrNoGroup
}

// exceeds returns an error if a tenant has more than the limits of the entry allow, or all tenants have too much.
func (k *Kept) exceeds(e *entry.RuleSet, isNew bool, before, next []Text) error {
	if n := len(k.of); isNew && n >= e.MaxTenants {
		return Mistakes{fmt.Sprintf("%d tenants have set rules, the limit of rules.api.max_tenants; raise it", n)}
	}
	size := sizeOf(next)
	if sum := k.bytes - sizeOf(before).Bytes + size.Bytes; sum > MaxKept {
		return Mistakes{fmt.Sprintf("all tenants together would have %d bytes of rules, but a cluster keeps at most %d; "+
			"delete groups", sum, MaxKept)}
	}
	limits := Limits{MaxGroups: e.MaxGroups, MaxRules: e.MaxRules, MaxBytes: conf.Bytes(e.MaxBytes)}
	return limits.Check(size)
}

func sizeOf(all []Text) (s Size) {
	s.Groups = len(all)
	for i := range all {
		s.Rules += all[i].Rules
		s.Bytes += all[i].size()
	}
	return s
}

// set sets the groups of a tenant.
func (k *Kept) set(tenant string, next []Text) {
	t := k.of[tenant]
	if t == nil {
		t = &texts{}
		k.of[tenant] = t
		k.hash += xxhash.Sum64String(tenant)
	}
	k.bytes += sizeOf(next).Bytes - sizeOf(t.all).Bytes
	k.hash += hashOf(tenant, next) - hashOf(tenant, t.all)
	t.all = next
}

// hashOf returns the sum of the hashes of groups.
func hashOf(tenant string, all []Text) (sum uint64) {
	var b []byte
	for i := range all {
		b = all[i].append(fields.AppendBytes(b[:0], tenant))
		sum += xxhash.Sum64(b)
	}
	return sum
}

// Hash returns a hash of all groups, whatever their order; 0 if no tenant ever had some.
func (k *Kept) Hash() uint64 { return k.hash }

// Empty reports whether no tenant ever had groups.
func (k *Kept) Empty() bool { return len(k.of) == 0 }

const keptVersion = 1

var errKept = errors.New("the rules set by the API are malformed")

// Append appends all groups. Members that have applied the same entries append the same bytes.
func (k *Kept) Append(b []byte) []byte {
	b = append(b, keptVersion)
	for _, tenant := range slices.Sorted(maps.Keys(k.of)) {
		all := k.of[tenant].all
		b = fields.AppendBytes(b, tenant)
		b = binary.AppendUvarint(b, uint64(len(all)))
		for i := range all {
			b = all[i].append(b)
		}
	}
	return b
}

func (t *Text) append(b []byte) []byte {
	b = fields.AppendBytes(fields.AppendBytes(b, t.Namespace), t.Name)
	return fields.AppendBytes(binary.AppendUvarint(b, uint64(t.Rules)), t.YAML)
}

// Parse reads what Append wrote.
func (k *Kept) Parse(b []byte) error {
	r := fields.Reader{B: b}
	if r.Byte() != keptVersion {
		return errKept
	}
	before := ""
	for len(r.B) > 0 {
		tenant := r.Text()
		if tenant <= before {
			return errKept
		}
		before = tenant
		var all []Text
		known := map[[2]string]bool{}
		for range r.Count() {
			t := Text{r.Text(), r.Text(), int(r.Uvarint()), bytes.Clone(r.Bytes())}
			key := [2]string{t.Namespace, t.Name}
			if known[key] || t.Name == "" || t.Rules <= 0 || len(t.YAML) == 0 {
				return errKept
			}
			known[key] = true
			all = append(all, t)
		}
		k.set(tenant, all)
		if k.bytes > MaxKept {
			return errKept
		}
	}
	if r.Bad {
		return errKept
	}
	return nil
}
