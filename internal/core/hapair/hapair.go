// Package hapair elects one of several senders of the same samples: Prometheus servers that scrape the same targets
// so that one may fail. The package reads no clock: equal requests in equal order give equal elections, on every
// member of a group.
package hapair

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/freshet-io/freshet/internal/lib/fields"
)

// maxClusters is how many clusters of a tenant are tracked. Requests of other clusters are
// always accepted, so that a sender that varies its cluster label loses nothing.
const maxClusters = 1000

// Pairs remembers the elected replica of each tenant and cluster. The zero value is empty and
// ready. It is not safe for concurrent use.
type Pairs struct {
	tenants map[string]map[string]*elected
}

type elected struct {
	replica string
	seen    int64 // Unix milliseconds, the arrival of the replica's newest request
}

// Accept reports whether a request of `replica` is accepted. `arrival` is the request's time in Unix milliseconds.
// If the elected replica has sent nothing for more than `timeout` milliseconds, Accept elects `replica` in its
// place. `changed` reports that this request elected its replica.
func (p *Pairs) Accept(tenant, cluster, replica string, arrival, timeout int64) (taken, changed bool) {
	clusters := p.tenants[tenant]
	e := clusters[cluster]
	switch {
	case e == nil && len(clusters) >= maxClusters:
		return true, false
	case e == nil:
		p.set(tenant, cluster, elected{replica, arrival})
		return true, true
	case e.replica == replica:
		e.seen = max(e.seen, arrival)
		return true, false
	case arrival-e.seen <= timeout:
		return false, false
	}
	*e = elected{string([]byte(replica)), arrival}
	return true, true
}

// set adds an election. It copies the strings, since they may point into a request, whose memory is not
// ours.
func (p *Pairs) set(tenant, cluster string, e elected) {
	if p.tenants == nil {
		p.tenants = map[string]map[string]*elected{}
	}
	clusters := p.tenants[tenant]
	if clusters == nil {
		clusters = map[string]*elected{}
		p.tenants[string([]byte(tenant))] = clusters
	}
	e.replica = string([]byte(e.replica))
	clusters[string([]byte(cluster))] = &e
}

const version = 1

// Append appends the saved form. Equal elections have equal bytes.
//
// Layout: the version and the number of tenants. Each tenant, in the order of names, has its name and the number of
// its clusters. Each cluster, in the order of names, has its name, the elected replica and the time of that
// replica's newest request. Numbers are varints, and a text follows its length.
func (p *Pairs) Append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, version), uint64(len(p.tenants)))
	for _, tenant := range slices.Sorted(maps.Keys(p.tenants)) {
		clusters := p.tenants[tenant]
		b = binary.AppendUvarint(appendText(b, tenant), uint64(len(clusters)))
		for _, cluster := range slices.Sorted(maps.Keys(clusters)) {
			e := clusters[cluster]
			b = appendText(appendText(b, cluster), e.replica)
			b = binary.AppendVarint(b, e.seen)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errForm = errors.New("the elections of HA pairs are damaged, or a newer version wrote them")

// Parse replaces all elections by those in a saved form. It refuses all bytes that Append would not
// write, and then replaces nothing.
func (p *Pairs) Parse(b []byte) error {
	d := fields.Reader{B: b}
	if len(b) == 0 || b[0] != version {
		return errForm
	}
	d.B = b[1:]
	var all Pairs
	last := ""
	for i := range d.Count() {
		tenant := d.Text()
		clusters := d.Count()
		if clusters == 0 || clusters > maxClusters || i > 0 && tenant <= last {
			return errForm
		}
		before := ""
		for j := range clusters {
			cluster := d.Text()
			e := elected{d.Text(), d.Varint()}
			if j > 0 && cluster <= before {
				return errForm
			}
			all.set(tenant, cluster, e)
			before = cluster
		}
		last = tenant
	}
	if !d.Done() {
		return errForm
	}
	*p = all
	return nil
}
