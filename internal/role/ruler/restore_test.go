package ruler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/adapter/rulefiles"
	"github.com/freshet-io/freshet/internal/core/rulestate"
	"github.com/freshet-io/freshet/internal/core/watermark"
	"github.com/freshet-io/freshet/internal/settings"
)

// levels is a storage with the gauge `level` of some shops, once a second. A level is a function of the
// time, so it is there whether or not a process ran.
type levels map[string]func(second int64) float64

// Querier implements storage.Queryable.
func (l levels) Querier(from, to int64) (storage.Querier, error) {
	return &levelQuerier{l, from, to}, nil
}

type levelQuerier struct {
	levels
	from, to int64
}

func (q *levelQuerier) Select(
	_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher,
) storage.SeriesSet {
	var all []storage.Series
	for _, shop := range slices.Sorted(maps.Keys(q.levels)) {
		ls := labels.FromStrings("__name__", "level", "shop", shop)
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(ls.Get(m.Name)) }) {
			continue
		}
		var samples []chunks.Sample
		for s := (q.from + 999) / 1000; s*1000 <= q.to; s++ {
			samples = append(samples, point{s * 1000, q.levels[shop](s)})
		}
		all = append(all, storage.NewListSeries(ls, samples))
	}
	return &seriesList{all: all}
}

func (*levelQuerier) LabelValues(
	context.Context, string, *storage.LabelHints, ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (*levelQuerier) LabelNames(
	context.Context, *storage.LabelHints, ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (*levelQuerier) Close() error { return nil }

type seriesList struct {
	all []storage.Series
	at  storage.Series
}

func (l *seriesList) Next() bool {
	if len(l.all) == 0 {
		return false
	}
	l.at, l.all = l.all[0], l.all[1:]
	return true
}
func (l *seriesList) At() storage.Series                { return l.at }
func (l *seriesList) Err() error                        { return nil }
func (l *seriesList) Warnings() annotations.Annotations { return nil }

type point struct {
	t int64
	v float64
}

func (p point) ST() int64                     { return 0 }
func (p point) T() int64                      { return p.t }
func (p point) F() float64                    { return p.v }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }

// disk keeps states as a file does, encoded. A process that was killed writes nothing any more.
type disk struct {
	groups  map[rulestate.Key][]byte
	senders []byte
}

// process is one process' view of the disk.
type process struct {
	*disk
	mu   sync.Mutex
	dead bool
}

func (p *process) Load(string) (groups []rulestate.Group, senders []byte, err error) {
	for _, b := range p.groups {
		g, err := rulestate.Decode(b)
		if err != nil {
			return nil, nil, err
		}
		groups = append(groups, g)
	}
	return groups, p.senders, nil
}

func (p *process) Save(_ string, c rulestate.Changes) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil
	}
	for _, g := range c.Groups {
		p.groups[g.Key()] = g.AppendTo(nil)
	}
	for _, key := range c.Gone {
		delete(p.groups, key)
	}
	if c.Senders != nil {
		p.senders = c.Senders
	}
	return nil
}

func (p *process) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

// lives are processes, one after the other, and what they wrote and sent.
type lives struct {
	*disk
	taker
	levels levels
	files  rulefiles.Set
	engine *promql.Engine
	parser parser.Parser

	sending sync.Mutex
	sent    map[string]int // notifications, and how often each was sent
}

// live runs a process for a time. Unless it is killed, it stops in order.
func (l *lives) live(t *testing.T, lasting time.Duration, killed bool) {
	p := &process{disk: l.disk}
	rules, err := newTenantRules(Options{
		Config: settings.Rules{Interval: time.Minute}, Engine: l.engine, Parser: l.parser, Queryable: l.levels,
		Distributor: l, Watermarks: new(watermark.All), Windows: func() int64 { return time.Now().UnixMilli() }, States: p,
		Sets: &setByAPI{}, ExternalURL: &url.URL{}, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	}, "acme")
	if err != nil {
		t.Fatal(err)
	}
	rules.options.NotifyFunc = l.notify
	if err := rules.configure(settings.Rules{Interval: time.Minute}, l.files); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	rules.start(&running)
	time.Sleep(lasting)
	if killed {
		synctest.Wait() // it dies between two evaluations
		p.die()
	}
	rules.stop()
	rules.endSends()
	running.Wait()
}

