package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grafana/regexp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	names "github.com/freshet-io/freshet/internal/adapter/catalogue"
	"github.com/freshet-io/freshet/internal/adapter/connections"
	"github.com/freshet-io/freshet/internal/adapter/eventlog"
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/memory"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/tracing"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/placement"
	"github.com/freshet-io/freshet/internal/core/probe"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/run"
	"github.com/freshet-io/freshet/internal/role/aggregator"
	"github.com/freshet-io/freshet/internal/role/collector"
	"github.com/freshet-io/freshet/internal/role/forwarder"
	"github.com/freshet-io/freshet/internal/role/querier"
	"github.com/freshet-io/freshet/internal/role/recorder"
	"github.com/freshet-io/freshet/internal/settings"
)

// server is every role of one process. What is nil was not reached by newServer; a
// process that keeps nothing never has stores, events and an aggregator.
type server struct {
	config   settings.Config                 // that it was started with
	current  atomic.Pointer[settings.Config] // after reloads
	registry *prometheus.Registry
	logger   *slog.Logger // of log
	log      *serverLog
	started  time.Time
	ready    atomic.Bool
	readied  chan struct{}                 // closed when the server is ready for the first time
	handler  atomic.Pointer[http.ServeMux] // nil while starting

	lock       *files.Lock
	stores     *tsdb.Stores
	events     *eventlog.Log
	names      *names.File
	catalogue  *catalogue.Catalogue
	ledger     *ledger.Ledger
	watch      *stage.Watch
	tracing    *tracing.Tracing
	recorder   *recorder.Recorder
	books      sync.Mutex  // held while they are written
	booksFinal bool        // they were written for good
	previous   *savedBooks // of the process before, or nil
	aggregator *aggregator.Aggregator
	ingest     ingest
	forwarders []*forwarder.Forwarder // in the order of the configuration
	engine     *promapi.Engine        // with querier, once all is open
	querier    *querier.Queryable
	memory     memory.Limit // of the process
	limiter    *limit.Limiter
	mapper     atomic.Pointer[mapping.Mapper] // the collector's
	collector  *collector.Collector
	http       httpServers
	shares     connections.Shares // of the descriptors
	bound      *connections.Bound // of http and otlp
	otlp       *otlpServer        // nil for none

	operatorSocket *httpServer // nil where none can be

	access    atomic.Pointer[tenant.Access] // who may ask it; nil: everybody, for the tenant of the address
	operators atomic.Pointer[tenant.Operators]
	proxied   atomic.Pointer[string] // the first header of a proxy that came; nil for none
	refused   *prometheus.CounterVec // requests, by reason
	origins   *regexp.Regexp         // of pages that may read; nil for none but ours
	metrics   http.Handler           // of the whole process
	reloader  *reloader
	inherited *inheritance
	opening   opening
	restarter *restarter

	listeningTold listeningTold
}

// inForce is the configuration of the moment.
func (s *server) inForce() settings.Config { return *s.current.Load() }

