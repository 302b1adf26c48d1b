// Package entry defines one entry of a group's log: what a leader proposes, and what each member of the
// group applies in the same order. The outcome of an entry depends only on the entry, with its times,
// settings and limits, and on the state from earlier entries. Applying an entry reads no clock and no
// configuration. Indexes, terms and the log itself are in core/replica. Layout: docs/format/entry.md.
package entry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"
)

const (
	// TargetSize is the size, in bytes, at which a leader begins another entry. Small entries keep
	// heartbeats and other tenants from waiting behind a large one.
	TargetSize = 1 << 20

	// MaxSize bounds the bytes of an entry, which is one frame of the log. An entry exceeds
	// TargetSize only if one part of it cannot be cut: a batch of one shard, of about 4 MiB, or a
	// huge histogram.
	MaxSize = 16 << 20
)

const version = 1

// Kind says what an entry is.
type Kind uint8

// The kinds.
const (
	KindWindows   Kind = 1 + iota // pushes of collectors
	KindRequest                   // a request of remote write or OTLP, or a part of one
	KindDeltas                    // a request of OTLP deltas, or a part of one
	KindBoundary                  // the end of a tile
	KindEvents                    // events for a tenant's event log
	KindNames                     // claims of names of DogStatsD metrics
	KindVersion                   // the format and semantics that all members know
	KindNode                      // assigns a member to a node that is new to the group
	KindForwarded                 // for each backend, the last entry whose samples it has
	KindDrain                     // a node must not lead, or may lead again
	KindRules                     // how far groups of rules are, and their alerts
	KindRuleSet                   // a tenant sets or deletes rules by the API
	KindImport                    // a step of an import of samples of another server, or their removal

	lastKind = KindImport
)

// maxTime is the largest time or duration, in milliseconds. Batches have the same bound, in seconds.
const maxTime = 9_000_000_000_000

// Bounds of names, in bytes.
const (
	maxTenant = 255
	maxAgent  = 255
	maxNode   = 255

	maxBackend = 64

	maxRuleName = 1024 // of a namespace or a group of rules
)

// Entry is an entry of one kind; the fields of other kinds mean nothing. After Parse, strings and
// lists point into the parsed bytes: clone a value that must live longer.
type Entry struct {
	Kind  Kind
	Shape uint32 // the number of the group's shape, from 1; an entry of another shape does nothing
	Group uint64

	Windows  Windows
	Request  Request // of KindRequest and KindDeltas
	Boundary Boundary
	Events   Events
	Names    Names
	Version  Version
	Node     Node
	Drain    Drain
	Rules    Rules
	RuleSet  RuleSet
	Import   Import

	Forwarded List // of KindForwarded; ascending by the backend's name; items are written by AppendForwarded
}

// Windows are the pushes that came while the previous entry was written. Pushes are the last field
// in the entry's bytes, so List.Append can add more to them.
type Windows struct {
	Clock      int64 // the leader's time, in Unix milliseconds
	MaxTenants int   // as in Request
	Pushes     List  // each item is written by AppendPush
}

// Push is one push of a collector. Sequence grows with each push of the same producer, incarnation and
// stream, so it shows whether a push is a repeat.
type Push struct {
	Producer, Incarnation, Sequence uint64
	Stream                          uint32
	Shape                           uint32 // the group's shape, as the producer knows it
	Again                           bool   // whether the push was sent before, perhaps to another leader
	Leaves                          bool   // the producer sends nothing more under this incarnation; Batches is empty
	Batches                         List   // each item is encoded by package batch
}

// Boundary closes a tile of some shards. Its times to live and windows come from the leader's
// configuration.
type Boundary struct {
	End        int64 // the end of the 10 s tile, in Unix milliseconds
	CounterTTL int64 // milliseconds, like the times that follow
	GaugeTTL   int64
	CheckTTL   int64
	UpDownTTL  int64
	Timed      int64 // how far a gauge with its own time may lie before the last boundary
	Begins     bool  // the boundary moves only shards without series, so it closes nothing
	Shards     Shards
	Full       List // tenants whose tiles repeat no series, because store.pending is full
}

