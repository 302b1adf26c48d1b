package ruler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"go.yaml.in/yaml/v3"

	"github.com/freshet-io/freshet/internal/adapter/rulefiles"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/watermark"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/retry"
	"github.com/freshet-io/freshet/internal/settings"
)

// Distributor takes the results of rules: see distributor.Distributor.
type Distributor interface {
	Push(ctx context.Context, tenant string, r *write.Incoming) (outcome.Outcome, error)
}

// Options are the parts of a Ruler. All fields but Leads and Shared are required.
type Options struct {
	Config      settings.Rules
	Files       Files
	Sets        Sets
	Engine      promql.QueryEngine
	Parser      parser.Parser
	Queryable   storage.Queryable // finds the tenant in the context of Select
	Distributor Distributor
	Watermarks  *watermark.All
	States      States
	Windows     func() int64 // the time up to which all windows are folded, in Unix milliseconds
	ExternalURL *url.URL     // where people reach this server, if the configuration does not say
	Registry    prometheus.Registerer
	Logger      *slog.Logger

	// Leads reports whether this node of a cluster evaluates the rules now. It is nil on one machine, which always
	// does. A node that begins to lead gets the states of the last one from States.
	Leads func() bool

	// Shared are the Sets of a cluster, which other nodes change, too. It is nil if Leads is.
	Shared Shared
}

// Shared are Sets that other nodes change, too.
type Shared interface {
	// Current waits until the Sets have every change that was acknowledged.
	Current() error
	// Changed returns the tenants whose rules have changed since an earlier call returned `since`.
	Changed(since uint64) (tenants []string, now uint64)
}

// Sets are the rules that tenants set by the API.
type Sets interface {
	// Tenants returns the tenants that have rules, or had some.
	Tenants() []string

	// Rules returns the rules of a tenant by namespace, and how many of its groups are left out since they
	// are not valid.
	Rules(tenant string) (set map[string]*rulefmt.RuleGroups, invalid int)
}

// Files are the rule files of each tenant.
type Files map[string]rulefiles.Set

// ReadFiles reads the rule files of all tenants. Files outside rules.tenants belong to the tenant `own`.
// The error has one line for each mistake.
func ReadFiles(c settings.Rules, own string, p parser.Parser) (Files, error) {
	all, problems := rulefiles.ReadTenants(c.Patterns(own), p)
	if len(problems) > 0 {
		return nil, errors.New(strings.Join(problems, "\n"))
	}
	return all, nil
}

// Ruler evaluates the rules of all tenants. A tenant that once had rules keeps its managers until the
// process ends, so the number of managers is bounded by the tenants that the configuration has named, and
// by those that Sets lets set rules.
type Ruler struct {
	Options

	mu      sync.Mutex
	tenants map[string]*tenantRules // empty while another node evaluates
	running bool
	started sync.WaitGroup // of the managers' goroutines
	seen    uint64         // of Shared.Changed, when this node began to lead
	content string         // of the files: see Content
	metrics termMetrics
}

// New makes a ruler with the rules of o.Files. It evaluates nothing before Run.
func New(o Options) (*Ruler, error) {
	r := &Ruler{Options: o, tenants: map[string]*tenantRules{}}
	o.Registry.MustRegister(&r.metrics)
	if o.Leads == nil {
		r.Registry = r.metrics.renew()
	}
	return r, r.Reload(o.Config, o.Files)
}

// termMetrics has the metrics of the managers that run now. They are others whenever this node begins to lead.
type termMetrics struct {
	now atomic.Pointer[prometheus.Registry]
}

// Describe implements prometheus.Collector. Nothing is known about the metrics in advance.
func (*termMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *termMetrics) Collect(to chan<- prometheus.Metric) {
	if now := m.now.Load(); now != nil {
		now.Collect(to)
	}
}

func (m *termMetrics) renew() *prometheus.Registry {
	m.now.Store(prometheus.NewRegistry())
	return m.now.Load()
}

// Reload puts another configuration and other rules in force. A group that did not change goes on as if
// nothing had happened. A changed group first ends the evaluation under way, and keeps the states of its
// alerts. An error means that a file for the connection to Alertmanagers cannot be read; rules of some
// tenants may then be the new ones.
func (r *Ruler) Reload(c settings.Rules, files Files) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Config, r.Files, r.content = c, files, contentOf(files)
	if r.Leads == nil || r.running {
		return r.reload(c, files)
	}
	for name := range files { // this node may lead next, so it must know the senders
		r.Watermarks.Watch(name, c.SenderTimeout.Milliseconds()).SetTimeout(c.SenderTimeout.Milliseconds())
	}
	return nil
}

