package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/recentseries"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/rewrite"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/settings"
)

// stores keep the written samples, as TSDBs would, and refuse to change them.
type stores struct {
	t     *testing.T
	mu    sync.Mutex
	have  map[string]map[int64]float64 // by tenant, width or "raw", and labels
	disk  map[string]map[int64]float64 // survives a power loss
	again int                          // samples of tiles that were written again with the same value
	syncs int                          // calls of Sync
	fault error                        // of Sync
	known int                          // samples of requests that the store already had
	sick  map[string]error             // by tenant: why its stores take nothing; nil means that they hang
	cure  chan struct{}                // closed when hanging stores go on
	takes int                          // writes to sick stores that succeed
	delay time.Duration                // of each write of tiles

	events   []string // tenant, title and bounds of each
	eventsTo uint64   // the last entry that they are from

	atSync atomic.Pointer[func()] // called by the next sync

	leftOut string // a sync leaves out the stores of this tenant
	cut     string // what the last CutBack was told
}

func newStores(t *testing.T) *stores {
	return &stores{t: t, have: map[string]map[int64]float64{}, sick: map[string]error{}, cure: make(chan struct{})}
}

// put stores a sample, and returns the value that was there before, if any.
func (s *stores) put(key string, at int64, v float64) (before float64, has bool) {
	if s.have[key] == nil {
		s.have[key] = map[int64]float64{}
	}
	if before, has = s.have[key][at]; !has {
		s.have[key][at] = v
	}
	return before, has
}

