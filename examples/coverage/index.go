package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// index finds the offers that cover a route. It never changes after it is built, so any number of
// readers may share it without a lock.
//
// # What it holds
//
// The index is two slices, with 32 bytes for each document and 16 bytes for each different range of
// origins. The slices have no pointers, so the garbage collector does not scan them. Carriers and
// services are numbers, and their names are stored once.
//
//	groups   one for each range of origins, sorted by its begin: [from, to, maxTo, first]
//	                                                                             |
//	rows     the documents of group after group, each group sorted by            v
//	         the begin of the destination: [origin, destination, maxTo, offer]  rows[first:]
//
// # How it is searched
//
// A search must find the intervals of a sorted slice that contain a point. A binary search finds the
// intervals that begin before the point, but each of them may also end before the point. So the slice is
// used as a binary tree: the middle element is the root, and the halves on both sides are its subtrees.
// Each element has maxTo, the last end in its subtree. A search skips subtrees that end before the
// point, and elements that begin after it. It visits about log2(n) elements for each result. A lookup
// first searches the groups for the origin. In each group that it finds, it searches the rows for the
// destination.
type index struct {
	groups   []group
	rows     []row
	carriers []string // names as JSON, by number; numbers follow the order of names
	services []string
	numbers  map[string]uint16 // numbers of carriers, by name
}

type group struct {
	codeRange        // the origins
	maxTo     uint32 // the last end in the subtree
	first     uint32 // index of the group's first row
}

type row struct {
	destination codeRange
	maxTo       uint32 // the last end in the subtree, within the group
	origin      codeRange
	offer
}

// offer is a document without its ranges.
type offer struct {
	priceCents             uint32
	carrier, service, days uint16
}

// The sizes of row and group must be the sizes that the comment of index gives.
var _ = [1]struct{}{}[unsafe.Sizeof(row{})-32+unsafe.Sizeof(group{})-16]

// anyCarrier means all carriers in a lookup. No carrier has this number.
const anyCarrier = maxNames

// lookup appends to `offers` each different offer that covers the route, sorted by carrier,
// service, price and days. It allocates nothing if `offers` has room for them.
func (x *index) lookup(offers []offer, origin, destination uint32, carrier uint16) []offer {
	begin := len(offers)
	offers = x.findGroups(offers, 0, len(x.groups), origin, destination, carrier)
	found := offers[begin:]
	slices.SortFunc(found, compareOffers)
	return offers[:begin+len(slices.Compact(found))]
}

func (x *index) findGroups(offers []offer, low, high int, origin, destination uint32, carrier uint16) []offer {
	for low < high {
		middle := int(uint(low+high) / 2)
		g := &x.groups[middle]
		if g.maxTo < origin {
			break
		}
		offers = x.findGroups(offers, low, middle, origin, destination, carrier)
		if g.from > origin {
			break
		}
		if g.to >= origin {
			last := len(x.rows)
			if middle+1 < len(x.groups) {
				last = int(x.groups[middle+1].first)
			}
			offers = findRows(offers, x.rows[g.first:last], destination, carrier)
		}
		low = middle + 1
	}
	return offers
}

func findRows(offers []offer, rows []row, destination uint32, carrier uint16) []offer {
	for len(rows) > 0 {
		middle := len(rows) / 2
		r := &rows[middle]
		if r.maxTo < destination {
			break
		}
		offers = findRows(offers, rows[:middle], destination, carrier)
		if r.destination.from > destination {
			break
		}
		if r.destination.to >= destination && (carrier == anyCarrier || r.carrier == carrier) {
			offers = append(offers, r.offer)
		}
		rows = rows[middle+1:]
	}
	return offers
}

func compareOffers(a, b offer) int {
	return cmp.Or(cmp.Compare(a.carrier, b.carrier), cmp.Compare(a.service, b.service),
		cmp.Compare(a.priceCents, b.priceCents), cmp.Compare(a.days, b.days))
}

// bytes returns how much memory the index takes without the names, which are few.
func (x *index) bytes() int {
	return cap(x.rows)*int(unsafe.Sizeof(row{})) + cap(x.groups)*int(unsafe.Sizeof(group{}))
}

// maxNames is the limit of carriers, and also the limit of services. Numbers have 16 bits, and one
// number is anyCarrier.
const maxNames = 1<<16 - 1

// builder collects the documents of an index. Its rows become the rows of the index, and it reserves
// room for a sixteenth more rows than the previous index had. So memory holds two indexes, but no third
// copy, while a new index replaces an old one.
type builder struct {
	most               int // how many documents there may be
	rows               []row
	carriers, services names
}