// tileMillis is the width of the tile that a boundary closes.
const tileMillis = int64(10 * time.Second / time.Millisecond)

// Events are events of a tenant, with the limits that decide how long they are kept.
type Events struct {
	Tenant     string
	Arrival    int64  // Unix milliseconds, by the clock of the leader that proposed the entry
	Retention  int64  // milliseconds; events older than that, by Arrival, are removed
	MaxEvents  int    // a tenant's limit; the oldest beyond it are removed
	MaxTenants int    // as in Request
	Hash       uint64 // to recognize events that are sent again
	List       List   // each item is encoded by package event
}

// Names are claims of names of DogStatsD metrics, with the limits that decide about the claims: see
// package catalogue. All durations are milliseconds.
type Names struct {
	Clock      int64 // the leader's time, in Unix milliseconds
	MaxNames   int   // most names of a tenant
	MaxTenants int   // as in Request
	Unused     int64 // time without samples after which names are forgotten
	CounterTTL int64 // names of counters, timers and sets keep their owner at least this long after the last sample
	GaugeTTL   int64
	CheckTTL   int64
	UpDownTTL  int64
	Claims     List // each item is written by AppendClaim
}

// Claim claims a name for a kind of metrics and, if the kind is timer, for a form of timers.
type Claim struct {
	Tenant  string
	Kind    byte
	Name    string // the name that the mapping gave
	Buckets string // of a timer with classic buckets, as text
}

// Version says which format and semantics all members of the group know when the entry is proposed.
// Later entries may use them.
type Version struct {
	Format    uint32 // the format of entries and of everything in them
	Semantics uint32 // the rules for applying entries: constants, sketches, encodings
}

// Node assigns a member of the group to a node of the cluster, if the node has none yet, or has the
// member that is replaced. Otherwise the entry does nothing. So a node that comes back with an empty directory
// has no member until it is replaced.
type Node struct {
	Name     string
	Member   uint64 // 0 only if Replaces is not: the node is removed, and has no member from then on
	Replaces uint64 // 0 if nothing is replaced; from format 3 on
}

// Drain says that a node must not lead for a while.
type Drain struct {
	Name  string
	Until int64 // Unix ms, by the leader's clock; 0 if the node may lead again
}

// Forever is the Until of a drain without an end.
const Forever = maxTime

// Time returns when an entry was made, by the leader's clock, in Unix milliseconds. It returns 0 for a kind without a
// time.
func (e *Entry) Time() int64 {
	return max(e.Windows.Clock, e.Request.Arrival, e.Events.Arrival, e.Names.Clock)
}

// Span is the range of log entries from which forwarded data comes. The data ends with the data of entry
// Last, and the queue before it has all data of the entries before First. Span is zero outside of a
// group.
type Span struct{ First, Last uint64 }

// AppendForwarded appends an item, which says that a backend has the data of the entries up to an index.
func AppendForwarded(l List, backend string, index uint64) List {
	if backend == "" || len(backend) > maxBackend || index == 0 {
		panic(fmt.Sprintf("BUG: the backend %.80q has entry %d", backend, index))
	}
	item := binary.LittleEndian.AppendUint64(make([]byte, 0, 8+maxBackend), index)
	return l.Append(append(item, backend...))
}

// ParseForwarded reads an item of a parsed entry.
func ParseForwarded(item []byte) (backend string, index uint64) {
	r := reader{b: item}
	index = r.uint64()
	return unsafe.String(unsafe.SliceData(r.b), len(r.b)), index
}

// Forwarded reports whether the list has items, and whether AppendForwarded wrote all of them, in
// ascending order of the backends' names.
func (l List) Forwarded() bool {
	last := ""
	if !l.valid() {
		return false
	}
	for item := range l.All() {
		backend, index := ParseForwarded(item)
		if len(item) > 8+maxBackend || index == 0 || backend <= last {
			return false
		}
		last = backend
	}
	return len(l) > 0
}