// healthy waits while the tenant's stores hang.
func (s *stores) healthy(ctx context.Context, tenant string) error {
	s.mu.Lock()
	err, sick := s.sick[tenant]
	if sick && s.takes > 0 {
		err, sick = nil, false
		s.takes--
	}
	cure := s.cure
	s.mu.Unlock()
	if sick && err == nil {
		select {
		case <-cure:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (s *stores) WriteTiles(ctx context.Context, tenant string, w tile.Width,
	samples []tile.Sample) (written tile.Written, err error) {
	if err := s.healthy(ctx, tenant); err != nil {
		return written, err
	}
	time.Sleep(s.delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range samples {
		x := &samples[i]
		key := fmt.Sprintf("%s %s %s", tenant, w, x.Series.Labels)
		before, has := s.put(key, x.T, x.V)
		if has && before != x.V && !value.IsStaleNaN(x.V) {
			s.t.Errorf("the sample of %s at %d was written as %g, and now as %g", key, x.T, before, x.V)
		}
		if has {
			s.again++
		}
		written.Stored.Add(x)
	}
	return written, nil
}

// WriteRequests refuses samples that are older than the newest by more than the window.
func (s *stores) WriteRequests(ctx context.Context, tenant string, state *write.State, all []*write.Request) error {
	if err := s.healthy(ctx, tenant); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state.Requests += uint64(len(all))
	for _, r := range all {
		r.Outcome = outcome.Outcome{}
		for i := range r.Series {
			one := &r.Series[i]
			for _, x := range r.Samples(one) {
				part := outcome.Counts{Samples: 1}
				before, has := s.put(fmt.Sprintf("%s raw %x", tenant, r.Key(one)), x.Time, x.Value)
				if has {
					s.known++
				}
				switch {
				case has && before != x.Value:
					r.Outcome.Refuse(outcome.Duplicate, part)
				default:
					state.Newest = max(state.Newest, x.Time)
					r.Outcome.Written.Add(part)
				}
			}
		}
	}
	return nil
}

func (s *stores) Sync(context.Context) error {
	if call := s.atSync.Swap(nil); call != nil {
		(*call)()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.syncs++; s.fault != nil {
		return s.fault
	}
	if s.disk == nil {
		s.disk = map[string]map[int64]float64{}
	}
	for key, samples := range s.have {
		if s.leftOut == "" || !strings.HasPrefix(key, s.leftOut+" ") {
			s.disk[key] = maps.Clone(samples)
		}
	}
	if s.leftOut != "" {
		return &checkpoint.LeftOutError{Stores: []string{s.leftOut + "/raw"}}
	}
	return nil
}

// leaveOut makes each Sync leave out the stores of one tenant, or of none if the name is empty.
func (s *stores) leaveOut(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leftOut = tenant
}

// failSync makes each Sync fail, or succeed again.
func (s *stores) failSync(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
}

// synced returns how often Sync was called.
func (s *stores) synced() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.syncs
}

// CutBack cuts nothing, since losePower leaves nothing to be cut.
func (s *stores) CutBack(boot string, requests map[string]uint64) {
	s.cut = fmt.Sprint(boot, " ", requests)
}

// WriteEvents keeps only events of new entries: those after the last entry whose events it has.
func (s *stores) WriteEvents(ctx context.Context, all []*member.Events) error {
	if err := s.healthy(ctx, "events"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range all {
		if e.Index <= s.eventsTo {
			continue
		}
		s.eventsTo = e.Index
		for part := range e.List.All() {
			var one event.Event
			if err := one.ParseDated(part); err != nil {
				s.t.Error(err)
			}
			s.events = append(s.events, fmt.Sprint(e.Tenant, " ", one.Title, " ", e.MaxEvents, " ", e.Retention))
		}
	}
	return nil
}

func (s *stores) LogEnds(last uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eventsTo = min(s.eventsTo, last)
	return nil
}

// losePower leaves only the synced samples.
func (s *stores) losePower() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.have = map[string]map[int64]float64{}
	for key, samples := range s.disk {
		s.have[key] = maps.Clone(samples)
	}
}

// make makes the stores of a tenant sick, or healthy again.
func (s *stores) make(tenant string, sick bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sick[tenant] = err; !sick {
		delete(s.sick, tenant)
		close(s.cure)
		s.cure = make(chan struct{})
	}
}

// take lets a number of writes to sick stores succeed, and waits until these writes have ended.
func (s *stores) take(writes int) {
	s.mu.Lock()
	s.takes = writes
	s.mu.Unlock()
	for taken := false; !taken; {
		time.Sleep(retryPause)
		s.mu.Lock()
		taken = s.takes == 0
		s.mu.Unlock()
	}
}

// values returns a counter's samples of 10 s, in order of time.
func (s *stores) values(tenant, name string) (times []int64, values []float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	samples := s.have[tenant+" 10s "+labels.FromStrings("__name__", name).String()]
	times = slices.Sorted(maps.Keys(samples))
	for _, t := range times {
		values = append(values, samples[t])
	}
	return times, values
}

// check asserts that a stored counter never falls, has a sample in each tile, and ends at a total.
func (s *stores) check(tenant, name string, total float64) {
	s.t.Helper()
	times, values := s.values(tenant, name)
	if len(values) == 0 || values[0] != 0 {
		s.t.Fatalf("%s begins with %v, want a zero", name, values)
	}
	for i := 1; i < len(values); i++ {
		if values[i] < values[i-1] || times[i]-times[i-1] != 10_000 {
			s.t.Fatalf("%s: the sample %g at %d is followed by %g at %d, want a value that is not lower, 10 s later",
				name, values[i-1], times[i-1], values[i], times[i])
		}
	}
	if got := values[len(values)-1]; got != total {
		s.t.Errorf("%s: the last stored value is %g, want %g as counted", name, got, total)
	}
}

// mortal is the path from a process to the stores. After the process is killed, all writes fail.
type mortal struct {
	Writer
	dead atomic.Bool
}

var errKilled = errors.New("killed")

func (m *mortal) WriteTiles(ctx context.Context, tenant string, w tile.Width,
	samples []tile.Sample) (tile.Written, error) {
	if m.dead.Load() {
		return tile.Written{}, errKilled
	}
	written, err := m.Writer.WriteTiles(ctx, tenant, w, samples)
	if m.dead.Load() {
		return tile.Written{}, errKilled
	}
	return written, err
}

func (m *mortal) WriteRequests(ctx context.Context, tenant string, state *write.State, all []*write.Request) error {
	if m.dead.Load() {
		return errKilled
	}
	return m.Writer.WriteRequests(ctx, tenant, state, all)
}

func (m *mortal) Sync(ctx context.Context) error {
	if m.dead.Load() {
		return errKilled
	}
	return m.Writer.Sync(ctx)
}

// process is one run of a group of one.
type process struct {
	*Group
	t    *testing.T
	fs   *memfs.FS
	stop context.CancelFunc
	done chan error
}

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

func optionsOf(fs *memfs.FS, w Writer) Options {
	o := Options{
		Number: 3, Member: 1, Voters: []uint64{1}, Config: settings.DefaultAggregator(), MaxPending: 1 << 20,
		MaxQueued: 1 << 20, MaxQueuedSum: 1 << 20, MaxBehind: 1 << 20,
		FS: fs, Mark: 7, Seed: 1, Writer: &mortal{Writer: w},
		KeptEvents: func() (int, int64) { return 7, 1000 }, Ledger: ledger.New(), Now: time.Now, Boot: "boot",
		Segment:  2000,
		Registry: prometheus.NewRegistry(), Logger: discard,
	}
	return o
}

func start(t *testing.T, fs *memfs.FS, s *stores, changes ...func(*Options)) *process {
	t.Helper()
	o := optionsOf(fs, s)
	for _, change := range changes {
		change(&o)
	}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	p := &process{Group: g, t: t, fs: fs, stop: stop, done: make(chan error, 1)}
	go func() { p.done <- g.Run(ctx) }()
	return p
}

// terminate ends the process in the regular way.
func (p *process) terminate() {
	p.t.Helper()
	p.stop()
	if err := <-p.done; err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the process as kill -9 would. Its goroutines that still run reach neither the image nor the
// stores.
func (p *process) kill(image func(*memfs.FS) *memfs.FS) *memfs.FS {
	p.t.Helper()
	synctest.Wait()
	fs := image(p.fs)
	p.Writer.(*mortal).dead.Store(true)
	p.terminate()
	return fs
}

func crash(fs *memfs.FS) *memfs.FS { return fs.Crash() }

var sequence uint64

// window returns the batch of a second that increments a counter by n.
func window(tenant, name string, second time.Time, n float64) batch.Batch {
	key := series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", name))
	shard := series.Shard(tenant, key)
	sequence++
	h := batch.Header{
		Tenant: []byte(tenant), Shard: shard, Producer: 1, Incarnation: 1, Sequence: sequence, Second: second.Unix(),
		Birth: second.UnixNano(),
	}
	inc := batch.Increment{Key: key, Samples: 1, Value: n}
	b := inc.Append(batch.Begin(nil, &h), h.Second)
	batch.End(b, 1)
	return batch.Batch{Shard: shard, Bytes: b, Samples: 1}
}

// count pushes a window of the present second, and returns the error of the push.
func (p *process) count(tenant, name string, n float64) error {
	return p.Push(p.t.Context(), []batch.Batch{window(tenant, name, p.Now(), n)})
}

func (p *process) mustCount(tenant, name string, n float64) {
	p.t.Helper()
	if err := p.count(tenant, name, n); err != nil {
		p.t.Fatal(err)
	}
}

// request returns the entry of a request with one sample.
func request(t testing.TB, tenant, name string, at time.Time, v float64) *entry.Entry {
	var in write.Incoming
	var b remotewrite.Builder
	b.Begin(&in.Request, nil)
	b.Series()
	b.Label("__name__", name)
	b.Sample(remotewrite.Sample{Time: at.UnixMilli(), Value: v})
	b.Finish()
	var w rewrite.Rewriter
	bodies, o := w.Rewrite(&in, &labelrules.Rules{})
	if len(bodies) != 1 || o.AnyRefused() {
		t.Fatal(len(bodies), o)
	}
	return &entry.Entry{Kind: entry.KindRequest, Request: entry.Request{
		Tenant: tenant, Arrival: at.UnixMilli(), Window: 60_000, Form: bodies[0].Form, Body: bytes.Clone(bodies[0].Bytes)}}
}

// A push is acknowledged when it is stored, not before. Until then a power loss takes all of it. While
// the disk takes nothing, pushes fail. While it hangs, they wait as long as their callers do. Whatever a
// caller was told, a window that comes again counts once.
func TestAPushIsAcknowledgedOnceItIsStored(t *testing.T) {
	for name, hangs := range map[string]bool{"fails": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sickDisk(t, hangs) })
		})
	}
}

func sickDisk(t *testing.T, hangs bool) {
	// The test ends before the first tile does. Values of a tile that is stored are no longer in the shards.
	const patience = time.Second
	fs := memfs.New()
	var cure atomic.Pointer[chan struct{}]
	disk := sickFS{fs, func(name string) error {
		if c := cure.Load(); c != nil && strings.HasSuffix(name, ".segment") {
			if !hangs {
				return memfs.ErrInjected
			}
			<-*c
		}
		return nil
	}}
	p := start(t, fs, newStores(t), func(o *Options) { o.FS = disk })
	p.mustCount("a", "c", 1)
	synctest.Wait()
	well := make(chan struct{})
	cure.Store(&well)
	windows := []batch.Batch{window("a", "c", time.Now(), 2), window("a", "d", time.Now(), 2)}
	for i := range windows {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := p.Push(ctx, windows[i:i+1]); errors.Is(err, context.DeadlineExceeded) != hangs ||
			errors.Is(err, memfs.ErrInjected) == hangs {
			t.Errorf("a window that is not stored: %v, want DeadlineExceeded on a hanging disk, else the disk's error", err)
		}
		cancel()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := p.Write(ctx, request(t, "a", "r", time.Now(), 1))
	switch {
	case hangs && (!errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, member.ErrUnknown)):
		t.Errorf("a request that the hanging disk may still take: %v, want DeadlineExceeded and ErrUnknown", err)
	case !hangs && (!errors.Is(err, memfs.ErrInjected) || errors.Is(err, member.ErrUnknown)):
		// The disk has refused the windows, so the request cannot count.
		t.Errorf("a request that the disk refuses: %v, want its error without ErrUnknown", err)
	}
	synctest.Wait()
	lost := start(t, fs.PowerLoss(rand.New(rand.NewPCG(1, 1))), newStores(t))
	if n := lost.Shards.Raw()["a"]; n != 1 {
		t.Errorf("%d values after a power loss, want 1", n)
	}
	lost.terminate()
	cure.Store(nil)
	close(well)
	time.Sleep(2 * time.Second)
	for i := range windows {
		if err := p.Push(t.Context(), windows[i:i+1]); err != nil {
			t.Error(err)
		}
	}
	if n := testutil.ToFloat64(p.metrics.JournalErrors); (n == 0) != hangs {
		t.Errorf("disk that hangs: %v; %g failed writes are counted, want some only if the disk does not hang",
			hangs, n)
	}
	synctest.Wait()
	kept := start(t, fs.PowerLoss(rand.New(rand.NewPCG(1, 1))), newStores(t))
	if n := kept.Shards.Raw()["a"]; n != 3 {
		t.Errorf("%d values after a power loss, want 3", n)
	}
	kept.terminate()
	p.terminate()
}

// A checkpoint waits for a hanging disk, and the member with it. Its last status stayed in force, so a node on a frozen
// disk was ready for as long as the disk was frozen. It is not ready after 5 s, until its disk goes on.
func TestAMemberThatWaitsForItsDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := memfs.New()
		well := make(chan struct{})
		var hangs atomic.Bool
		disk := frozenFS{fs, func() {
			if hangs.Load() {
				<-well
			}
		}}
		p := start(t, fs, newStores(t), func(o *Options) { o.FS = disk })
		time.Sleep(time.Second)
		if lag := p.Status().Lag; !p.Ready() || lag > time.Second {
			t.Errorf("before the checkpoint, the member lags %v", lag)
		}
		hangs.Store(true)
		p.mustCount("a", "c", 1) // the first checkpoint is due once there is something to save
		time.Sleep(8 * time.Second)
		if lag := p.Status().Lag; p.Ready() || lag < 6*time.Second {
			t.Errorf("while the disk hangs, the member lags %v, and is ready: %v", lag, p.Ready())
		}
		hangs.Store(false)
		close(well)
		time.Sleep(2 * time.Second)
		if lag := p.Status().Lag; !p.Ready() || lag > time.Second {
			t.Errorf("after the disk has gone on, the member lags %v", lag)
		}
		p.terminate()
	})
}

