package ruler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/annotations"

	"math"

	"github.com/freshet-io/freshet/internal/adapter/rulefiles"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/rulestate"
	"github.com/freshet-io/freshet/internal/core/watermark"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/settings"
)

// taker is a distributor that notes what it is given.
type taker struct {
	mu     sync.Mutex
	pushes []string
	fails  int // the next pushes that fail
	refuse bool
}

func (d *taker) Push(_ context.Context, tenant string, r *write.Incoming) (o outcome.Outcome, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fails > 0 {
		d.fails--
		return o, errors.New("the store is busy")
	}
	text := tenant
	if !r.Results {
		text += " not marked as results"
	}
	for i := range r.Series {
		s := &r.Series[i]
		all, err := r.Labels(nil, s)
		if err != nil {
			return o, err
		}
		for _, l := range all {
			text += fmt.Sprintf(" %s=%s", l.Name, l.Value)
		}
		for _, x := range r.Samples(s) {
			text += fmt.Sprintf(" %v@%d", x.Value, x.Time)
		}
		for _, h := range r.Histograms(s) {
			text += fmt.Sprintf(" %v of %v@%d", h.Count.Float, h.PositiveCounts, h.Time)
		}
	}
	d.pushes = append(d.pushes, text)
	if d.refuse {
		o.Refuse(outcome.TooManySeries, outcome.Counts{Samples: 1})
		o.Tell("x", errors.New("there are too many series"))
	}
	return o, nil
}

// evaluate writes what one evaluation of a rule returns: two results, one of them a histogram, and the
// end of a series.
func evaluate(d *taker) error {
	a := results{d, "acme"}.Appender(context.Background())
	stale := math.Float64frombits(value.StaleNaN)
	_, one := a.Append(0, labels.FromStrings("__name__", "r", "a", "1"), 1000, 2.5)
	_, two := a.AppendHistogram(0, labels.FromStrings("__name__", "h"), 1000, nil, &histogram.FloatHistogram{
		Count: 3, Sum: 1, PositiveSpans: []histogram.Span{{Offset: 1, Length: 1}}, PositiveBuckets: []float64{3},
	})
	_, three := a.Append(0, labels.FromStrings("__name__", "r", "a", "2"), 1000, stale)
	return errors.Join(one, two, three, a.Commit())
}

func TestResultsOfARuleAreOneWrite(t *testing.T) {
	d := &taker{}
	if err := evaluate(d); err != nil {
		t.Fatal(err)
	}
	want := []string{"acme __name__=r a=1 2.5@1000 __name__=h 3 of [3]@1000", "acme __name__=r a=2 NaN@1000"}
	if !slices.Equal(d.pushes, want) {
		t.Errorf("pushed %q, want %q", d.pushes, want)
	}
}

// A result that is not written leaves a hole in a recording.
func TestResultsAreWrittenOnceTheStoreTakesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &taker{fails: 50}
		begun := time.Now()
		if err := evaluate(d); err != nil || len(d.pushes) != 2 {
			t.Errorf("pushed %q, error %v; want both requests", d.pushes, err)
		}
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("took %v, want 50 pauses", took)
		}
		d.fails = 1_000_000
		begun = time.Now()
		if err := evaluate(d); err == nil || time.Since(begun) > pushPatience {
			t.Errorf("error %v after %v, want one within %v", err, time.Since(begun), pushPatience)
		}
	})
}

func TestARefusedResultShowsInTheRulesHealth(t *testing.T) {
	if err := evaluate(&taker{refuse: true}); err == nil || !strings.Contains(err.Error(), "too many series") {
		t.Errorf("error %v, want the refusal", err)
	}
}

// A dashboard draws what is there. A rule that did so would fire, or resolve, because a store is broken.
func TestARuleDoesNotTrustPartOfTheData(t *testing.T) {
	for _, c := range []struct {
		why     string
		warning error
		trusts  bool
	}{
		{"nothing is missing", nil, true},
		{"a hint about the expression", annotations.PossibleNonCounterInfo, true},
		{"a warning about the expression", annotations.MixedFloatsHistogramsWarning, true},
		{"a broken store", errors.New("store raw of tenant a cannot be opened"), false},
	} {
		var all annotations.Annotations
		if c.warning != nil {
			all.Add(c.warning)
		}
		if err := lacking(all); (err == nil) != c.trusts {
			t.Errorf("%s: error %v", c.why, err)
		}
	}
}

