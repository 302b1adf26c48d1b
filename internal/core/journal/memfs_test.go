package journal

import (
	"errors"
	"io"
	iofs "io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
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

	space int64                        // bytes that can still be written
	short bool                         // the next write ends early without an error
	fail  func(op, name string) error  // asked before each operation
	reads func(name string, off int64) // told of each read
}

type memFile struct {
	data   []byte
	synced int  // bytes that survive a power loss
	lost   bool // a Sync failed: as in a kernel, a later one succeeds and saves nothing
}

const plenty = 1 << 40

func newMemFS() *memFS {
	return &memFS{files: map[string]*memFile{}, durable: map[string]*memFile{}, space: plenty}
}

// crash returns what the death of the process leaves: all that was written.
func (m *memFS) crash() *memFS {
	c := newMemFS()
	for name, f := range m.files {
		copied := *f
		copied.data = slices.Clone(f.data)
		c.files[name] = &copied
		if m.durable[name] == f {
			c.durable[name] = &copied
		}
	}
	return c
}

// powerLoss returns what is left when the machine dies: the synced names, with
// the synced bytes and any number of those written since.
func (m *memFS) powerLoss(rng *rand.Rand) *memFS {
	c := newMemFS()
	for name, f := range m.durable {
		keep := f.synced + rng.IntN(len(f.data)-f.synced+1)
		c.files[name] = &memFile{data: slices.Clone(f.data[:keep]), synced: keep}
	}
	c.durable = maps.Clone(c.files)
	return c
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
	// Sorted, so that a seed gives the same run again.
	return slices.Sorted(maps.Keys(m.files)), m.check("list", "")
}

func (m *memFS) Create(name string) (Writer, error) {
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
	f.data, f.synced, f.lost = nil, 0, false
	return &memWriter{m, f, name, false}, nil
}

func (m *memFS) Open(name string) (Reader, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.find("open", name)
	if err != nil {
		return nil, 0, err
	}
	return &memReader{m, f, name}, int64(len(f.data)), nil
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

type memWriter struct {
	fs     *memFS
	f      *memFile
	name   string
	closed bool
}

func (w *memWriter) Write(b []byte) (int, error) {
	w.fs.mu.Lock()
	defer w.fs.mu.Unlock()
	if w.closed {
		return 0, errors.New("file already closed")
	}
	n, err := len(b), error(nil)
	if int64(n) > w.fs.space {
		n, err = int(w.fs.space), errNoSpace
	}
	if failed := w.fs.check("write", w.name); failed != nil {
		n, err = n/2, failed
	}
	if w.fs.short {
		n, w.fs.short = n/2, false
	}
	w.f.data = append(w.f.data, b[:n]...)
	w.fs.space -= int64(n)
	return n, err
}

func (w *memWriter) Sync() error {
	w.fs.mu.Lock()
	defer w.fs.mu.Unlock()
	if w.closed {
		return errors.New("file already closed")
	}
	if err := w.fs.check("sync", w.name); err != nil {
		w.f.lost = true
		return err
	}
	if !w.f.lost {
		w.f.synced = len(w.f.data)
	}
	return nil
}

func (w *memWriter) Close() error {
	w.fs.mu.Lock()
	defer w.fs.mu.Unlock()
	if w.closed {
		return errors.New("file already closed")
	}
	w.closed = true
	return nil
}

type memReader struct {
	fs   *memFS
	f    *memFile
	name string
}

func (r *memReader) ReadAt(b []byte, off int64) (int, error) {
	if err := r.fs.check("read", r.name); err != nil {
		return 0, err
	}
	if r.fs.reads != nil {
		r.fs.reads(r.name, off)
	}
	if off >= int64(len(r.f.data)) {
		return 0, io.EOF
	}
	n := copy(b, r.f.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (r *memReader) Close() error { return nil }

func (r *memReader) Sync() error {
	w := memWriter{fs: r.fs, f: r.f, name: r.name}
	return w.Sync()
}

// testMark begins the records of tests. The zero value would be one too, but a
// mark that occurs in zeroed memory would hide mistakes.
const testMark = 0x9d3fa8c1

func mustOpen(t testing.TB, fs FS, segmentBytes int64) (*Log, Report) {
	t.Helper()
	l, report, err := Open(fs, Options{Mark: testMark, SegmentBytes: segmentBytes})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l, report
}