// ErrNewer means that a newer program wrote the entry. A member stops at such an entry: skipping it
// would make the member's stores differ from the stores of all others.
var ErrNewer = errors.New("written by a newer version")

// Append appends the entry to b. It allocates nothing if b has room. It panics if a field is out of
// bounds, because every member would stop at such an entry once it is committed. It does not check
// the items of lists.
func (e *Entry) Append(b []byte) []byte {
	from := len(b)
	if e.Shape == 0 {
		panic("BUG: an entry without a shape is appended")
	}
	b = append(b, version, byte(e.Kind))
	b = binary.LittleEndian.AppendUint32(b, e.Shape)
	b = binary.LittleEndian.AppendUint64(b, e.Group)
	switch e.Kind {
	case KindWindows:
		b = appendTime(b, e.Windows.Clock)
		b = appendLimit(b, e.Windows.MaxTenants)
		b = append(b, e.Windows.Pushes...)
	case KindRequest, KindDeltas:
		b = e.Request.append(b, e.Kind)
	case KindBoundary:
		b = e.Boundary.append(b)
	case KindEvents:
		b = e.Events.append(b)
	case KindNames:
		b = e.Names.append(b)
	case KindVersion:
		b = binary.AppendUvarint(b, uint64(e.Version.Format))
		b = binary.AppendUvarint(b, uint64(e.Version.Semantics))
	case KindNode:
		b = e.Node.append(b)
	case KindForwarded:
		b = append(b, e.Forwarded...)
	case KindDrain:
		b = e.Drain.append(b)
	case KindRules:
		b = e.Rules.append(b)
	case KindRuleSet:
		b = e.RuleSet.append(b)
	case KindImport:
		b = e.Import.append(b)
	default:
		panic(fmt.Sprintf("BUG: an entry of kind %d is appended", e.Kind))
	}
	if size := len(b) - from; size > MaxSize {
		panic(fmt.Sprintf("BUG: an entry of kind %d has %d bytes, and at most %d bytes are allowed", e.Kind, size, MaxSize))
	}
	return b
}

// Size returns about how many bytes Append appends, and never fewer for a request.
func (e *Entry) Size() int {
	const fixed = 2 + 4 + 8 + 2 + 8*binary.MaxVarintLen64 + 17 + 8
	w := &e.Request
	return fixed + len(w.Tenant) + len(w.Sender.Agent) + len(w.Pair.Cluster) + len(w.Pair.Replica) + len(w.Body) +
		len(e.RuleSet.Text) + len(e.Import.Files)
}

// flagBegins says that Boundary.Begins is set.
const flagBegins = 1

func (t *Boundary) append(b []byte) []byte {
	if t.End%tileMillis != 0 || t.Shards == (Shards{}) {
		panic(fmt.Sprintf("BUG: a boundary at %d of the shards %x", t.End, t.Shards))
	}
	flags := byte(0)
	if t.Begins {
		flags = flagBegins
	}
	b = append(b, flags)
	for _, n := range [...]int64{t.End, t.CounterTTL, t.GaugeTTL, t.CheckTTL, t.UpDownTTL, t.Timed} {
		b = appendTime(b, n)
	}
	for _, word := range t.Shards {
		b = binary.LittleEndian.AppendUint64(b, word)
	}
	return append(b, t.Full...)
}

func (n *Events) append(b []byte) []byte {
	b = appendName(b, n.Tenant)
	b = appendTime(b, n.Arrival)
	b = appendTime(b, n.Retention)
	b = appendLimit(b, n.MaxEvents)
	b = appendLimit(b, n.MaxTenants)
	b = binary.LittleEndian.AppendUint64(b, n.Hash)
	return append(b, n.List...)
}

func (n *Events) parse(r *reader) {
	n.Tenant = r.name()
	n.Arrival, n.Retention = r.time(), r.time()
	n.MaxEvents, n.MaxTenants = r.limit(), r.limit()
	n.Hash, n.List = r.uint64(), r.list()
}

