// Package memfs is a directory in memory. Tests use it to show what the logs of core/segment do
// when disks fail, processes are killed and machines lose power. Only tests import it.
package memfs

import (
	"errors"
	"io"
	iofs "io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/lib/fulldisk"
)

// Faults of a directory.
var (
	ErrInjected = errors.New("injected fault")
	ErrNoSpace  = error(fulldisk.Err)
)

// FS is a directory that can fail, and that knows which names and bytes would survive a crash.
// Tests may read and change its fields while nothing else uses it.
type FS struct {
	Files   map[string]*File
	Durable map[string]*File // the names at the last SyncDir
	Handles int              // open files

	Space int                         // bytes that can still be written
	Short bool                        // the next write ends early without an error
	Fail  func(op, name string) error // called before each operation

	mu sync.Mutex
}

// File is a file of a directory.
type File struct {
	Data   []byte
	Synced int  // bytes that survive a power loss
	lost   bool // a Sync failed: as with a real kernel, later Syncs save only bytes overwritten since

	overwritten int    // how many of the first bytes were overwritten since the last Sync
	before      []byte // the old bytes that the disk may still have for the overwritten ones
}

func (f *File) clone() *File {
	c := *f
	c.Data, c.before = slices.Clone(f.Data), slices.Clone(f.before)
	return &c
}

// overwrite replaces bytes.
func (f *File) overwrite(at int, b []byte) {
	if f.before == nil {
		f.before = slices.Clone(f.Data[:f.Synced])
	}
	if copy(f.Data[at:], b); at <= f.overwritten {
		f.overwritten = max(f.overwritten, at+len(b))
	}
}

// sync makes bytes survive a power loss.
func (f *File) sync() {
	n := f.overwritten
	if !f.lost || n == len(f.Data) {
		n, f.lost = len(f.Data), false
	}
	f.Synced, f.overwritten = max(f.Synced, n), 0
	if copy(f.before, f.Data[:n]); n >= len(f.before) {
		f.before = nil
	}
}

// Plenty is the space of a new directory, more than tests use.
const Plenty = 1 << 40

// New returns an empty directory.
func New() *FS {
	return &FS{Files: map[string]*File{}, Durable: map[string]*File{}, Space: Plenty}
}

// From returns a directory in memory with the files of `dir`.
func From(dir iofs.FS) (*FS, error) {
	m := New()
	entries, err := iofs.ReadDir(dir, ".")
	for _, e := range entries {
		data, failed := iofs.ReadFile(dir, e.Name())
		m.Files[e.Name()] = &File{Data: data}
		err = errors.Join(err, failed)
	}
	return m, err
}

// Crash returns the directory after the death of the process. It has all bytes that were written. A file
// that was renamed or removed since the last SyncDir still has its durable name.
func (m *FS) Crash() *FS {
	c, copies := New(), map[*File]*File{}
	copied := func(f *File) *File {
		if copies[f] == nil {
			copies[f] = f.clone()
		}
		return copies[f]
	}
	for name, f := range m.Files {
		c.Files[name] = copied(f)
	}
	for name, f := range m.Durable {
		c.Durable[name] = copied(f)
	}
	return c
}

// PowerLoss returns the directory after a power loss. It has the synced names, with the synced bytes,
// and some of the bytes written since, as many as rng chooses. A byte that was overwritten since the
// last Sync may have its old value.
func (m *FS) PowerLoss(rng *rand.Rand) *FS {
	c := New()
	for _, name := range slices.Sorted(maps.Keys(m.Durable)) { // so that a seed always gives the same run
		f := m.Durable[name]
		keep := f.Synced + rng.IntN(len(f.Data)-f.Synced+1)
		data := slices.Clone(f.Data[:keep])
		for i, old := range f.before {
			if rng.IntN(2) == 0 {
				data[i] = old
			}
		}
		c.Files[name] = &File{Data: data, Synced: keep}
	}
	c.Durable = maps.Clone(c.Files)
	return c
}

// SetSpace sets Space while the directory is in use.
func (m *FS) SetSpace(bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Space = bytes
}