// While the disk of the log hangs, callers come again and again, and give up. The memory for their calls
// is bounded. When the disk works again, everything goes on, and repeated calls count once.
func TestWhatWaitsForAHangingDiskIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, s := memfs.New(), newStores(t)
		var cure atomic.Pointer[chan struct{}]
		disk := sickFS{fs, func(name string) error {
			if c := cure.Load(); c != nil && strings.HasSuffix(name, ".segment") {
				<-*c
			}
			return nil
		}}
		p := start(t, fs, s, func(o *Options) { o.FS, o.MaxPending, o.Segment = disk, 1<<40, 0 })
		p.mustCount("a", "c", 1)
		synctest.Wait()
		well := make(chan struct{})
		cure.Store(&well)
		rnd := rand.New(rand.NewPCG(1, 1))
		name := make([]byte, 1<<20)
		for i := range name {
			name[i] = 'a' + byte(rnd.IntN(26))
		}
		w := []batch.Batch{window("a", string(name), time.Now(), 1)}
		full, rounds := 0, 100
		for range rounds {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			var all sync.WaitGroup
			all.Go(func() {
				if err := p.Push(ctx, w); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a window: %v", err)
				}
			})
			all.Go(func() {
				_, err := p.Write(ctx, request(t, "a", string(name), time.Now(), 1))
				if errors.Is(err, member.ErrFull) {
					full++
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a request: %v", err)
				}
			})
			all.Wait()
			if err := p.Barrier(t.Context(), "a"); err != nil { // until what was acknowledged is applied
				t.Error(err)
			}
			cancel()
		}
		synctest.Wait()
		size := 0
		for _, j := range p.queue {
			if j.write == nil {
				continue
			}
			for _, e := range j.write.Entries {
				size += len(e.Data)
			}
		}
		if size > 34<<20 || len(p.queue) > 500 || p.pushed > maxPushed+2<<20 || full < rounds/4 {
			t.Errorf("%d bytes in %d writes wait for the disk, and %d bytes of windows for their turn; %d requests were refused",
				size, len(p.queue), p.pushed, full)
		}
		if n := len(p.waiting); n > 2*rounds {
			t.Errorf("%d callers are kept", n)
		}
		cure.Store(nil)
		close(well)
		if err := p.Push(t.Context(), w); err != nil {
			t.Error(err)
		}
		if err := p.Barrier(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		s.check("a", string(name), 1)
		if len(p.waiting) > 0 || p.pushed != 0 || len(p.queue) > 0 {
			t.Errorf("in the end %d callers and %d bytes of windows wait, want none", len(p.waiting), p.pushed)
		}
		p.terminate()
	})
}

// sickFS is a directory whose writes and syncs may fail or hang.
type sickFS struct {
	*memfs.FS
	sick func(name string) error
}

func (s sickFS) Create(name string) (segment.Writer, error) {
	w, err := s.FS.Create(name)
	return sickFile{w, name, s}, err
}

type sickFile struct {
	segment.Writer
	name string
	fs   sickFS
}

func (f sickFile) Write(b []byte) (int, error) {
	if err := f.fs.sick(f.name); err != nil {
		return 0, err
	}
	return f.Writer.Write(b)
}

func (f sickFile) Sync() error {
	if err := f.fs.sick(f.name); err != nil {
		return err
	}
	return f.Writer.Sync()
}

// frozenFS makes no file while it is frozen.
type frozenFS struct {
	*memfs.FS
	wait func()
}

func (f frozenFS) Create(name string) (segment.Writer, error) {
	f.wait()
	return f.FS.Create(name)
}

// The process ends, is killed or loses power every few seconds. Still every tile is whole, and no tile
// is written with two values. Each acknowledged window counts once, even if it is pushed again. Each
// acknowledged request is stored. The state and the log stay small.
func TestRestartsLoseNothing(t *testing.T) {
	for _, end := range []string{"terminate", "kill", "power"} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprint(end, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { restarts(t, end, seed) })
			})
		}
	}
}

func restarts(t *testing.T, end string, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 9))
	fs, s := memfs.New(), newStores(t)
	if end != "terminate" { // a regular end does not wait for such slow stores
		s.delay = time.Duration(seed%2) * time.Second // tiles wait behind those under way
	}
	boot := 0
	again := func() *process {
		return start(t, fs, s, func(o *Options) {
			o.Boot, o.Config.Checkpoint = fmt.Sprint("boot", boot), 3000
		})
	}
	p := again()
	total, wrote := 0.0, map[string]float64{}
	for i := range 150 {
		b := window("a", "c", time.Now(), 1)
		for range 1 + i%2 { // the second one is a repeat
			if err := p.Push(t.Context(), []batch.Batch{b}); err != nil {
				t.Fatal(err)
			}
		}
		total++
		p.mustCount("a", fmt.Sprint("other", i%7), 1)
		now := time.Now()
		o, err := p.Write(t.Context(), request(t, "a", "r", now, float64(i)))
		if err != nil || o.Written.Samples != 1 {
			t.Fatal(err, o)
		}
		wrote[fmt.Sprint(now.UnixMilli())] = float64(i)
		time.Sleep(time.Duration(300+rnd.IntN(1700)) * time.Millisecond)
		if rnd.IntN(7) > 0 {
			continue
		}
		switch end {
		case "terminate":
			p.terminate()
			if p.grown.Load() > 200 {
				t.Errorf("at the end, %d bytes of the log are not in a checkpoint, want at most 200", p.grown.Load())
			}
		case "kill":
			fs = p.kill(crash)
		case "power":
			fs = p.kill(func(fs *memfs.FS) *memfs.FS {
				s.losePower()
				return fs.PowerLoss(rnd)
			})
			boot++
		}
		p = again()
	}
	time.Sleep(time.Minute)
	if err := p.Barrier(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	s.check("a", "c", total)
	for i := range 7 {
		s.check("a", fmt.Sprint("other", i), float64((150-i+6)/7))
	}
	synctest.Wait()
	found := map[string]float64{}
	for key, samples := range s.have {
		if strings.HasPrefix(key, "a raw") {
			for at, v := range samples {
				found[fmt.Sprint(at)] = v
			}
		}
	}
	if !maps.Equal(found, wrote) {
		t.Errorf("%d samples of requests are stored, want exactly the %d acknowledged ones", len(found), len(wrote))
	}
	if s.known > 0 && end != "power" {
		t.Errorf("requests came again with %d samples that the store had, want 0", s.known)
	}
	if n := testutil.ToFloat64(p.metrics.Checkpoints); n < 1 {
		t.Error("no checkpoint was written")
	}
	synctest.Wait()
	if size := p.log.Bytes(); size > 20_000 {
		t.Errorf("the log has %d bytes, want at most 20000", size)
	}
	if names, _ := p.fs.List(); len(names) > 13 {
		t.Errorf("the files are %v", names)
	}
	p.terminate()
	time.Sleep(time.Minute) // writes of killed processes end
	if p.fs.Handles != 0 {
		t.Errorf("at the end %d files are open, want 0", p.fs.Handles)
	}
}

// After a kill, nothing that the stores have is written again, since the machine was not restarted.
func TestWhatIsStoredIsNotWrittenAgain(t *testing.T) {
	for boot, most := range map[string]int{"boot": 0, "another": 1000, "": 1000} {
		t.Run(fmt.Sprintf("%q", boot), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStores(t)
				p := start(t, memfs.New(), s)
				for range 95 {
					p.mustCount("a", "c", 1)
					time.Sleep(time.Second)
				}
				p = start(t, p.kill(crash), s, func(o *Options) { o.Boot = boot })
				time.Sleep(20 * time.Second)
				if synctest.Wait(); s.again > most || most > 0 && s.again == 0 {
					t.Errorf("%d samples were written again, want at most %d, and at least 1 unless that limit is 0",
						s.again, most)
				}
				s.check("a", "c", 95)
				p.terminate()
			})
		})
	}
}

// While checkpoints are written, one store takes nothing, so all its tiles wait in them. Just before the
// last checkpoint is in place, the store takes some tiles, and then the process is killed. The next
// process writes only the others. Notes used to be compared with the indexes of a checkpoint's sections,
// so all tiles of a section were written again.
func TestTilesOfACheckpointAreNotWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		small := func(o *Options) { o.Config.Checkpoint = 4000 }
		time.Sleep(50 * time.Second) // now the next tile of 10 s also ends one of a minute
		p := start(t, memfs.New(), s, small)
		s.make("b", true, errors.New("no space left on device"))
		total := 0.0
		for life := range 4 {
			stored, _ := s.values("b", "d")
			before := testutil.ToFloat64(p.metrics.Checkpoints)
			taken := false
			for second := 0; !taken; second++ {
				p.mustCount("a", "c", 1)
				p.mustCount("b", "d", 1)
				total++
				time.Sleep(time.Second)
				if n := testutil.ToFloat64(p.metrics.Checkpoints); second == 100 {
					take := func() { s.take(tile.NumWidths) }
					before = n
					s.atSync.Store(&take)
				} else if second > 100 {
					taken = n > before
				}
			}
			synctest.Wait()
			if now, _ := s.values("b", "d"); len(now) == len(stored) || len(p.Pending()) == 0 {
				t.Fatalf("life %d: the store took all tiles or none, want some", life)
			}
			p = start(t, p.kill(crash), s, small)
		}
		s.make("b", false, nil)
		time.Sleep(30 * time.Second)
		if synctest.Wait(); s.again != 0 {
			t.Errorf("%d samples were written again, want 0", s.again)
		}
		s.check("a", "c", total)
		s.check("b", "d", total)
		p.terminate()
	})
}

