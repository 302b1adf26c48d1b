// Package catalogue gives each Prometheus name of a tenant one owner: the kind of metric that
// claimed it first. It also has the name's metadata. Other kinds that claim the name get other
// names, and so do timers whose histograms differ in form. Package mapping makes the claimed
// names; an adapter saves the catalogue.
//
// A name must be claimed on one machine: two machines that see the claims in different orders
// would give the plain name to different kinds. So a sample's series is decided once, where it
// comes in.
package catalogue

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet-io/freshet/internal/core/series"
)

// DefaultMaxNames is the number of names that a tenant may have by default. An
// entry takes about 300 bytes with its names, so this is 30 MB.
const DefaultMaxNames = 100_000

// seenStep is how far LastSeen lags behind, in milliseconds, so that the names in use are not
// saved all the time.
const seenStep = 3_600_000

// Entry is one name and its owner: one kind under one base, for timers also one form.
type Entry struct {
	Tenant   string
	Name     string // the name of the series
	Base     string // the name from mapping; differs from Name if another claim came first
	Raw      string // the first DogStatsD name that became Name
	Kind     series.Kind
	Classic  bool   // a timer that has or had classic buckets, stored as Name_bucket, _sum and _count
	Buckets  string // see Claim
	Unit     string
	Help     string
	First    int64 // Unix milliseconds of the first claim; 0 if saved before this field existed
	LastSeen int64 // Unix milliseconds, up to an hour behind
}

// Claim is what a new context asks for.
type Claim struct {
	Tenant  string
	Name    string // from mapping; not kept
	Raw     []byte // as sent; not kept
	Named   bool   // a rule chose Name, so several raw names may share it
	Kind    series.Kind
	Buckets string // the upper bounds of a timer with classic buckets, as text; empty for native histograms
	Unit    string
	Help    string
}

// Event is a fact about a claim that is worth reporting.
type Event uint8

const (
	Nothing      Event = iota
	KindConflict       // another kind owns the name; the claim got another name. Reported once a name and kind
	// Timers with other buckets own the name; the claim got another name. Reported once a name and
	// form.
	FormConflict
	NameCollision // another raw name became the same name; both are one series. Reported once a raw name
	Full          // the tenant has as many names as it may; this one is not remembered. Reported every time
)

// String returns the event's name in logs and metrics.
func (e Event) String() string {
	return [...]string{"nothing", "kind_conflict", "form_conflict", "name_collision", "full"}[e]
}

// Report is what is worth reporting about a claim; the zero value is nothing.
type Report struct {
	Event Event
	Owner Entry // in a conflict, the owner of the name; in a collision, the entry that both share
}

// Catalogue holds the names of all tenants. It is safe for concurrent use. It is asked about
// new contexts only.
type Catalogue struct {
	maxNames int // for each tenant

	mu      sync.Mutex
	tenants map[string]*tenant
	dirty   map[*entry]struct{} // changed since the last Dirty

	kept      func(series.Kind) time.Duration // see KeepFor
	began     int64                           // Unix milliseconds of the first claim in this process, or 0
	gone      map[savedName]struct{}          // given back since the last Gone
	givenBack uint64
}

type tenant struct {
	names  int                  // entries
	stored map[string]*entry    // by each metric name that an entry is stored as, Name included
	aside  map[owner]*entry     // owners that did not get the name they claimed, with the entry that they keep
	raws   map[rawName]struct{} // collisions reported

	searchAt int64 // Unix milliseconds; see makeRoom
}

type entry struct {
	Entry
	owned   bool // it has an owner: always, except for timers that were classic once
	claimed bool // its owner claimed it in this process
	told    bool // its conflict was reported in this process

	used int64 // Unix milliseconds of the last sample that this process knows of, some minutes behind
}

// owner identifies who can have a name: one kind, and for timers one form, under the name from
// mapping. Buckets of two forms cannot be added, and a store begins anew at each change: two
// forms under one name would erase each other.
type owner struct {
	base    string
	kind    series.Kind
	buckets string
}

func (e *Entry) owner() owner { return owner{e.Base, e.Kind, e.Buckets} }

func (c *Claim) owner() owner { return owner{c.Name, c.Kind, c.Buckets} }