// written returns what was written, each sample once, sorted.
func (l *lives) written() (all []string) {
	for _, p := range l.pushes { // the order within one is that of a map
		all = append(all, strings.Split(p, " __name__=")[1:]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (l *lives) notify(_ context.Context, _ string, alerts ...*rules.Alert) {
	l.sending.Lock()
	defer l.sending.Unlock()
	at := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixNano()
	}
	for _, a := range alerts {
		l.sent[fmt.Sprintf("%v %v %v value %v, active %d, firing %d, resolved %d, kept %d, sent %d until %d",
			a.State, a.Labels, a.Annotations, a.Value, at(a.ActiveAt), at(a.FiredAt), at(a.ResolvedAt), at(a.KeepFiringSince),
			at(a.LastSentAt), at(a.ValidUntil))]++
	}
}

const livesRules = `
groups:
- name: by ten
  interval: 10s
  rules:
  - {record: "level:sum", expr: sum(level)}
  - {alert: Long, expr: level > 0, for: 5m, annotations: {summary: "{{ $value }}"}}
  - {alert: Short, expr: level > 0, for: 40s, labels: {severity: "{{ if gt $value 5.0 }}page{{ else }}ticket{{ end }}"}}
- name: by fifteen
  interval: 15s
  rules:
  - {alert: Kept, expr: level > 0, keep_firing_for: 1m}
  - {alert: Kept, expr: level > 5, for: 1m}
  - {alert: Always, expr: vector(1), for: 10m}
`

func newLives(t *testing.T) *lives {
	t.Helper()
	p := parser.NewParser(parser.Options{})
	file := t.TempDir() + "/rules.yaml"
	if err := os.WriteFile(file, []byte(livesRules), 0o600); err != nil {
		t.Fatal(err)
	}
	files, wrong := rulefiles.Read([]string{file}, p)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	// The path is part of a group's identity, and of the offset of its slots.
	return &lives{
		disk:  &disk{groups: map[rulestate.Key][]byte{}},
		files: rulefiles.Set{"rules.yaml": files[file]}, parser: p, sent: map[string]int{},
		engine: promql.NewEngine(promql.EngineOpts{
			MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 3 * time.Second, Parser: p,
		}),
		levels: levels{
			"steady":   func(int64) float64 { return 3 },
			"long":     func(s int64) float64 { return on(s%1500 > 200 && s%1500 < 800, 7) },
			"flapping": func(s int64) float64 { return on(s%70 < 35, 1) },
			"at times": func(s int64) float64 { return on(s%300 < 90, 6) },
		},
	}
}

func on(is bool, level float64) float64 {
	if is {
		return level
	}
	return 0
}

// Processes that are killed every 30 s must write and send what one process does that is never killed:
// the same results at the same times, and alerts with the same times of their own.
func TestRulesGoOnOverKills(t *testing.T) {
	const whole = 25 * time.Minute
	var once, often *lives
	synctest.Test(t, func(t *testing.T) {
		once = newLives(t)
		once.live(t, whole, false)
	})
	synctest.Test(t, func(t *testing.T) {
		often = newLives(t)
		begun := time.Now()
		often.live(t, time.Minute, false)
		for n := 0; time.Since(begun) < whole-time.Minute; n++ {
			time.Sleep(time.Duration(n%4) * 900 * time.Millisecond) // nothing runs
			often.live(t, 30*time.Second+time.Duration(n%7)*110*time.Millisecond, true)
		}
		often.live(t, whole-time.Since(begun), false)
	})
	compare(t, "written", once.written(), often.written())
	compare(t, "sent", slices.Sorted(maps.Keys(once.sent)), slices.Sorted(maps.Keys(often.sent)))
	for text, n := range often.sent {
		if n > 2 {
			t.Errorf("sent %d times: %s", n, text)
		}
	}
	if len(once.sent) < 100 {
		t.Errorf("only %d notifications were compared", len(once.sent))
	}
}

// Nodes of a cluster lead in turn. Each goes on with what the log has, and the one that was deposed writes no more.
func TestRulesGoOnWithAnotherLeader(t *testing.T) {
	const whole = 20 * time.Minute
	var once, often *lives
	synctest.Test(t, func(t *testing.T) {
		once = newLives(t)
		once.live(t, whole, false)
	})
	synctest.Test(t, func(t *testing.T) {
		often = newLives(t)
		begun, ctx := time.Now(), t.Context()
		var leader atomic.Int64
		var running sync.WaitGroup
		ctx, cancel := context.WithCancel(ctx)
		for n := range int64(3) {
			r, err := New(Options{
				Config: settings.Rules{Interval: time.Minute}, Engine: often.engine, Parser: often.parser,
				Queryable: often.levels, Distributor: often, Watermarks: new(watermark.All),
				Windows: func() int64 { return time.Now().UnixMilli() }, States: &process{disk: often.disk},
				Files: Files{"acme": often.files}, Sets: &setByAPI{}, ExternalURL: &url.URL{},
				Registry: prometheus.NewRegistry(), Shared: &setByAPI{},
				Logger: slog.New(slog.DiscardHandler), Leads: func() bool { return leader.Load() == n },
			})
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() { _ = r.Run(ctx) })
		}
		for n := int64(1); time.Since(begun) < whole-time.Minute; n++ {
			time.Sleep(time.Minute + time.Duration(n%7)*110*time.Millisecond)
			leader.Store(-1)
			time.Sleep(time.Second) // no node leads
			leader.Store(n % 3)
		}
		time.Sleep(whole - time.Since(begun))
		cancel()
		running.Wait()
	})
	compare(t, "written", once.written(), often.written())
}

func compare(t *testing.T, what string, want, got []string) {
	t.Helper()
	shown := 0
	for _, text := range want {
		if _, is := slices.BinarySearch(got, text); !is && shown < 10 {
			shown++
			t.Errorf("not %s over kills: %s", what, text)
		}
	}
	for _, text := range got {
		if _, is := slices.BinarySearch(want, text); !is && shown < 20 {
			shown++
			t.Errorf("%s only over kills: %s", what, text)
		}
	}
	t.Logf("%s: %d", what, len(got))
}

// The states may not be there: a file was damaged, or an older version ran before. Then the times of alerts
// come from ALERTS_FOR_STATE, and nothing is kept before.
func TestWithoutAStateTheSeriesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGated(t, 10*time.Second, true)
		w.reaches(1000, 1000)
		w.begin(w.group, nil)
		rule := w.group.AlertingRules()[0]
		w.tick(10)
		if rule.Restored() || !w.kept.IsZero() {
			t.Errorf("after one evaluation: restored %v, kept the slot %v; want neither", rule.Restored(), w.kept)
		}
		w.tick(20)
		if want := w.begun.Add(20 * time.Second); !rule.Restored() || !w.kept.Equal(want) {
			t.Errorf("after two evaluations: restored %v, kept the slot %v; want both", rule.Restored(), w.kept)
		}
	})
}

