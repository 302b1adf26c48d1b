package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/settings"
)

// reasonNoAggregator is the ledger's reason for samples that are discarded because the process has
// the role collector alone.
const reasonNoAggregator = "no_aggregator"

// The books stay in a file after the process has ended. After kill -9, this file is up to booksInterval
// old, and not final.
const (
	booksFile     = "ledger.json"
	booksInterval = 10 * time.Second
)

// savedBooks is the content of the file.
type savedBooks struct {
	Written int64 `json:"written_ms"` // Unix ms
	Final   bool  `json:"final"`      // written after all parts had stopped, so the books are complete
	ledger.Books
}

// openLedger reads the books of the previous process, which the server shows beside its own books.
// The server also starts without them.
func (s *server) openLedger() error {
	s.registry.MustRegister(booksExporter{s.ledger})
	text, err := os.ReadFile(s.path(booksFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	saved := new(savedBooks)
	if err == nil {
		err = json.Unmarshal(text, saved)
	}
	if err != nil {
		s.logger.Warn("the books of the previous process cannot be read", "file", s.path(booksFile), "error", err)
		return nil
	}
	s.previous = saved
	return nil
}

// keepLedger writes the books at intervals, and a last time when ctx is done. By then all parts that
// post to the books have stopped.
func (s *server) keepLedger(ctx context.Context) error {
	ticker := time.NewTicker(booksInterval)
	defer ticker.Stop()
	for {
		s.writeLedger(ctx.Err() != nil)
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// writeLedger writes the books. It never replaces final books.
func (s *server) writeLedger(final bool) {
	s.books.Lock()
	defer s.books.Unlock()
	if s.booksFinal && !final {
		return
	}
	s.booksFinal = final
	text, err := json.Marshal(savedBooks{Written: time.Now().UnixMilli(), Final: final, Books: s.ledger.Books()})
	if err == nil {
		err = s.replace(booksFile, append(text, '\n'))
	}
	if err != nil {
		s.logger.Warn("the books cannot be written; the next process will not know them",
			"file", s.path(booksFile), "error", err)
	}
}

// waiting returns figures of the samples that wait for a tenant's stores, or nil if none wait.
func (s *server) waiting(tenant string) *answer.Waiting {
	if s.aggregator == nil {
		return nil
	}
	p, ok := s.aggregator.Pending()[tenant]
	if !ok {
		return nil
	}
	w := &answer.Waiting{Samples: p.Samples, Bytes: p.Bytes, Since: p.Since, Refused: p.Refused}
	if p.Err != nil {
		w.Error = p.Err.Error()
	}
	return w
}

// serveLedger answers with the books of a tenant. On a node of a cluster, they are the sum of all nodes'
// books.
func (s *server) serveLedger(w http.ResponseWriter, r *http.Request) {
	local, err := onlyLocal(r)
	if err != nil {
		refuseParameter(w, err)
		return
	}
	data := s.ownLedger(tenantOf(r))
	if !local && s.config.Cluster.Node != "" {
		data.Collectors = s.collectorBooks.of(data.Name)
		sumLedgers(&data, s.askLedgers(r.Context(), data.Name), s.operator(r))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data}) // fails only if the client is gone
}

// ownLedger returns the books of a tenant in this process.
func (s *server) ownLedger(tenant string) answer.Ledger {
	books := s.ledger.Books()
	l := answer.Ledger{
		Name: tenant, Started: s.started.UnixMilli(), Boundary: books.Boundary, Probing: s.has(settings.RoleProber),
		Tenant: books.Of(tenant), Waiting: s.waiting(tenant), Node: s.config.Cluster.Node,
	}
	if s.ruler != nil {
		l.Notifications = s.ruler.Retriever(tenant).Notifications()
	}
	if l.Node != "" {
		l.Copied = &l.Tenant.Copied
	}
	if p := s.previous; p != nil {
		l.Previous = &answer.Previous{Written: p.Written, Final: p.Final, Tenant: p.Of(tenant)}
	}
	return l
}

// sumLedgers adds the books of all other nodes, and of collectors on other hosts, to those of this node. If a
// node or collector does not answer, sumLedgers adds its last known books, if there are any. Only an operator sees
// the error.
func sumLedgers(l *answer.Ledger, others []toldBooks, operator bool) {
	copied := *l.Copied
	all := append(sumCollectors(l, others), l.Tenant)
	own := ledgerNode(l)
	own.Name = l.Node
	l.Nodes = append(l.Nodes, own)
	for _, t := range others {
		n := answer.LedgerNode{Name: t.node}
		if t.books != nil {
			n = ledgerNode(t.books)
			n.Name = t.node
			of := t.books.Tenant
			of.Copied = *t.books.Copied
			all = append(all, of)
		}
		if t.err != nil {
			l.Short = true
			n.Error = whyNot(t.err, operator)
			if t.books != nil {
				n.AgeSeconds = new(t.age.Seconds())
			}
		}
		l.Nodes = append(l.Nodes, n)
	}
	slices.SortFunc(l.Nodes, func(a, b answer.LedgerNode) int { return strings.Compare(a.Name, b.Name) })
	l.Tenant = ledger.Sum(all, copied)
	l.Copied, l.Previous = &copied, nil
}

func ledgerNode(l *answer.Ledger) answer.LedgerNode {
	return answer.LedgerNode{Started: l.Started, Boundary: l.Boundary, Received: l.Samples.Received,
		HandedOver: l.Samples.HandedOver, Difference: l.Samples.Difference}
}

// booksExporter exports the books as metrics. Their number is bounded: the ledger bounds the tenants,
// and the reasons are a fixed list in the code.
type booksExporter struct{ ledger *ledger.Ledger }

func describeBooks(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("freshet_ledger_"+name, help, append([]string{"tenant"}, labels...), nil)
}

var (
	descBooksCame = describeBooks("received_samples_total",
		"Values received, by source: read from sockets, already in tiles when the process started, or collected from the "+
			"log of the group.", "source")
	descBooksHanded = describeBooks("handed_over_samples_total",
		"Values received that the leader of the cluster acknowledged. All nodes have them, as collected.")
	descBooksEnded = describeBooks("samples_total",
		"Values received, by their final state and why (docs/ledger.md). Rising in any state but stored: data is lost.",
		"state", "reason")
	descBooksOpen = describeBooks("open_samples",
		"Values received that are still in a window or a tile. Rising without end: the next stage accepts nothing.", "state")
	descBooksDifference = describeBooks("difference",
		"Values received minus those in all states. Anything but 0: a bug in Freshet.")
	descBooksOfWhich = describeBooks("of_which_samples_total",
		"Values with a property in addition to their state: folded, late_kept, ahead, respelled.", "property")
	descBooksDatagrams = describeBooks("datagrams_total",
		"Datagrams and frames by their state. Rising in any state but read: data is lost.", "state")
	descBooksConnections = describeBooks("refused_connections_total",
		"Stream connections closed at once because too many were open.")
	descBooksClients = describeBooks("client_counts_total",
		"What clients report about themselves (datadog.dogstatsd.client.*). Rising drops: data is lost before it "+
			"reaches a socket.", "count")
)

// Describe implements prometheus.Collector. It declares nothing, since the metrics are not known in
// advance.
func (e booksExporter) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (e booksExporter) Collect(out chan<- prometheus.Metric) {
	for tenant, t := range e.ledger.Books().Tenants {
		put := func(desc *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(desc, kind, v, append([]string{tenant}, labels...)...)
		}
		count := func(desc *prometheus.Desc, n uint64, labels ...string) {
			put(desc, prometheus.CounterValue, float64(n), labels...)
		}
		s, d := t.Samples, t.Datagrams
		count(descBooksCame, s.Received, "received")
		count(descBooksCame, s.Restored, "restored")
		for _, state := range s.Lost() {
			for reason, n := range state.Reasons {
				count(descBooksEnded, n, state.Account.String(), reason)
			}
		}
		count(descBooksEnded, s.Stored, "stored", "")
		if s.Collected > 0 {
			count(descBooksCame, s.Collected, "collected")
		}
		if s.HandedOver > 0 {
			count(descBooksHanded, s.HandedOver)
		}
		put(descBooksOpen, prometheus.GaugeValue, float64(s.Window), "window")
		put(descBooksOpen, prometheus.GaugeValue, float64(s.Tile), "tile")
		put(descBooksDifference, prometheus.GaugeValue, float64(s.Difference))
		count(descBooksOfWhich, s.OfWhich.Folded, "folded")
		count(descBooksOfWhich, s.OfWhich.LateKept, "late_kept")
		count(descBooksOfWhich, s.OfWhich.Ahead, "ahead")
		count(descBooksOfWhich, s.OfWhich.Respelled, "respelled")
		if d != (ledger.DatagramBook{}) { // most of many tenants send no datagrams
			count(descBooksDatagrams, d.Read, "read")
			count(descBooksDatagrams, d.KernelDropped, "kernel_dropped")
			count(descBooksDatagrams, d.Oversized, "oversized")
			count(descBooksDatagrams, d.CutFrames, "cut_frames")
			count(descBooksConnections, d.RefusedConnections)
		}
		for name, n := range t.Clients {
			put(descBooksClients, prometheus.CounterValue, n, name)
		}
	}
}