// A request's trip tells how long the request waited, and how long its store took. Deltas are visible
// once they are in tiles.
func TestRequestsPassStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		p := start(t, memfs.New(), s)
		s.make("a", true, nil)
		for _, deltas := range []bool{false, true} {
			r := incoming(1, "a")
			r.Arrival = time.Now().UnixMilli()
			trip := &stage.Trip{Born: time.Now()}
			trip.Enter(stage.Distribute, time.Now())
			q, done := NewRequests(p.Group), make(chan error, 1)
			push, want := q.Push, []stage.Stage{stage.Distribute, stage.Queue, stage.Append, stage.Visible}
			if deltas {
				push, want = q.PushDeltas, []stage.Stage{stage.Distribute, stage.Journal, stage.Tile, stage.Visible}
			}
			go func() { done <- push(stage.NewContext(t.Context(), trip), r) }()
			if !deltas {
				time.Sleep(3 * time.Second)
				s.make("a", false, nil)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			for i := range stage.NumStages {
				if _, _, ok := trip.Passed(i); ok != slices.Contains(want, i) {
					t.Errorf("deltas %t: the trip passed stage %v: %t, want the opposite", deltas, i, ok)
				}
			}
			if entered, left, _ := trip.Passed(stage.Append); !deltas && (entered != 0 || left != 3*time.Second) {
				t.Errorf("the store took a request from %v to %v, want from 0s to 3s", entered, left)
			}
		}
		p.terminate()
	})
}

// After a kill, requests that a store has do not come to it again, and yet the member goes on with the
// same state. If the machine was restarted, the store may have lost some of them, so those since the
// checkpoint come again.
func TestStoredRequestsAreNotLookedUp(t *testing.T) {
	for boot, some := range map[string]bool{"boot": false, "another": true, "": true} {
		t.Run(fmt.Sprintf("%q", boot), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStores(t)
				p := start(t, memfs.New(), s, func(o *Options) { o.Config.Checkpoint = 3000 })
				for i := range 100 {
					for _, tenant := range []string{"a", "b"} {
						if _, err := p.Write(t.Context(), request(t, tenant, fmt.Sprint("r", i%7), time.Now(), 1)); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(200 * time.Millisecond)
				}
				synctest.Wait()
				if n := testutil.ToFloat64(p.metrics.Checkpoints); n < 2 {
					t.Errorf("%g checkpoints were written, want at least 2", n)
				}
				before := p.sections()
				p = start(t, p.kill(crash), s, func(o *Options) { o.Boot = boot })
				for _, tenant := range []string{"a", "b"} {
					if err := p.Barrier(t.Context(), tenant); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				if s.known > 0 != some || p.Restored().Notes > 0 == some {
					t.Errorf("%d samples that the store had came again, want some: %v; the start read %d notes, want "+
						"some: %v",
						s.known, some, p.Restored().Notes, !some)
				}
				if after := p.sections(); after != before {
					t.Errorf("the tenants' states are\n%x, want, as before,\n%x", after, before)
				}
				p.terminate()
			})
		})
	}
}

// sections returns the sections of all tenants, none of which may have requests under way.
func (p *process) sections() (all string) {
	for _, tenant := range p.node.State().Tenants() {
		if n := p.node.State().Waiting(tenant).Requests; n > 0 {
			p.t.Errorf("%d requests of tenant %s are under way, want 0", n, tenant)
		}
		section := p.node.State().AppendTenant(nil, tenant, 0)
		all += fmt.Sprintf("%s: %s\n", tenant, section)
	}
	return all
}

func eventsOf(tenant string, hash uint64, titles ...string) *entry.Entry {
	e := &entry.Entry{Kind: entry.KindEvents, Events: entry.Events{Tenant: tenant, Hash: hash}}
	for _, title := range titles {
		e.Events.List = e.Events.List.Append((&event.Event{Title: title}).AppendDated(nil))
	}
	return e
}

// An acknowledged event is in the event log once, with the bounds of the leader's configuration. This
// holds even if the event log hangs or fails, the process dies meanwhile, or the event is sent again.
func TestEvents(t *testing.T) {
	for name, sick := range map[string]error{"hangs": nil, "fails": errors.New("no space left on device")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { events(t, sick) })
		})
	}
}

func events(t *testing.T, sick error) {
	s, disk := newStores(t), memfs.New()
	p := start(t, disk, s)
	write := func(e *entry.Entry) {
		t.Helper()
		if o, err := p.Write(t.Context(), e); err != nil || o.Written.Samples == 0 {
			t.Fatal(o, err)
		}
	}
	write(eventsOf("a", 1, "first", "second"))
	write(eventsOf("b", 1, "of another tenant"))
	if err := p.CurrentEvents(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	s.make("events", true, sick)
	write(eventsOf("a", 2, "third"))
	write(eventsOf("a", 2, "third")) // it is sent again
	if err := p.CurrentEvents(t.Context(), "a"); err == nil || !strings.HasPrefix(err.Error(), "events after ") {
		t.Error("a query does not wait for an event that is acknowledged:", err)
	}
	if err := p.Current(t.Context(), "a"); err != nil { // it waits for samples alone
		t.Error(err)
	}
	p.terminate() // the checkpoint has the event
	s.make("events", false, nil)
	p = start(t, disk, s)
	defer p.terminate()
	write(eventsOf("a", 2, "third"))
	if err := p.CurrentEvents(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	want := []string{"a first 7 1000", "a second 7 1000", "b of another tenant 7 1000", "a third 7 1000"}
	if !slices.Equal(s.events, want) {
		t.Errorf("the event log has %q, want %q", s.events, want)
	}
	for _, e := range []*entry.Entry{
		{Kind: entry.KindNames}, eventsOf("no/tenant", 3, "x"), eventsOf("a", 3), eventsOf("a", 3, strings.Repeat("x", 2000)),
		eventsOf("a", 3, make([]string, member.MaxEvents+1)...),
	} {
		if _, err := p.Write(t.Context(), e); err == nil {
			t.Errorf("%+v is proposed", e)
		}
	}
}

// The stores of one tenant hang or fail. Another tenant's tiles and requests are stored in time. Those
// of the sick tenant are stored once its stores are well. New windows of the sick tenant are refused at
// a limit.
func TestASickStoreDelaysOnlyItsTenant(t *testing.T) {
	for name, sick := range map[string]error{"hangs": nil, "fails": errors.New("no space left on device")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sickStore(t, sick) })
		})
	}
}

func sickStore(t *testing.T, sick error) {
	s := newStores(t)
	p := start(t, memfs.New(), s, func(o *Options) { o.MaxPending, o.Config.Checkpoint = 500, 4000 })
	s.make("b", true, sick)
	total, taken, refused := 0.0, 0.0, 0
	slow := make(chan error, 1)
	go func() {
		_, err := p.Write(t.Context(), request(t, "b", "r", time.Now(), 1))
		slow <- err
	}()
	for i := range 120 {
		p.mustCount("a", "c", 1)
		total++
		var full *batch.FullError
		switch err := p.count("b", "d", 1); {
		case err == nil:
			taken++
		case errors.As(err, &full) && full.Samples["b"] == 1 && full.Cause != nil:
			refused++
		default:
			t.Fatal(i, err)
		}
		if o, err := p.Write(t.Context(), request(t, "a", "r", time.Now(), 1)); err != nil || o.Written.Samples != 1 {
			t.Fatal(err)
		}
		p.Through(time.Now().UnixMilli())
		time.Sleep(time.Second)
	}
	time.Sleep(20 * time.Second)
	s.check("a", "c", total)
	if pending := p.Pending(); refused == 0 || pending["b"].Samples == 0 || pending["b"].Err == nil || len(pending) != 1 ||
		p.FoldedThrough("b") >= p.FoldedThrough("a") {
		t.Errorf("%d windows were refused, and the pending tiles are %+v, want some of tenant b, and none of tenant a",
			refused, pending)
	}
	select {
	case err := <-slow:
		if sick == nil || !errors.Is(err, sick) {
			t.Errorf("the request returned %v, want it to wait for a store that hangs, or the store's error", err)
		}
		slow <- nil
	default:
		if sick != nil {
			t.Error("the store fails, but the request still waits")
		}
	}
	s.make("b", false, nil)
	time.Sleep(20 * time.Second)
	if err := <-slow; err != nil {
		t.Error(err)
	}
	p.mustCount("b", "d", 1)
	time.Sleep(20 * time.Second)
	if _, values := s.values("b", "d"); values[len(values)-1] != taken+1 {
		t.Errorf("the stored values are %v, want %g last", values, taken+1)
	}
	if len(p.Pending()) > 0 {
		t.Errorf("%+v still waits", p.Pending())
	}
	p.terminate()
}

// panics are stores that panic for one tenant.
type panics struct {
	*stores
	tenant   string
	requests bool // if true, they panic at requests, otherwise at tiles
}

func (p *panics) WriteRequests(ctx context.Context, tenant string, state *write.State, all []*write.Request) error {
	if p.requests && tenant == p.tenant {
		state.Recent.Advance(time.Now().UnixMilli())
		state.Recent.Note(recentseries.Of(labels.FromStrings("__name__", "half")))
		panic("an index out of range")
	}
	return p.stores.WriteRequests(ctx, tenant, state, all)
}

