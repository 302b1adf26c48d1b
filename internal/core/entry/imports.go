package entry

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"unsafe"
)

// ImportStep is a step of an import, or the removal of imported samples.
type ImportStep uint8

// The steps.
const (
	ImportOffered   ImportStep = 1 + iota // a node has a block, and the others get it from that node
	ImportShown                           // most nodes have the block: queries read it from now on
	ImportWithdrawn                       // the import was given up before that
	ImportRemoved                         // an operator removes the block
)

// Import is a step of an import of a block.
type Import struct {
	Step   ImportStep
	Tenant string
	Block  [16]byte // the ULID by which the importer knows the block
	Stored [16]byte // the ULID under which nodes have the block, new in each import; zero for ImportRemoved

	// The rest is of ImportOffered.
	Node             string // the node that has the block
	MaxTenants       int    // as in Request
	MinTime, MaxTime int64  // Unix milliseconds; MaxTime is exclusive
	Series, Samples  uint64
	Files            List // not empty; each item is written by AppendImportedFile
}

// ImportedFile is a file of an imported block.
type ImportedFile struct {
	Name   string // below the directory of the block, with slashes
	Size   int64
	SHA256 [32]byte
}

const (
	maxImportedName = 255
	maxImportedSize = 1 << 50
)

// AppendImportedFile appends an item.
func AppendImportedFile(l List, f *ImportedFile) List {
	item := binary.LittleEndian.AppendUint64(nil, uint64(f.Size))
	item = append(item, f.SHA256[:]...)
	return l.Append(append(item, f.Name...))
}

// ParseImportedFile reads an item of a parsed entry. The name points into the item.
func ParseImportedFile(item []byte) (f ImportedFile) {
	r := reader{b: item}
	f.Size = int64(r.uint64())
	copy(f.SHA256[:], r.cut(len(f.SHA256)))
	f.Name = unsafe.String(unsafe.SliceData(r.b), len(r.b))
	return f
}

// validFile reports whether AppendImportedFile wrote an item, for a file within the directory of its block.
func validFile(item []byte) bool {
	const fixed = 8 + 32
	if len(item) <= fixed || len(item) > fixed+maxImportedName {
		return false
	}
	f := ParseImportedFile(item)
	return f.Size >= 0 && f.Size <= maxImportedSize && f.Name != "." && fs.ValidPath(f.Name)
}

func (x *Import) append(b []byte) []byte {
	if !x.Valid() {
		panic(fmt.Sprintf("BUG: step %d of the import of block %x as %x in an entry", x.Step, x.Block, x.Stored))
	}
	b = appendName(append(b, byte(x.Step)), x.Tenant)
	b = append(append(b, x.Block[:]...), x.Stored[:]...)
	if x.Step != ImportOffered {
		return b
	}
	b = appendLimit(appendText(b, x.Node, maxNode), x.MaxTenants)
	b = binary.LittleEndian.AppendUint64(b, uint64(x.MinTime))
	b = binary.LittleEndian.AppendUint64(b, uint64(x.MaxTime))
	b = binary.AppendUvarint(binary.AppendUvarint(b, x.Series), x.Samples)
	return append(b, x.Files...)
}

func (x *Import) parse(r *reader) {
	*x = Import{Step: ImportStep(r.byte()), Tenant: r.name()}
	copy(x.Block[:], r.cut(len(x.Block)))
	copy(x.Stored[:], r.cut(len(x.Stored)))
	if x.Step == ImportOffered {
		x.Node, x.MaxTenants = r.text(maxNode), r.limit()
		x.MinTime, x.MaxTime = int64(r.uint64()), int64(r.uint64())
		x.Series, x.Samples = r.number(math.MaxUint64), r.number(math.MaxUint64)
		x.Files = r.list()
	}
	r.bad = r.bad || !x.Valid()
}

// Valid reports whether Append can write the step.
func (x *Import) Valid() bool {
	stored := x.Stored != [16]byte{}
	if x.Tenant == "" || len(x.Tenant) > maxTenant || len(x.Node) > maxNode || !x.Files.valid() {
		return false
	}
	if x.Step == ImportRemoved {
		return !stored
	}
	if x.Step != ImportOffered {
		return stored && x.Step >= ImportShown && x.Step <= ImportWithdrawn
	}
	for item := range x.Files.All() {
		if !validFile(item) {
			return false
		}
	}
	return stored && x.Node != "" && x.MinTime < x.MaxTime && len(x.Files) > 0
}