// sharesBase reports whether e and the claim differ at most in their form.
func (e *entry) sharesBase(c *Claim) bool { return e.Base == c.Name && e.Kind == c.Kind }

// conflict returns the event of a claim that may not have e's name.
func (e *entry) conflict(claim *Claim) Event {
	if e.sharesBase(claim) {
		return FormConflict
	}
	return KindConflict
}

// rawName is one of the raw names that became one name.
type rawName struct{ name, raw string }

// New returns an empty catalogue that remembers maxNames names for each tenant.
func New(maxNames int) *Catalogue {
	return &Catalogue{
		maxNames: maxNames, tenants: map[string]*tenant{}, dirty: map[*entry]struct{}{}, gone: map[savedName]struct{}{},
		kept: func(series.Kind) time.Duration { return keptBriefly },
	}
}

// Resolve returns the name under which the series of a claim are stored, and what is worth
// reporting. The first kind that claims a name owns it. Another kind, or timers of another
// form, get the name with a suffix appended, as often as it takes to find a free one. now is in
// Unix milliseconds.
func (c *Catalogue) Resolve(now int64, claim *Claim) (string, Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(now)
	t := c.tenant(claim.Tenant)
	e := t.owned(claim.owner())
	if e == nil {
		name := t.free(claim)
		if e = t.entry(name); e == nil && t.names >= c.maxNames {
			if !c.makeRoom(t, now) {
				return unremembered(claim), Report{Event: Full}
			}
			name = t.free(claim) // makeRoom may have given the name back
			e = t.entry(name)
		}
		if e == nil {
			e = newEntry(now, name, claim)
		}
		t.give(e, claim.Buckets)
		c.dirty[e] = struct{}{}
	}
	e.claimed = true
	c.use(e, now)
	c.refresh(e, now, claim)
	return e.Name, c.report(t, e, claim)
}

// newEntry returns an entry that gives the name to the claim.
func newEntry(now int64, name string, claim *Claim) *entry {
	e := &entry{Entry: Entry{
		Tenant: claim.Tenant, Name: strings.Clone(name), Raw: string(claim.Raw), Kind: claim.Kind, First: now, LastSeen: now,
	}}
	if e.Base = e.Name; name != claim.Name {
		e.Base = strings.Clone(claim.Name)
	}
	if e.Raw == e.Name {
		e.Raw = e.Name
	}
	return e
}

// Peek returns what Resolve would return, and changes nothing. Only if a tenant has all its
// names may the answers differ, since Resolve first gives unused ones back. known reports
// whether the claim has the name already. Peek reports every time what Resolve reports once.
// Without an event, Owner is the name's owner, if it has one.
func (c *Catalogue) Peek(claim *Claim) (name string, known bool, report Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tenants[claim.Tenant]
	if t == nil {
		return claim.Name, false, Report{}
	}
	e := t.owned(claim.owner())
	known = e != nil
	if !known {
		name = t.free(claim)
		if e = t.entry(name); e == nil && t.names >= c.maxNames {
			return unremembered(claim), false, Report{Event: Full}
		}
	} else {
		name = e.Name
	}
	if name != claim.Name {
		if first := t.blocked(claim.Name, claim); first != nil {
			return name, known, Report{Event: first.conflict(claim), Owner: first.Entry}
		}
	}
	switch {
	case e == nil:
		return name, false, Report{}
	case !claim.Named && e.Raw != string(claim.Raw):
		return name, known, Report{Event: NameCollision, Owner: e.Entry}
	}
	return name, known, Report{Owner: e.Entry}
}

// report returns what is worth reporting about a claim that was given e.
func (c *Catalogue) report(t *tenant, e *entry, claim *Claim) Report {
	if e.Name != e.Base && !e.told {
		if first := t.blocked(e.Base, claim); first != nil {
			e.told = true
			return Report{Event: first.conflict(claim), Owner: first.Entry}
		}
	}
	if !claim.Named && e.Raw != string(claim.Raw) && c.firstCollision(t, e.Name, claim.Raw) {
		return Report{Event: NameCollision, Owner: e.Entry}
	}
	return Report{}
}