func (n *Names) append(b []byte) []byte {
	b = appendTime(b, n.Clock)
	b = appendLimit(b, n.MaxNames)
	b = appendLimit(b, n.MaxTenants)
	for _, d := range [...]int64{n.Unused, n.CounterTTL, n.GaugeTTL, n.CheckTTL, n.UpDownTTL} {
		b = appendTime(b, d)
	}
	return append(b, n.Claims...)
}

func (n *Names) parse(r *reader) {
	n.Clock, n.MaxNames, n.MaxTenants = r.time(), r.limit(), r.limit()
	for _, d := range [...]*int64{&n.Unused, &n.CounterTTL, &n.GaugeTTL, &n.CheckTTL, &n.UpDownTTL} {
		*d = r.time()
	}
	n.Claims = r.list()
	for b := range n.Claims.All() {
		if _, err := ParseClaim(b); err != nil {
			r.bad = true
		}
	}
}

// AppendClaim appends a claim to b.
func AppendClaim(b []byte, c *Claim) []byte {
	b = append(appendName(b, c.Tenant), c.Kind)
	return appendText(appendText(b, c.Name, MaxSize), c.Buckets, MaxSize)
}

// ParseClaim reads what AppendClaim wrote. The strings point into b.
func ParseClaim(b []byte) (c Claim, err error) {
	r := reader{b: b}
	c = Claim{Tenant: r.name(), Kind: r.byte(), Name: r.text(MaxSize), Buckets: r.text(MaxSize)}
	if r.bad || len(r.b) > 0 || c.Kind == 0 || c.Name == "" {
		return c, errMalformed
	}
	return c, nil
}

func (n *Node) append(b []byte) []byte {
	if !n.valid() {
		panic(fmt.Sprintf("BUG: member %d of the node %q in an entry, in place of member %d", n.Member, n.Name, n.Replaces))
	}
	b = binary.LittleEndian.AppendUint64(appendText(b, n.Name, maxNode), n.Member)
	if n.Replaces != 0 {
		b = binary.LittleEndian.AppendUint64(b, n.Replaces)
	}
	return b
}

func (n *Node) valid() bool { return n.Name != "" && n.Member != n.Replaces }

func (d *Drain) append(b []byte) []byte {
	if d.Name == "" {
		panic("BUG: a drain of a node without a name in an entry")
	}
	return appendTime(appendText(b, d.Name, maxNode), d.Until)
}

// Flags of a Push.
const (
	flagAgain  = 1 // it was sent before
	flagLeaves = 2 // its producer leaves
)

// AppendPush appends a push to b. The encoding is the same on the network and in an entry.
func AppendPush(b []byte, p *Push) []byte {
	flags := byte(0)
	if p.Again {
		flags = flagAgain
	}
	if p.Leaves {
		flags |= flagLeaves
	}
	b = append(b, flags)
	b = binary.LittleEndian.AppendUint64(b, p.Producer)
	b = binary.LittleEndian.AppendUint64(b, p.Incarnation)
	b = binary.LittleEndian.AppendUint64(b, p.Sequence)
	b = binary.LittleEndian.AppendUint32(b, p.Stream)
	b = binary.LittleEndian.AppendUint32(b, p.Shape)
	return append(b, p.Batches...)
}

// Again returns a copy of a push, in the form of AppendPush, with the flag that it was sent before. The
// given bytes do not change, since the earlier call may still read them.
func Again(push []byte) []byte {
	if push[0]&flagAgain != 0 {
		return push
	}
	again := bytes.Clone(push)
	again[0] |= flagAgain
	return again
}

// Parse reads an entry from b, which must not change while e is in use. It allocates nothing. It
// refuses bytes that Append would not write.
func (e *Entry) Parse(b []byte) error {
	if err := e.parse(b); err != nil {
		return fmt.Errorf("entry: %w", err)
	}
	return nil
}

var (
	errSize      = fmt.Errorf("it has more than %d bytes", MaxSize)
	errShort     = errors.New("it is cut short")
	errMalformed = errors.New("it is malformed")
)