func (r *Ruler) reload(c settings.Rules, files Files) error {
	names := r.Sets.Tenants()
	for name, set := range files {
		if len(set) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if _, err := r.tenant(name); err != nil {
			return err
		}
	}
	for name, t := range r.tenants {
		if err := t.configure(c, files[name]); err != nil {
			return fmt.Errorf("rules of tenant %s: %w", name, err)
		}
	}
	return nil
}

// tenant returns the managers of a tenant, and makes them if there are none. The caller holds r.mu.
func (r *Ruler) tenant(name string) (*tenantRules, error) {
	if t := r.tenants[name]; t != nil {
		return t, nil
	}
	t, err := newTenantRules(r.Options, name)
	if err != nil {
		return nil, fmt.Errorf("rules of tenant %s: %w", name, err)
	}
	r.tenants[name] = t
	if r.running {
		t.start(&r.started)
	}
	return t, nil
}

// Apply puts the rules in force that a tenant has set by the API.
func (r *Ruler) Apply(name string) error {
	r.mu.Lock()
	t, err := r.tenant(name)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return t.apply()
}

// HasFile reports whether a tenant has a rule file at this path. No namespace may have the same name.
func (r *Ruler) HasFile(tenant, path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Files[tenant][path] != nil
}

// Content returns the paths and the content of all rule files, for comparison with those of other nodes.
func (r *Ruler) Content() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.content
}

func contentOf(files Files) string {
	text, err := json.Marshal(files) // sorts the keys
	if err != nil {
		panic("BUG: rules that were read cannot be written: " + err.Error())
	}
	return string(text)
}

// Diff returns the groups that Reload would add, remove or change, in the order of their tenants and files. A group
// that is only written otherwise goes on, so it is none of them.
func (r *Ruler) Diff(next Files) []answer.RuleChange {
	r.mu.Lock()
	now := r.Files
	r.mu.Unlock()
	before, after := r.textsOf(now), r.textsOf(next)
	all := []answer.RuleChange{}
	for group, text := range after {
		was, known := before[group]
		if !known {
			group.Change = "added"
			all = append(all, group)
		} else if was != text {
			group.Change = "changed"
			all = append(all, group)
		}
	}
	for group := range before {
		if _, stays := after[group]; !stays {
			group.Change = "removed"
			all = append(all, group)
		}
	}
	slices.SortFunc(all, func(a, b answer.RuleChange) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.File, b.File), cmp.Compare(a.Group, b.Group))
	})
	return all
}

// textsOf returns each group as a text that two groups share if they mean the same. A key is the group's place, and has
// no change.
func (r *Ruler) textsOf(files Files) map[answer.RuleChange]string {
	all := map[answer.RuleChange]string{}
	for tenant, set := range files {
		for path, file := range set {
			for _, g := range file.Groups {
				g.Rules = slices.Clone(g.Rules)
				for i := range g.Rules {
					if expr, err := r.Parser.ParseExpr(g.Rules[i].Expr); err == nil {
						g.Rules[i].Expr = expr.String()
					}
				}
				text, err := yaml.Marshal(g) // sorts the labels
				if err != nil {
					panic("BUG: rules that were read cannot be written: " + err.Error())
				}
				all[answer.RuleChange{Tenant: tenant, File: path, Group: g.Name}] = string(text)
			}
		}
	}
	return all
}

// Run evaluates rules until ctx is done, on a node of a cluster while it leads.
func (r *Ruler) Run(ctx context.Context) error {
	if r.Leads == nil {
		r.evaluate(ctx)
		return nil
	}
	for retry.Wait(ctx, leadPoll) == nil {
		if r.Leads() {
			r.lead(ctx)
		}
	}
	return nil
}

