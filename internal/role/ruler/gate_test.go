package ruler

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"

	"github.com/freshet-io/freshet/internal/core/rulestate"
	"github.com/freshet-io/freshet/internal/core/watermark"
)

// gated is a group behind a gate, on a virtual clock that begins at 0. The test moves the watermark.
type gated struct {
	*gate
	group *rules.Group

	mu      sync.Mutex
	marks   watermark.Marks
	slots   []int // the evaluated slots, in seconds
	resent  atomic.Int64
	skipped int
	kept    time.Time // the last slot whose state was kept
	begun   time.Time
	during  func() // called during an evaluation, if it is not nil
}

// newGated makes a group of one rule: an alert, or a recording.
func newGated(t *testing.T, interval time.Duration, alerting bool) *gated {
	w := &gated{begun: time.Now()}
	w.gate = newGate(hooks{
		marks: func() watermark.Marks {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.marks
		},
		resend: func(*rules.Group) { w.resent.Add(1) },
		skip:   func(n int) { w.skipped += n },
		keep:   func(_ *rules.Group, slot time.Time) { w.kept = slot },
		forget: func(rulestate.Key) {},
	})
	expr, err := parser.NewParser(parser.Options{}).ParseExpr("x")
	if err != nil {
		t.Fatal(err)
	}
	var rule rules.Rule = rules.NewRecordingRule("r", expr, labels.EmptyLabels())
	if alerting {
		rule = rules.NewAlertingRule("a", expr, 0, 0, labels.EmptyLabels(), labels.EmptyLabels(), labels.EmptyLabels(), "",
			true, nil)
	}
	w.group = rules.NewGroup(rules.GroupOptions{Name: "g", File: "f", Interval: interval, Rules: []rules.Rule{rule},
		Opts: &rules.ManagerOptions{
			Context: t.Context(), Registerer: prometheus.NewRegistry(), Appendable: results{&taker{}, "t"}, Queryable: levels{},
			NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
			QueryFunc: func(_ context.Context, _ string, at time.Time) (promql.Vector, error) {
				w.slots = append(w.slots, int(at.Sub(w.begun)/time.Second))
				if w.during != nil {
					w.during()
				}
				return nil, nil
			},
		}})
	return w
}

// tick evaluates the group as Prometheus' loop does, at a second.
func (w *gated) tick(second int) {
	w.iterate(context.Background(), w.group, w.begun.Add(time.Duration(second)*time.Second))
}

// reaches moves both watermarks to a second.
func (w *gated) reaches(complete, inTime int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := func(s int) int64 { return w.begun.Add(time.Duration(s) * time.Second).UnixMilli() }
	w.marks = watermark.Marks{Complete: at(complete), InTime: at(inTime)}
}

func (w *gated) expect(t *testing.T, when string, want ...int) {
	t.Helper()
	if fmt.Sprint(w.slots) != fmt.Sprint(want) {
		t.Errorf("%s: evaluated the slots %v, want %v", when, w.slots, want)
	}
}

func TestSlotsWaitAndRunInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGated(t, 20*time.Second, false)
		w.reaches(30, 1000)
		w.tick(25)
		w.expect(t, "the data are complete", 20) // the end of a tile
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.tick(45)
			w.tick(105) // the loop dropped the ticks between
		}()
		time.Sleep(50 * time.Second)
		synctest.Wait()
		w.expect(t, "the data are not complete", 20)
		w.reaches(61, 1000)
		time.Sleep(time.Second)
		synctest.Wait()
		w.expect(t, "more data", 20, 40, 60)
		if all := w.waitingGroups(); len(all) != 1 || !all[0].stale.IsZero() || all[0].slot != w.begun.Add(80*time.Second) {
			t.Errorf("waiting are %+v", all)
		}
		w.reaches(200, 1000)
		<-done
		w.expect(t, "all data", 20, 40, 60, 80, 100)
	})
}

// An alert must not wait for the next request of a sender that is on time.
func TestAlertsWaitOnlyForWhatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGated(t, 10*time.Second, true)
		w.reaches(3, 20)
		w.tick(20)
		w.expect(t, "nothing is late", 20)
	})
}

// Alertmanager resolves alerts about which it hears nothing. People must learn that rules wait.
func TestAStaleGroupTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGated(t, 15*time.Second, true)
		w.reaches(0, 5)
		go w.tick(10)
		// The loop ticks at the time of the slot, so the clock is at 10 s when the wait begins.
		time.Sleep(64 * time.Second)
		synctest.Wait()
		stale := func() bool { return !w.waitingGroups()[0].stale.IsZero() }
		if stale() || w.resent.Load() != 1 {
			t.Errorf("after 64 s: stale %v, sent again %d times; want false and once", stale(), w.resent.Load())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !stale() {
			t.Error("two intervals and 31 s after the watermark, the group is not stale")
		}
		time.Sleep(240 * time.Second)
		synctest.Wait()
		if w.resent.Load() != 5 {
			t.Errorf("sent again %d times in five minutes, want each minute", w.resent.Load())
		}
		w.reaches(400, 400)
		time.Sleep(time.Second)
		synctest.Wait()
		if all := w.waitingGroups(); len(all) != 1 {
			t.Errorf("waiting are %+v, want the group: it has slots to catch up with", all)
		}
		w.tick(300)
		if all := w.waitingGroups(); len(all) != 0 {
			t.Errorf("waiting are %+v, want none", all)
		}
	})
}

