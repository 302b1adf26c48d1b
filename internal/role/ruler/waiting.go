package ruler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/notifier"
	"github.com/prometheus/prometheus/rules"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/watermark"
)

// waiting knows what the rules of a tenant wait for, and tells people.
type waiting struct {
	tenant    string
	watermark *watermark.Tenant
	windows   func() int64 // the time up to which all windows are folded, in Unix milliseconds
	gate      *gate

	mu     sync.Mutex
	marks  watermark.Marks
	looked time.Time // when marks were read
	alive  time.Time // when watch last looked, by the wall clock
	gone   []answer.LateSender
	told   time.Time // when FreshetRulesWaiting was last sent; zero if it does not fire
	began  time.Time // when it began to fire

	skipped, left prometheus.Counter
}

const (
	// marksAge is how old the watermark may be. Many groups may wait for it, and a tenant may have many
	// senders.
	marksAge = 100 * time.Millisecond

	// standstill is how long watch, which looks each second, must not have looked for this process to have stood still.
	standstill = 5 * time.Second

	// mostGone is how many of the senders that are gone are kept for people.
	mostGone = 100

	// waitingAlert is the name of the alert about rules that wait.
	waitingAlert = "FreshetRulesWaiting"
)

func newWaiting(tenant string, o Options, reg prometheus.Registerer) *waiting {
	w := &waiting{tenant: tenant, windows: o.Windows,
		watermark: o.Watermarks.Watch(tenant, o.Config.SenderTimeout.Milliseconds())}
	f := promauto.With(reg)
	gauge := func(name, help string, value func() float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "freshet", Name: name, Help: help}, value)
	}
	gauge("watermark_seconds", "Time up to which all expected data of the tenant have been delivered, as Unix seconds. "+
		"Falling behind the clock: a sender is late or a write waits; freshet rules says which.",
		func() float64 { return float64(w.current().Complete) / 1000 })
	gauge("rules_waiting_groups", "Groups of rules that wait for the watermark.",
		func() float64 { return float64(len(w.gate.waitingGroups())) })
	gauge("rules_stale_groups", "Groups of rules that have waited for more than two intervals and 30 s: their alerts "+
		"neither fire nor resolve. Above 0: a sender is late or a write waits; freshet rules says which.",
		func() float64 { return float64(len(w.staleGroups(time.Time{}))) })
	f.NewCounterFunc(prometheus.CounterOpts{Namespace: "freshet", Name: "rules_unwatched_requests_total",
		Help: fmt.Sprintf("Requests of senders beyond the %d whose delays rules wait for. Rising: senders change their "+
			"address or User-Agent all the time.", watermark.MaxSenders)},
		func() float64 { return float64(w.watermark.Unwatched()) })
	w.skipped = f.NewCounter(prometheus.CounterOpts{Namespace: "freshet", Name: "rules_skipped_slots_total",
		Help: "Evaluations that were left out, because a group was more than 15 min or 600 evaluations behind. Rising: " +
			"recordings have holes."})
	w.left = f.NewCounter(prometheus.CounterOpts{Namespace: "freshet", Name: "rules_senders_gone_total",
		Help: "Senders that were silent for rules.sender_timeout, or whose old samples became no fewer in that time, so " +
			"that rules no longer wait for them. Rising: senders die; the log and freshet rules name them."})
	return w
}

// current returns the watermarks.
func (w *waiting) current() watermark.Marks {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives(false)
	if now := time.Now(); now.Sub(w.looked) >= marksAge || now.Before(w.looked) {
		w.marks, w.looked = w.watermark.Marks(now.UnixMilli(), w.windows()), now
	}
	return w.marks
}

// lives tells the watermark if this process has stood still, before anything else looks at it. The caller holds w.mu.
func (w *waiting) lives(watches bool) {
	now := time.Now().Round(0) // a stopped machine stops the monotonic clock, too
	if pause := now.Sub(w.alive); !w.alive.IsZero() && pause > standstill {
		w.watermark.Paused(now.UnixMilli(), pause.Milliseconds())
		watches = true
	}
	if watches {
		w.alive = now
	}
}

// staleGroups returns the groups that have been stale since `since` or longer; all if it is zero.
func (w *waiting) staleGroups(since time.Time) (all []progress) {
	for _, p := range w.gate.waitingGroups() {
		if !p.stale.IsZero() && (since.IsZero() || !p.stale.After(since)) {
			all = append(all, p)
		}
	}
	return all
}

