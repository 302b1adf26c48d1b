package server

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/role/collector"
)

// tenantLimits says how far a tenant uses up its limits, for GET /api/v1/status/limits. The first fields
// are about DogStatsD; Distributor has the limits of remote write and OTLP. /api/v1/status/top has the
// metrics over a limit, and the senders that cause it.
type tenantLimits struct {
	Tenant      string             `json:"tenant"`
	Series      int                `json:"series"`                     // DogStatsD series that have a place now
	Elsewhere   int                `json:"series_elsewhere,omitempty"` // in other processes of the cluster
	Folded      uint64             `json:"folded_samples"`
	Refused     uint64             `json:"refused_samples"`
	Limits      limitsJSON         `json:"limits"`
	Distributor *distributorLimits `json:"distributor,omitempty"` // nil if the process stores nothing
}

// limitsJSON has limits, named as in the configuration. 0 means no limit.
type limitsJSON struct {
	MaxSeries             int   `json:"max_series"`
	MaxSeriesPerMetric    int   `json:"max_series_per_metric"`
	MaxNewSeriesPerMinute int   `json:"max_new_series_per_minute"`
	MaxSeriesBytes        int64 `json:"max_series_bytes"`
}

// distributorLimits are the limits of remote write and OTLP, and their use. MaxSeries bounds Series and
// Totals separately.
type distributorLimits struct {
	Series  int                  `json:"series"`           // recent series of remote write, and of OTLP without deltas
	Totals  int                  `json:"totals"`           // series with totals: OTLP deltas and DogStatsD
	Refused uint64               `json:"refused_samples"`  // samples refused by a limit of series or labels
	Delayed uint64               `json:"delayed_requests"` // requests over the rate, which were told to retry later
	Sender  *answer.TopRequester `json:"sender,omitempty"` // the sender of the most samples now
	Limits  distributorJSON      `json:"limits"`
}

// distributorJSON has limits, named as in the configuration.
type distributorJSON struct {
	Rate          int `json:"rate"`
	MaxSeries     int `json:"max_series"`
	MaxLabels     int `json:"max_labels"`
	MaxLabelName  int `json:"max_label_name"`
	MaxLabelValue int `json:"max_label_value"`
}

// limitsAnswer is the answer of GET /api/v1/status/limits.
type limitsAnswer struct {
	Tenant  string         `json:"tenant"`
	Tenants []tenantLimits `json:"tenants"`

	// In a cluster, Node is the node that answers, and stored series are counted on it. If Nodes is
	// empty, all figures are of this node alone.
	Node  string       `json:"node,omitempty"`
	Nodes []limitsNode `json:"nodes,omitempty"`
	Short bool         `json:"short,omitempty"` // a node's figures are missing
}

type limitsNode struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // why the node's figures are missing
}

// serveLimits answers an operator with the limits of all tenants that have series, and a tenant with its
// own limits. On a node of a cluster, the numbers of samples are sums over all nodes.
func (s *server) serveLimits(w http.ResponseWriter, r *http.Request) {
	local, err := onlyLocal(r)
	if err != nil {
		refuseParameter(w, err)
		return
	}
	operator := s.operator(r)
	data := s.ownLimits(tenantOf(r), operator)
	if !local && s.config.Cluster.Node != "" {
		asked := data.Tenant
		if operator {
			asked = "" // all tenants
		}
		data.sum(s.askFigures(r.Context(), peer.Limits, asked), operator)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data}) // fails only if the client is gone
}

