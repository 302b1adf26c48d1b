// Package catalogue gives each Prometheus name of a tenant one owner: the kind of metric that claimed it
// first. The catalogue also has the metadata of the name. Other kinds that claim the name get other
// names, and so do timers whose histograms have another form. Package mapping makes the claimed names;
// an adapter saves the catalogue.
//
// The claims of a name need one order: two machines that see them in different orders would give the
// plain name to different kinds. A single machine uses a Catalogue, and decides when a sample comes in.
// The members of a group use a Shared, and decide in the order of their log.
package catalogue

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet-io/freshet/internal/core/series"
)

// DefaultMaxNames is the number of names that a tenant may have by default. A metric takes about
// 300 bytes with its names, so 100,000 take 30 MB.
const DefaultMaxNames = 100_000

// seenStep is how far LastSeen may lag behind, in milliseconds, so that names in use are not saved
// all the time.
const seenStep = 3_600_000

// Metric is one name and its owner. An owner is a kind with a base name. If the kind is timer, the owner
// also has a form.
type Metric struct {
	Tenant   string
	Name     string // the name of the series
	Base     string // the name that mapping gave; differs from Name if another claim came first
	Raw      string // the first DogStatsD name that became Name
	Kind     series.Kind
	Classic  bool   // a timer that has or had classic buckets, stored as Name_bucket, Name_sum and Name_count
	Buckets  string // see Claim
	Unit     string
	Help     string
	First    int64 // Unix milliseconds of the first claim; 0 if saved before this field existed
	LastSeen int64 // Unix milliseconds, up to an hour behind
}

// Claim is the request of a new context for a name.
type Claim struct {
	Tenant  string
	Name    string // the name that mapping gave; the catalogue does not keep these bytes
	Raw     []byte // the name as sent; not kept
	Named   bool   // a rule chose Name, so several raw names may share it
	Kind    series.Kind
	Buckets string // the upper bounds of a timer with classic buckets, as text; empty for native histograms
	Unit    string
	Help    string
}

// Finding is a fact about a claim that is worth reporting.
type Finding uint8

const (
	Nothing      Finding = iota
	KindConflict         // another kind owns the name; the claim got another name. Reported once for a name and kind
	// Timers with other buckets own the name; the claim got another name. Reported once for a name and
	// form.
	FormConflict
	NameCollision // another raw name became the same name; both are one series. Reported once for a raw name
	Full          // the tenant has as many names as it may; this name is not remembered. Reported every time
)

// String returns the finding's name in logs and metrics.
func (f Finding) String() string {
	return [...]string{"nothing", "kind_conflict", "form_conflict", "name_collision", "full"}[f]
}

// Report is a finding about a claim. The zero value means that there is nothing to report.
type Report struct {
	Finding Finding
	Owner   Metric // in a conflict, the owner of the name; in a collision, the metric that both share
}

// Catalogue holds the names of all tenants. It is safe for concurrent use. Callers ask it only
// about new contexts.
type Catalogue struct {
	maxNames int // limit on the names of each tenant

	mu      sync.Mutex
	tenants map[string]*tenant
	dirty   map[*metric]struct{} // metrics changed since the last call of Dirty

	kept      func(series.Kind) time.Duration // see KeepFor
	began     int64                           // Unix milliseconds of the first claim in this process, or 0
	gone      map[savedName]struct{}          // names given back since the last call of Gone
	givenBack uint64
}

type tenant struct {
	names  int                  // metrics
	stored map[string]*metric   // metrics by each name under which they are stored, Name included
	aside  map[owner]*metric    // the metrics of owners that did not get the name that they claimed
	raws   map[rawName]struct{} // the collisions that were reported

	// fresh is the earliest LastSeen with which a metric counts as claimed in this process. Only a
	// Shared sets it.
	fresh int64

	searchAt int64 // earliest time of the next search, Unix milliseconds; see makeRoom
}

type metric struct {
	Metric
	owned   bool // false only for timers that used to be classic and have no owner now
	claimed bool // its owner claimed it in this process
	told    bool // its conflict was reported in this process

	used int64 // Unix milliseconds of the last sample that this process knows of; may lag some minutes behind
}

// owner identifies the owner of a name: the kind, the name from mapping, and for timers the form.
// Two forms under one name would erase each other: their buckets cannot be added, and a store
// begins anew at each change of form.
type owner struct {
	base    string
	kind    series.Kind
	buckets string
}