func (e *Entry) parse(b []byte) error {
	if len(b) > MaxSize {
		return errSize
	}
	r := reader{b: b}
	if v := r.byte(); v > version {
		return fmt.Errorf("it has version %d, and this program reads %d: %w", v, version, ErrNewer)
	}
	e.Kind, e.Shape, e.Group = Kind(r.byte()), r.uint32(), r.uint64()
	if r.bad {
		return errShort
	}
	if e.Kind > lastKind {
		return fmt.Errorf("its kind is %d, and this program knows kinds up to %d: %w", e.Kind, lastKind, ErrNewer)
	}
	var err error
	switch e.Kind {
	case KindWindows:
		e.Windows.Clock = r.time()
		e.Windows.MaxTenants = r.limit()
		e.Windows.Pushes = r.list()
		for p := range e.Windows.Pushes.All() {
			if _, err := ParsePush(p); err != nil {
				return err
			}
		}
	case KindRequest, KindDeltas:
		err = e.Request.parse(&r, e.Kind)
	case KindBoundary:
		err = e.Boundary.parse(&r)
	case KindEvents:
		e.Events.parse(&r)
	case KindNames:
		e.Names.parse(&r)
	case KindVersion:
		e.Version.Format, e.Version.Semantics = r.number32(), r.number32()
	case KindNode:
		e.Node = Node{Name: r.text(maxNode), Member: r.uint64()}
		if len(r.b) > 0 {
			e.Node.Replaces = r.uint64()
			r.bad = r.bad || e.Node.Replaces == 0
		}
		r.bad = r.bad || !e.Node.valid()
	case KindForwarded:
		e.Forwarded = r.list()
		r.bad = r.bad || !e.Forwarded.Forwarded()
	case KindDrain:
		e.Drain = Drain{Name: r.text(maxNode), Until: r.time()}
		r.bad = r.bad || e.Drain.Name == ""
	case KindRules:
		e.Rules.parse(&r)
	case KindRuleSet:
		e.RuleSet.parse(&r)
	case KindImport:
		e.Import.parse(&r)
	default:
		return errMalformed
	}
	if err == nil && (r.bad || len(r.b) > 0 || e.Shape == 0 || b[0] == 0) {
		err = errMalformed
	}
	return err
}

func (t *Boundary) parse(r *reader) error {
	flags := r.byte()
	if unknown := flags &^ flagBegins; unknown != 0 {
		return fmt.Errorf("its boundary has the unknown flag %#02x: %w", unknown, ErrNewer)
	}
	t.Begins = flags&flagBegins != 0
	for _, n := range [...]*int64{&t.End, &t.CounterTTL, &t.GaugeTTL, &t.CheckTTL, &t.UpDownTTL, &t.Timed} {
		*n = r.time()
	}
	for i := range t.Shards {
		t.Shards[i] = r.uint64()
	}
	t.Full = r.list()
	for tenant := range t.Full.All() {
		r.bad = r.bad || len(tenant) == 0 || len(tenant) > maxTenant
	}
	r.bad = r.bad || t.End%tileMillis != 0 || t.Shards == Shards{}
	return nil
}

// ParsePush reads what AppendPush wrote. The batches point into b and are not checked.
func ParsePush(b []byte) (p Push, err error) {
	r := reader{b: b}
	flags := r.byte()
	if unknown := flags &^ (flagAgain | flagLeaves); unknown != 0 {
		return p, fmt.Errorf("a push has the unknown flag %#02x: %w", unknown, ErrNewer)
	}
	p.Producer, p.Incarnation, p.Sequence = r.uint64(), r.uint64(), r.uint64()
	p.Stream, p.Shape, p.Again = r.uint32(), r.uint32(), flags&flagAgain != 0
	p.Leaves = flags&flagLeaves != 0
	p.Batches = r.list()
	if r.bad || p.Shape == 0 || p.Leaves && len(p.Batches) > 0 {
		return p, errMalformed
	}
	return p, nil
}