func (p *panics) WriteTiles(ctx context.Context, tenant string, w tile.Width,
	samples []tile.Sample) (tile.Written, error) {
	if !p.requests && tenant == p.tenant {
		panic("an index out of range")
	}
	return p.stores.WriteTiles(ctx, tenant, w, samples)
}

// The store panics at a request of one tenant, or at its tiles. The tenant's callers get an error at
// once, and so do its later callers. Other tenants notice nothing. Checkpoints go on. The next process,
// which has no such bug, stores what waited.
func TestAPanicHarmsOnlyItsTenant(t *testing.T) {
	for _, requests := range []bool{true, false} {
		t.Run(fmt.Sprintf("requests=%t", requests), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { panicking(t, requests) })
		})
	}
}

func panicking(t *testing.T, requests bool) {
	s := newStores(t)
	var said bytes.Buffer
	p := start(t, memfs.New(), s, func(o *Options) {
		o.Writer = &mortal{Writer: &panics{s, "b", requests}}
		o.Config.Checkpoint = 2000
		o.Logger = slog.New(slog.NewTextHandler(&said, nil))
	})
	bug := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "an index out of range; this is a bug")
	}
	begun := time.Now()
	p.mustCount("b", "d", 1)
	if requests {
		if _, err := p.Write(t.Context(), request(t, "b", "r", time.Now(), 1)); !bug(err) || time.Since(begun) > 0 {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	}
	for range 120 {
		p.mustCount("a", "c", 1)
		if o, err := p.Write(t.Context(), request(t, "a", "r", time.Now(), 1)); err != nil || o.Written.Samples != 1 {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	if _, err := p.Write(t.Context(), request(t, "b", "r", time.Now(), 1)); bug(err) != requests {
		t.Errorf("a later request: %v", err)
	}
	if err := p.Barrier(t.Context(), "b"); !bug(err) {
		t.Errorf("a barrier: %v", err)
	}
	if err := p.Barrier(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	synctest.Wait()
	if n := testutil.ToFloat64(p.metrics.Checkpoints); n < 2 {
		t.Errorf("%g checkpoints were written, want at least 2", n)
	}
	if text := said.String(); strings.Count(text, "panicked") != 1 || !strings.Contains(text, "goroutine") {
		t.Errorf("the log says\n%s", text)
	}
	p = start(t, p.kill(crash), s)
	if err := p.Barrier(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	time.Sleep(20 * time.Second)
	synctest.Wait()
	s.check("a", "c", 120)
	s.check("b", "d", 1)
	if n := p.node.State().Waiting("b"); n.Requests > 0 || n.Tiles > 0 {
		t.Errorf("%+v still waits", n)
	}
	p.terminate()
}

// A damaged log lost its end, so it is shorter than the state. New entries would get indexes that the
// state already has, and would vanish. So the member does not start.
func TestALogThatEndsBeforeTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		p := start(t, memfs.New(), s, func(o *Options) { o.Segment = 64 << 20 })
		for i := range 50 {
			e := request(t, "b", "r", time.Now().Add(time.Duration(i)*time.Millisecond), 1)
			if _, err := p.Write(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		fs := p.kill(crash)
		for name, f := range fs.Files {
			if strings.HasSuffix(name, ".segment") {
				if err := fs.Truncate(name, int64(len(f.Data))*3/4); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := New(optionsOf(fs, s)); !errors.Is(err, entrylog.ErrDamaged) {
			t.Errorf("a start with a log that lost its end: %v, want ErrDamaged", err)
		}
	})
}

// The disk of a tenant's stores takes writes, but hangs in each sync. Checkpoints go on. A power loss
// costs nothing: the start goes back to the last checkpoint for which all stores were synced.
func TestAPowerLossWhileAStoreCannotBeSynced(t *testing.T) {
	for _, first := range []bool{false, true} { // whether all stores were synced for an earlier checkpoint
		synctest.Test(t, func(t *testing.T) { unsyncedStore(t, first) })
	}
}

// unsyncedFor runs a member whose stores of tenant b cannot be synced, until several checkpoints left them out.
// It returns how many requests each of the tenants a and b has sent.
func unsyncedFor(t *testing.T, p *process, s *stores) (requests int) {
	t.Helper()
	s.leaveOut("b")
	for range 120 {
		for _, tenant := range []string{"a", "b"} {
			if _, err := p.Write(t.Context(), request(t, tenant, "r", time.Now(), 1)); err != nil {
				t.Fatal(err)
			}
		}
		requests++
		time.Sleep(time.Second)
	}
	return requests
}

// After a power loss, the newest checkpoints do not count, neither at once nor later. That holds even if
// the next checkpoint fails after its sync, and then the process is killed.
func TestCheckpointsThatDoNotCountAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		small := func(o *Options) { o.Config.Checkpoint = 2000 }
		p := start(t, memfs.New(), s, small)
		written := unsyncedFor(t, p, s)
		fs := p.kill(func(fs *memfs.FS) *memfs.FS {
			s.losePower()
			return fs.PowerLoss(rand.New(rand.NewPCG(1, 1)))
		})
		next := func(o *Options) { o.Boot = "the next" }
		s.make("b", true, nil) // the last process below must still find its samples in the log
		fs.Fail = func(op, name string) error {
			if op == "rename" && strings.Contains(name, "checkpoint") {
				return memfs.ErrInjected
			}
			return nil
		}
		p = start(t, fs, s, small, next)
		if _, err := p.Write(t.Context(), request(t, "a", "r", time.Now(), 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n := testutil.ToFloat64(p.metrics.CheckpointErrors); n == 0 {
			t.Error("no checkpoint failed, so the test shows nothing")
		}
		fs = p.kill(crash)
		fs.Fail = nil
		s.make("b", false, nil)
		p = start(t, fs, s, small, next)
		if err := p.Barrier(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		if n := s.count("b raw"); n != written {
			t.Errorf("%d samples are stored, want %d", n, written)
		}
		p.terminate()
	})
}

// A store that is never synced does not fill the disk: from some size on, the log does not keep
// everything that the store may lose.
func TestTheLogIsBoundedThoughAStoreIsNeverSynced(t *testing.T) {
	for _, bound := range []int64{10_000, unsyncedBytes} {
		synctest.Test(t, func(t *testing.T) {
			s := newStores(t)
			p := start(t, memfs.New(), s, func(o *Options) { o.Config.Checkpoint = 2000 })
			p.unsyncedBytes = bound
			unsyncedFor(t, p, s)
			synctest.Wait()
			if size := p.log.Bytes(); (size < 20_000) != (bound == 10_000) {
				t.Errorf("the log has %d bytes with a bound of %d, want less than 20000 if the bound is 10000, else "+
					"more", size, bound)
			}
			p.terminate()
		})
	}
}

func unsyncedStore(t *testing.T, first bool) {
	s := newStores(t)
	small := func(o *Options) { o.Config.Checkpoint = 2000 }
	p := start(t, memfs.New(), s, small)
	written := 0
	write := func(seconds int) {
		for range seconds {
			for _, tenant := range []string{"a", "b"} {
				p.mustCount(tenant, "c", 1)
				if _, err := p.Write(t.Context(), request(t, tenant, "r", time.Now(), 1)); err != nil {
					t.Fatal(err)
				}
			}
			written++
			time.Sleep(time.Second)
		}
	}
	if first {
		write(60)
	}
	s.leaveOut("b")
	before := testutil.ToFloat64(p.metrics.Checkpoints)
	write(120)
	if n := testutil.ToFloat64(p.metrics.Checkpoints) - before; n < 2 {
		t.Errorf("meanwhile %g checkpoints were written, want at least 2", n)
	}
	if n := testutil.ToFloat64(p.metrics.CheckpointUnsynced); n == 0 {
		t.Error("the metric has no unsynced entries, want some")
	}
	time.Sleep(2 * time.Second) // the log gets the commit index of the last entry, and the status its size
	if s := p.Status(); !slices.Equal(s.LogPins, []string{"b/raw"}) || s.LogBytes != p.log.Bytes() || len(s.Marks) == 0 {
		t.Errorf("the status has a log of %d bytes that is kept for %v, and %d marks, want the log's size, b/raw, "+
			"and some marks",
			s.LogBytes, s.LogPins, len(s.Marks))
	}

	killed := p.Restored().Entries
	fs := p.kill(crash)
	p = start(t, fs, s, small)
	if n := p.Restored().Entries - killed; n > 150 {
		t.Errorf("a start after a kill reads %d entries, want at most 150", n)
	}
	if n := testutil.ToFloat64(p.metrics.CheckpointUnsynced); n == 0 {
		t.Error("after a kill, the metric has no unsynced entries, want some")
	}
	write(1)

	fs = p.kill(func(fs *memfs.FS) *memfs.FS {
		s.losePower()
		return fs.PowerLoss(rand.New(rand.NewPCG(1, 1)))
	})
	p = start(t, fs, s, small, func(o *Options) { o.Boot = "the next" })
	for _, tenant := range []string{"a", "b"} {
		if err := p.Barrier(t.Context(), tenant); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := s.count(tenant + " raw"); n != written {
			t.Errorf("after a power loss, %d samples of tenant %s are stored, want %d", n, tenant, written)
		}
	}
	s.leaveOut("")
	write(60)
	if n := testutil.ToFloat64(p.metrics.CheckpointUnsynced); n != 0 {
		t.Errorf("the store syncs again, but %g entries count as unsynced, want 0", n)
	}
	if pins := p.Status().LogPins; len(pins) > 0 {
		t.Errorf("the store syncs again, but the log is kept for %v, want none", pins)
	}
	if synctest.Wait(); p.log.Bytes() > 40_000 {
		t.Errorf("the store syncs again, but the log has %d bytes, want at most 40000", p.log.Bytes())
	}

	fs = p.kill(func(fs *memfs.FS) *memfs.FS {
		s.losePower()
		return fs.PowerLoss(rand.New(rand.NewPCG(2, 1)))
	})
	p = start(t, fs, s, small, func(o *Options) { o.Boot = "a third" })
	if err := p.Barrier(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	if n := s.count("b raw"); n != written {
		t.Errorf("after a second power loss, %d samples are stored, want %d", n, written)
	}
	p.terminate()
}

// A start tells the stores how many requests they must have: those of the checkpoint, and of the notes if they are
// of the same boot.
func TestStoresAreToldWhatTheyMustHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		p := start(t, memfs.New(), s)
		write := func(n int) {
			for range n {
				if _, err := p.Write(t.Context(), request(t, "a", "r", time.Now(), 1)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
		}
		write(3)
		time.Sleep(2 * checkpointInterval)
		write(2)
		fs := p.kill(crash)
		for boot, want := range map[string]string{"boot": "boot map[a:5]", "the next": "the next map[a:3]"} {
			o := optionsOf(fs.Crash(), s)
			o.Boot = boot
			if _, err := New(o); err != nil {
				t.Fatal(err)
			}
			if s.cut != want {
				t.Errorf("the stores are told %q, want %q", s.cut, want)
			}
		}
	})
}

// The newest checkpoint is damaged. The one before it counts, and the log still has what came since.
func TestADamagedCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		small := func(o *Options) { o.Config.Checkpoint = 2000 }
		p := start(t, memfs.New(), s, small)
		for range 120 {
			p.mustCount("a", "c", 1)
			time.Sleep(time.Second)
		}
		if n := testutil.ToFloat64(p.metrics.Checkpoints); n < 3 {
			t.Errorf("%g checkpoints were written, want at least 3", n)
		}
		fs := p.kill(crash)
		names, err := fs.List()
		if err != nil {
			t.Fatal(err)
		}
		all := checkpoint.Files(names)
		data := fs.Files[all[len(all)-1].Name].Data
		data[len(data)/2]++
		p = start(t, fs, s, small)
		time.Sleep(30 * time.Second)
		p.terminate()
		s.check("a", "c", 120)
	})
}

// count returns how many samples the stores have of series whose keys begin with a prefix.
func (s *stores) count(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, samples := range s.have {
		if strings.HasPrefix(key, prefix) {
			n += len(samples)
		}
	}
	return n
}

// The raw store of a tenant fails or hangs for minutes. Checkpoints are written anyway. They have the
// waiting requests, so the log does not grow. After a kill, the next process stores these requests.
func TestRequestsWaitBeyondAKill(t *testing.T) {
	for name, sick := range map[string]error{"hangs": nil, "fails": errors.New("no space left on device")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { requestsWait(t, sick) })
		})
	}
}

