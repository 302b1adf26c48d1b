package queue

import (
	"errors"
	"io"
	iofs "io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/freshet-io/freshet/internal/core/journal"
)

var (
	errInjected = errors.New("injected fault")
	errNoSpace  = errors.New("no space left on device")
)

// memFS is a directory in memory that can fail, and that can say what a crash
// would leave of it.
type memFS struct {
	mu      sync.Mutex
	files   map[string]*memFile
	durable map[string]*memFile // the names as SyncDir saw them last

	space int                         // bytes that can still be written
	open  int                         // files
	short bool                        // the next write ends early without an error
	fail  func(op, name string) error // asked before each operation
}

type memFile struct {
	data   []byte
	synced int // bytes that survive a power loss
}

const plenty = 1 << 40

func newMemFS() *memFS {
	return &memFS{files: map[string]*memFile{}, durable: map[string]*memFile{}, space: plenty}
}

// crash returns what the death of the process leaves: all that was written.
func (m *memFS) crash() *memFS {
	c := newMemFS()
	for name, f := range m.files {
		c.files[name] = &memFile{slices.Clone(f.data), f.synced}
		if m.durable[name] == f {
			c.durable[name] = c.files[name]
		}
	}
	return c
}

// powerLoss returns what is left when the machine dies: the synced names, with the
// synced bytes and any number of those written since.
func (m *memFS) powerLoss(rng *rand.Rand) *memFS {
	c := newMemFS()
	for _, name := range slices.Sorted(maps.Keys(m.durable)) {
		f := m.durable[name]
		keep := f.synced + rng.IntN(len(f.data)-f.synced+1)
		c.files[name] = &memFile{slices.Clone(f.data[:keep]), keep}
	}
	c.durable = maps.Clone(c.files)
	return c
}

// size of all segments.
func (m *memFS) size() (n int64) {
	for name, f := range m.files {
		if _, ok := parseName(name); ok {
			n += int64(len(f.data))
		}
	}
	return n
}

func (m *memFS) check(op, name string) error {
	if m.fail != nil {
		return m.fail(op, name)
	}
	return nil
}

// find is called with mu held.
func (m *memFS) find(op, name string) (*memFile, error) {
	if err := m.check(op, name); err != nil {
		return nil, err
	}
	f, ok := m.files[name]
	if !ok {
		return nil, iofs.ErrNotExist
	}
	return f, nil
}

func (m *memFS) List() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.files)), m.check("list", "")
}

func (m *memFS) Create(name string) (journal.Writer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check("create", name); err != nil {
		return nil, err
	}
	f := m.files[name]
	if f == nil {
		f = &memFile{}
		m.files[name] = f
	}
	f.data, f.synced = nil, 0
	m.open++
	return &memOpen{m, f, name}, nil
}

func (m *memFS) Open(name string) (journal.Reader, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.find("open", name)
	if err != nil {
		return nil, 0, err
	}
	m.open++
	return &memOpen{m, f, name}, int64(len(f.data)), nil
}

func (m *memFS) Truncate(name string, size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.find("truncate", name)
	if err != nil {
		return err
	}
	f.data = f.data[:size]
	f.synced = min(f.synced, int(size))
	return nil
}

func (m *memFS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.find("rename", from)
	if err != nil {
		return err
	}
	delete(m.files, from)
	m.files[to] = f
	return nil
}

func (m *memFS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.find("remove", name)
	if err == nil {
		delete(m.files, name)
	}
	return err
}

func (m *memFS) SyncDir() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check("syncdir", ""); err != nil {
		return err
	}
	m.durable = maps.Clone(m.files)
	return nil
}

// memOpen is an open file.
type memOpen struct {
	fs   *memFS
	f    *memFile
	name string
}

func (o *memOpen) Write(b []byte) (int, error) {
	o.fs.mu.Lock()
	defer o.fs.mu.Unlock()
	n, err := len(b), error(nil)
	if n > o.fs.space {
		n, err = o.fs.space, errNoSpace
	}
	if failed := o.fs.check("write", o.name); failed != nil {
		n, err = n/2, failed
	}
	if o.fs.short {
		n, o.fs.short = n/2, false
	}
	o.f.data = append(o.f.data, b[:n]...)
	o.fs.space -= n
	return n, err
}

func (o *memOpen) ReadAt(b []byte, off int64) (int, error) {
	o.fs.mu.Lock()
	defer o.fs.mu.Unlock()
	if err := o.fs.check("read", o.name); err != nil {
		return 0, err
	}
	n := 0
	if off < int64(len(o.f.data)) {
		n = copy(b, o.f.data[off:])
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (o *memOpen) Sync() error {
	o.fs.mu.Lock()
	defer o.fs.mu.Unlock()
	if err := o.fs.check("sync", o.name); err != nil {
		return err
	}
	o.f.synced = len(o.f.data)
	return nil
}

func (o *memOpen) Close() error {
	o.fs.mu.Lock()
	defer o.fs.mu.Unlock()
	o.fs.open--
	return nil
}
