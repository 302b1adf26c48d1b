package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// A file of bbolt has pages. The first two are metas, of which the newer one that has its checksum counts: it names the
// page of the root bucket and the page with the list of free pages. A bucket is a tree of branch and leaf pages, in the
// order of keys. The numbers are those of the machine, all little-endian.
const (
	pageHeader  = 16 // number of the page, 8 bytes; kind, 2; number of elements, 2; further pages that belong to it, 4
	elementSize = 16
	bucketSize  = 16 // page of the root, 8 bytes; sequence, 8

	kindBranch, kindLeaf, kindFree = 1, 2, 16

	isBucket = 1 // flag of a leaf element

	metaMagic     = 0xED0CDAED
	metaSize      = 56 // without the checksum
	metaRoot      = 16
	metaFreelist  = 32
	metaPages     = 40
	metaTx        = 48
	metas         = 2
	noFreelist    = ^uint64(0)
	manyFreePages = 0xFFFF // number of elements that says that the first element is their number
)

// checker reads the pages of a file.
type checker struct {
	file     io.ReaderAt
	pageSize int64
	pages    uint64 // that the file has; further ones were never used
	used     []bool // by number
}

// checkFile reads all pages in use of a closed file, or of one that nobody writes to. It returns an error if bbolt
// would panic, go round in circles, miss keys, or write to a page in use. `stale` says why one of the two metas does
// not count: then bbolt goes on with the other one, which may be that of the transaction before the last.
func checkFile(path string, pageSize int) (stale, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := checker{file: f, pageSize: int64(pageSize)}
	var meta []byte
	for i := range int64(metas) {
		m := make([]byte, metaSize+8)
		if _, err := f.ReadAt(m, i*c.pageSize+pageHeader); err != nil {
			return nil, fmt.Errorf("page %d: %w", i, err)
		}
		if err := checkMeta(m); err != nil {
			stale = fmt.Errorf("page %d: %w", i, err)
		} else if meta == nil || number(m, metaTx) > number(meta, metaTx) {
			meta = m
		}
	}
	if meta == nil {
		return nil, stale
	}
	if c.pages = number(meta, metaPages); c.pages > 1<<40/uint64(pageSize) {
		return nil, fmt.Errorf("it has %d pages", c.pages)
	}
	c.used = make([]bool, c.pages)
	if err := c.tree(number(meta, metaRoot), nil, nil); err != nil {
		return stale, err
	}
	return stale, c.free(number(meta, metaFreelist))
}

func number(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

func number32(b []byte, at int) uint64 { return uint64(binary.LittleEndian.Uint32(b[at:])) }

func checkMeta(m []byte) error {
	h := fnv.New64a()
	h.Write(m[:metaSize])
	if number32(m, 0) != metaMagic || number(m, metaSize) != h.Sum64() {
		return errors.New("the meta does not have its checksum")
	}
	return nil
}

// page reads a page with those that belong to it, and notes that they are in use.
func (c *checker) page(id uint64) ([]byte, error) {
	if id < metas || id >= c.pages {
		return nil, fmt.Errorf("there is no page %d", id)
	}
	head := make([]byte, pageHeader)
	if _, err := c.file.ReadAt(head, int64(id)*c.pageSize); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	further := number32(head, 12)
	if number(head, 0) != id || id+further >= c.pages {
		return nil, fmt.Errorf("page %d has another number, or too many further pages", id)
	}
	for i := id; i <= id+further; i++ {
		if c.used[i] {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		c.used[i] = true
	}
	b := make([]byte, int64(1+further)*c.pageSize)
	if _, err := c.file.ReadAt(b, int64(id)*c.pageSize); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return b, nil
}

// tree checks the pages of a bucket below a page. Keys must be `from` or above, and below `to`; nil is no bound.
func (c *checker) tree(id uint64, from, to []byte) error {
	b, err := c.page(id)
	if err != nil {
		return err
	}
	if err := c.elements(b, from, to); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// elements checks a branch or leaf page, and what is below it.
func (c *checker) elements(b, from, to []byte) error {
	kind, count := binary.LittleEndian.Uint16(b[8:]), int(binary.LittleEndian.Uint16(b[10:]))
	if kind != kindBranch && kind != kindLeaf || kind == kindBranch && count == 0 {
		return errors.New("it is neither a branch nor a leaf")
	}
	if pageHeader+count*elementSize > len(b) {
		return errors.New("it has too many elements")
	}
	keys := make([][]byte, count)
	for i := range keys {
		at := uint64(pageHeader + i*elementSize)
		e := b[at:]
		position, size, value := at+number32(e, 0), number32(e, 4), uint64(0)
		if kind == kindLeaf {
			position, size, value = at+number32(e, 4), number32(e, 8), number32(e, 12)
		}
		if position+size+value > uint64(len(b)) || position < uint64(pageHeader+count*elementSize) {
			return fmt.Errorf("element %d is not within it", i)
		}
		keys[i] = b[position : position+size]
		if i > 0 {
			from = keys[i-1]
		}
		if order := bytes.Compare(from, keys[i]); order > 0 || order == 0 && i > 0 {
			return fmt.Errorf("element %d is not in order", i)
		}
		if to != nil && bytes.Compare(keys[i], to) >= 0 {
			return fmt.Errorf("element %d belongs to another page", i)
		}
		if kind == kindLeaf {
			if err := c.value(number32(e, 0), b[position+size:position+size+value]); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
	}
	for i := 0; kind == kindBranch && i < count; i++ {
		below := to
		if i+1 < count {
			below = keys[i+1]
		}
		if err := c.tree(number(b, pageHeader+i*elementSize+8), keys[i], below); err != nil {
			return err
		}
	}
	return nil
}

// value checks the value of a leaf element: a bucket has a page of its own, or a small page inside the value.
func (c *checker) value(flags uint64, v []byte) error {
	switch {
	case flags == 0:
		return nil
	case flags != isBucket || len(v) < bucketSize:
		return errors.New("it is neither a value nor a bucket")
	case number(v, 0) != 0:
		return c.tree(number(v, 0), nil, nil)
	case len(v) < bucketSize+pageHeader || binary.LittleEndian.Uint16(v[bucketSize+8:]) != kindLeaf:
		return errors.New("it is a bucket without a page")
	}
	return c.elements(v[bucketSize:], nil, nil)
}

// free checks the list of free pages, after the pages in use.
func (c *checker) free(id uint64) error {
	if id == noFreelist {
		return nil
	}
	b, err := c.page(id)
	if err != nil {
		return err
	}
	count, first := uint64(binary.LittleEndian.Uint16(b[10:])), uint64(pageHeader)
	if count == manyFreePages {
		count, first = number(b, pageHeader), pageHeader+8
	}
	if binary.LittleEndian.Uint16(b[8:]) != kindFree || count > c.pages || first+count*8 > uint64(len(b)) {
		return fmt.Errorf("page %d is no list of free pages", id)
	}
	for i := range count {
		page := number(b, int(first+i*8))
		if page < metas || page >= c.pages || c.used[page] {
			return fmt.Errorf("page %d is free and in use", page)
		}
		c.used[page] = true
	}
	return nil
}