// A reload waits for the evaluations under way, so a wait must end.
func TestAWaitIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGated(t, 10*time.Second, false)
		w.reaches(10, 10)
		w.tick(10)
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.tick(20)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.halt()
		<-done
		w.halt() // a stop after a reload that failed
		w.resume([]*rules.Group{w.group})
		w.reaches(40, 40)
		w.tick(40)
		w.expect(t, "after the reload", 10, 20, 30, 40)
		w.resume(nil)
		if len(w.groups) != 0 {
			t.Errorf("%d groups are known after they were removed", len(w.groups))
		}
	})
}

// Tenants may change rules all the time. The other groups must not evaluate the same slot all the time.
func TestAChangeOfOtherRulesRepeatsNoEvaluation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGated(t, 10*time.Second, false)
		w.reaches(1000, 1000)
		change := func(during int, after *rules.Group) {
			w.during = w.halt
			w.tick(during)
			w.during = nil
			w.resume([]*rules.Group{after})
		}
		w.tick(10)
		change(20, w.group)
		w.tick(30)
		w.expect(t, "others changed", 10, 20, 30)
		change(40, newGated(t, 10*time.Second, false).group)
		w.tick(50)
		w.expect(t, "the group itself changed", 10, 20, 30, 40, 40, 50)
	})
}

// A process may die between the first evaluation of a new group and the save of its state. The next one must
// evaluate the same slot again, so alerts are active since the same time.
func TestANewGroupIsKeptBeforeItIsEvaluated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGated(t, 10*time.Second, true)
		w.reaches(1000, 1000)
		now := w.begun.Add(25 * time.Second)
		if !w.enter(w.group, now) {
			t.Error("a new group is not entered")
		}
		before := w.kept
		w.iterate(context.Background(), w.group, w.group.EvalTimestamp(now.UnixNano()).Add(10*time.Second))
		if want := before.Add(10 * time.Second); len(w.slots) != 1 || !w.kept.Equal(want) {
			t.Errorf("evaluated %v, and kept %v; want the slot %v alone", w.slots, w.kept, want)
		}
		if w.enter(w.group, w.begun.Add(35*time.Second)) {
			t.Error("a group that runs is entered again")
		}
	})
}

// A group that catches up sends no alert for each minute of the past. A change of an alert is sent at once.
func TestAnAlertIsNotSentAgainAtOnce(t *testing.T) {
	var l lately
	now := time.Unix(1_700_000_000, 0)
	fires := rules.Alert{Labels: labels.FromStrings("alertname", "A"), FiredAt: now}
	resolved, other := fires, fires
	resolved.ResolvedAt = now.Add(time.Minute)
	other.Labels = labels.FromStrings("alertname", "B")
	for _, c := range []struct {
		what  string
		alert *rules.Alert
		after time.Duration
		has   bool
	}{
		{"it fires", &fires, 0, false},
		{"the same again", &fires, rarely - 1, true},
		{"another alert", &other, rarely - 1, false},
		{"it is resolved", &resolved, rarely - 1, false},
		{"the same again", &resolved, rarely, true},
		{"it is due again", &fires, rarely, false},
		{"the same again", &fires, 2*rarely - 1, true},
	} {
		if got := l.has(c.alert, now.Add(c.after)); got != c.has {
			t.Errorf("%s, after %v: sent lately: %v, want %v", c.what, c.after, got, c.has)
		}
	}
	l.has(&other, now.Add(time.Hour))
	if len(l.sent) != 1 {
		t.Errorf("%d notifications are kept, want the last one", len(l.sent))
	}
}

func TestCatchingUpIsBounded(t *testing.T) {
	for _, c := range []struct {
		interval      time.Duration
		slots, missed int
	}{
		{time.Second, 601, 3600 - 601}, // 600 besides the present
		{time.Minute, 16, 60 - 16},     // 15 min
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newGated(t, c.interval, false)
			w.reaches(10_000, 10_000)
			w.tick(60)
			w.slots = nil
			w.tick(3660)
			if len(w.slots) != c.slots || w.skipped != c.missed || w.slots[len(w.slots)-1] != 3660 {
				t.Errorf("each %v: %d slots, %d skipped; want %d and %d", c.interval, len(w.slots), w.skipped, c.slots, c.missed)
			}
		})
	}
}

// A clock that was wrong, and is set back, must not stop rules until it has caught up.
func TestRulesGoOnWhenTheClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGated(t, 10*time.Second, true)
		w.reaches(10_000, 10_000)
		w.tick(7200)
		w.tick(7170) // a little: the slot was evaluated
		w.expect(t, "the clock is set back by 30 s", 7200)
		w.tick(3600)
		w.tick(3610)
		w.expect(t, "the clock is set back by an hour", 7200, 3600, 3610)
		w = newGated(t, 10*time.Second, true)
		w.reaches(10_000, 10_000)
		w.begin(w.group, &rulestate.Group{Interval: 10 * time.Second, Slot: w.begun.Add(24 * time.Hour)})
		w.tick(10)
		w.expect(t, "the state of an earlier process is of the next day", 10)
	})
}
