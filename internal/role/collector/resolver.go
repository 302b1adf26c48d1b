package collector

import (
	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/window"
)

// resolver decides to which series a listener's new context belongs.
type resolver struct {
	*Options
	*terms
	reports *reports
	limits  *limit.Tenant
	sender  func() sender.Sender // returns the sender of the packet being read
	// time when that packet was read, Unix nanoseconds; reading the clock here would cost too much
	now func() int64

	// Results of the last resolution, whose memory the next resolution uses again, so
	// that a flood makes no garbage.
	out mapping.Output
	key []byte
}

// ResolveMetric is part of window.Resolver.
func (r *resolver) ResolveMetric(m *dogstatsd.Metric) window.Resolution {
	return r.resolve(&mapping.Input{Type: m.Type, Name: m.Name, Tags: m.Tags, Origin: m.Origin, Pod: r.pod(&m.Origin)})
}

// pod returns the pod of an origin, or nil if it is not known or if no label needs it.
func (r *resolver) pod(o *dogstatsd.Origin) *mapping.Pod {
	if r.Pods == nil || !r.mapper.OriginLabels() {
		return nil
	}
	uid := dogstatsd.ParseExternal(o.External).Pod
	if len(o.Container) == 0 && len(o.Inode) == 0 && len(uid) == 0 {
		return nil
	}
	return r.Pods.Find(o.Container, o.UsedInode(), uid)
}

// ResolveCheck is part of window.Resolver.
func (r *resolver) ResolveCheck(c *dogstatsd.Check) window.Resolution {
	return r.resolve(&mapping.Input{Check: true, Name: c.Name, Tags: c.Tags, Host: c.Host, Origin: c.Origin,
		Pod: r.pod(&c.Origin)})
}

// UpDown is part of window.Resolver.
func (r *resolver) UpDown(m *dogstatsd.Metric) bool {
	if !r.mapper.UpDown() {
		return false
	}
	r.mapper.MapInto(&r.out, &mapping.Input{Type: m.Type, Name: m.Name, Tags: m.Tags, Origin: m.Origin})
	return r.out.Kind == series.UpDown
}

func (r *resolver) resolve(in *mapping.Input) window.Resolution {
	out := &r.out
	r.mapper.MapInto(out, in)
	if out.Drop {
		return window.Resolution{Drop: true}
	}
	mapped := out.Name
	var named bool
	out.Name, named = r.name(in, out)
	if r.Shared {
		out.Name = mapped
		if out.Buckets != "" {
			// Timers of different forms have the same key. Their sources keep them apart in the table.
			// In tiles, the source of a timer means nothing.
			out.Source = xxhash.Sum64String(out.Buckets)
		}
	}
	r.key = out.AppendKey(r.key[:0])
	return window.Resolution{
		Key: r.key, Shard: series.Shard(r.tenant, r.key), Policy: out.Policy, Source: out.Source, Scale: out.Scale,
		Unnamed: !named, Sender: r.sender(), Container: in.Origin.Container,
	}
}

// name returns the name under which a context is stored, if no group decides the name. If the limits
// have no room for another series, or for a context of this length, an unknown name does not enter the
// catalogue, and `named` is false. Otherwise a flood of names would fill the catalogue.
func (r *resolver) name(in *mapping.Input, out *mapping.Output) (name string, named bool) {
	now := r.now()
	claim := catalogue.Claim{
		Tenant: r.tenant, Name: out.Name, Raw: in.Name, Named: out.Named, Kind: out.Kind,
		Buckets: out.Buckets, Unit: out.Unit, Help: out.Help,
	}
	if !r.limits.Room(now) || r.limits.TooLong(r.length(in)) {
		if _, known, _ := r.Catalogue.Peek(&claim); !known {
			return out.Name, false
		}
	}
	name, report := r.Catalogue.Resolve(now/1e6, &claim)
	r.tell(in, out, name, report)
	return name, true
}

// length returns the length of a context in bytes, as the table measures it: the total of all texts
// that distinguish contexts.
func (r *resolver) length(in *mapping.Input) int {
	n := len(in.Name) + len(in.Tags)
	if in.Host != nil {
		n += 1 + len(in.Host)
	}
	if r.mapper.OriginLabels() {
		n += 3 + len(in.Origin.Container) + len(in.Origin.External) + len(in.Origin.Cardinality)
		if inode := in.Origin.UsedInode(); inode != nil {
			n += 1 + len(inode)
		}
	}
	return n
}

// ResolveOverflow is part of window.Resolver. The series keeps the constant labels, so that two
// collectors do not write the same series.
func (r *resolver) ResolveOverflow(kind series.Kind, name string, policy *series.Policy) window.Resolution {
	if name == "" {
		name = mapping.OverflowLabel + "_" + kind.String()
	}
	b := labels.NewBuilder(r.mapper.Constant())
	b.Set(mapping.OverflowLabel, "true").Set(model.MetricNameLabel, name)
	r.key = series.AppendKey(r.key[:0], kind, b.Labels())
	return window.Resolution{Key: r.key, Shard: series.Shard(r.tenant, r.key), Policy: policy, Scale: 1}
}

// tell counts the conflicts that the catalogue reports, and logs each conflict once.
func (r *resolver) tell(in *mapping.Input, out *mapping.Output, name string, report catalogue.Report) {
	if report.Finding == catalogue.Nothing {
		return
	}
	raw := string(in.Name)
	if r.Shared && (report.Finding == catalogue.KindConflict || report.Finding == catalogue.FormConflict) {
		return // the group reports what it decides
	}
	switch report.Finding {
	case catalogue.KindConflict:
		r.reports.conflicts.Add(1)
		r.Logger.Warn("two kinds have the same name; they are stored under different "+
			"names", "tenant", r.tenant, "metric", raw,
			"kind", out.Kind, "name", report.Owner.Name, "owner_kind", report.Owner.Kind, "stored_as", name)
	case catalogue.FormConflict:
		r.reports.forms.Add(1)
		r.Logger.Warn("timers with the same name have different buckets, and are kept apart; give them one rule, "+
			"or different names",
			"tenant", r.tenant,
			"metric", raw, "histogram", form(out.Buckets), "name", report.Owner.Name, "other_metric", report.Owner.Raw,
			"other_histogram", form(report.Owner.Buckets), "stored_as", name)
	case catalogue.NameCollision:
		r.reports.collisions.Add(1)
		r.Logger.Warn("two metrics now have the same name; where their labels are the same, they are one "+
			"series", "tenant", r.tenant,
			"metric", raw, "other_metric", report.Owner.Raw, "name", name)
	case catalogue.Full:
		// Every context beyond the limit comes here, so it is counted but not logged.
		r.reports.full.Add(1)
	}
}

// form describes the histogram of a timer for the log.
func form(buckets string) string {
	if buckets == "" {
		return "native"
	}
	return "classic " + buckets
}
