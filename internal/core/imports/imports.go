// Package imports keeps which blocks operators have imported into a cluster. The members of a group fold the same
// entries of the kind import, so all nodes know the same blocks, and each gets those that it lacks from the others.
// The blocks themselves are in the stores of history.
package imports

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/lib/fields"
)

// Why a step changes nothing.
var (
	// ErrKnown means that the history has the block.
	ErrKnown = errors.New("the block is imported already")

	// ErrGivenUp means that the import was withdrawn, or another one of the same block has taken its place.
	ErrGivenUp = errors.New("the import was given up; import the block again")

	// ErrTooMany means that no block can be added.
	ErrTooMany = errors.New("the cluster has no place for the block")
)

const (
	// MaxBytes bounds the encoded blocks of all tenants. A block takes about 300 bytes, and each further 512 MiB of
	// samples in it take 54.
	MaxBytes = 32 << 20

	// MaxGone bounds how many removed blocks are remembered. A node learns of a removal by the log, or by a copy of the
	// state: only a node that missed so many of them would keep one.
	MaxGone = 1 << 16
)

// Block is a block that was imported, or is being imported.
type Block struct {
	Tenant           string
	Block            [16]byte // the ULID by which the importer knows it
	Stored           [16]byte // the ULID under which nodes have it
	Node             string   // the node that had it first
	MinTime, MaxTime int64    // Unix milliseconds; MaxTime is exclusive
	Series, Samples  uint64
	Shown            bool // queries read it; until then it is being imported
	Files            entry.List
}

// Gone is a block that was removed, or whose import was given up.
type Gone struct {
	Tenant string
	Stored [16]byte
}

type key struct {
	tenant string
	block  [16]byte
}

// Kept has the blocks of all tenants. Other goroutines than the one that folds entries may call All, Of, Get, Folds and
// Gone.
type Kept struct {
	mu     sync.RWMutex
	blocks map[key]Block
	sorted []Block // of All; nil after a change
	gone   []Gone  // the oldest first
	isGone map[Gone]bool
	bytes  int
	hash   uint64
	folds  uint64 // in this process
}

// NewKept returns a Kept without blocks.
func NewKept() *Kept { return &Kept{blocks: map[key]Block{}, isGone: map[Gone]bool{}} }

// All returns the blocks of all tenants, by tenant and name, and a number that is another one after each change. The
// caller must not change the slice. It is sorted once after a change, since each query may call All while a block is
// being imported.
func (k *Kept) All() (all []Block, folds uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sorted == nil {
		k.sorted = slices.SortedFunc(maps.Values(k.blocks), func(a, b Block) int {
			return cmp.Or(strings.Compare(a.Tenant, b.Tenant), slices.Compare(a.Block[:], b.Block[:]))
		})
	}
	return k.sorted, k.folds
}

// Of returns the blocks of a tenant, by name. The caller must not change the slice.
func (k *Kept) Of(tenant string) []Block {
	all, _ := k.All()
	from, _ := slices.BinarySearchFunc(all, tenant, func(b Block, t string) int { return strings.Compare(b.Tenant, t) })
	n := slices.IndexFunc(all[from:], func(b Block) bool { return b.Tenant != tenant })
	if n < 0 {
		return all[from:]
	}
	return all[from : from+n]
}

// Get returns the block that an importer knows by a name.
func (k *Kept) Get(tenant string, block [16]byte) (b Block, known bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	b, known = k.blocks[key{tenant, block}]
	return b, known
}

// Folds returns the number that All returns.
func (k *Kept) Folds() uint64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.folds
}

// Gone returns the blocks that were removed, the oldest first.
func (k *Kept) Gone() []Gone {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.Clone(k.gone)
}

// Empty reports whether no block was ever imported or removed.
func (k *Kept) Empty() bool { return len(k.blocks) == 0 && len(k.gone) == 0 }

// Check returns why an entry would change nothing: ErrKnown, ErrGivenUp or ErrTooMany. A step that was done already is
// no error.
func (k *Kept) Check(e *entry.Import) error {
	b, known := k.blocks[key{e.Tenant, e.Block}]
	same := known && b.Stored == e.Stored
	switch e.Step {
	case entry.ImportOffered:
		switch {
		case same:
			return nil
		case known && b.Shown:
			return ErrKnown
		case k.isGone[Gone{e.Tenant, e.Stored}]:
			return ErrGivenUp
		case k.bytes+sizeOf(e) > MaxBytes:
			return fmt.Errorf("%w: all imported blocks take %d of %d bytes in the state of each node; remove some, or import "+
				"larger ones", ErrTooMany, k.bytes, MaxBytes)
		}
	case entry.ImportShown:
		if !same {
			return ErrGivenUp
		}
	case entry.ImportWithdrawn:
		if same && b.Shown {
			return ErrKnown
		}
	}
	return nil
}

func sizeOf(e *entry.Import) int { return len(blockOf(e).append(nil)) }

