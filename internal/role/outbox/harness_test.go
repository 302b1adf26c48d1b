package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/settings"
)

// group is the group behind a leader. It folds pushes as its members do, so repeats do not count.
type group struct {
	t *testing.T

	mu      sync.Mutex
	shards  map[uint16]*tile.Shard
	away    bool  // nobody leads
	mute    bool  // pushes count, but their answers are lost
	refuses error // the answer to each push
	leaves  int   // if not 0, nobody leads after that many pushes
	pushes  []entry.Push
	left    []entry.Push      // pushes that say that their producer leaves
	counted map[string]uint64 // samples that count, by series
}

func newGroup(t *testing.T) *group {
	return &group{t: t, shards: map[uint16]*tile.Shard{}, counted: map[string]uint64{}}
}

func (g *group) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// Push implements Leader.
func (g *group) Push(ctx context.Context, push []byte) (sent bool, err error) {
	before := bytes.Clone(push)
	g.t.Cleanup(func() { // a call may read its push after its context has ended
		if !bytes.Equal(push, before) {
			g.t.Error("the bytes of a push changed after it was sent")
		}
	})
	for {
		done, sent, err := g.take(push)
		if done {
			return sent, err
		}
		if sent {
			<-ctx.Done()
			return true, context.Cause(ctx)
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (g *group) take(push []byte) (done, sent bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away {
		return false, false, nil
	}
	if g.refuses != nil {
		return true, true, g.refuses
	}
	p, err := entry.ParsePush(bytes.Clone(push))
	if err != nil {
		g.t.Error(err)
		return true, true, err
	}
	if p.Leaves {
		g.left = append(g.left, p)
		return !g.mute, true, nil
	}
	g.pushes = append(g.pushes, p)
	for b := range p.Batches.All() {
		h, err := batch.ParseHeader(b)
		if err != nil {
			g.t.Error(err)
		}
		s := g.shards[h.Shard]
		if s == nil {
			s = tile.New(new(tile.Config), h.Second/10*10_000)
			g.shards[h.Shard] = s
		}
		f, err := s.Fold(b)
		if err != nil {
			g.t.Error(err)
		}
		if f.Again > 0 {
			continue
		}
		var r batch.Reader
		if err := r.Reset(b); err != nil {
			g.t.Error(err)
		}
		for inc := r.Next(); inc != nil; inc = r.Next() {
			g.counted[string(series.Name(inc.Key))] += uint64(inc.Samples)
		}
	}
	if g.leaves--; g.leaves == 0 {
		g.away = true
	}
	return !g.mute, true, nil
}

// sequences returns the numbers of the windows that came, in order of arrival.
func (g *group) sequences() (all []uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.pushes {
		all = append(all, p.Sequence>>16)
	}
	return all
}

// samples returns how many samples count.
func (g *group) samples() (n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, samples := range g.counted {
		n += samples
	}
	return n
}

// process is one life of a collector.
type process struct {
	*Outbox
	t           *testing.T
	fs          *memfs.FS
	registry    *prometheus.Registry
	log         *lines
	incarnation uint64
	sequence    uint64
	writer      batch.Writer
	stop        context.CancelFunc
	ended       chan error
}

// sub is one of the two directories of an outbox: the files whose names have a prefix. Both directories
// are in one memfs.FS, so a kill hits both at the same moment.
type sub struct {
	fs     *memfs.FS
	prefix string
}

func (s sub) List() (names []string, err error) {
	all, err := s.fs.List()
	for _, name := range all {
		if own, ok := strings.CutPrefix(name, s.prefix); ok {
			names = append(names, own)
		}
	}
	return names, err
}

func (s sub) Create(name string) (segment.Writer, error)      { return s.fs.Create(s.prefix + name) }
func (s sub) Open(name string) (segment.Reader, int64, error) { return s.fs.Open(s.prefix + name) }
func (s sub) Overwrite(name string) (segment.Writer, error)   { return s.fs.Overwrite(s.prefix + name) }
func (s sub) Truncate(name string, size int64) error          { return s.fs.Truncate(s.prefix+name, size) }
func (s sub) Rename(from, to string) error                    { return s.fs.Rename(s.prefix+from, s.prefix+to) }
func (s sub) Remove(name string) error                        { return s.fs.Remove(s.prefix + name) }
func (s sub) SyncDir() error                                  { return s.fs.SyncDir() }

// lines is the log of a process.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

func start(t *testing.T, fs *memfs.FS, leader Leader, incarnation uint64) *process {
	t.Helper()
	p := open(t, fs, leader, incarnation)
	p.begin()
	return p
}

// open returns a process that does not run yet, in the test's usual boot.
func open(t *testing.T, fs *memfs.FS, leader Leader, incarnation uint64) *process {
	t.Helper()
	return openIn(t, "boot", fs, leader, incarnation)
}

// openIn does the same as open, in the given boot of the machine.
func openIn(t *testing.T, boot string, fs *memfs.FS, leader Leader, incarnation uint64) *process {
	t.Helper()
	p := &process{t: t, fs: fs, registry: prometheus.NewRegistry(), log: &lines{}, incarnation: incarnation,
		ended: make(chan error, 1)}
	var err error
	p.Outbox, err = New(Options{Leader: leader, Seconds: sub{fs, "seconds."}, Tiles: sub{fs, "tiles."}, Boot: boot,
		MaxBytes: settings.MinOutbox, Ledger: ledger.New(),
		Registry: p.registry, Logger: slog.New(slog.NewTextHandler(p.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) begin() {
	ctx, stop := context.WithCancel(p.t.Context())
	p.stop = stop
	go func() { p.ended <- p.Run(ctx) }()
}

// terminate ends the process in the regular way.
func (p *process) terminate() {
	p.t.Helper()
	p.stop()
	if err := <-p.ended; err != nil {
		p.t.Error(err)
	}
}

const tenant = "default"

// window makes the next window, of this second. It has a sample of a series that no other window has,
// and samples of series that all windows have.
func (p *process) window(samples int) []batch.Batch { return p.windowOf(tenant, samples) }

func (p *process) windowOf(tenant string, samples int) []batch.Batch {
	p.sequence++
	p.Ledger.Post(tenant, ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: uint64(samples)},
		ledger.Transfer{From: ledger.Received, To: ledger.Window, Samples: uint64(samples)})
	now := time.Now()
	p.writer.Begin(batch.Header{Tenant: []byte(tenant), Producer: 7, Incarnation: p.incarnation, Sequence: p.sequence,
		Second: now.Unix(), Birth: now.UnixNano()})
	for i := range samples {
		name := fmt.Sprintf("of_all_%d", i)
		if i == 0 {
			name = fmt.Sprintf("only_%d_%d", p.incarnation, p.sequence)
		}
		key := series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", name))
		p.writer.Add(series.Shard(tenant, key), &batch.Increment{Key: key, Samples: 1, Value: 1})
	}
	return p.writer.End()
}

// push pushes the next window, and returns how long that took.
func (p *process) push(samples int) time.Duration {
	p.t.Helper()
	begun := time.Now()
	if err := p.Push(p.t.Context(), p.window(samples)); err != nil {
		p.t.Error(err)
	}
	return time.Since(begun)
}

// books checks the ledger of a tenant: how many samples were restored, handed over, and unsent, and how
// many wait.
func (p *process) books(restored, handedOver, window, unsent uint64) {
	p.t.Helper()
	synctest.Wait()
	s := p.Ledger.Books().Tenants[tenant].Samples
	if s.Difference != 0 || s.Restored != restored || s.HandedOver != handedOver || s.Window != window ||
		sum(s.Unsent) != unsent {
		p.t.Errorf("the books are %+v, want restored %d, handed over %d, in windows %d, unsent %d", s, restored,
			handedOver, window, unsent)
	}
}

func sum(reasons map[string]uint64) (n uint64) {
	for _, samples := range reasons {
		n += samples
	}
	return n
}

// segments returns the names of the file's segments.
func (p *process) segments() (names []string) {
	all, _ := p.fs.List()
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasSuffix(name, ".segment") })
}

// lifeline connects a process to the group until the process is killed.
type lifeline struct {
	*group
	dead atomic.Bool
}

// Push implements Leader.
func (l *lifeline) Push(ctx context.Context, push []byte) (sent bool, err error) {
	if l.dead.Load() {
		return false, errors.New("the process is dead")
	}
	return l.group.Push(ctx, push)
}

// metric returns the sum of a metric's series.
func (p *process) metric(name string) (n float64) {
	p.t.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				n += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return n
}

func size(fs *memfs.FS) (n int) {
	for _, f := range fs.Files {
		n += len(f.Data)
	}
	return n
}