// newBuilder returns a builder with memory for `expected` documents. It refuses more than `most`.
func newBuilder(expected, most int) *builder {
	return &builder{
		most: most, rows: make([]row, 0, min(expected+expected/16, most)), carriers: newNames(), services: newNames(),
	}
}

// errTooMany means that there are more documents than allowed.
var errTooMany = errors.New("more documents than --max-documents allows; raise it if the memory holds two indexes " +
	"of that size")

func (b *builder) add(d *document) error {
	if len(b.rows) >= b.most {
		return fmt.Errorf("%d documents: %w", b.most, errTooMany)
	}
	carrier, err := b.carriers.number(d.carrier)
	if err != nil {
		return fmt.Errorf("carrier %q: %w", d.carrier, err)
	}
	service, err := b.services.number(d.service)
	if err != nil {
		return fmt.Errorf("service %q: %w", d.service, err)
	}
	b.rows = append(b.rows, row{destination: d.destination, origin: d.origin,
		offer: offer{priceCents: d.priceCents, carrier: carrier, service: service, days: d.days}})
	return nil
}

// build makes the index, and empties the builder.
func (b *builder) build() *index {
	x := &index{rows: b.rows, numbers: b.carriers.numbers}
	carriers, services := b.carriers.sort(), b.services.sort() // new numbers, by old numbers
	x.carriers, x.services = b.carriers.quoted(), b.services.quoted()
	for i := range x.rows {
		r := &x.rows[i]
		r.carrier, r.service = carriers[r.carrier], services[r.service]
	}
	slices.SortFunc(x.rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.origin.from, b.origin.from), cmp.Compare(a.origin.to, b.origin.to),
			cmp.Compare(a.destination.from, b.destination.from), cmp.Compare(a.destination.to, b.destination.to))
	})
	if cap(x.rows) > len(x.rows)+len(x.rows)/8 {
		// Cloning frees the unused memory that append reserved, since the index is in use for a long
		// time.
		x.rows = slices.Clone(x.rows)
	}
	for i := range x.rows {
		if origin := x.rows[i].origin; i == 0 || origin != x.rows[i-1].origin {
			x.groups = append(x.groups, group{codeRange: origin, first: uint32(i)})
		}
	}
	x.groups = slices.Clone(x.groups)
	for i, g := range x.groups {
		last := len(x.rows)
		if i+1 < len(x.groups) {
			last = int(x.groups[i+1].first)
		}
		augmentRows(x.rows[g.first:last])
	}
	augmentGroups(x.groups)
	*b = builder{}
	return x
}

// augmentRows sets maxTo in the tree that findRows walks, and returns the root's maxTo.
func augmentRows(rows []row) uint32 {
	if len(rows) == 0 {
		return 0
	}
	middle := len(rows) / 2
	r := &rows[middle]
	r.maxTo = max(augmentRows(rows[:middle]), r.destination.to, augmentRows(rows[middle+1:]))
	return r.maxTo
}

// augmentGroups does the same for the tree that findGroups walks.
func augmentGroups(groups []group) uint32 {
	if len(groups) == 0 {
		return 0
	}
	middle := len(groups) / 2
	g := &groups[middle]
	g.maxTo = max(augmentGroups(groups[:middle]), g.to, augmentGroups(groups[middle+1:]))
	return g.maxTo
}

// names gives each different name a number.
type names struct {
	numbers map[string]uint16
	list    []string
}

func newNames() names { return names{numbers: map[string]uint16{}} }

func (n *names) number(name string) (uint16, error) {
	if number, ok := n.numbers[name]; ok {
		return number, nil
	}
	if len(n.list) == maxNames {
		return 0, fmt.Errorf("there are already %d different names, the most that 16-bit numbers allow", maxNames)
	}
	number := uint16(len(n.list))
	n.numbers[name] = number
	n.list = append(n.list, name)
	return number, nil
}

// sort gives the names new numbers in their order, and returns the new number of each old one.
func (n *names) sort() (renumbered []uint16) {
	old := slices.Clone(n.list)
	slices.Sort(n.list)
	for i, name := range n.list {
		n.numbers[name] = uint16(i)
	}
	for _, name := range old {
		renumbered = append(renumbered, n.numbers[name])
	}
	return renumbered
}

// quoted returns the names as JSON strings.
func (n *names) quoted() (quoted []string) {
	for _, name := range n.list {
		text, err := json.Marshal(name)
		if err != nil {
			panic(fmt.Sprintf("BUG: %q as JSON: %v", name, err))
		}
		quoted = append(quoted, string(text))
	}
	return quoted
}