// Fold does what an entry says. It keeps no memory of the entry. The error is one of Check.
func (k *Kept) Fold(e *entry.Import) error {
	if err := k.Check(e); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.folds++
	at := key{strings.Clone(e.Tenant), e.Block}
	b, known := k.blocks[at]
	same := known && b.Stored == e.Stored
	switch e.Step {
	case entry.ImportOffered:
		if same {
			return nil
		}
		if known { // an import that did not end, perhaps of a node that is gone
			k.leave(at)
		}
		k.add(at, blockOf(e))
	case entry.ImportShown:
		k.drop(at)
		b.Shown = true
		k.add(at, b)
	case entry.ImportWithdrawn:
		if same {
			k.leave(at)
		}
	case entry.ImportRemoved:
		if known {
			k.leave(at)
			return nil
		}
		k.forget(Gone{at.tenant, e.Block}) // the founder of the cluster had it under its own name
	}
	return nil
}

func blockOf(e *entry.Import) Block {
	return Block{Tenant: strings.Clone(e.Tenant), Block: e.Block, Stored: e.Stored, Node: strings.Clone(e.Node),
		MinTime: e.MinTime, MaxTime: e.MaxTime, Series: e.Series, Samples: e.Samples, Files: slices.Clone(e.Files)}
}

// leave removes a block, and remembers that nodes must remove it.
func (k *Kept) leave(at key) {
	stored := k.blocks[at].Stored
	k.drop(at)
	k.forget(Gone{at.tenant, stored})
}

func (k *Kept) add(at key, b Block) {
	text := b.append(nil)
	k.bytes += len(text)
	k.hash += xxhash.Sum64(text)
	k.blocks[at] = b
	k.sorted = nil
}

func (k *Kept) drop(at key) {
	b := k.blocks[at]
	text := b.append(nil)
	k.bytes -= len(text)
	k.hash -= xxhash.Sum64(text)
	delete(k.blocks, at)
	k.sorted = nil
}

func (k *Kept) forget(g Gone) {
	if k.isGone[g] {
		return
	}
	k.gone = append(k.gone, g)
	k.isGone[g] = true
	k.hash += xxhash.Sum64(g.append(nil))
	if len(k.gone) > MaxGone {
		oldest := k.gone[0]
		k.gone = slices.Delete(k.gone, 0, 1)
		delete(k.isGone, oldest)
		k.hash -= xxhash.Sum64(oldest.append(nil))
	}
}

// Hash returns a hash of all blocks and removals; 0 if there never was one.
func (k *Kept) Hash() uint64 { return k.hash }

const keptVersion = 1

var errKept = errors.New("the list of imported blocks is malformed")

// Append appends all blocks and removals. Members that have applied the same entries append the same bytes.
func (k *Kept) Append(b []byte) []byte {
	b = append(b, keptVersion)
	all, _ := k.All()
	b = binary.AppendUvarint(b, uint64(len(all)))
	for i := range all {
		b = all[i].append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(k.gone)))
	for _, g := range k.gone {
		b = g.append(b)
	}
	return b
}

func (b Block) append(to []byte) []byte {
	to = fields.AppendBytes(to, b.Tenant)
	to = append(append(to, b.Block[:]...), b.Stored[:]...)
	to = fields.AppendBytes(to, b.Node)
	to = binary.LittleEndian.AppendUint64(to, uint64(b.MinTime))
	to = binary.LittleEndian.AppendUint64(to, uint64(b.MaxTime))
	to = binary.AppendUvarint(binary.AppendUvarint(to, b.Series), b.Samples)
	shown := byte(0)
	if b.Shown {
		shown = 1
	}
	return fields.AppendBytes(append(to, shown), b.Files)
}

func (g Gone) append(to []byte) []byte {
	return append(fields.AppendBytes(to, g.Tenant), g.Stored[:]...)
}

// Parse reads what Append wrote. Nothing is kept before.
func (k *Kept) Parse(b []byte) error {
	r := fields.Reader{B: b}
	if r.Byte() != keptVersion {
		return errKept
	}
	var before Block
	for range r.Count() {
		x, ok := parseBlock(&r)
		ascends := x.Tenant > before.Tenant ||
			x.Tenant == before.Tenant && slices.Compare(x.Block[:], before.Block[:]) > 0
		if !ok || !ascends {
			return errKept
		}
		before = x
		k.add(key{x.Tenant, x.Block}, x)
	}
	n := r.Count()
	if n > MaxGone {
		return errKept
	}
	for range n {
		g := Gone{Tenant: r.Text(), Stored: id(&r)}
		if r.Bad || k.isGone[g] || g.Tenant == "" {
			return errKept
		}
		k.forget(g)
	}
	if !r.Done() || k.bytes > MaxBytes {
		return errKept
	}
	return nil
}

// parseBlock reads a block. It must be one that an entry may have.
func parseBlock(r *fields.Reader) (b Block, ok bool) {
	b = Block{Tenant: r.Text(), Block: id(r), Stored: id(r), Node: r.Text(), MinTime: int64(r.Uint64()),
		MaxTime: int64(r.Uint64()), Series: r.Uvarint(), Samples: r.Uvarint()}
	shown := r.Byte()
	b.Shown, b.Files = shown == 1, slices.Clone(entry.List(r.Bytes()))
	offer := entry.Import{Step: entry.ImportOffered, Tenant: b.Tenant, Block: b.Block, Stored: b.Stored, Node: b.Node,
		MinTime: b.MinTime, MaxTime: b.MaxTime, Files: b.Files}
	return b, !r.Bad && shown <= 1 && offer.Valid()
}

func id(r *fields.Reader) (id [16]byte) {
	for i := range id {
		id[i] = r.Byte()
	}
	return id
}
