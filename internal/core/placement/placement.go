// Package placement says which instance owns which shard. It holds the answer,
// not how instances agree on it: on one machine there is one instance, in a
// cluster the value comes from etcd.
package placement

import (
	"slices"

	"github.com/freshet-io/freshet/internal/core/series"
)

// Placement is one version of the assignment of shards to instances. It is never
// changed once made: a change is another Placement with a higher epoch.
type Placement struct {
	Epoch     uint64 // fences those who act on an older version
	instances []string
	owners    [series.Shards]uint16 // index in instances
}

// Single returns the placement of a process that runs alone.
func Single(instance string) *Placement {
	return &Placement{Epoch: 1, instances: []string{instance}}
}

// New returns a placement in which owner says who owns each shard.
func New(epoch uint64, owner func(shard uint16) string) *Placement {
	p := &Placement{Epoch: epoch}
	for shard := range uint16(series.Shards) {
		name := owner(shard)
		i := slices.Index(p.instances, name)
		if i < 0 {
			i = len(p.instances)
			p.instances = append(p.instances, name)
		}
		p.owners[shard] = uint16(i)
	}
	return p
}

// Instances are those that own shards, each once.
func (p *Placement) Instances() []string { return p.instances }

// Owner is the instance that owns a shard.
func (p *Placement) Owner(shard uint16) string { return p.instances[p.owners[shard]] }
