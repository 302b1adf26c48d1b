package ruler

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/notifier"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"

	"github.com/freshet-io/freshet/internal/adapter/rulefiles"
	"github.com/freshet-io/freshet/internal/core/rulestate"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/untraced"
	"github.com/freshet-io/freshet/internal/settings"
)

// tenantRules has the managers of one tenant.
type tenantRules struct {
	name     string
	own      *url.URL // where people reach this server, if the configuration does not say
	files    atomic.Pointer[rulefiles.Set]
	address  atomic.Pointer[string] // where people reach this server
	parser   parser.Parser
	rules    *rules.Manager
	notifier *notifier.Manager
	notes    *prometheus.Registry // has the metrics of the notifier
	finder   *discovery.Manager   // finds the Alertmanagers
	waiting  *waiting
	gate     *gate
	keeper   *keeper
	options  *rules.ManagerOptions
	begun    bool // the groups of the start have their states
	sets     Sets
	logger   *slog.Logger

	// changing is held while rules change. It guards begun and the following fields.
	changing sync.Mutex
	config   settings.Rules
	named    rulefiles.Set // the rule files
	renewed  bool          // config is not in force yet
	applied  uint64        // the newest change in force
	failed   error         // of the newest change
	stopped  bool

	changes atomic.Uint64 // how often rules changed
	left    atomic.Int64  // groups set by the API that are not evaluated

	lately     lately       // what the notifier got
	staleAlert atomic.Int64 // rules.stale_alert in nanoseconds
	notified   atomic.Bool  // Alertmanagers are configured

	ctx        context.Context    // of evaluations
	cancel     context.CancelFunc // ends evaluations
	stopFinder context.CancelFunc
	sending    context.Context // of requests to Alertmanagers
	endSends   context.CancelFunc
}

// newTenantRules makes managers without rules.
func newTenantRules(o Options, name string) (*tenantRules, error) {
	reg := prometheus.WrapRegistererWith(prometheus.Labels{"tenant": name}, o.Registry)
	logger := o.Logger.With("tenant", name)
	t := &tenantRules{name: name, own: o.ExternalURL, parser: o.Parser, sets: o.Sets, logger: logger,
		config: o.Config, named: o.Files[name], renewed: true}
	t.files.Store(&rulefiles.Set{})
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_rules_left_out_groups",
		Help: "Groups set by the API that are not evaluated: a rule file has the name of their namespace, or they are " +
			"no longer valid. Above 0: the log names them."},
		func() float64 { return float64(t.left.Load()) })
	t.waiting = newWaiting(name, o, reg)
	t.keeper = newKeeper(name, o.States, t.waiting.watermark, logger)
	t.gate = newGate(hooks{
		marks: t.waiting.current, resend: t.resend, keep: t.keeper.note, forget: t.keeper.forget,
		skip: func(slots int) { t.waiting.skipped.Add(float64(slots)) },
	})
	t.waiting.gate = t.gate

	var finding context.Context
	// A query that is slow has a trace of its own: see promapi.
	t.ctx, t.cancel = context.WithCancel(untraced.NewContext(tenant.NewContext(context.Background(), name)))
	finding, t.stopFinder = context.WithCancel(context.Background())
	t.sending, t.endSends = context.WithCancel(context.Background())

	found, err := discovery.CreateAndRegisterSDMetrics(reg)
	if err != nil {
		return nil, err
	}
	t.finder = discovery.NewManager(finding, logger, reg, found, discovery.Name("notify"),
		discovery.Updatert(findPause))
	t.notes = prometheus.NewRegistry()
	t.notifier = notifier.NewManager(&notifier.Options{
		QueueCapacity: queueCapacity, DrainOnShutdown: true, Do: t.send, Registerer: twice{reg, t.notes},
	}, model.UTF8Validation, logger)
	t.options = &rules.ManagerOptions{
		NameValidationScheme: model.UTF8Validation,
		ExternalURL:          o.ExternalURL,
		QueryFunc:            inTurn(query(o.Engine, o.Queryable)),
		NotifyFunc:           t.notify,
		Context:              t.ctx,
		Appendable:           results{o.Distributor, name},
		Queryable:            o.Queryable,
		Logger:               logger,
		Registerer:           reg,
		OutageTolerance:      outageTolerance,
		ResendDelay:          resendDelay,
		GroupLoader:          t,
		Parser:               o.Parser,
	}
	t.rules = rules.NewManager(t.options)
	// Alerts go on from states. The manager would restore alerts of its first rules, and move their times
	// by the time without a process.
	return t, t.rules.Update(o.Config.Interval, nil, labels.EmptyLabels(), "", t.gate.iterate)
}

// configure puts a configuration and rule files in force.
func (t *tenantRules) configure(c settings.Rules, files rulefiles.Set) error {
	t.changing.Lock()
	t.config, t.named, t.renewed = c, files, true
	t.changing.Unlock()
	return t.apply()
}

var errStopping = errors.New("the server stops; the next start puts the rules in force")