// free returns the first name in the sequence of suffixes that the claim may have.
func (t *tenant) free(claim *Claim) string {
	name := claim.Name
	for e := t.blocked(name, claim); e != nil; e = t.blocked(name, claim) {
		name = beside(name, e, claim)
	}
	return name
}

// beside returns the next name to try for a claim that may not have name because of e. The
// suffix says in what the two differ.
func beside(name string, e *entry, claim *Claim) string {
	switch {
	case !e.sharesBase(claim):
		return name + "_" + claim.Kind.String()
	case claim.Buckets == "":
		return name + "_native"
	default:
		return name + "_classic"
	}
}

// blocked returns an entry that keeps a claim from having name, nil if there is none. Only
// claims of one kind on one base share a name: a gauge that got the name x_gauge is not the
// gauge that a client calls x_gauge. Timers of another form block the name once they were
// claimed in this process. If not, they may be the form from before a change of configuration,
// and the new form takes over the name.
func (t *tenant) blocked(name string, claim *Claim) *entry {
	for _, stored := range storedNames(name, claim.Buckets != "") {
		if e := t.stored[stored]; e != nil && (!e.sharesBase(claim) || e.claimed && e.Buckets != claim.Buckets) {
			return e
		}
	}
	return nil
}

// unremembered returns the name of a claim beyond the bound on names. It depends on the claim
// alone. The hash makes it unique: without memory, a shorter name might be another claim's,
// too.
func unremembered(claim *Claim) string {
	hash := xxhash.Sum64String(claim.Name + "\x00" + claim.Buckets)
	return fmt.Sprintf("%s_%s_%08x", claim.Name, claim.Kind, uint32(hash))
}

// storedNames returns the metric names that an entry takes: a timer with classic buckets is
// three metrics, and Prometheus' clients know the family by the plain name.
func storedNames(name string, classic bool) []string {
	if !classic {
		return []string{name}
	}
	return []string{name, name + "_bucket", name + "_sum", name + "_count"}
}

// refresh updates an entry from the newest claim, for example after a reload.
func (c *Catalogue) refresh(e *entry, now int64, claim *Claim) {
	changed := seen(e, now)
	if claim.Unit != "" && claim.Unit != e.Unit {
		e.Unit, changed = claim.Unit, true
	}
	if claim.Help != "" && claim.Help != e.Help {
		e.Help, changed = claim.Help, true
	}
	if changed {
		c.dirty[e] = struct{}{}
	}
}

func seen(e *entry, now int64) (changed bool) {
	if now-e.LastSeen < seenStep {
		return false
	}
	e.LastSeen = now
	return true
}

// firstCollision reports whether raw becomes name for the first time. Raw names have the same
// bound as names; collisions beyond it are not reported.
func (c *Catalogue) firstCollision(t *tenant, name string, raw []byte) bool {
	key := rawName{name, string(raw)}
	if _, told := t.raws[key]; told || len(t.raws) >= c.maxNames {
		return false
	}
	t.raws[key] = struct{}{}
	return true
}

func (c *Catalogue) tenant(name string) *tenant {
	t := c.tenants[name]
	if t == nil {
		t = &tenant{stored: map[string]*entry{}, aside: map[owner]*entry{}, raws: map[rawName]struct{}{}}
		c.tenants[name] = t
	}
	return t
}

// give makes timers of one form the owner of an entry. An entry that was ever classic keeps the
// names of its buckets until it is forgotten, since they are still stored.
func (t *tenant) give(e *entry, buckets string) {
	t.disown(e)
	e.Buckets, e.Classic = buckets, e.Classic || buckets != ""
	t.own(e)
	t.put(e)
}

// own registers the owner of an entry.
func (t *tenant) own(e *entry) {
	e.owned = true
	if e.Name != e.Base {
		t.aside[e.owner()] = e
	}
}

func (t *tenant) disown(e *entry) {
	e.owned = false
	if t.aside[e.owner()] == e {
		delete(t.aside, e.owner())
	}
}

// owned returns the entry of an owner, nil if it has none. Nearly all owners have the name that
// they claimed, and need no memory besides.
func (t *tenant) owned(by owner) *entry {
	if e := t.entry(by.base); e != nil && e.owned && e.owner() == by {
		return e
	}
	return t.aside[by]
}