func requestsWait(t *testing.T, sick error) {
	s := newStores(t)
	small := func(o *Options) { o.Config.Checkpoint = 2000 }
	p := start(t, memfs.New(), s, small)
	s.make("b", true, sick)
	waiting := 100 // more than one Work holds
	for i := range waiting {
		e := request(t, "b", "r", time.Now().Add(time.Duration(i)*time.Millisecond), 1)
		go func() { _, _ = p.Write(t.Context(), e) }()
	}
	for range 120 {
		p.mustCount("a", "c", 1)
		time.Sleep(time.Second)
	}
	last := testutil.ToFloat64(p.metrics.Checkpoints)
	for ; testutil.ToFloat64(p.metrics.Checkpoints) == last; waiting++ { // some come while a checkpoint is written
		p.mustCount("a", "c", 1)
		e := request(t, "b", "r", time.Now().Add(time.Hour), 1)
		go func() { _, _ = p.Write(t.Context(), e) }()
		time.Sleep(time.Second)
	}
	if n := testutil.ToFloat64(p.metrics.Checkpoints); n < 2 {
		t.Errorf("%g checkpoints were written, want at least 2", n)
	}
	if synctest.Wait(); p.log.Bytes() > 20_000 {
		t.Errorf("the log has %d bytes, want at most 20000", p.log.Bytes())
	}
	fs := p.kill(crash)
	s.make("b", false, nil)
	p = start(t, fs, s, small)
	if err := p.Barrier(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	synctest.Wait()
	stored := 0
	for key, samples := range s.have {
		if strings.HasPrefix(key, "b raw") {
			stored += len(samples)
		}
	}
	if stored != waiting {
		t.Errorf("%d requests are stored, want %d", stored, waiting)
	}
	p.terminate()
}

// While a store hangs, readers of its tenant come and give up. The member forgets these readers.
func TestBarriersThatAreGivenUpAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		p := start(t, memfs.New(), s)
		s.make("b", true, nil)
		e := request(t, "b", "r", time.Now(), 1)
		go func() { _, _ = p.Write(t.Context(), e) }()
		time.Sleep(time.Second)
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := p.Barrier(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the barrier ended with %v, want DeadlineExceeded", err)
			}
			cancel()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(p.waiting); n != 1 {
			t.Errorf("%d callers are kept, want 1, that of the request", n)
		}
		s.make("b", false, nil)
		p.terminate()
	})
}

// The store of a tenant hangs or fails. A request of the tenant is in the log, and is stored later, so
// the error says that the request may count.
func TestARequestInTheLogMayCount(t *testing.T) {
	for name, sick := range map[string]error{"hangs": nil, "fails": errors.New("no space left on device")} {
		synctest.Test(t, func(t *testing.T) {
			s := newStores(t)
			p := start(t, memfs.New(), s)
			s.make("b", true, sick)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if _, err := p.Write(ctx, request(t, "b", "r", time.Now(), 1)); !errors.Is(err, member.ErrUnknown) {
				t.Errorf("the store %s: %v", name, err)
			}
			s.make("b", false, nil)
			if err := p.Barrier(t.Context(), "b"); err != nil {
				t.Error(err)
			}
			p.terminate()
			synctest.Wait()
			if len(s.have) != 1 {
				t.Errorf("the store %s, and later has %v, want one series", name, s.have)
			}
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := p.Write(ctx, request(t, "b", "r", time.Now(), 2))
			if !errors.Is(err, ErrEnded) || errors.Is(err, member.ErrUnknown) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// After a kill, the store fails at first, and then takes one write of a long replay. Queries wait for
// the rest. The earlier failure is no reason to answer without it.
func TestQueriesWaitForAReplayThatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		p := start(t, memfs.New(), s)
		for i := range 200 { // more than one write
			e := request(t, "b", "r", time.Now().Add(time.Duration(i)*time.Millisecond), 1)
			if _, err := p.Write(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		fs := p.kill(func(fs *memfs.FS) *memfs.FS {
			s.losePower()
			return fs.PowerLoss(rand.New(rand.NewPCG(1, 1)))
		})
		full := errors.New("no space left on device")
		s.make("b", true, full)
		p = start(t, fs, s)
		if err := p.Replayed(t.Context(), "b"); !errors.Is(err, full) {
			t.Errorf("while the store fails, a query returns %v, want the store's error", err)
		}
		s.make("b", true, nil)
		s.take(1)
		time.Sleep(2 * time.Second)
		answer := make(chan error, 1)
		go func() { answer <- p.Replayed(t.Context(), "b") }()
		synctest.Wait()
		select {
		case err := <-answer:
			t.Errorf("before the end of the replay, a query returned %v, want it to wait", err)
			answer <- nil
		default:
		}
		s.make("b", false, nil)
		if err := <-answer; err != nil {
			t.Errorf("the store has all requests, but a query returned %v", err)
		}
		p.terminate()
	})
}

// lateBug is a store that panics after it has stored requests.
type lateBug struct{ *stores }

func (l lateBug) WriteRequests(ctx context.Context, tenant string, state *write.State, all []*write.Request) error {
	if err := l.stores.WriteRequests(ctx, tenant, state, all); err != nil {
		return err
	}
	panic("an index out of range")
}

// The number of a tenant's waiting readers is at its limit. When the tenant's store panics, all of them
// get an error. Then others can wait.
func TestBarriersThatAPanicEndsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		s.make("b", true, nil)
		p := start(t, memfs.New(), s, func(o *Options) { o.Writer = lateBug{s} })
		go func() { _, _ = p.Write(t.Context(), request(t, "b", "r", time.Now(), 1)) }()
		time.Sleep(time.Second)
		waiting := 1 << 14
		if testing.Short() {
			waiting = 1 << 11 // below the limit: only the panic is seen
		}
		for range waiting {
			go func() { _ = p.Barrier(t.Context(), "b") }()
		}
		synctest.Wait()
		s.make("b", false, nil)
		time.Sleep(time.Minute)
		if err := p.Barrier(t.Context(), "a"); err != nil {
			t.Errorf("a barrier of another tenant returned %v", err)
		}
		p.terminate()
	})
}

