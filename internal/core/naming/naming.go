// Package naming gives the series in pushes of DogStatsD metrics the names under which the group stores them.
// The leader does that before it proposes windows, since the group's names have one owner each: see
// catalogue.Shared. A name without an owner is claimed first, by an entry of its own.
package naming

import (
	"cmp"
	"maps"
	"slices"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/series"
)

// Finder finds the names for the pushes of one entry. Its names must not change meanwhile.
type Finder struct {
	Names *catalogue.Shared
	Terms catalogue.Terms          // of claims
	Fits  func(tenant string) bool // whether the tenant is admitted, or would be

	claimed map[entry.Claim]struct{} // claims by owners without a name, and claims of names not claimed lately
	bytes   int                      // of the names in these claims
	unknown bool                     // an owner has no name
	buckets map[string]string        // as text, by the encoded policy
}

// Find looks for the names of the series of a push, adds claims, and reports whether a series is stored under
// another name than it has in the push. Series of tenants that are not admitted need no names.
func (x *Finder) Find(push []byte) (renames bool) {
	p, err := entry.ParsePush(push)
	if err != nil {
		return false // member.CheckPush has refused it
	}
	tenant, fits := "", false
	var names catalogue.Names
	for b := range p.Batches.All() {
		h, err := batch.ParseHeader(b)
		if err != nil {
			continue
		}
		if tenant != string(h.Tenant) {
			tenant = string(h.Tenant)
			names, fits = x.Names.Of(tenant), x.Fits(tenant)
		}
		if !fits {
			continue
		}
		for key, policy := range batch.Series(b) {
			name := series.Name(key)
			if len(name) > 0 {
				stored := x.find(names, tenant, series.Kind(key[0]), name, policy)
				renames = renames || stored != string(name) && stored != ""
			}
		}
	}
	return renames
}

// find returns the name under which a series is stored. If its owner has no name yet, find claims one, and returns "".
func (x *Finder) find(names catalogue.Names, tenant string, kind series.Kind, name, policy []byte) (stored string) {
	buckets := x.bucketsOf(kind, policy)
	stored, seen, known := names.Find(name, kind, buckets)
	if known && x.Terms.Now-seen < catalogue.ClaimAgain {
		return stored
	}
	claim := catalogue.Claim{Tenant: tenant, Name: string(name), Kind: kind, Buckets: buckets}
	if !known {
		if stored, full := names.Full(&x.Terms, &claim); full {
			return stored
		}
	}
	x.unknown = x.unknown || !known
	item := entry.Claim{Tenant: tenant, Kind: byte(kind), Name: claim.Name, Buckets: buckets}
	if _, has := x.claimed[item]; !has && x.bytes < entry.TargetSize {
		if x.claimed == nil {
			x.claimed = map[entry.Claim]struct{}{}
		}
		x.claimed[item] = struct{}{}
		x.bytes += len(item.Name) + len(buckets) + 32
	}
	return stored
}

// Claims returns the claims in order. `unknown` means that a series cannot be stored before its claim is applied.
// If several kinds claim a name in the same windows, nobody knows which one came first. Then the order of the kinds
// decides, counters first, and native timers before other timers.
func (x *Finder) Claims() (all entry.List, unknown bool) {
	claims := slices.SortedFunc(maps.Keys(x.claimed), func(a, b entry.Claim) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Buckets, b.Buckets))
	})
	for i := range claims {
		all = all.Append(entry.AppendClaim(nil, &claims[i]))
	}
	return all, x.unknown
}

// bucketsOf returns the upper bounds of a timer with classic buckets, as text.
func (x *Finder) bucketsOf(kind series.Kind, policy []byte) string {
	if kind != series.Timer || len(policy) == 0 {
		return ""
	}
	text, known := x.buckets[string(policy)]
	if !known {
		if p, err := series.ParsePolicy(policy); err == nil {
			text = p.Buckets()
		}
		if x.buckets == nil {
			x.buckets = map[string]string{}
		}
		x.buckets[string(policy)] = text
	}
	return text
}

// Rename returns a push whose series have the names under which they are stored, each in the shard of its own key. The
// same push always becomes the same bytes, since owners keep their names. So the group still recognizes a repeat. A
// push with a damaged batch stays as it is.
func (x *Finder) Rename(push []byte) []byte {
	p, err := entry.ParsePush(push)
	if err != nil {
		return push
	}
	var renamed entry.List
	var writer batch.Writer
	var open batch.Header // header of the portion in the writer
	end := func() {
		for _, b := range writer.End() {
			renamed = renamed.Append(b.Bytes)
		}
	}
	var r batch.Reader
	for b := range p.Batches.All() {
		if r.Reset(b) != nil {
			return push
		}
		h := r.Header
		h.Sequence = batch.Portion(h.Sequence)
		if open.Tenant == nil || string(h.Tenant) != string(open.Tenant) || h.Producer != open.Producer ||
			h.Incarnation != open.Incarnation || h.Sequence != open.Sequence || h.Second != open.Second ||
			h.Birth != open.Birth {
			if open.Tenant != nil {
				end()
			}
			open = h
			writer.Begin(h)
		}
		tenant := string(h.Tenant)
		names := x.Names.Of(tenant)
		for inc := r.Next(); inc != nil; inc = r.Next() {
			name := series.Name(inc.Key)
			one, shard := *inc, h.Shard
			if stored := x.find(names, tenant, inc.Kind(), name, inc.Policy); len(name) > 0 && stored != "" &&
				stored != string(name) {
				one.Key = series.Renamed(inc.Key, stored)
				shard = series.Shard(tenant, one.Key)
			}
			writer.Add(shard, &one)
		}
		if r.Err() != nil {
			return push
		}
	}
	if open.Tenant != nil {
		end()
	}
	p.Batches = renamed
	return entry.AppendPush(nil, &p)
}