// After a minute an Alertmanager should hear of an alert again, even if the process of the last
// notification is gone, and the group waits.
func TestAlertsOfAnEarlierProcessAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGated(t, 10*time.Second, true)
		w.reaches(0, 0)
		w.begin(w.group, &rulestate.Group{Interval: 10 * time.Second, Slot: w.begun, Rules: []rulestate.Rule{{
			Alerts: []rulestate.Alert{{State: rulestate.Firing, LastSentAt: w.begun.Add(-50 * time.Second)}},
		}}})
		go w.tick(10)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if w.resent.Load() != 0 {
			t.Errorf("sent again %d times before a minute has passed", w.resent.Load())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if w.resent.Load() != 1 {
			t.Errorf("sent again %d times after a minute, want once", w.resent.Load())
		}
		w.reaches(1000, 1000)
		time.Sleep(time.Second)
		synctest.Wait()
		w.expect(t, "the group goes on", 10)
	})
}

// A rule may be gone, or have other labels, when the next process reads the files.
func TestStatesOfOtherRulesAreLeftOut(t *testing.T) {
	alert := func(value float64, shop string) rulestate.Alert {
		return rulestate.Alert{
			State: rulestate.Firing, Value: value, ActiveAt: time.Unix(1, 0), FiredAt: time.Unix(2, 0),
			Labels: labels.FromStrings("alertname", "A", "shop", shop, "severity", "page"),
		}
	}
	p := parser.NewParser(parser.Options{})
	expr, err := p.ParseExpr("x")
	if err != nil {
		t.Fatal(err)
	}
	rule := rules.NewAlertingRule("A", expr, 0, 0, labels.FromStrings("severity", "{{ if gt $value 5.0 }}page{{ end }}"),
		labels.EmptyLabels(), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	options := &rules.ManagerOptions{
		ExternalURL: &url.URL{}, Context: t.Context(), Metrics: rules.NewGroupMetrics(nil),
		QueryFunc: func(context.Context, string, time.Time) (promql.Vector, error) { return nil, nil },
	}
	group := rules.NewGroup(rules.GroupOptions{Name: "g", File: "f", Interval: time.Second, Rules: []rules.Rule{rule},
		Opts: options})
	var log strings.Builder
	v := reviver{options, labels.EmptyLabels(), "", slog.New(slog.NewTextHandler(&log, nil))}
	v.revive(t.Context(), group, &rulestate.Group{Slot: time.Unix(3, 0), Rules: []rulestate.Rule{
		{Name: "A", Labels: rule.Labels().String(), Alerts: []rulestate.Alert{alert(9, "north"), alert(1, "south")}},
		{Name: "Gone", Labels: "{}", Alerts: []rulestate.Alert{alert(9, "east")}},
	}})
	all := rule.ActiveAlerts()
	if len(all) != 1 || all[0].Labels.Get("shop") != "north" || !all[0].FiredAt.Equal(time.Unix(2, 0)) {
		t.Errorf("the alerts are %+v, want the one of the shop north", all)
	}
	if !strings.Contains(log.String(), "alerts=1") {
		t.Errorf("the log does not count the alert whose label is another now: %s", &log)
	}
}

// failing are states whose file cannot be written at first.
type failing struct {
	fails int
	saved []rulestate.Changes
}

func (f *failing) Load(string) ([]rulestate.Group, []byte, error) { return nil, nil, nil }

func (f *failing) Save(_ string, c rulestate.Changes) error {
	if f.fails > 0 {
		f.fails--
		return errors.New("the disk is full")
	}
	f.saved = append(f.saved, c)
	return nil
}

func TestStatesAreSavedOnceTheDiskTakesThem(t *testing.T) {
	disk := &failing{fails: 2}
	var log strings.Builder
	k := newKeeper("t", disk, watermark.NewTenant(1), slog.New(slog.NewTextHandler(&log, nil)))
	group := func(name string) *rules.Group {
		return rules.NewGroup(rules.GroupOptions{Name: name, File: "f", Opts: &rules.ManagerOptions{}})
	}
	k.note(group("one"), time.Unix(1, 0))
	k.note(group("two"), time.Unix(1, 0))
	k.forget(rulestate.Key{File: "f", Name: "old"})
	k.save(false)
	k.note(group("one"), time.Unix(2, 0))
	k.forget(rulestate.Key{File: "f", Name: "two"})
	k.save(false)
	k.save(false)
	k.save(false) // nothing changed
	if len(disk.saved) != 1 || strings.Count(log.String(), "disk is full") != 1 {
		t.Fatalf("saved %+v, logged %s; want one of each", disk.saved, &log)
	}
	c := disk.saved[0]
	if len(c.Groups) != 1 || c.Groups[0].Name != "one" || c.Groups[0].Slot.Unix() != 2 || len(c.Gone) != 2 {
		t.Errorf("saved %+v, want the newest state of one, and that old and two are gone", c)
	}
}