// entry returns the entry of a name, nil if there is none.
func (t *tenant) entry(name string) *entry {
	if e := t.stored[name]; e != nil && e.Name == name {
		return e
	}
	return nil
}

// all yields the entries, unordered.
func (t *tenant) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for name, e := range t.stored {
			if name == e.Name && !yield(e) {
				return
			}
		}
	}
}

func (t *tenant) put(e *entry) {
	if t.entry(e.Name) == nil {
		t.names++
	}
	for _, stored := range storedNames(e.Name, e.Classic) {
		t.stored[stored] = e
	}
}

// Touch notes that a series of this stored name is still measured. A context that never pauses
// is resolved only once, so its holder must call Touch now and then, or Forget removes its
// name. name is not kept.
func (c *Catalogue) Touch(now int64, tenantName string, name []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.tenant(tenantName).entry(string(name))
	if e == nil {
		return
	}
	c.use(e, now)
	if seen(e, now) {
		c.dirty[e] = struct{}{}
	}
}

// Metadata returns the entries of a tenant in the order of their names.
func (c *Catalogue) Metadata(tenantName string) []Entry {
	c.mu.Lock()
	var out []Entry
	if t := c.tenants[tenantName]; t != nil {
		for e := range t.all() {
			out = append(out, e.Entry)
		}
	}
	c.mu.Unlock()
	sortEntries(out)
	return out
}

// Dirty returns the entries that changed since the last call. A caller that cannot save them
// hands them back by MarkDirty.
func (c *Catalogue) Dirty() []Entry {
	c.mu.Lock()
	var out []Entry
	for e := range c.dirty {
		out = append(out, e.Entry)
	}
	c.dirty = map[*entry]struct{}{} // a map never shrinks, so make a new one
	c.mu.Unlock()
	sortEntries(out)
	return out
}

// MarkDirty makes the next Dirty return the current state of these entries again.
func (c *Catalogue) MarkDirty(entries []Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range entries {
		if e := c.tenant(entries[i].Tenant).entry(entries[i].Name); e != nil {
			c.dirty[e] = struct{}{}
		}
	}
}

// Load puts saved entries into a new catalogue, so that owners stay the same. It returns how
// many it left out: entries that no catalogue can have saved.
func (c *Catalogue) Load(entries []Entry) (refused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, saved := range entries {
		t := c.tenant(saved.Tenant)
		if !saved.Kind.Valid() || saved.Base == "" || t.taken(&saved) {
			refused++
			continue
		}
		e := &entry{Entry: saved}
		t.put(e)
		// The buckets of a timer that was classic once may be unknown: then it belongs to the
		// form that comes first.
		if !e.Classic || e.Buckets != "" {
			t.own(e)
		}
	}
	return refused
}

// taken reports whether another entry is stored under a name that e needs.
func (t *tenant) taken(e *Entry) bool {
	return slices.ContainsFunc(storedNames(e.Name, e.Classic), func(name string) bool { return t.stored[name] != nil })
}

// Forget removes and returns the names that were last seen before a time, in Unix milliseconds.
// A claim that got another name because one of these was taken keeps it. A name whose series
// live longer, by KeepFor, stays. now is in Unix milliseconds.
func (c *Catalogue) Forget(now, before int64) []Entry {
	c.mu.Lock()
	var gone []Entry
	for _, t := range c.tenants {
		for e := range t.all() {
			if e.LastSeen < min(before, now-c.kept(e.Kind).Milliseconds()) {
				t.remove(e)
				delete(c.dirty, e)
				gone = append(gone, e.Entry)
			}
		}
		t.forgetRaws()
	}
	c.mu.Unlock()
	sortEntries(gone)
	return gone
}

// forgetRaws forgets the collisions of names that are gone.
func (t *tenant) forgetRaws() {
	for key := range t.raws {
		if t.entry(key.name) == nil {
			delete(t.raws, key)
		}
	}
}

func (t *tenant) remove(e *entry) {
	t.names--
	t.disown(e)
	for _, stored := range storedNames(e.Name, e.Classic) {
		delete(t.stored, stored)
	}
}

func sortEntries(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int {
		if c := strings.Compare(a.Tenant, b.Tenant); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}