func (m *Metric) owner() owner { return owner{m.Base, m.Kind, m.Buckets} }

func (c *Claim) owner() owner { return owner{c.Name, c.Kind, c.Buckets} }

// sharesBase reports whether m and the claim have the same kind and base name; their forms may
// differ.
func (m *metric) sharesBase(c *Claim) bool { return m.Base == c.Name && m.Kind == c.Kind }

// conflict returns the finding for a claim that does not get its name because m has it.
func (m *metric) conflict(claim *Claim) Finding {
	if m.sharesBase(claim) {
		return FormConflict
	}
	return KindConflict
}

// rawName is one of the raw names that became one name.
type rawName struct{ name, raw string }

// New returns an empty catalogue that remembers maxNames names for each tenant.
func New(maxNames int) *Catalogue {
	return &Catalogue{
		maxNames: maxNames, tenants: map[string]*tenant{}, dirty: map[*metric]struct{}{}, gone: map[savedName]struct{}{},
		kept: func(series.Kind) time.Duration { return keptBriefly },
	}
}

// Resolve returns the name under which the series of a claim are stored, and a report. The first
// kind that claims a name owns it. For another kind, or timers of another form, Resolve appends
// suffixes to the name until it finds a free one. `now` is in Unix milliseconds.
func (c *Catalogue) Resolve(now int64, claim *Claim) (string, Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(now)
	t := c.tenant(claim.Tenant)
	m := t.owned(claim.owner())
	if m == nil {
		name := t.free(claim)
		if m = t.metric(name); m == nil && t.names >= c.maxNames {
			if !c.makeRoom(t, now) {
				return unremembered(claim), Report{Finding: Full}
			}
			name = t.free(claim) // makeRoom may have given the name back
			m = t.metric(name)
		}
		if m == nil {
			m = newMetric(now, name, claim)
		}
		t.give(m, claim.Buckets)
		c.dirty[m] = struct{}{}
	}
	m.claimed = true
	c.use(m, now)
	c.refresh(m, now, claim)
	return m.Name, c.report(t, m, claim)
}

// newMetric returns a metric that the claim owns under this name.
func newMetric(now int64, name string, claim *Claim) *metric {
	m := &metric{Metric: Metric{
		Tenant: claim.Tenant, Name: strings.Clone(name), Raw: string(claim.Raw), Kind: claim.Kind, First: now, LastSeen: now,
	}}
	if m.Base = m.Name; name != claim.Name {
		m.Base = strings.Clone(claim.Name)
	}
	if m.Raw == m.Name {
		m.Raw = m.Name
	}
	return m
}

// Peek returns what Resolve would return, and changes nothing. The answers may differ only for a tenant
// without room for another name, because Resolve first gives unused names back. `known` reports whether
// the claim has the name already. Peek also repeats the findings that Resolve reports only once. Without
// a finding, Owner is the name's owner, if it has one.
func (c *Catalogue) Peek(claim *Claim) (name string, known bool, report Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tenants[claim.Tenant]
	if t == nil {
		return claim.Name, false, Report{}
	}
	m := t.owned(claim.owner())
	known = m != nil
	if !known {
		name = t.free(claim)
		if m = t.metric(name); m == nil && t.names >= c.maxNames {
			return unremembered(claim), false, Report{Finding: Full}
		}
	} else {
		name = m.Name
	}
	if name != claim.Name {
		if first := t.blocked(claim.Name, claim); first != nil {
			return name, known, Report{Finding: first.conflict(claim), Owner: first.Metric}
		}
	}
	switch {
	case m == nil:
		return name, false, Report{}
	case !claim.Named && m.Raw != string(claim.Raw):
		return name, known, Report{Finding: NameCollision, Owner: m.Metric}
	}
	return name, known, Report{Owner: m.Metric}
}

// report returns the report about a claim whose owner has the metric m.
func (c *Catalogue) report(t *tenant, m *metric, claim *Claim) Report {
	if m.Name != m.Base && !m.told {
		if first := t.blocked(m.Base, claim); first != nil {
			m.told = true
			return Report{Finding: first.conflict(claim), Owner: first.Metric}
		}
	}
	if !claim.Named && m.Raw != string(claim.Raw) && c.firstCollision(t, m.Name, claim.Raw) {
		return Report{Finding: NameCollision, Owner: m.Metric}
	}
	return Report{}
}