// newServer opens what it takes to read the sockets, in the order in which things
// need each other; open does the rest. What others may hold (ports, the
// directory) comes first, so that its errors are quick. The source of c can be
// read again. After an error the server must still be closed.
func newServer(c settings.Config, from *settings.Source, registry *prometheus.Registry, log *serverLog) (*server, error) {
	s := &server{config: c, registry: registry, logger: log.Logger, log: log, started: time.Now(), ledger: ledger.New(), watch: stage.NewWatch()}
	s.current.Store(&c)
	s.opening = newOpening()
	s.readied = make(chan struct{})
	s.reloader = newReloader(s, from, registry)
	s.restarter = newRestarter(s)
	registry.MustRegister(log, buildGauge(build.This()), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, open := range []func() error{s.findMemory, s.openSelf, s.openInherited, s.openDirectory, s.openLedger, s.openAccess, s.openOperators, s.openOrigins, s.openHTTP, s.openOperatorSocket, s.openOTLP, s.openNames, s.openCollector, s.checkLeft} {
		if err := open(); err != nil {
			return s, err
		}
	}
	return s, nil
}

// open opens what may take long: events, stores, and the journal, which is
// replayed. The sockets are read meanwhile.
func (s *server) open() error {
	for _, open := range []func() error{s.openStores, s.openForwarders, s.openIngest, s.openAggregator} {
		if err := open(); err != nil {
			return err
		}
	}
	s.serveHTTP()
	return nil
}

func (s *server) openDirectory() error {
	lock, err := files.LockDir(s.config.DataDir)
	if err != nil {
		return err
	}
	s.lock = &lock
	return nil
}

func (s *server) openHTTP() (err error) {
	if err := s.openConnections(); err != nil {
		return err
	}
	s.http, err = listenHTTP(s.config.HTTP, s, s.inherited, s.bound, s.logger)
	return err
}

func (s *server) path(elements ...string) string {
	return filepath.Join(append([]string{s.config.DataDir}, elements...)...)
}

func (s *server) openStores() (err error) {
	if s.stores, err = tsdb.Open(s.config.Store, s.config.DataDir, time.Now, s.registry, s.logger); err != nil {
		return err
	}
	s.events, err = eventlog.Open(s.config.Events, s.path("events.db"), time.Now, s.registry, s.logger)
	return err
}

// unusedNames is how long a name keeps its owner after its last sample: as long
// as samples are kept.
func (s *server) unusedNames() time.Duration { return s.inForce().Store.Retention.Tile1m }

// keptNames is how long a name keeps its owner after its last sample in any case, also
// where a tenant has as many names as it may: a context that is remembered does not ask
// for its name again, and a series that lives is still written under it.
func (s *server) keptNames(kind series.Kind) time.Duration {
	c := s.config.Aggregator
	ttl := c.CounterTTL
	switch kind {
	case series.Gauge:
		ttl = c.GaugeTTL
	case series.Check:
		ttl = c.CheckTTL
	case series.UpDown:
		ttl = c.UpDownTTL
	}
	return s.inForce().DogStatsD.IdleContexts + ttl + catalogue.TouchedEvery
}

func (s *server) openNames() (err error) {
	if s.names, err = names.Open(s.path("names.db"), s.logger); err != nil {
		return err
	}
	entries, err := s.names.Load()
	if err != nil {
		return err
	}
	s.catalogue = catalogue.New(catalogue.DefaultMaxNames)
	s.catalogue.KeepFor(s.keptNames)
	if refused := s.catalogue.Load(entries); refused > 0 {
		s.logger.Warn("names are not remembered: they are more than a tenant may have", "names", refused)
	}
	now := time.Now()
	return s.names.Forget(s.catalogue.Forget(now.UnixMilli(), now.Add(-s.unusedNames()).UnixMilli()))
}

func (s *server) openAggregator() error {
	dir, err := files.Open(s.path("journal"))
	if err != nil {
		return err
	}
	var mark [4]byte
	if _, err := rand.Read(mark[:]); err != nil {
		return err
	}
	begun := time.Now()
	log, report, err := journal.Open(dir, journal.Options{Mark: binary.LittleEndian.Uint32(mark[:])})
	if err != nil {
		return err
	}
	for _, d := range report.Damage {
		s.logger.Error("the journal is damaged; everything else in it is used", "place", d.String())
	}
	s.checkJournal(report)
	s.aggregator, err = aggregator.New(aggregator.Options{
		Config: s.config.Aggregator, MaxPending: int64(s.config.Store.Pending), Log: log, Writer: s.ingest.distributor, Ledger: s.ledger, Watch: s.watch,
		Now: time.Now, Registry: s.registry, Logger: s.logger,
	})
	if err != nil {
		return err
	}
	if report.Frames > 0 {
		s.logger.Info("restored from the journal", "frames", report.Frames, "lost_frames", report.LostFrames, "took", time.Since(begun).Round(time.Millisecond))
	}
	return nil
}

// instance is the name of a process that runs every role.
const instance = "local"

func (s *server) openCollector() error {
	constant, err := s.config.ConstantLabels()
	if err != nil {
		return err
	}
	mapper, err := mapping.New(s.config.Mapping, constant)
	if err != nil {
		return err
	}
	sender, err := s.sender()
	if err != nil {
		return err
	}
	s.mapper.Store(mapper)
	var mark *probe.Mark
	if s.probing() {
		mark = probe.NewMark(sender)
	}
	s.limiter = limit.New(s.config.Limits, s.config.DogStatsD.IdleContexts, s.config.Aggregator.UpDownTTL)
	s.collector, err = collector.New(collector.Options{
		Config: s.config.DogStatsD, Mapper: mapper, Catalogue: s.catalogue, Limiter: s.limiter, Names: s.names, Ledger: s.ledger, Watch: s.watch,
		Placement: placement.Single(instance), Aggregators: map[string]collector.Aggregator{instance: &s.opening}, Events: &s.opening, Sender: sender, Host: constant.Get("host"), Probe: mark,
		Now: time.Now, Registry: s.registry, Logger: s.logger,
		Inherited: s.inherited.dogstatsd, Connections: s.shares.Streams,
	})
	return err
}

// sender returns the number by which aggregators know this collector. It is the
// same after a restart, so that a gauge merged from several hosts does not count
// this one twice.
func (s *server) sender() (uint64, error) {
	path := s.path("sender")
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		var id [8]byte
		if _, err := rand.Read(id[:]); err != nil {
			return 0, err
		}
		text = []byte(hex.EncodeToString(id[:]) + "\n")
		err = s.writeOnce("sender", text)
	}
	if err != nil {
		return 0, fmt.Errorf("identity of this collector: %w", err)
	}
	id, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(id) != 8 {
		return 0, fmt.Errorf("identity of this collector: %s holds %.40q, not 16 hexadecimal digits; remove the file to get a new one", path, text)
	}
	return binary.BigEndian.Uint64(id), nil
}