// apply puts the newest configuration and rules in force. Of many calls at once, few have work to do.
func (t *tenantRules) apply() error {
	change := t.changes.Add(1)
	t.changing.Lock()
	defer t.changing.Unlock()
	if t.stopped {
		return errStopping
	}
	if t.applied < change {
		t.applied = t.changes.Load()
		t.failed = t.put(t.config, t.all())
	}
	return t.failed
}

// connect puts the Alertmanagers of the configuration in force, if it has changed. A change of rules alone
// does not touch them.
func (t *tenantRules) connect(c settings.Rules, external labels.Labels) error {
	if !t.renewed {
		return nil
	}
	sent, found := notifierConfig(c, t.name, external)
	if err := t.notifier.ApplyConfig(sent); err != nil {
		return err
	}
	if err := t.finder.ApplyConfig(found); err != nil {
		return err
	}
	t.renewed = false
	return nil
}

// all returns the rules of files, and those set by the API.
func (t *tenantRules) all() rulefiles.Set {
	set, invalid := t.sets.Rules(t.name)
	all, left := merged(t.named, set)
	before := t.left.Swap(int64(len(left) + invalid))
	if len(left) > 0 && int64(len(left)+invalid) != before {
		t.logger.Error("groups set by the API are not evaluated, since a rule file has the name of their namespace: "+
			"rename the namespace, or the file", "groups", left)
	}
	return all
}

// merged adds the rules set by the API to those of files. It returns the groups that it leaves out, since
// a group of a file has the same name for Prometheus' manager.
func merged(files, set rulefiles.Set) (all rulefiles.Set, left []string) {
	all, taken := rulefiles.Set{}, map[string]bool{}
	for path, f := range files {
		all[path] = f
		for _, g := range f.Groups {
			taken[rules.GroupKey(path, g.Name)] = true
		}
	}
	for _, namespace := range set.Paths() {
		groups := &rulefmt.RuleGroups{}
		for _, g := range set[namespace].Groups {
			key := rules.GroupKey(namespace, g.Name)
			if files[namespace] != nil || taken[key] {
				left = append(left, key)
				continue
			}
			groups.Groups = append(groups.Groups, g)
		}
		if files[namespace] == nil {
			all[namespace] = groups
		}
	}
	return all, left
}

// put puts a configuration and rules in force. The caller holds t.changing.
func (t *tenantRules) put(c settings.Rules, files rulefiles.Set) error {
	external := labels.FromMap(c.LabelsOf(t.name))
	if err := t.connect(c, external); err != nil {
		return err
	}
	address := t.own.String()
	if c.ExternalURL != "" {
		address = c.ExternalURL
	}
	t.address.Store(&address)
	t.files.Store(&files)
	t.waiting.watermark.SetTimeout(c.SenderTimeout.Milliseconds())
	t.notified.Store(len(c.Alertmanagers) > 0)
	t.staleAlert.Store(int64(c.StaleAlert))
	t.gate.halt()
	err := t.rules.Update(c.Interval, files.Paths(), external, address, t.gate.iterate)
	if err == nil && !t.begun {
		err = t.goOn(external, address)
		t.begun = err == nil
	}
	entered := false
	for _, group := range t.rules.RuleGroups() {
		entered = t.gate.enter(group, time.Now()) || entered
	}
	if entered {
		t.keeper.save(false)
	}
	t.gate.resume(t.rules.RuleGroups())
	return err
}

// goOn gives the groups the states that they had in an earlier process, and the watermark its senders. No
// group runs yet.
func (t *tenantRules) goOn(external labels.Labels, address string) error {
	groups, senders, err := t.keeper.states.Load(t.name)
	if err != nil {
		return err
	}
	now := time.Now()
	if senders != nil {
		if err := t.waiting.watermark.Restore(senders, now.UnixMilli()); err != nil { // the file's pages have no checksums
			t.logger.Error("the saved senders are damaged: rules wait for senders that are heard again", "error", err)
		}
	}
	t.waiting.watermark.Resume(now.UnixMilli())
	saved := map[rulestate.Key]*rulestate.Group{}
	for i := range groups {
		if now.Sub(groups[i].Slot) <= outageTolerance {
			saved[groups[i].Key()] = &groups[i]
		}
	}
	v := reviver{t.options, external, address, t.logger}
	for _, group := range t.rules.RuleGroups() {
		state := saved[rulestate.Key{File: group.File(), Name: group.Name()}]
		t.gate.begin(group, state)
		if state != nil {
			v.revive(t.ctx, group, state)
		}
	}
	return nil
}

// Load implements rules.GroupLoader. The files were read before, so that all of them are checked before
// any of their rules is in force.
func (t *tenantRules) Load(path string, _ bool, _ model.ValidationScheme) (*rulefmt.RuleGroups, []error) {
	return (*t.files.Load())[path], nil
}

// Parse implements rules.GroupLoader.
func (t *tenantRules) Parse(expr string) (parser.Expr, error) { return t.parser.ParseExpr(expr) }