// free returns a name that the claim may have: its own, or the first free one with suffixes.
func (t *tenant) free(claim *Claim) string {
	name := claim.Name
	for m := t.blocked(name, claim); m != nil; m = t.blocked(name, claim) {
		name = beside(name, m, claim)
	}
	return name
}

// beside returns the name to try after `name`, if m keeps the claim from having `name`. The suffix says
// how the claim and m differ.
func beside(name string, m *metric, claim *Claim) string {
	switch {
	case !m.sharesBase(claim):
		return name + "_" + claim.Kind.String()
	case claim.Buckets == "":
		return name + "_native"
	default:
		return name + "_classic"
	}
}

// blocked returns a metric that keeps a claim from having `name`, or nil. Only claims of one kind
// on one base name share a name: a gauge that got the name x_gauge is not the gauge that a client
// calls x_gauge. Timers of another form block the name if they were claimed in this process.
// Otherwise their form may be from before a change of configuration, and the new form takes over
// the name.
func (t *tenant) blocked(name string, claim *Claim) *metric {
	for _, stored := range storedNames(name, claim.Buckets != "") {
		if m := t.stored[stored]; m != nil && (!m.sharesBase(claim) || t.inUse(m) && m.Buckets != claim.Buckets) {
			return m
		}
	}
	return nil
}

// inUse reports whether the owner of a metric may still claim it again.
func (t *tenant) inUse(m *metric) bool { return m.claimed || m.LastSeen >= t.fresh }

// unremembered returns the name of a claim beyond the bound on names. The name depends on the claim
// alone. A hash makes it unique, because the catalogue does not remember the names of other claims
// beyond the bound.
func unremembered(claim *Claim) string {
	hash := xxhash.Sum64String(claim.Name + "\x00" + claim.Buckets)
	return fmt.Sprintf("%s_%s_%08x", claim.Name, claim.Kind, uint32(hash))
}

// storedNames returns the names under which a metric is stored: a timer with classic buckets takes
// three more names, and Prometheus' clients know the timer by the plain name.
func storedNames(name string, classic bool) []string {
	if !classic {
		return []string{name}
	}
	return []string{name, name + "_bucket", name + "_sum", name + "_count"}
}

// refresh updates a metric from the newest claim, for example after a reload.
func (c *Catalogue) refresh(m *metric, now int64, claim *Claim) {
	changed := seen(m, now)
	if claim.Unit != "" && claim.Unit != m.Unit {
		m.Unit, changed = claim.Unit, true
	}
	if claim.Help != "" && claim.Help != m.Help {
		m.Help, changed = claim.Help, true
	}
	if changed {
		c.dirty[m] = struct{}{}
	}
}

func seen(m *metric, now int64) (changed bool) {
	if now-m.LastSeen < seenStep {
		return false
	}
	m.LastSeen = now
	return true
}

// firstCollision reports whether `raw` becomes `name` for the first time. The limit on a tenant's names
// also limits its raw names: collisions beyond the limit are not reported.
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
		t = &tenant{
			stored: map[string]*metric{}, aside: map[owner]*metric{}, raws: map[rawName]struct{}{}, fresh: math.MaxInt64,
		}
		c.tenants[name] = t
	}
	return t
}

// give hands a metric over to timers of one form. A metric that was ever classic keeps the names of its
// buckets until it is forgotten, because series of these names are still stored.
func (t *tenant) give(m *metric, buckets string) {
	t.disown(m)
	m.Buckets, m.Classic = buckets, m.Classic || buckets != ""
	t.own(m)
	t.put(m)
}

// own registers the owner of a metric.
func (t *tenant) own(m *metric) {
	m.owned = true
	if m.Name != m.Base {
		t.aside[m.owner()] = m
	}
}

func (t *tenant) disown(m *metric) {
	m.owned = false
	if t.aside[m.owner()] == m {
		delete(t.aside, m.owner())
	}
}

// owned returns the metric of an owner, or nil. Nearly all owners have the name that they claimed,
// and need no entry in aside.
func (t *tenant) owned(by owner) *metric {
	if m := t.metric(by.base); m != nil && m.owned && m.owner() == by {
		return m
	}
	return t.aside[by]
}

// metric returns the metric of a name, nil if there is none.
func (t *tenant) metric(name string) *metric {
	if m := t.stored[name]; m != nil && m.Name == name {
		return m
	}
	return nil
}