// writeOnce writes a file that is whole or not there, whatever happens meanwhile.
func (s *server) writeOnce(name string, text []byte) error {
	dir, err := files.Open(s.config.DataDir)
	if err != nil {
		return err
	}
	temp := name + ".tmp"
	f, err := dir.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(dir.Rename(temp, name), dir.SyncDir())
}

// replace writes a file that is read by the next process, or by another one. It is
// whole at any time and not synced, since a restart in place must not wait for a
// disk: a power loss may cost it.
func (s *server) replace(name string, text []byte) error {
	temp := s.path(name + ".tmp")
	if err := os.WriteFile(temp, text, 0o640); err != nil {
		return err
	}
	return os.Rename(temp, s.path(name))
}

// parts are what runs, in the order of starting. None waits for the one before: the
// collector reads while the aggregator opens. opened is called when all is open that
// was in use before.
func (s *server) parts(opened func() error) []run.Part {
	aggregate := s.runAggregator
	if !s.config.Stores() {
		aggregate = s.runDiscarding
	}
	all := []struct {
		run.Part
		has bool
	}{
		{run.Part{Name: "traces", Run: s.tracing.Run}, true},
		{run.Part{Name: "ledger", Run: s.keepLedger}, true},
		{run.Part{Name: "forward", Run: s.runForwarders, After: s.opening.opened}, s.config.Stores()},
		{run.Part{Name: "aggregator", Run: aggregate}, true},
		{run.Part{Name: "ingester", Run: s.runIngester, After: s.opening.opened}, s.config.Stores()},
		{run.Part{Name: "stores", Run: s.tendStores, After: s.opening.opened}, s.config.Stores()},
		{run.Part{Name: "restart", Run: s.restarter.run}, true},
		{run.Part{Name: "names", Run: s.forgetNames}, true},
		{run.Part{Name: "sockets", Run: s.keepBooked}, true},
		{run.Part{Name: "collector", Run: s.runCollector, After: s.mayRead()}, true},
		{run.Part{Name: "opening", Run: func(ctx context.Context) error { return s.runOpening(ctx, opened) }, After: s.opening.opened}, true},
		{run.Part{Name: "own metrics", Run: s.runScraper, After: s.opening.opened}, s.config.Stores() && s.config.Self.Metrics},
		{run.Part{Name: "reload", Run: s.reloader.watch, After: s.opening.opened}, true},
		{run.Part{Name: "restart signal", Run: s.restarter.watch}, true},
		{run.Part{Name: "otlp", Run: s.runOTLP, After: s.answering()}, s.otlp != nil},
		{run.Part{Name: "http", Run: s.runHTTP}, true},
		{run.Part{Name: "operators", Run: s.runOperatorSocket}, s.operatorSocket != nil},
		{run.Part{Name: "prober", Run: s.runProber, After: s.readied}, s.probing()},
		{run.Part{Name: "recorder", Run: s.recorder.Run}, true}, // the first to stop: who waits for a record must not hold up the others
	}
	var parts []run.Part
	for _, p := range all {
		if p.has {
			parts = append(parts, p.Part)
		}
	}
	return parts
}

