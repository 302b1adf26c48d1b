// Package filler gives a joining node the data that the log of its group no longer has. The node gets a copy of
// the data of another node, which is what a start of that node after a power loss would find, and goes on from there
// with the log. docs/format/fill.md has the files and the calls.
//
// Copies is the part of the node that gives its data, and Filler the part of the node that gets them. Neither knows
// what the files contain.
package filler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// File is a file of a copy.
type File struct {
	Name string // path below the data directory, with slashes
	Size int64
}

// Copies are the copies that a node has set aside for other nodes, one for each of them. They consist of hard links,
// so they take little space until the files are removed from the stores.
type Copies struct {
	dir    string // of all copies
	blocks CopyTo
	whole  CopyTo

	mu  sync.Mutex
	all map[string]*set // by node
}

// CopyTo copies data to a directory, below which the files have the same paths as below the data directory.
type CopyTo func(ctx context.Context, dir string) ([]File, error)

// set is a copy for one node.
type set struct {
	making sync.Mutex // held while it is made
	dir    string
	sizes  map[string]int64
	used   time.Time
}

// unusedTime is how long a copy is kept after its last use.
const unusedTime = 10 * time.Minute

// NewCopies removes the copies of an earlier process from `dir`, and returns Copies that are made there.
// `blocks` copies what never changes, and `whole` everything.
func NewCopies(dir string, blocks, whole CopyTo) (*Copies, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("remove copies for other nodes: %w", err)
	}
	return &Copies{dir: dir, blocks: blocks, whole: whole, all: map[string]*set{}}, nil
}

// Make makes a copy for a node, in place of an earlier one. It returns the files.
func (c *Copies) Make(ctx context.Context, node string, whole bool) ([]File, error) {
	s := c.of(node)
	if !s.making.TryLock() {
		return nil, fmt.Errorf("a copy for node %s is being made already", node)
	}
	defer s.making.Unlock()
	if err := c.remove(s); err != nil {
		return nil, err
	}
	copyTo := c.blocks
	if whole {
		copyTo = c.whole
	}
	files, err := copyTo(ctx, s.dir)
	if err != nil {
		return nil, errors.Join(err, c.remove(s))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.used = time.Now()
	for _, f := range files {
		s.sizes[f.Name] = f.Size
	}
	return files, nil
}

// of returns the copy for a node.
func (c *Copies) of(node string) *set {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.all[node]
	if s == nil {
		s = &set{dir: filepath.Join(c.dir, node)}
		c.all[node] = s
	}
	s.used = time.Now()
	return s
}

// remove removes the files of a copy.
func (c *Copies) remove(s *set) error {
	c.mu.Lock()
	s.sizes = map[string]int64{}
	c.mu.Unlock()
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove a copy for another node: %w", err)
	}
	return nil
}

// Open opens a file of the copy for a node. It ends where the file ended when it was copied.
func (c *Copies) Open(node, name string) (io.ReadCloser, error) {
	s := c.of(node)
	c.mu.Lock()
	size, has := s.sizes[name]
	c.mu.Unlock()
	if !has {
		return nil, fmt.Errorf("there is no copy of %.200q for node %s, or no more", name, node)
	}
	f, err := os.Open(filepath.Join(s.dir, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(useReader{f, c, s}, size), f}, nil
}

// useReader keeps a copy while one of its files is read: at a low rate, that takes longer than unusedTime.
type useReader struct {
	io.Reader
	copies *Copies
	set    *set
}

// Read implements io.Reader.
func (r useReader) Read(b []byte) (int, error) {
	r.copies.mu.Lock()
	r.set.used = time.Now()
	r.copies.mu.Unlock()
	return r.Reader.Read(b)
}

// Run removes copies that are no longer used, until ctx is done. Then it removes all.
func (c *Copies) Run(ctx context.Context) error {
	for ticker := time.NewTicker(time.Minute); ; {
		select {
		case <-ticker.C:
			c.sweep()
		case <-ctx.Done():
			ticker.Stop()
			return os.RemoveAll(c.dir)
		}
	}
}

// sweep removes copies that were not used for a while.
func (c *Copies) sweep() {
	c.mu.Lock()
	var old []*set
	for _, s := range c.all {
		if time.Since(s.used) > unusedTime && len(s.sizes) > 0 {
			old = append(old, s)
		}
	}
	c.mu.Unlock()
	for _, s := range old {
		if s.making.TryLock() {
			_ = c.remove(s) // the next copy for the node, or the next start, tries again
			s.making.Unlock()
		}
	}
}

// errName means that a copy has a file which a data directory does not have.
var errName = errors.New("a copy has no such file")

// checkName refuses a name that would lead out of the copy, or that is of no part of a node's data.
func checkName(name string) error {
	root, _, _ := strings.Cut(name, "/")
	known := root == "tsdb" || root == "groups"
	if len(name) > maxName || !fs.ValidPath(name) || strings.Contains(name, "\\") || strings.ContainsRune(name, 0) ||
		known == (name == root) || !known && name != "events.db" {
		return fmt.Errorf("%w: %.200q", errName, name)
	}
	return nil
}

// maxName bounds the name of a file, in bytes.
const maxName = 1024

// roots are the parts of a node's data that a copy has.
var roots = []string{"tsdb", "groups", "events.db"}

// isFixed reports whether a file never changes: it is part of a block, whose name no other block has.
func isFixed(name string) bool {
	parts := strings.Split(name, "/")
	return len(parts) >= 5 && parts[0] == "tsdb" && len(parts[3]) == blockName
}

// blockName is the length of a block's name.
const blockName = 26