func (m *FS) check(op, name string) error {
	if m.Fail != nil {
		return m.Fail(op, name)
	}
	return nil
}

// find is called with mu held.
func (m *FS) find(op, name string) (*File, error) {
	if err := m.check(op, name); err != nil {
		return nil, err
	}
	f, ok := m.Files[name]
	if !ok {
		return nil, iofs.ErrNotExist
	}
	return f, nil
}

// List returns the names. They are sorted, so that a seed always gives the same run.
func (m *FS) List() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.Files)), m.check("list", "")
}

// Create opens an empty file for writing at its end.
func (m *FS) Create(name string) (segment.Writer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check("create", name); err != nil {
		return nil, err
	}
	f := m.Files[name]
	if f == nil {
		f = &File{}
		m.Files[name] = f
	}
	*f = File{}
	return m.handle(f, name), nil
}

// Open opens a file for reading and returns its size.
func (m *FS) Open(name string) (segment.Reader, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.find("open", name)
	if err != nil {
		return nil, 0, err
	}
	return m.handle(f, name), int64(len(f.Data)), nil
}

// Overwrite opens a file for writing from its first byte on.
func (m *FS) Overwrite(name string) (segment.Writer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.find("overwrite", name)
	if err != nil {
		return nil, err
	}
	h := m.handle(f, name)
	h.overwrites = true
	return h, nil
}

// Truncate cuts a file.
func (m *FS) Truncate(name string, size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.find("truncate", name)
	if err != nil {
		return err
	}
	f.Data = f.Data[:size]
	f.Synced = min(f.Synced, int(size))
	f.overwritten = min(f.overwritten, int(size))
	f.before = f.before[:min(len(f.before), int(size))]
	return nil
}

// Rename gives a file another name.
func (m *FS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.find("rename", from)
	if err != nil {
		return err
	}
	delete(m.Files, from)
	m.Files[to] = f
	return nil
}

// Remove removes a file.
func (m *FS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.find("remove", name)
	if err == nil {
		delete(m.Files, name)
	}
	return err
}

// SyncDir makes the names survive a power loss.
func (m *FS) SyncDir() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check("syncdir", ""); err != nil {
		return err
	}
	m.Durable = maps.Clone(m.Files)
	return nil
}

// handle returns a handle of an open file. It is called with mu held.
func (m *FS) handle(f *File, name string) *handle {
	m.Handles++
	return &handle{fs: m, f: f, name: name}
}

type handle struct {
	fs     *FS
	f      *File
	name   string
	closed bool

	overwrites bool
	at         int // where the next byte goes, if overwrites is set
}

func (h *handle) Write(b []byte) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return 0, iofs.ErrClosed
	}
	f, at := h.f, len(h.f.Data)
	if h.overwrites {
		at = h.at
	}
	n, err, places := len(b), error(nil), min(len(f.Data)-at, len(b)) // places: how many bytes need no new space
	if n > h.fs.Space+places {
		n, err = h.fs.Space+places, ErrNoSpace
	}
	if failed := h.fs.check("write", h.name); failed != nil {
		n, err = n/2, failed
	}
	if h.fs.Short {
		n, h.fs.Short = n/2, false
	}
	if h.overwrites {
		f.overwrite(at, b[:min(n, places)])
		h.at += n
	}
	if n > places {
		f.Data = append(f.Data, b[places:n]...)
		h.fs.Space -= n - places
	}
	return n, err
}

func (h *handle) ReadAt(b []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return 0, iofs.ErrClosed
	}
	if err := h.fs.check("read", h.name); err != nil {
		return 0, err
	}
	n := 0
	if off < int64(len(h.f.Data)) {
		n = copy(b, h.f.Data[off:])
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) Sync() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return iofs.ErrClosed
	}
	if err := h.fs.check("sync", h.name); err != nil {
		h.f.lost, h.f.overwritten = true, 0
		return err
	}
	h.f.sync()
	return nil
}

func (h *handle) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return iofs.ErrClosed
	}
	h.closed = true
	h.fs.Handles--
	return nil
}