// mayRead is closed when the sockets may be read, nil for at once. What waits in sockets
// that systemd holds can wait longer: were it read and the stores then not opened, it
// would be lost, and again with each try.
func (s *server) mayRead() <-chan struct{} {
	if len(s.inherited.shared) > 0 && !s.inherited.Again() {
		return s.opening.opened
	}
	return nil
}

func (s *server) runCollector(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.restarter.notReading)()
	return s.collector.Run(ctx)
}

func (s *server) runHTTP(ctx context.Context) error {
	defer s.ready.Store(false)
	return s.http.run(ctx, s.config.Drain)
}

func (s *server) runAggregator(ctx context.Context) error {
	if err := s.open(); err != nil {
		s.opening.fail()
		return err
	}
	restored := slices.SortedFunc(s.aggregator.Series(), func(a, b tile.Held) int { return cmp.Compare(a.LastSeen, b.LastSeen) })
	for _, held := range restored {
		if !held.Delta { // no series of DogStatsD, whose places these are
			s.collector.Restored(held.Tenant, []byte(held.Key), held.Source, time.UnixMilli(held.LastSeen))
		}
	}
	s.opening.open(s.aggregator, s.events)
	return s.aggregator.Run(ctx)
}

// forgetNames frees the names that have long been out of use, once a day.
func (s *server) forgetNames(ctx context.Context) error {
	for ticker := time.NewTicker(24 * time.Hour); ; {
		select {
		case now := <-ticker.C:
			if err := s.names.Forget(s.catalogue.Forget(now.UnixMilli(), now.Add(-s.unusedNames()).UnixMilli())); err != nil {
				s.logger.Warn("names out of use are remembered for another day", "error", err)
			}
		case <-ctx.Done():
			ticker.Stop()
			return nil
		}
	}
}

// closeTime bounds the wait for queries that still read the stores.
const closeTime = 10 * time.Second

// close gives back what newServer opened, in reverse order.
func (s *server) close() error {
	var errs []error
	if s.collector != nil {
		errs = append(errs, s.collector.Close())
	}
	errs = append(errs, s.otlp.close(), s.http.close(), s.closeOperatorSocket())
	if s.names != nil {
		errs = append(errs, s.names.Close())
	}
	if s.events != nil {
		errs = append(errs, s.events.Close())
	}
	if s.stores != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		errs = append(errs, s.stores.Close(ctx))
	}
	if s.lock != nil {
		errs = append(errs, os.Remove(s.path(answer.ListeningFile)), s.lock.Unlock())
	}
	for i, err := range errs {
		if errors.Is(err, os.ErrNotExist) {
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}