// While the stores cannot be synced, each checkpoint fails. After a pause that grows, it is begun again,
// and the log says so. The first sync that succeeds ends the pauses.
func TestAFailedCheckpointBeginsAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		var said bytes.Buffer
		p := start(t, memfs.New(), s, func(o *Options) {
			o.Config.Checkpoint = 2000
			o.Logger = slog.New(slog.NewTextHandler(&said, nil))
		})
		s.failSync(errors.New("input/output error"))
		count := func(seconds int) (syncs int) {
			before := s.synced()
			for range seconds {
				p.mustCount("a", "c", 1)
				time.Sleep(time.Second)
			}
			synctest.Wait()
			return s.synced() - before
		}
		if n := count(10 * 60); n < 4 || n > 8 { // after 10, 20, 40, 80, 160 and 300 s, and some seconds each
			t.Errorf("in 10 minutes %d checkpoints were begun, want 4 to 8", n)
		}
		if n := count(10 * 60); n < 1 || n > 2 {
			t.Errorf("in the next 10 minutes %d checkpoints were begun, want 1 or 2", n)
		}
		if text := said.String(); !strings.Contains(text, "again_in=10s") || !strings.Contains(text, "again_in=5m0s") {
			t.Errorf("the log lacks pauses of 10 s and 5 min:\n%s", text)
		}
		s.failSync(nil)
		count(5*60 + 10)
		if n := count(60); n < 2 {
			t.Errorf("after a checkpoint succeeded, %d were begun in a minute, want at least 2", n)
		}
		s.failSync(errors.New("input/output error"))
		count(60)
		if n := strings.Count(said.String(), "again_in=10s"); n != 2 {
			t.Errorf("the log has %d pauses of 10 s, want 2", n)
		}
		p.terminate()
	})
}

// A power loss takes samples of acknowledged requests from the stores, but the log has them. While the
// next process stores them again, queries of the tenant wait. If the store fails, or hangs for long,
// queries return the reason.
func TestQueriesWaitForAReplay(t *testing.T) {
	fails := errors.New("no space left on device")
	for name, sick := range map[string]error{"hangs": nil, "fails": fails} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStores(t)
				p := start(t, memfs.New(), s)
				const most = 100 // more than one Work holds
				for i := range most {
					at := time.Now().Add(time.Duration(i) * time.Millisecond)
					if _, err := p.Write(t.Context(), request(t, "b", "r", at, 1)); err != nil {
						t.Fatal(err)
					}
				}
				fs := p.kill(func(fs *memfs.FS) *memfs.FS {
					s.losePower()
					return fs.PowerLoss(rand.New(rand.NewPCG(1, 1)))
				})
				s.make("b", true, sick)
				p = start(t, fs, s)
				ended, end := context.WithCancel(t.Context())
				end()
				if err := p.Replayed(ended, "b"); err == nil {
					t.Error("a query does not wait")
				}
				if err := p.Replayed(t.Context(), "a"); err != nil {
					t.Errorf("a query of a tenant that lacks nothing returned %v", err)
				}
				begun := time.Now()
				err, waited := p.Replayed(t.Context(), "b"), time.Since(begun)
				if sick == nil && (!errors.Is(err, errStalled) || waited < stalled || waited > stalled+time.Second) ||
					sick != nil && !errors.Is(err, sick) {
					t.Errorf("after %v: %v", waited, err)
				}
				s.make("b", false, nil)
				time.Sleep(2 * time.Second)
				if err := p.Replayed(t.Context(), "b"); err != nil || len(p.Replaying()) > 0 {
					t.Error(err, p.Replaying())
				}
				p.terminate()
			})
		})
	}
}

// A member starts again and again although its disk is full, and the stores take what the log has.
// Queries get answers, and writes fail with the reason. Once there is space, everything goes on.
func TestAStartOnAFullDisk(t *testing.T) {
	for name, names := range map[string]bool{"no space": true, "no names": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { startOnAFullDisk(t, names) })
		})
	}
}

// startOnAFullDisk takes a disk that has room for new names but not for bytes, or the other way round.
func startOnAFullDisk(t *testing.T, names bool) {
	fs, s := memfs.New(), newStores(t)
	p := start(t, fs, s)
	for range 20 {
		p.mustCount("a", "c", 1)
		time.Sleep(time.Second)
	}
	var full atomic.Bool
	full.Store(true)
	for i := range 3 {
		fs = p.kill(crash)
		if i > 0 && len(p.queue) > 1 {
			t.Errorf("%d writes wait for the log, want at most 1", len(p.queue))
		}
		if names {
			fs.Space = 0
		}
		fs.Fail = func(op, _ string) error {
			if op == "create" && full.Load() && !names {
				return syscall.ENOSPC
			}
			return nil
		}
		p = start(t, fs, s)
		if err := p.count("a", "c", 1); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a window pushed at the start: %v, want ENOSPC", err)
		}
		time.Sleep(5 * time.Minute)
		_, stored := s.values("a", "c")
		open, err := p.Shards.Raw()["a"], p.Current(t.Context(), "a")
		if stored[len(stored)-1]+float64(open) != 20 || err != nil || !p.Ready() {
			t.Errorf("%g values are stored, %d are in open tiles, want 20 in all; error %v, ready %t",
				stored, open, err, p.Ready())
		}
		if _, err := p.Write(t.Context(), request(t, "a", "r", time.Now(), 1)); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a request: %v", err)
		}
	}
	full.Store(false)
	fs.SetSpace(memfs.Plenty)
	time.Sleep(retryPause + 3*time.Second) // an election
	p.mustCount("a", "afterwards", 1)
	if _, err := p.Write(t.Context(), request(t, "a", "r", time.Now(), 1)); err != nil {
		t.Errorf("a request: %v", err)
	}
	time.Sleep(30 * time.Second)
	s.check("a", "afterwards", 1)
	if _, stored := s.values("a", "c"); !slices.Contains(stored, 20) {
		t.Errorf("at the end the stored values are %g, want 20 among them", stored)
	}
	p.terminate()
}

// After a power loss, the log of a sole member may not say which of its last entries are committed, and on a full disk
// the member cannot lead. It knows without leading, so queries are answered.
func TestAFullDiskHidesNoEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, memfs.New(), newStores(t))
		for range 5 {
			p.mustCount("a", "c", 1)
		}
		fs := p.kill(func(fs *memfs.FS) *memfs.FS {
			fs = fs.Crash()
			for _, f := range fs.Files {
				f.Data = f.Data[:f.Synced] // this cuts off the last commit index
			}
			return fs
		})
		fs.Space = 0
		p = start(t, fs, newStores(t))
		time.Sleep(time.Second)
		if n, err := p.Shards.Raw()["a"], p.Current(t.Context(), "a"); n != 5 || err != nil || p.Status().Leads {
			t.Errorf("%d values of 5, error %v; leads: %v, want false", n, err, p.Status().Leads)
		}
		fs.SetSpace(memfs.Plenty)
		time.Sleep(retryPause + 3*time.Second)
		if n, err := p.Shards.Raw()["a"], p.Current(t.Context(), "a"); n != 5 || err != nil {
			t.Errorf("the disk has space again: %d values, want 5; error %v", n, err)
		}
		p.terminate()
	})
}

// A log with a damaged entry does not open, and says where it is damaged.
func TestADamagedLogStopsTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, memfs.New(), newStores(t))
		for range 30 {
			p.mustCount("a", "c", 1)
		}
		fs := p.kill(crash)
		for name, f := range fs.Files {
			if strings.HasSuffix(name, ".segment") {
				f.Data[len(f.Data)/2] ^= 1
			}
		}
		if _, err := New(optionsOf(fs, newStores(t))); !errors.Is(err, entrylog.ErrDamaged) ||
			!strings.Contains(err.Error(), "byte") {
			t.Error(err)
		}
	})
}