// The engine refuses queries beyond query.max_waiting. With a thousand groups due at the same time, rules
// would fail.
func TestRulesWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most, done := 0, 0, 0
		query := inTurn(func(context.Context, string, time.Time) (promql.Vector, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			running--
			done++
			return nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() { _, _ = query(ctx, "x", time.Time{}) })
		}
		time.Sleep(9*time.Second + time.Millisecond)
		cancel() // those that wait must not hold up a stop
		all.Wait()
		if most != evaluations || done != 10*evaluations {
			t.Errorf("%d queries at once, %d in ten seconds; want %d and %d", most, done, evaluations, 10*evaluations)
		}
	})
}

func TestLinkOfAnAlert(t *testing.T) {
	for address, want := range map[string]string{
		"http://h:7125":       "http://h:7125/explore?q=a%7Bb%3D%22c%22%7D+%3E+1",
		"https://h/freshet/":  "https://h/freshet/explore?q=a%7Bb%3D%22c%22%7D+%3E+1",
		"https://h/a%20b/c?d": "https://h/a%20b/c/explore?q=a%7Bb%3D%22c%22%7D+%3E+1",
	} {
		if got := linkTo(address, `a{b="c"} > 1`); got != want {
			t.Errorf("linkTo(%q) = %s, want %s", address, got, want)
		}
	}
}

func TestAlertmanagersGetTheTenant(t *testing.T) {
	c := settings.Rules{
		Alertmanagers: []settings.Alertmanager{
			{Targets: []string{"a:9093", "b:9093"}, Headers: map[string]string{"X-Scope-OrgID": "{tenant}"}},
			{DNS: []string{"am.example"}, DNSType: "A", DNSPort: 9093, Scheme: "https", PathPrefix: "/am", Username: "u",
				PasswordFile: "p"},
		},
	}
	sent, found := notifierConfig(c, "acme", labels.FromStrings("site", "x"))
	first, second := sent.AlertingConfig.AlertmanagerConfigs[0], sent.AlertingConfig.AlertmanagerConfigs[1]
	if got := first.HTTPClientConfig.HTTPHeaders.Headers["X-Scope-OrgID"].Secrets; len(got) != 1 || got[0] != "acme" {
		t.Errorf("header %q, want the tenant", got)
	}
	if first.Scheme != "http" || first.Timeout == 0 || second.Scheme != "https" || second.PathPrefix != "/am" ||
		second.HTTPClientConfig.BasicAuth.Username != "u" {
		t.Errorf("connections: %+v, %+v", first, second)
	}
	if len(found) != 2 || sent.GlobalConfig.ExternalLabels.Get("site") != "x" {
		t.Errorf("%d ways to find Alertmanagers, want 2; external labels %v", len(found), sent.GlobalConfig.ExternalLabels)
	}
}

// setByAPI are rules that one tenant has set, by namespace.
type setByAPI struct {
	mu     sync.Mutex
	tenant string
	rules  rulefiles.Set
	sets   uint64 // calls of set
	lags   error  // the error of Current
}

func (s *setByAPI) Current() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lags
}

func (s *setByAPI) Changed(since uint64) ([]string, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets == since {
		return nil, since
	}
	return []string{s.tenant}, s.sets
}

func (s *setByAPI) lag(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lags = err
}

func (s *setByAPI) Tenants() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tenant == "" {
		return nil
	}
	return []string{s.tenant}
}

func (s *setByAPI) Rules(tenant string) (map[string]*rulefmt.RuleGroups, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tenant != s.tenant {
		return nil, 0
	}
	return s.rules, 0
}

// set replaces all rules. Each text is NAMESPACE/GROUP.
func (s *setByAPI) set(tenant string, groups ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenant, s.rules = tenant, groupsOf(groups...)
	s.sets++
}

