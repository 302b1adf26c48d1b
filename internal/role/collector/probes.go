package collector

import (
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/probe"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/window"
)

// probes is the part of a listener that counts the datagrams of Freshet's own probes, apart from the
// datagrams of applications. Probes and applications share the socket, the reader, the window's second
// and the flusher, so probes measure the path of applications. Probes belong to Freshet's own tenant, so
// they do not appear in the names, limits, books and rules of the listener's tenant, nor in freshet
// tail.
type probes struct {
	terms  *terms // the listener's terms when the probes were made
	parser dogstatsd.Parser
	line   [1]dogstatsd.Metric
	table  *window.Table
	closed *window.Window // a window that waits to be handed to the flusher
	posted uint64         // samples that are already in the ledger
}

// probe counts a datagram that is a probe.
func (l *listener) probe(packet []byte, now int64) {
	l.probed++
	if l.probes == nil || l.probes.terms != l.terms { // a reload may have given the socket to another tenant
		p := &probes{terms: l.terms}
		// Probes need no limit of series: all probes on a tenant's sockets are one series.
		p.table = window.New(&probeResolver{mark: l.shared.Probe, tenant: l.terms.tenant},
			window.Options{IdleWindows: l.terms.idleWindows})
		p.table.Start(now)
		l.probes = p
	}
	p := l.probes
	p.parser.Reset(packet)
	n, _ := p.parser.Metrics(p.line[:])
	p.table.Metrics(p.line[:n], now)
}

// close ends the open window. It returns false while the flusher still has the previous
// window.
func (p *probes) close(now int64) bool {
	if p == nil || p.closed != nil { // a closed window still waits, because the listener could not close its own window
		return true
	}
	w, ok := p.table.Close(now)
	p.closed = w
	return ok
}

// take returns the window that the method close ended, or nil if the window had no probes.
func (p *probes) take() *window.Window {
	if p == nil {
		return nil
	}
	w := p.closed
	p.closed = nil
	return w
}

// postProbes adds the probes since the last window to the ledger.
func (l *listener) postProbes() {
	if l.probes == nil {
		return
	}
	n := l.probes.table.Stats().Samples - l.probes.posted
	if n == 0 {
		return
	}
	l.probes.posted += n
	books := l.shared.Ledger
	books.Post(tenant.Own,
		ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: n},
		ledger.Transfer{From: ledger.Received, To: ledger.Window, Samples: n})
	books.Datagrams(tenant.Own, ledger.Datagrams{Read: n})
}

// probeResolver gives all probes on a tenant's socket one series.
type probeResolver struct {
	mark   *probe.Mark
	tenant string // the socket's tenant
}

// ResolveMetric is part of window.Resolver.
func (r *probeResolver) ResolveMetric(*dogstatsd.Metric) window.Resolution {
	key := r.mark.AppendKey(nil, r.tenant)
	return window.Resolution{Key: key, Shard: series.Shard(tenant.Own, key), Policy: &series.DefaultPolicy, Scale: 1}
}

// ResolveCheck is part of window.Resolver. A probe is never a check.
func (r *probeResolver) ResolveCheck(*dogstatsd.Check) window.Resolution {
	return window.Resolution{Drop: true}
}

// UpDown is part of window.Resolver. A probe is never a counter.
func (r *probeResolver) UpDown(*dogstatsd.Metric) bool { return false }

// ResolveOverflow is part of window.Resolver. Probes have no limit, so they never overflow.
func (r *probeResolver) ResolveOverflow(series.Kind, string, *series.Policy) window.Resolution {
	return window.Resolution{Drop: true}
}
