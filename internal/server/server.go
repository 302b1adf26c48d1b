package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grafana/regexp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/freshet-io/freshet/internal/adapter/cataloguefile"
	"github.com/freshet-io/freshet/internal/adapter/connections"
	"github.com/freshet-io/freshet/internal/adapter/eventlog"
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/kubelet"
	"github.com/freshet-io/freshet/internal/adapter/memory"
	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/receive"
	"github.com/freshet-io/freshet/internal/adapter/rulesets"
	"github.com/freshet-io/freshet/internal/adapter/rulestates"
	"github.com/freshet-io/freshet/internal/adapter/tracing"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/metadata"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tenants"
	"github.com/freshet-io/freshet/internal/core/watermark"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/role/collector"
	"github.com/freshet-io/freshet/internal/role/distributor"
	"github.com/freshet-io/freshet/internal/role/filler"
	"github.com/freshet-io/freshet/internal/role/forwarder"
	"github.com/freshet-io/freshet/internal/role/gateway"
	"github.com/freshet-io/freshet/internal/role/group"
	"github.com/freshet-io/freshet/internal/role/ingester"
	"github.com/freshet-io/freshet/internal/role/outbox"
	"github.com/freshet-io/freshet/internal/role/prober"
	"github.com/freshet-io/freshet/internal/role/querier"
	"github.com/freshet-io/freshet/internal/role/recorder"
	"github.com/freshet-io/freshet/internal/role/ruler"
	"github.com/freshet-io/freshet/internal/role/scraper"
	"github.com/freshet-io/freshet/internal/settings"
)

// server is one process with its roles. A field is nil if newServer failed before it set the field,
// or if the field belongs to a role that the process does not have.
type server struct {
	config         settings.Config                 // the configuration at the start
	current        atomic.Pointer[settings.Config] // the configuration in force, after reloads
	hashed         atomic.Pointer[hashed]          // of that configuration, or of one before
	registry       *prometheus.Registry
	logger         *slog.Logger // writes to log
	log            *serverLog
	lock           *files.Lock                            // the lock of the data directory
	identity       atomic.Pointer[identity.Identity]      // the node of this data directory; nil outside a cluster
	copies         *filler.Copies                         // of this node's data, for other nodes; nil outside a cluster
	filler         *filler.Filler                         // fills this node; nil outside a cluster
	nodes          *nodes                                 // connections to the nodes of the cluster; nil outside a cluster
	seen           seenNodes                              // the last known figures of the nodes
	damaged        atomic.Pointer[answer.Damage]          // why the state of this node must not be trusted; nil if it may
	logDamage      atomic.Pointer[answer.Damage]          // of the group's log; nil if none is known
	eventDamage    atomic.Pointer[answer.Damage]          // of the event log of a node; nil if none is known
	stays          atomic.Pointer[string]                 // why this damaged node does not heal; else nil
	disk           atomic.Pointer[peer.Disk]              // of the data directory; nil until it is measured
	tenantBytes    atomic.Pointer[[]answer.ClusterTenant] // that stores take on the disk; nil until they are counted
	seenBooks      seenBooks                              // the last known books of the other nodes
	collectorBooks collectorBooks                         // of collectors on other hosts
	delivers       deliveries                             // of all collectors, while this node leads
	figures        tellFigures                            // ownFigures, called for other nodes
	openHistory    func(string) (io.ReadCloser, error)    // openImported, called for other nodes
	missingBlocks  func() uint64                          // countMissing, called for the status
	memory         memory.Limit
	shares         connections.Shares // how the file descriptors are divided
	catalogue      *catalogue.Catalogue
	catalogueFile  *cataloguefile.File

	// The roles, and objects that belong to one role.
	collector      *collector.Collector
	pods           *kubelet.Pods // for the collector; nil if no kubelet is asked
	limiter        *limit.Limiter
	mapper         atomic.Pointer[mapping.Mapper] // the mapping rules of the collector
	ingester       *ingester.Ingester
	stores         *tsdb.Stores
	tenants        *tenants.Gate // not used in a group
	events         *eventlog.Log
	forwarders     []*forwarder.Forwarder // one for each backend, in the order of the configuration
	distributor    *distributor.Distributor
	receiver       *receive.Receiver             // reads requests of remote write and OTLP for the distributor
	metadata       *metadata.Store               // metadata that senders of remote write and OTLP have sent
	aggregator     tiles                         // the aggregator, or a member of a group
	requests       *group.Requests               // the requests of the group; nil without a group
	gateway        *gateway.Gateway              // hands writes to the leader of the group; nil outside a cluster
	outgoing       *outbox.Events                // hands events to the leader of the group; nil without a group
	relay          *gateway.Relay                // passes requests on to the nodes; nil without the role gateway
	outbox         atomic.Pointer[outbox.Outbox] // nil outside a cluster, and until it is open
	querier        *querier.Queryable
	engine         *promapi.Engine  // the PromQL engine of the querier
	watermarks     *watermark.All   // of the tenants with rules; nil without the role ruler
	ruler          *ruler.Ruler     // nil without the role ruler
	ruleStates     *rulestates.File // nil without the role ruler
	ruleSets       ruleSets         // set by the API; nil without the role ruler
	ruleFiles      *rulesets.Sets   // the files of ruleSets; nil in a cluster
	ruleSetAPI     ruleSetAPI
	clusterHistory *clusterHistory // imported blocks of a node; nil outside a cluster
	scraper        *scraper.Scraper
	prober         *prober.Prober

	// Parts that observe the process.
	ledger     *ledger.Ledger
	books      sync.Mutex  // held while the ledger is written
	booksFinal bool        // the final books are written
	previous   *savedBooks // the books of the previous process, or nil
	watch      *stage.Watch
	tracing    *tracing.Tracing
	recorder   *recorder.Recorder

	// The HTTP and gRPC servers, and what they answer.
	http           httpServers
	httpAt         atomic.Pointer[httpServer]    // the first of http, for other goroutines during the start
	operatorSocket *httpServer                   // nil if none can be bound
	otlp           *otlpServer                   // nil if no address is configured
	bound          *connections.Bound            // bounds the connections of http and otlp
	handler        atomic.Pointer[http.ServeMux] // nil while starting
	metrics        http.Handler                  // serves the metrics of the whole process
	access         atomic.Pointer[tenant.Access] // rights of clients; nil: all may send for the address' tenant
	operators      atomic.Pointer[tenant.Operators]
	proxied        atomic.Pointer[string] // name of the first proxy header that was seen, or nil
	proxies        *sender.Proxies        // may name the sender of a request, and nothing else
	refused        *prometheus.CounterVec // counts refused requests, by reason
	origins        *regexp.Regexp         // origins whose pages may read; nil: only our own page

	// State from the start of the process to its end.
	started       time.Time
	inherited     *inheritance
	opening       opening
	ready         atomic.Bool
	clockWrong    atomic.Bool // see lookAtClock
	retirement    retirement
	readied       chan struct{} // closed when the server is ready for the first time
	listeningTold listeningTold
	reloader      *reloader
	restarter     *restarter
}