// start begins to evaluate.
func (t *tenantRules) start(running *sync.WaitGroup) {
	running.Go(func() { _ = t.finder.Run() }) // its error is the end of its context
	running.Go(func() { t.notifier.Run(t.finder.SyncCh()) })
	running.Go(func() {
		t.awaitAlertmanagers()
		t.rules.Run()
	})
	running.Go(func() { t.waiting.watch(t.ctx, t) })
	running.Go(func() { t.keeper.run(t.ctx) })
}

// awaitAlertmanagers waits until Alertmanagers are found, but not for long. The notifier drops
// notifications while it knows none, and the next ones are due a minute later.
func (t *tenantRules) awaitAlertmanagers() {
	ctx, cancel := context.WithTimeout(t.ctx, findTime)
	defer cancel()
	for t.notified.Load() && len(t.notifier.Alertmanagers()) == 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(findPause):
		}
	}
}

// stop ends evaluations. The notifier then sends the notifications that wait, and ends.
func (t *tenantRules) stop() {
	t.cancel()
	t.changing.Lock() // a change under way ends first, and lets groups wait again
	defer t.changing.Unlock()
	t.stopped = true
	t.gate.halt()
	t.rules.Stop()
	t.keeper.save(true)
	t.stopFinder()
	t.notifier.Stop()
}

// send sends one request to an Alertmanager. It ends when notifications are no longer sent.
func (t *tenantRules) send(ctx context.Context, c *http.Client, r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	end := context.AfterFunc(t.sending, cancel)
	answer, err := c.Do(r.WithContext(ctx))
	if err != nil {
		end()
		cancel()
		return nil, err
	}
	answer.Body = body{answer.Body, func() {
		end()
		cancel()
	}}
	return answer, nil
}

// body is the body of an answer. Closing it ends the request's context.
type body struct {
	io.ReadCloser
	closed func()
}

func (b body) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}

// notify implements rules.NotifyFunc. The link of an alert leads to Explore, with its expression.
func (t *tenantRules) notify(_ context.Context, expr string, alerts ...*rules.Alert) {
	if len(alerts) == 0 {
		return
	}
	link := linkTo(*t.address.Load(), expr)
	all := make([]*notifier.Alert, 0, len(alerts))
	for _, a := range alerts {
		if t.lately.has(a, time.Now()) {
			continue
		}
		one := &notifier.Alert{
			// The evaluation may be of a slot in the past. An end from there would resolve the alert at once.
			StartsAt: a.FiredAt, EndsAt: time.Now().Add(a.ValidUntil.Sub(a.LastSentAt)),
			Labels: a.Labels, Annotations: a.Annotations, GeneratorURL: link,
		}
		if !a.ResolvedAt.IsZero() {
			one.EndsAt = a.ResolvedAt
		}
		all = append(all, one)
	}
	if len(all) > 0 {
		t.notifier.Send(all...)
	}
}

// lately has the notifications of the last moments. Groups that catch up evaluate minutes within a second, and would
// send the same alert for each of these minutes; and one that waited has sent its alerts meanwhile. Its zero value is
// empty. It has at most the alerts that fire or were resolved within rarely.
type lately struct {
	mu    sync.Mutex
	sent  map[told]time.Time
	swept time.Time
}

// told identifies a notification: an alert and its state.
type told struct {
	labels          uint64 // their hash
	fired, resolved int64
}

// has reports whether the notification was sent less than `rarely` ago, and otherwise notes that it is sent now.
func (l *lately) has(a *rules.Alert, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) >= rarely {
		maps.DeleteFunc(l.sent, func(_ told, at time.Time) bool { return now.Sub(at) >= rarely })
		l.swept = now
	}
	key := told{a.Labels.Hash(), a.FiredAt.UnixNano(), a.ResolvedAt.UnixNano()}
	if at, is := l.sent[key]; is && now.Sub(at) < rarely {
		return true
	}
	if l.sent == nil {
		l.sent = map[told]time.Time{}
	}
	l.sent[key] = now
	return false
}

// resend sends the firing alerts of a group again. An Alertmanager resolves alerts about which it hears
// nothing.
func (t *tenantRules) resend(g *rules.Group) {
	hold := 4 * max(g.Interval(), resendDelay) // as Prometheus does
	for _, rule := range g.AlertingRules() {
		var firing []*rules.Alert
		for _, a := range rule.ActiveAlerts() {
			if a.State == rules.StateFiring {
				a.ValidUntil = a.LastSentAt.Add(hold)
				firing = append(firing, a)
			}
		}
		t.notify(t.ctx, rule.Query().String(), firing...)
	}
}

// linkTo returns the address of an expression in Explore.
func linkTo(address, expr string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic("BUG: the external URL was not checked: " + err.Error())
	}
	u.Path = path.Join("/", u.Path, "explore")
	u.RawQuery = url.Values{"q": {expr}}.Encode()
	return u.String()
}
