// Package metadata holds the type, help and unit that senders give for their metrics. As in
// Prometheus, metadata is in memory only, since senders repeat it every minute or with every
// sample.
package metadata

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

const (
	// maxNames and maxBytes bound the memory for a tenant: the number of names, and the bytes of
	// names and texts.
	maxNames = 20_000
	maxBytes = 4 << 20

	// maxText bounds help and unit, in bytes.
	maxText = 1 << 10
)

// Store is the metadata of all tenants. It is safe for concurrent use.
type Store struct {
	mu      sync.RWMutex
	tenants map[string]*tenant
}

type tenant struct {
	names map[string]metadata.Metadata
	bytes int // of names and texts
}

func size(name string, m metadata.Metadata) int { return len(name) + len(m.Help) + len(m.Unit) }

// New returns an empty store.
func New() *Store { return &Store{tenants: map[string]*tenant{}} }

var types = [...]model.MetricType{
	remotewrite.UnknownType: model.MetricTypeUnknown, remotewrite.CounterType: model.MetricTypeCounter,
	remotewrite.GaugeType: model.MetricTypeGauge, remotewrite.HistogramType: model.MetricTypeHistogram,
	remotewrite.GaugeHistogramType: model.MetricTypeGaugeHistogram, remotewrite.SummaryType: model.MetricTypeSummary,
	remotewrite.InfoType: model.MetricTypeInfo, remotewrite.StatesetType: model.MetricTypeStateset,
}

func typeOf(t remotewrite.MetricType) model.MetricType {
	if t < 0 || int(t) >= len(types) {
		return model.MetricTypeUnknown
	}
	return types[t]
}

// Families keeps the metadata of a request of version 1.
func (s *Store) Families(tenant string, families []remotewrite.Family) {
	for i := range families {
		f := &families[i]
		s.set(tenant, string(f.Name), typeOf(f.Type), f.Help, f.Unit)
	}
}

// Series keeps the metadata of a series of version 2, if it has any. Metadata of a series that is
// part of a classic histogram or summary applies to the whole metric.
func (s *Store) Series(tenant, name string, r *remotewrite.Request, m remotewrite.Metadata) {
	if m == (remotewrite.Metadata{}) {
		return
	}
	t := typeOf(m.Type)
	if t == model.MetricTypeHistogram || t == model.MetricTypeGaugeHistogram || t == model.MetricTypeSummary {
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if whole, ok := strings.CutSuffix(name, suffix); ok {
				name = whole
				break
			}
		}
	}
	s.set(tenant, name, t, r.Symbol(m.Help), r.Symbol(m.Unit))
}

func (s *Store) set(tenantName, name string, t model.MetricType, help, unit []byte) {
	if name == "" || len(name) > maxText {
		return
	}
	s.mu.RLock()
	var known metadata.Metadata
	if of := s.tenants[tenantName]; of != nil {
		known = of.names[name]
	}
	s.mu.RUnlock()
	if known.Type == t && known.Help == text(help) && known.Unit == text(unit) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.tenants[tenantName]
	if of == nil {
		of = &tenant{names: map[string]metadata.Metadata{}}
		s.tenants[strings.Clone(tenantName)] = of
	}
	m := metadata.Metadata{Type: t, Help: text(help), Unit: text(unit)}
	before, ok := of.names[name]
	more := size(name, m)
	if ok {
		more -= size(name, before)
	}
	if !ok && len(of.names) >= maxNames || of.bytes+more > maxBytes {
		return // the metadata is not kept, but samples are stored
	}
	of.names[strings.Clone(name)] = m
	of.bytes += more
}

func text(b []byte) string {
	return strings.ToValidUTF8(string(b[:min(len(b), maxText)]), "")
}

// All yields the metadata of a tenant's metrics, by name.
func (s *Store) All(tenant string, yield func(name string, m metadata.Metadata) bool) {
	s.mu.RLock()
	var names map[string]metadata.Metadata
	if of := s.tenants[tenant]; of != nil {
		names = maps.Clone(of.names)
	}
	s.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !yield(name, names[name]) {
			return
		}
	}
}