// all yields the metrics, unordered.
func (t *tenant) all() iter.Seq[*metric] {
	return func(yield func(*metric) bool) {
		for name, m := range t.stored {
			if name == m.Name && !yield(m) {
				return
			}
		}
	}
}

func (t *tenant) put(m *metric) {
	if t.metric(m.Name) == nil {
		t.names++
	}
	for _, stored := range storedNames(m.Name, m.Classic) {
		t.stored[stored] = m
	}
}

// Touch notes that a series of this stored name is still measured. A context that never pauses is
// resolved only once. So its holder must call Touch now and then, or Forget removes the name. Touch
// does not keep the bytes of `name`.
func (c *Catalogue) Touch(now int64, tenantName string, name []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.tenant(tenantName).metric(string(name))
	if m == nil {
		return
	}
	c.use(m, now)
	if seen(m, now) {
		c.dirty[m] = struct{}{}
	}
}

// Metadata returns the metrics of a tenant in the order of their names.
func (c *Catalogue) Metadata(tenantName string) []Metric {
	c.mu.Lock()
	var out []Metric
	if t := c.tenants[tenantName]; t != nil {
		for m := range t.all() {
			out = append(out, m.Metric)
		}
	}
	c.mu.Unlock()
	sortMetrics(out)
	return out
}

// Dirty returns the metrics that changed since the last call. A caller that cannot save them
// hands them back by MarkDirty.
func (c *Catalogue) Dirty() []Metric {
	c.mu.Lock()
	var out []Metric
	for m := range c.dirty {
		out = append(out, m.Metric)
	}
	c.dirty = map[*metric]struct{}{} // a map never shrinks, so make a new one
	c.mu.Unlock()
	sortMetrics(out)
	return out
}

// MarkDirty makes the next Dirty return the current state of these metrics again.
func (c *Catalogue) MarkDirty(metrics []Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range metrics {
		if m := c.tenant(metrics[i].Tenant).metric(metrics[i].Name); m != nil {
			c.dirty[m] = struct{}{}
		}
	}
}

// Load puts saved metrics into a new catalogue, so that owners stay the same. It leaves out metrics
// that no catalogue can have saved, and returns their number.
func (c *Catalogue) Load(metrics []Metric) (refused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, saved := range metrics {
		t := c.tenant(saved.Tenant)
		if !saved.Kind.Valid() || saved.Base == "" || t.taken(&saved) {
			refused++
			continue
		}
		m := &metric{Metric: saved}
		t.put(m)
		// The buckets of a timer that used to be classic may be unknown. Then the timer belongs to the
		// first form that claims it.
		if !m.Classic || m.Buckets != "" {
			t.own(m)
		}
	}
	return refused
}

// taken reports whether another metric is stored under a name that m needs.
func (t *tenant) taken(m *Metric) bool {
	return slices.ContainsFunc(storedNames(m.Name, m.Classic), func(name string) bool { return t.stored[name] != nil })
}

// Forget removes and returns the names that were last seen before the time `before`. If a claim got
// another name because a removed name was taken, the claim keeps the other name. A name stays for as
// long as KeepFor wants it kept, even if it was last seen before `before`. Both times are in Unix
// milliseconds.
func (c *Catalogue) Forget(now, before int64) []Metric {
	c.mu.Lock()
	var gone []Metric
	for _, t := range c.tenants {
		for m := range t.all() {
			if m.LastSeen < min(before, now-c.kept(m.Kind).Milliseconds()) {
				t.remove(m)
				delete(c.dirty, m)
				gone = append(gone, m.Metric)
			}
		}
		t.forgetRaws()
	}
	c.mu.Unlock()
	sortMetrics(gone)
	return gone
}

// forgetRaws forgets the collisions of names that are gone.
func (t *tenant) forgetRaws() {
	for key := range t.raws {
		if t.metric(key.name) == nil {
			delete(t.raws, key)
		}
	}
}

func (t *tenant) remove(m *metric) {
	t.names--
	t.disown(m)
	for _, stored := range storedNames(m.Name, m.Classic) {
		delete(t.stored, stored)
	}
}

func sortMetrics(metrics []Metric) {
	slices.SortFunc(metrics, func(a, b Metric) int {
		if c := strings.Compare(a.Tenant, b.Tenant); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}