// watch tells people about senders that are gone, and about rules that wait, until ctx is done.
func (w *waiting) watch(ctx context.Context, t *tenantRules) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		w.lives(true)
		w.mu.Unlock()
		now := time.Now()
		for _, gone := range w.watermark.Gone(now.UnixMilli()) {
			w.left.Inc()
			w.keep(lateSender(gone))
			t.logger.Warn("a sender is gone: rules no longer wait for its data", "sender", gone.Sender, "why",
				reasons[gone.Reason], "since", time.UnixMilli(gone.Since).UTC().Format(time.RFC3339))
		}
		if alert := w.alert(now, t.staleAlert.Load()); alert != nil {
			t.notifier.Send(alert)
		}
	}
}

func (w *waiting) keep(gone answer.LateSender) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = append(w.gone, gone)
	if beyond := len(w.gone) - mostGone; beyond > 0 {
		w.gone = slices.Delete(w.gone, 0, beyond)
	}
}

// alert returns the notification that is due about rules that wait, or nil. `after` is rules.stale_alert
// in nanoseconds.
func (w *waiting) alert(now time.Time, after int64) *notifier.Alert {
	stale := w.staleGroups(now.Add(-time.Duration(after)))
	if len(stale) == 0 {
		if w.told.IsZero() {
			return nil
		}
		w.told = time.Time{}
		return &notifier.Alert{Labels: w.alertLabels(), StartsAt: w.began, EndsAt: now}
	}
	if w.told.IsZero() {
		w.began = now
	} else if now.Sub(w.told) < resendDelay {
		return nil
	}
	w.told = now
	var causes []string
	for _, l := range w.current().Late {
		causes = append(causes, strings.TrimSpace(l.Sender+" "+reasons[l.Reason]+" since "+
			time.UnixMilli(l.Since).UTC().Format(time.TimeOnly)))
	}
	summary := fmt.Sprintf("%d groups of rules of tenant %s wait for data, so their alerts neither fire nor resolve",
		len(stale), w.tenant)
	return &notifier.Alert{
		Labels: w.alertLabels(), StartsAt: w.began, EndsAt: now.Add(4 * resendDelay),
		Annotations: labels.FromStrings("summary", summary, "description", strings.Join(causes, "\n")),
	}
}

func (w *waiting) alertLabels() labels.Labels {
	return labels.FromStrings(model.AlertNameLabel, waitingAlert, "severity", "warning", "tenant", w.tenant)
}

// reasons says for people why something is late.
var reasons = map[watermark.Reason]string{
	watermark.Silent:    "sends nothing",
	watermark.Behind:    "sends a backlog",
	watermark.Uneven:    "sends old samples besides fresh ones",
	watermark.Refused:   "senders are asked to send again later",
	watermark.Queued:    "a request waits to be written",
	watermark.Unwritten: "windows wait for the journal",
}

// status describes the watermark and the groups that wait.
func (w *waiting) status() answer.Rules {
	m := w.current()
	all := answer.Rules{Tenant: w.tenant, Watermark: m.Complete, InTime: m.InTime, Late: []answer.LateSender{},
		Gone: []answer.LateSender{}, Waiting: []answer.WaitingGroup{}}
	for _, l := range m.Late {
		all.Late = append(all.Late, lateSender(l))
	}
	w.mu.Lock()
	all.Gone = append(all.Gone, w.gone...)
	w.mu.Unlock()
	for _, p := range w.gate.waitingGroups() {
		all.Waiting = append(all.Waiting, answer.WaitingGroup{
			File: p.file, Name: p.name, Slot: p.slot.UnixMilli(), Since: p.waiting.UnixMilli(), Stale: !p.stale.IsZero(),
		})
	}
	slices.SortFunc(all.Waiting, func(a, b answer.WaitingGroup) int {
		return strings.Compare(rules.GroupKey(a.File, a.Name), rules.GroupKey(b.File, b.Name))
	})
	return all
}

func lateSender(l watermark.Late) answer.LateSender {
	return answer.LateSender{
		Sender: l.Sender, Reason: string(l.Reason), Text: reasons[l.Reason], Since: l.Since, Mark: l.Mark,
	}
}