// groupsOf returns groups of one rule. Each text is FILE/GROUP.
func groupsOf(groups ...string) rulefiles.Set {
	all := rulefiles.Set{}
	for _, g := range groups {
		file, name, _ := strings.Cut(g, "/")
		if all[file] == nil {
			all[file] = &rulefmt.RuleGroups{}
		}
		all[file].Groups = append(all[file].Groups, rulefmt.RuleGroup{Name: name, Interval: model.Duration(time.Hour),
			Rules: []rulefmt.Rule{{Record: "r", Expr: "vector(1)"}}})
	}
	return all
}

// withSets returns a ruler with the given rules, whose results nobody keeps.
func withSets(t *testing.T, o Options) *Ruler {
	t.Helper()
	p := parser.NewParser(parser.Options{})
	o.Config, o.Parser, o.Engine = settings.DefaultRules(), p, promql.NewEngine(promql.EngineOpts{Parser: p})
	o.Distributor, o.Watermarks, o.ExternalURL = &taker{}, new(watermark.All), &url.URL{}
	o.Windows = func() int64 { return time.Now().UnixMilli() }
	o.States = &process{disk: &disk{groups: map[rulestate.Key][]byte{}}}
	o.Registry, o.Logger = prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// In a cluster, any node takes rules, and the one that leads puts them in force. A node that lacks some of them does
// not begin: it would begin alerts of these rules anew.
func TestTheLeaderPutsRulesOfOtherNodesInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sets := &setByAPI{}
		sets.set("acme", "n/before")
		sets.lag(errors.New("lags"))
		var leads atomic.Bool
		r := withSets(t, Options{Sets: sets, Shared: sets, Leads: leads.Load})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = r.Run(ctx) })
		defer running.Wait()
		defer stop()
		has := func(when string, want ...string) {
			t.Helper()
			time.Sleep(time.Second)
			var got []string
			for _, g := range r.Retriever("acme").RuleGroups() {
				got = append(got, g.Name())
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: the groups are %q, want %q", when, got, want)
			}
		}
		has("while another node leads")
		leads.Store(true)
		has("while this node lags")
		sets.lag(nil)
		has("once this node leads", "before")
		sets.set("acme", "n/after", "n/before")
		has("after a change", "after", "before")
		leads.Store(false)
		has("once another node leads")
	})
}

// Groups of files and groups set by the API are side by side, and a change of one leaves the others as they
// are. A namespace with the name of a file takes nothing from the file.
func TestRulesOfFilesAndOfTheAPIAreSideBySide(t *testing.T) {
	sets := &setByAPI{}
	r := withSets(t, Options{Files: Files{"acme": groupsOf("a.yaml/g")}, Sets: sets})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	defer running.Wait()
	defer stop()
	has := func(tenant string, want ...string) []*rules.Group {
		t.Helper()
		var got []string
		groups := r.Retriever(tenant).RuleGroups()
		for _, g := range groups {
			got = append(got, g.File()+"/"+g.Name())
		}
		if !slices.Equal(got, want) {
			t.Errorf("tenant %s has the groups %q, want %q", tenant, got, want)
		}
		return groups
	}
	set := func(tenant string, groups ...string) {
		t.Helper()
		sets.set(tenant, groups...)
		if err := r.Apply(tenant); err != nil {
			t.Fatal(err)
		}
	}
	before := has("acme", "a.yaml/g")
	set("acme", "n/g", "n/h")
	if now := has("acme", "a.yaml/g", "n/g", "n/h"); len(now) > 0 && now[0] != before[0] {
		t.Error("the group of the file began anew")
	}
	set("acme", "n/h", "a.yaml/x")
	has("acme", "a.yaml/g", "n/h")
	if _, left := merged(r.Files["acme"], sets.rules); !slices.Equal(left, []string{"a.yaml;x"}) {
		t.Errorf("the groups %q are left out, want a.yaml;x", left)
	}
	if err := r.Reload(settings.DefaultRules(), Files{"acme": groupsOf("b.yaml/g")}); err != nil {
		t.Fatal(err)
	}
	has("acme", "a.yaml/x", "b.yaml/g", "n/h")
	set("other", "n/g") // of this tenant nothing was known before
	has("other", "n/g")
	set("other")
	has("other")
	if !r.HasFile("acme", "b.yaml") || r.HasFile("acme", "a.yaml") || r.HasFile("other", "b.yaml") {
		t.Error("HasFile knows other files than those of the last reload")
	}
}
