package collector

import (
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/window"
)

// resolver decides what a new context of a tenant becomes.
type resolver struct {
	*Options
	*terms
	reports *reports
}

// ResolveMetric is part of window.Resolver.
func (r *resolver) ResolveMetric(m *dogstatsd.Metric) window.Resolution {
	return r.resolve(&mapping.Input{Type: m.Type, Name: m.Name, Tags: m.Tags, Origin: m.Origin})
}

// ResolveCheck is part of window.Resolver.
func (r *resolver) ResolveCheck(c *dogstatsd.Check) window.Resolution {
	return r.resolve(&mapping.Input{Check: true, Name: c.Name, Tags: c.Tags, Host: c.Host, Origin: c.Origin})
}

func (r *resolver) resolve(in *mapping.Input) window.Resolution {
	out := r.mapper.Map(in)
	if out.Drop {
		return window.Resolution{Drop: true}
	}
	name, report := r.Catalogue.Resolve(r.Now().UnixMilli(), &catalogue.Claim{
		Tenant: r.tenant, Name: out.Name, Raw: in.Name, Named: out.Named, Kind: out.Kind,
		Buckets: out.Buckets, Unit: out.Unit, Help: out.Help,
	})
	r.tell(in, &out, name, report)
	if name != out.Name {
		out.SetName(name)
	}
	key := series.AppendKey(nil, out.Kind, out.Labels)
	return window.Resolution{
		Key: key, Shard: series.Shard(r.tenant, key), Policy: out.Policy, Source: out.Source, Scale: out.Scale, Note: note(in),
	}
}

// note marks what clients count of themselves: the flusher enters it into the
// ledger. It is the ledger's count plus 1, 0 for all else.
func note(in *mapping.Input) uint8 {
	if count, ok := ledger.ClientCountOf(in.Name); ok && in.Type == dogstatsd.Count {
		return uint8(count) + 1
	}
	return 0
}

// tell counts what the catalogue found worth telling, and logs what it tells once.
func (r *resolver) tell(in *mapping.Input, out *mapping.Output, name string, report catalogue.Report) {
	raw := string(in.Name)
	switch report.Event {
	case catalogue.KindConflict:
		r.reports.conflicts.Add(1)
		r.Logger.Warn("two kinds under one name are kept apart", "tenant", r.tenant, "metric", raw,
			"kind", out.Kind, "name", report.Owner.Name, "owner_kind", report.Owner.Kind, "stored_as", name)
	case catalogue.FormConflict:
		r.reports.forms.Add(1)
		r.Logger.Warn("timers with other buckets under one name are kept apart; give them one rule, or names of their own", "tenant", r.tenant,
			"metric", raw, "histogram", form(out.Buckets), "name", report.Owner.Name, "other_metric", report.Owner.Raw,
			"other_histogram", form(report.Owner.Buckets), "stored_as", name)
	case catalogue.NameCollision:
		r.reports.collisions.Add(1)
		r.Logger.Warn("two metrics have become one name, and are one series where their labels agree", "tenant", r.tenant,
			"metric", raw, "other_metric", report.Owner.Raw, "name", name)
	case catalogue.Full:
		// Every context beyond the limit comes here: counted, not logged.
		r.reports.full.Add(1)
	}
}

// form describes the histogram of a timer for people.
func form(buckets string) string {
	if buckets == "" {
		return "native"
	}
	return "classic " + buckets
}