// ownLimits returns the limits of a tenant in this process, or of all tenants that have series.
func (s *server) ownLimits(name string, all bool) limitsAnswer {
	asked := map[string]bool{}
	if name != "" {
		asked[name] = true // the tenant may have no series yet
	}
	dogstatsd, stored := map[string]collector.LimitReport{}, map[string]int{}
	for _, report := range s.collector.Limits() {
		dogstatsd[report.Tenant] = report
	}
	if s.stores != nil {
		stored = s.stores.InMemory(tsdb.Raw)
	}
	if all {
		for tenant := range dogstatsd {
			asked[tenant] = true
		}
		for tenant := range stored {
			asked[tenant] = true
		}
	}
	limits, senders, tenants := s.inForce().Limits, s.requestSenders(), []tenantLimits{}
	for _, tenant := range slices.Sorted(maps.Keys(asked)) {
		of, report := limits.Of(tenant), dogstatsd[tenant]
		t := tenantLimits{Tenant: tenant, Series: report.Series, Elsewhere: report.Elsewhere, Limits: limitsJSON{
			of.MaxSeries, of.MaxSeriesPerMetric, of.MaxNewSeriesPerMinute, int64(of.MaxSeriesBytes),
		}}
		for reason := range report.Folded {
			t.Folded += report.Folded[reason]
			t.Refused += report.Refused[reason]
		}
		if s.stores != nil {
			series := stored[tenant] // until the first write, all stored series count as recent
			if recent := s.ingester.Recent(tenant); recent > 0 {
				series = recent
			}
			t.Distributor = s.distributorLimits(tenant, series, senders[tenant])
		}
		tenants = append(tenants, t)
	}
	return limitsAnswer{Tenant: name, Tenants: tenants, Node: s.config.Cluster.Node}
}

// sum adds the figures of all other nodes to those of this node.
func (a *limitsAnswer) sum(others []toldFigures, operator bool) {
	for i := range a.Tenants {
		a.Tenants[i].Series += a.Tenants[i].Elsewhere
	}
	a.Nodes = append(a.Nodes, limitsNode{Name: a.Node})
	for _, t := range others {
		var other limitsAnswer
		if t.err == nil {
			t.err = json.Unmarshal(t.json, &other)
		}
		n := limitsNode{Name: t.node}
		if t.err != nil {
			a.Short, n.Error = true, whyNot(t.err, operator)
		} else {
			a.add(&other)
		}
		a.Nodes = append(a.Nodes, n)
	}
	slices.SortFunc(a.Nodes, func(a, b limitsNode) int { return strings.Compare(a.Name, b.Name) })
}

// add adds the figures of another node. Each sample and each request came to one node only, so their
// numbers are added up. Each node knows the DogStatsD series of the whole cluster, but some nodes a
// second later than others, so the larger number counts. Stored series are the same on all nodes.
func (a *limitsAnswer) add(other *limitsAnswer) {
	for _, t := range other.Tenants {
		t.Series += t.Elsewhere
		i, known := slices.BinarySearchFunc(a.Tenants, t.Tenant, func(have tenantLimits, want string) int {
			return strings.Compare(have.Tenant, want)
		})
		if !known {
			a.Tenants = slices.Insert(a.Tenants, i, t)
			continue
		}
		sum := &a.Tenants[i]
		sum.Folded += t.Folded
		sum.Refused += t.Refused
		if t.Series > sum.Series { // this node does not know all series yet
			sum.Series, sum.Elsewhere = t.Series, t.Series-(sum.Series-sum.Elsewhere)
		}
		if own, of := sum.Distributor, t.Distributor; own != nil && of != nil {
			own.Refused += of.Refused
			own.Delayed += of.Delayed
			if of.Sender != nil && (own.Sender == nil || of.Sender.Samples > own.Sender.Samples) {
				own.Sender = of.Sender
			}
		}
	}
}

// distributorLimits returns a tenant's limits of remote write and OTLP, and their use. `series` is the
// number of the tenant's recent series, and `senders` are its senders.
func (s *server) distributorLimits(tenant string, series int, senders []answer.TopRequester) *distributorLimits {
	c := s.inForce().Distributor
	own := c.Tenants[tenant]
	l := &distributorLimits{
		Series: series, Totals: s.aggregator.TenantSeries(tenant), Delayed: s.distributor.Delayed(tenant),
		Limits: distributorJSON{
			own.Rate.Or(c.Rate), own.MaxSeries.Or(c.MaxSeries), c.MaxLabels, c.MaxLabelName, c.MaxLabelValue,
		},
	}
	if len(senders) > 0 {
		l.Sender = &senders[0]
	}
	refused := s.ledger.Books().Of(tenant).Samples.Refused
	for reason := range outcome.NumReasons {
		if reason.IsLimit() {
			l.Refused += refused[reason.String()]
		}
	}
	return l
}