// lead evaluates rules until this node leads no more, or ctx is done.
func (r *Ruler) lead(ctx context.Context) {
	if err := r.begin(); err != nil {
		r.Logger.Error("this node leads, but cannot go on with the rules; it tries again", "error", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		for retry.Wait(ctx, leadPoll) == nil && r.Leads() {
		}
	}()
	var applying sync.WaitGroup
	applying.Go(func() { r.applyChanges(ctx) })
	r.evaluate(ctx)
	applying.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tenants = map[string]*tenantRules{}
}

// begin makes the managers of a node that begins to lead.
func (r *Ruler) begin() error {
	if err := r.Shared.Current(); err != nil { // states of groups that came later would be left out
		return err
	}
	_, r.seen = r.Shared.Changed(0)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tenants, r.Registry = map[string]*tenantRules{}, r.metrics.renew()
	err := r.reload(r.Config, r.Files)
	if err != nil {
		r.tenants = map[string]*tenantRules{}
	}
	return err
}

// applyChanges puts rules in force that any node has set by the API, until ctx is done.
func (r *Ruler) applyChanges(ctx context.Context) {
	for seen := r.seen; retry.Wait(ctx, leadPoll) == nil; {
		var tenants []string
		tenants, seen = r.Shared.Changed(seen)
		for _, name := range tenants {
			if err := r.Apply(name); err != nil && ctx.Err() == nil {
				r.Logger.Error("rules set by the API are not in force; a reload tries again", "tenant", name, "error", err)
			}
		}
	}
}

// evaluate evaluates rules until ctx is done. Then it ends the evaluations under way, and sends the
// notifications that wait, for at most drainTime.
func (r *Ruler) evaluate(ctx context.Context) {
	r.mu.Lock()
	r.running = true
	for _, t := range r.tenants {
		t.start(&r.started)
	}
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock() // a reload under way ends first
	r.running = false
	var stopping sync.WaitGroup
	for _, t := range r.tenants {
		stopping.Go(t.stop)
	}
	stopping.Wait()
	enough := time.AfterFunc(drainTime, r.endSends)
	r.mu.Unlock()
	r.started.Wait()
	enough.Stop()
	r.endSends()
}

// endSends ends requests to Alertmanagers. Their notifications count as dropped.
func (r *Ruler) endSends() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tenants {
		t.endSends()
	}
}

// Retriever returns the groups and alerts of a tenant, for Prometheus' API.
func (r *Ruler) Retriever(tenant string) *Tenant {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &Tenant{r.tenants[tenant]}
}

// Tenant answers about the rules of one tenant. It has the methods that Prometheus' API calls.
type Tenant struct{ of *tenantRules } // nil if the tenant has no rules

// RuleGroups returns the groups, sorted by file and name.
func (t *Tenant) RuleGroups() []*rules.Group {
	if t.of == nil {
		return nil
	}
	return t.of.rules.RuleGroups()
}

// AlertingRules returns the alerting rules of all groups.
func (t *Tenant) AlertingRules() []*rules.AlertingRule {
	if t.of == nil {
		return nil
	}
	return t.of.rules.AlertingRules()
}

// Alertmanagers returns the URLs of the Alertmanagers that get notifications.
func (t *Tenant) Alertmanagers() []*url.URL {
	if t.of == nil {
		return nil
	}
	return t.of.notifier.Alertmanagers()
}

// Notifications says what became of the notifications to each Alertmanager.
func (t *Tenant) Notifications() []answer.Notifications {
	if t.of == nil {
		return nil
	}
	return notificationsIn(t.of.notes)
}

// Status says what the rules wait for. The answer is zero if there are none.
func (t *Tenant) Status(name string) answer.Rules {
	if t == nil || t.of == nil {
		return answer.Rules{Tenant: name, Late: []answer.LateSender{}, Gone: []answer.LateSender{},
			Waiting: []answer.WaitingGroup{}, Offsets: []answer.QueryOffset{}}
	}
	all := t.of.waiting.status()
	all.Offsets = []answer.QueryOffset{}
	for _, g := range t.RuleGroups() {
		if offset := g.QueryOffset(); offset != 0 {
			all.Offsets = append(all.Offsets, answer.QueryOffset{File: g.File(), Name: g.Name(), Offset: offset.Seconds()})
		}
	}
	return all
}

// DroppedAlertmanagers returns the Alertmanagers that relabelling drops: none, since there is no such
// relabelling.
func (t *Tenant) DroppedAlertmanagers() []*url.URL { return nil }

// Times of the managers, as in Prometheus where it has them.
const (
	resendDelay     = time.Minute            // between two notifications of the same alert, by times of slots
	rarely          = resendDelay / 2        // between two notifications of the same alert, by the clock
	outageTolerance = time.Hour              // a group whose last evaluation is older after a restart begins anew
	findTime        = 5 * time.Second        // for the first look-up of Alertmanagers
	findPause       = 100 * time.Millisecond // between two looks at what was found
	drainTime       = 5 * time.Second
	leadPoll        = 200 * time.Millisecond // between two looks at whether this node leads
	queueCapacity   = 10_000                 // notifications that may wait for one Alertmanager

	// evaluations bounds the queries of one tenant that wait for a slot at once. The rest wait for
	// their turn here, since the engine refuses queries beyond query.max_waiting.
	evaluations = 4
)