// newServer opens everything that the collector needs to read the sockets, in order of dependency.
// buildRoles does the rest. The data directory and the ports come first: if another process holds them,
// the error comes at once. `from` is where a reload reads the configuration again. Even after an error
// the caller must close the server.
func newServer(
	c settings.Config, from *settings.Source, registry *prometheus.Registry, log *serverLog,
) (*server, error) {
	s := &server{
		config: c, registry: registry, logger: log.Logger, log: log, retirement: retirement{hurried: make(chan struct{})},
		started: time.Now(), ledger: ledger.New(), watch: stage.NewWatch(), proxies: c.HTTP.Proxies(),
	}
	s.current.Store(&c)
	s.figures, s.openHistory, s.missingBlocks = s.ownFigures, s.openImported, s.countMissing
	s.opening = newOpening()
	s.readied = make(chan struct{})
	s.reloader = newReloader(from, c.DataDir, registry)
	s.restarter = newRestarter()
	registry.MustRegister(log, buildGauge(build.This()),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, open := range []func() error{
		s.findMemory, s.openSelf, s.openInherited, s.openRestarted, s.openDirectory, s.checkMounts, s.checkNotes,
		s.openIdentity, s.readDamage, s.openFilling, s.openConnections, s.openNodes, s.openLedger,
		s.openAccess, s.openOperators, s.openOrigins, s.openHTTP, s.openOperatorSocket, s.openOTLP,
		s.openCatalogue, s.openCollector, s.checkLeft,
	} {
		if err := open(); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *server) openHTTP() (err error) {
	s.http, err = listenHTTP(s.config.HTTP, s, s.inherited, s.bound, s.logger)
	if err == nil {
		s.httpAt.Store(s.http[0])
	}
	return err
}

// closeTime bounds the wait for queries that still read stores.
const closeTime = 10 * time.Second

// close releases what newServer opened, in reverse order.
func (s *server) close() error {
	var errs []error
	if s.collector != nil {
		errs = append(errs, s.collector.Close())
	}
	errs = append(errs, s.otlp.close(), s.http.close(), s.closeOperatorSocket())
	if s.ruleStates != nil {
		errs = append(errs, s.ruleStates.Close())
	}
	if s.catalogueFile != nil {
		errs = append(errs, s.catalogueFile.Close())
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
