// Package metadata holds what senders say of their metrics: type, help and unit. It is in
// memory only, as in Prometheus, since senders say it again every minute or with every
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
	// maxNames of a tenant are remembered, 10 MB at 500 bytes.
	maxNames = 20_000

	// maxText bounds help and unit, in bytes.
	maxText = 1 << 10
)

// Store is what all tenants' senders said. It is safe for concurrent use.
type Store struct {
	mu      sync.RWMutex
	tenants map[string]map[string]metadata.Metadata
}

// New returns an empty store.
func New() *Store { return &Store{tenants: map[string]map[string]metadata.Metadata{}} }

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

// Families keeps what a request of version 1 says.
func (s *Store) Families(tenant string, families []remotewrite.Family) {
	for i := range families {
		f := &families[i]
		s.set(tenant, string(f.Name), typeOf(f.Type), f.Help, f.Unit)
	}
}

// Series keeps what a series of version 2 says, if anything. What is said of parts of a
// classic histogram or summary holds for the whole.
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

func (s *Store) set(tenant, name string, t model.MetricType, help, unit []byte) {
	if name == "" || len(name) > maxText {
		return
	}
	s.mu.RLock()
	known, ok := s.tenants[tenant][name]
	s.mu.RUnlock()
	if ok && known.Type == t && known.Help == text(help) && known.Unit == text(unit) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.tenants[tenant]
	if names == nil {
		names = map[string]metadata.Metadata{}
		s.tenants[strings.Clone(tenant)] = names
	}
	if !ok && len(names) >= maxNames {
		return // it is shown nowhere, and costs nobody a sample
	}
	names[strings.Clone(name)] = metadata.Metadata{Type: t, Help: text(help), Unit: text(unit)}
}

func text(b []byte) string {
	return strings.ToValidUTF8(string(b[:min(len(b), maxText)]), "")
}

// All yields what is known of a tenant's metrics, by name.
func (s *Store) All(tenant string, yield func(name string, m metadata.Metadata) bool) {
	s.mu.RLock()
	names := maps.Clone(s.tenants[tenant])
	s.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !yield(name, names[name]) {
			return
		}
	}
}