// The end of the log is torn. The member cuts it off, and logs that. Everything that was acknowledged is
// there.
func TestATornLogIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, memfs.New(), newStores(t), func(o *Options) { o.Segment = 1 << 20 })
		for range 30 {
			p.mustCount("a", "c", 1)
		}
		fs := p.kill(crash)
		for name, f := range fs.Files {
			if strings.HasSuffix(name, ".segment") {
				f.Data = append(f.Data, "the begin of a frame"...)
			}
		}
		var said bytes.Buffer
		p = start(t, fs, newStores(t), func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&said, nil)) })
		synctest.Wait()
		if text := said.String(); !strings.Contains(text, "was torn and is cut off") || !strings.Contains(text, "bytes=20") {
			t.Errorf("the log says\n%s", text)
		}
		if n := p.Shards.Raw()["a"]; n != 30 {
			t.Errorf("%d values are left, want all 30", n)
		}
		p.terminate()
	})
}

// The metadata that came with deltas are only in memory. So when the next process reads the log, it
// passes them on again.
func TestAReplayTellsTheMetadataOfDeltas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		r := incoming(1, "a")
		r.Samples(&r.Series[0])[0].Time = time.Now().UnixMilli()
		var to told
		p := start(t, memfs.New(), s, func(o *Options) { o.Told = &to })
		if err := NewRequests(p.Group).PushDeltas(t.Context(), r); err != nil || r.Outcome.Written.Samples != 1 {
			t.Fatal(r.Outcome, err)
		}
		if !slices.Contains(to, "a came from curl") {
			t.Errorf("%q are told, want the request, too", to)
		}
		to = nil
		p = start(t, p.kill(crash), s, func(o *Options) { o.Told = &to })
		if !slices.Equal(to, told{"a family family"}) {
			t.Errorf("%q are told", to)
		}
		p.terminate()
	})
}

// A member whose log is gone must not start as a new one, because it has forgotten its votes.
func TestALogThatIsGoneStopsTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, memfs.New(), newStores(t))
		p.mustCount("a", "c", 1)
		p.terminate()
		for name := range p.fs.Files {
			if strings.HasSuffix(name, ".segment") {
				delete(p.fs.Files, name)
			}
		}
		if _, err := New(optionsOf(p.fs, newStores(t))); !errors.Is(err, entrylog.ErrNone) {
			t.Error(err)
		}
	})
}

// If an entry cannot be applied, the member stops at it, and so does each later start.
func TestAnEntryThatCannotBeAppliedStopsTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, memfs.New(), newStores(t))
		e := request(t, "a", "r", time.Now(), 1)
		e.Request.Body = []byte("no snappy")
		if _, err := p.Write(t.Context(), e); !errors.Is(err, ErrEnded) {
			t.Error(err)
		}
		if err := <-p.done; !errors.Is(err, member.ErrEntry) {
			t.Error(err)
		}
		if err := p.count("a", "c", 1); !errors.Is(err, ErrEnded) {
			t.Error(err)
		}
	})
}

// If the newest checkpoint is damaged, the previous checkpoint and the log give the same state.
func TestTheCheckpointBeforeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		p := start(t, memfs.New(), s, func(o *Options) { o.Config.Checkpoint = 2000 })
		for range 100 {
			p.mustCount("a", "c", 1)
			time.Sleep(time.Second)
		}
		fs := p.kill(crash)
		names, _ := fs.List()
		var newest string
		for _, name := range names {
			if strings.HasSuffix(name, ".checkpoint") {
				newest = name
			}
		}
		fs.Files[newest].Data[100] ^= 1
		p = start(t, fs, s)
		time.Sleep(20 * time.Second)
		s.check("a", "c", 100)
		p.terminate()
	})
}

// After a downtime, the tiles of that time are closed before windows count. So no window is too far
// ahead of the open tiles.
func TestADowntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		p := start(t, memfs.New(), s)
		for range 10 {
			p.mustCount("a", "c", 1)
			time.Sleep(time.Second)
		}
		p.terminate()
		time.Sleep(3 * time.Minute)
		p = start(t, p.fs, s)
		for range 30 {
			p.mustCount("a", "c", 1)
			time.Sleep(time.Second)
		}
		time.Sleep(20 * time.Second)
		s.check("a", "c", 40)
		if n := testutil.ToFloat64(p.metrics.Ahead); n > 0 {
			t.Errorf("%g samples were ahead of all open tiles, want 0", n)
		}
		p.terminate()
	})
}

// While the clock is an hour ahead, windows and requests wait. Otherwise a request would have a wrong
// arrival in the log, and samples of the future would be stored. A request whose caller has gone is not
// proposed.
func TestAClockThatLeaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		var leap atomic.Int64
		p := start(t, memfs.New(), s, func(o *Options) {
			o.Now = func() time.Time { return time.Now().Add(time.Duration(leap.Load())) }
		})
		p.mustCount("a", "c", 1)
		leap.Store(int64(time.Hour))
		done := make(chan error, 2)
		go func() { done <- p.count("a", "c", 1) }()
		go func() {
			_, err := p.Write(t.Context(), request(t, "a", "r", time.Now(), 1))
			done <- err
		}()
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Write(brief, request(t, "a", "r", time.Now().Add(time.Second), 1))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(15 * time.Second)
		if synctest.Wait(); len(done) > 0 {
			t.Error("the window or the request returned while the clock was ahead, want both to wait")
		}
		leap.Store(0)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		requests := 0
		for key, samples := range s.have {
			if strings.HasPrefix(key, "a raw") {
				requests += len(samples)
			}
		}
		if requests != 1 {
			t.Errorf("%d requests are stored, want 1", requests)
		}
		times, _ := s.values("a", "c")
		if last := times[len(times)-1]; last > time.Now().UnixMilli() {
			t.Errorf("a sample with the time %v is stored, but the clock is only at %v",
				time.UnixMilli(last), time.Now())
		}
		p.terminate()
	})
}

// The log of a member hangs, or refuses each try of a write. Such a member used to report no lag, since
// it learnt of nothing that it lacked, and stayed ready. Now its lag is how long the write has been
// stuck.
func TestTheTimeOfAStuckWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := appends{histogram: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "append_seconds"})}
		a.begin()
		time.Sleep(stuckAfter / 2)
		if stuck := a.stuck(); stuck != 0 {
			t.Errorf("stuck is %v for a write of half a second, want 0", stuck)
		}
		a.end(time.Now()) // it failed
		time.Sleep(time.Minute)
		a.end(a.begin())
		if stuck := a.stuck(); stuck != time.Minute+stuckAfter/2 {
			t.Errorf("stuck is %v for a write that failed again, want the time since the first try", stuck)
		}
		a.written()
		a.begin()
		if stuck := a.stuck(); stuck != 0 {
			t.Errorf("stuck is %v for the next write, want 0", stuck)
		}
	})
}

// The store of a leader refuses requests, as on a full disk. Their callers used to get 503 at once, though another
// member may take over, whose store takes them. Now they wait for it, and propose their requests to it.
func TestCallersOfALeaderWhoseStoreFailsWaitForTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left on device")
		j := &job{Work: &member.Work{Tenant: "default", Queue: "default"}, err: full, fails: time.Now()}
		told := func(g *Group) error {
			c := &call{requests: "default", answer: make(chan member.Answer, 1)}
			g.waiting = map[member.ID]waiting{1: {answer: c.answer, call: c}}
			g.tellFailure(j)
			if !g.waiting[1].answered {
				return nil
			}
			return (<-c.answer).Err
		}
		if err := told(&Group{alone: true}); err != full {
			t.Errorf("the caller of the only member is told %v, want %v", err, full)
		}
		if err := told(&Group{leads: true}); err != nil {
			t.Errorf("while another member may take over, the caller is told %v", err)
		}
		if err := told(&Group{}); !errors.Is(err, member.ErrLost) || !errors.Is(err, full) {
			t.Errorf("once another member leads, the caller is told %v, want %v and %v", err, member.ErrLost, full)
		}
		time.Sleep(takeover)
		if err := told(&Group{leads: true}); err != full {
			t.Errorf("if no other member takes over, the caller is told %v, want %v", err, full)
		}
	})
}

// The log cannot be written. A member in a group of several used to refuse all pushes and requests with
// the error of its disk, even after another member had taken over. Collectors then went on pushing to
// it, and senders got 503. Now they wait for the next leader, and a member that does not lead says so.
func TestCallersOfAStuckLeaderWaitForTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left on device")
		g := &Group{sick: full, leads: true}
		g.appends.begin()
		says := func(when string, proposal, query error) {
			t.Helper()
			if p, q := g.sickness(true), g.sickness(false); p != proposal || q != query {
				t.Errorf("%s, a proposal gets the error %v, and a query %v", when, p, q)
			}
		}
		says("while another member may take over", nil, full)
		time.Sleep(takeover)
		says("if no other member takes over", full, full)
		g.leads = false
		says("if another member leads", nil, full)
		g.alone = true
		says("if there is no other member", full, full)
	})
}
