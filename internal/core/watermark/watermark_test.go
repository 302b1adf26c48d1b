package watermark

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// world is a tenant, and the present in milliseconds.
type world struct {
	t *testing.T
	*Tenant
	now int64
}

func newWorld(t *testing.T) *world { return &world{t, NewTenant(300 * second), 1_000_000 * second} }

func named(name string) Key { return Key{Sender: sender.Sender{Agent: name}} }

// sends lets a sender write a request whose newest sample is `lag` seconds old.
func (w *world) sends(name string, lag int64) {
	w.Begin(w.now)
	w.Written(named(name), w.now, w.now-lag*second, w.now)
}

// every lets a sender send fresh samples each `seconds`, `n` times.
func (w *world) every(name string, seconds int64, n int) {
	for range n {
		w.now += seconds * second
		w.sends(name, 0)
	}
}

// expect compares the watermarks, as ages in seconds, and what is late.
func (w *world) expect(when string, complete, inTime int64, late ...string) {
	w.t.Helper()
	m := w.Marks(w.now, w.now)
	var names []string
	for _, l := range m.Late {
		names = append(names, strings.TrimSpace(strings.Trim(l.Sender, "()?")+" "+string(l.Reason)))
	}
	got := fmt.Sprint((w.now-m.Complete)/second, (w.now-m.InTime)/second, names)
	if want := fmt.Sprint(complete, inTime, late); got != want {
		w.t.Errorf("%s: complete and in time up to %s seconds ago, want %s", when, got, want)
	}
}

func TestALateSenderHoldsTheWatermark(t *testing.T) {
	w := newWorld(t)
	w.expect("nobody sends", 0, 0)
	w.every("a", 10, 4)
	w.expect("it has just sent", 0, 0)
	w.now += 20 * second // one and a half times its usual gap, and 5 s
	w.expect("it is on time", 20, 0)
	w.now += second
	w.expect("it is late", 21, 21, "a silent")
	w.now += 278 * second
	w.expect("it is late for long", 299, 299, "a silent")
	if gone := w.Gone(w.now); len(gone) != 0 {
		t.Errorf("gone before its time: %v", gone)
	}
	w.now += second
	w.expect("it is gone", 0, 0)
	if gone := w.Gone(w.now); len(gone) != 1 || len(w.Gone(w.now)) != 0 {
		t.Errorf("gone are %v, want the sender, once", gone)
	}
	w.every("a", 60, 1)
	w.expect("it is new", 0, 0)
}

// A sender that drains a backlog over two connections has delivered what the slower one has delivered.
func TestABacklogIsFollowed(t *testing.T) {
	w := newWorld(t)
	w.every("a", 10, 4)
	w.now += 100 * second
	w.expect("an outage", 100, 100, "a silent")
	w.sends("a", 95)
	w.sends("a", 40)
	w.expect("two connections drain", 95, 95, "a behind")
	w.now += 4 * second
	w.sends("a", 50)
	w.sends("a", 0)
	w.expect("the requests of the last seconds count", 99, 99, "a behind")
	for range 3 {
		w.now += 5 * second
		w.sends("a", 0)
	}
	w.expect("it has caught up", 0, 0)
	w.now += 21 * second
	w.expect("the outage is no habit", 21, 21, "a silent")
}

// A sender that sends less often than before is not late each time.
func TestASenderMaySlowDown(t *testing.T) {
	w := newWorld(t)
	w.every("a", 1, 10) // it may have drained a backlog
	w.every("a", 30, 1)
	w.now += 29 * second
	w.expect("once is no habit", 29, 29, "a silent")
	w.now += second
	w.sends("a", 0)
	w.now += 49 * second
	w.expect("twice is a habit", 49, 0)
	w.now += 2 * second
	w.expect("it is late", 51, 51, "a silent")
}

// Waiting for what will not come would stop alerts.
func TestSendersThatAreNotExpected(t *testing.T) {
	for _, c := range []struct {
		why   string
		sends func(w *world)
	}{
		{"a script sends once, in many requests", func(w *world) {
			for range 100 {
				w.now += 10
				w.sends("a", 0)
			}
		}},
		{"a job sends each five minutes less a second", func(w *world) { w.every("a", 299, 10) }},
		{"a backfill sends samples of last week", func(w *world) {
			for i := range int64(20) {
				w.now += 2 * second
				w.sends("a", 700_000-100*i)
			}
		}},
	} {
		w := newWorld(t)
		c.sends(w)
		w.now += 200 * second
		w.expect(c.why, 0, 0)
	}
}

// A scrape of many series makes a burst of requests. The gap within a burst is not the sender's cadence.
func TestBurstsAreNoCadence(t *testing.T) {
	w := newWorld(t)
	for range 4 {
		w.now += 59 * second
		for range 50 {
			w.now += 20
			w.sends("a", 0)
		}
	}
	w.now += 60 * second
	w.expect("between two scrapes", 60, 0)
}

// A sender whose samples are always a minute old is as complete as it will ever be.
func TestAUsualLagIsNotLate(t *testing.T) {
	w := newWorld(t)
	for range 20 {
		w.now += 15 * second
		w.sends("a", 60)
	}
	w.expect("its samples are always old", 60, 0)
}

func TestOurOwnDelaysHoldTheWatermark(t *testing.T) {
	w := newWorld(t)
	w.every("a", 10, 4)
	began := w.now
	w.Begin(began)
	w.now += 5 * second
	w.expect("a request is being written", 5, 0)
	w.now += second
	w.expect("a request waits for a store", 6, 6, "queued")
	w.Ended(began)
	w.expect("it is written", 6, 0)
	w.SentBack(w.now)
	w.now += 3 * second
	w.expect("senders are sent back", 9, 9, "a refused", "refused")
	w.sends("a", 0)
	w.expect("the sender came again, others may not have", 3, 3, "refused")
	w.now += 8 * second
	w.expect("nobody was sent back lately", 8, 0)
	if m := w.Marks(w.now, w.now-6*second); m.InTime != w.now-6*second || m.Late[0].Reason != Unwritten {
		t.Errorf("windows wait: %+v", m)
	}
}

// In a cluster a sender may be sent back by any node, and the one that evaluates the rules hears of it.
func TestRefusalsOfAnotherNode(t *testing.T) {
	var none *All
	there := new(All)
	of := there.Watch("acme", 300*second)
	there.Watch("calm", 300*second)
	w := newWorld(t)
	w.every("a", 10, 4)
	w.now += 2 * second
	if all := there.Refusing(w.now); len(all) > 0 || len(none.Refusing(w.now)) > 0 {
		t.Errorf("nobody was refused, but there are %v", all)
	}
	of.SentBack(w.now)
	w.now += 3 * second
	of.SentBack(w.now)
	w.now += second
	all := there.Refusing(w.now)
	if want := (Refusal{4 * second, second}); len(all) != 1 || all["acme"] != want {
		t.Fatalf("refusals %v, want %v of acme", all, want)
	}
	w.SentBack(w.now - 2*second) // here they began later
	w.SentBackElsewhere(w.now, all["acme"])
	w.expect("senders were sent back, first by the other node", 6, 6, "a refused", "refused")
	w.SentBackElsewhere(w.now, Refusal{second, 0})
	w.sends("a", 0)
	w.expect("a third node began later", 4, 4, "refused")
	w.now += 11 * second
	w.sends("a", 0)
	w.SentBackElsewhere(w.now, Refusal{20 * second, 11 * second})
	w.expect("what another node tells is over", 0, 0)
	if all := there.Refusing(w.now); len(all) > 0 {
		t.Errorf("the refusals are over, but there are %v", all)
	}
}

// restart lets another process go on after `down` seconds.
func (w *world) restart(down int64) {
	w.t.Helper()
	saved := w.AppendTo(nil, w.now)
	w.now += down * second
	w.Tenant = NewTenant(300 * second)
	if err := w.Restore(saved, w.now); err != nil {
		w.t.Fatal(err)
	}
}

// Without a process nobody takes data. If nobody knew the sender afterwards, alerts would fire because of
// the data that it holds.
func TestSendersAreKnownAfterARestart(t *testing.T) {
	w := newWorld(t)
	w.every("a", 10, 4)
	w.Begin(w.now)
	w.Written(Key{Pair: "eu"}, w.now, w.now, w.now)
	w.now += 5 * second
	w.restart(4)
	w.expect("it had no need to send meanwhile", 9, 0)
	w.restart(2)
	w.expect("it should have sent meanwhile", 11, 11, "a silent")
	w.sends("a", 3)
	w.expect("it sends, and its samples are as new as usual", 3, 0)
	w.every("a", 10, 3)
	w.restart(400)
	w.expect("it was silent for longer than the timeout, since no process ran", 400, 400, "a silent")
	if gone := w.Gone(w.now); len(gone) != 0 {
		t.Errorf("gone are %v, want none before the sender had time to send", gone)
	}
	w.sends("a", 390)
	w.expect("it drains what gathered", 390, 390, "a behind")
	for range 4 {
		w.now += 5 * second
		w.sends("a", 0)
	}
	w.expect("it has caught up", 0, 0)
	w.now += 16 * second
	w.expect("the restarts are no habit", 16, 0)
	w.restart(1)
	w.now += 299 * second
	if gone := w.Gone(w.now); len(gone) != 1 || len(w.senders) != 0 {
		t.Errorf("gone are %v, want the sender, and nothing of the pair that sent once", gone)
	}
}

// Requests of a sender that went to another process are known here only as far as they were written.
func TestASenderMustComeAgain(t *testing.T) {
	w := newWorld(t)
	w.every("a", 10, 4)
	w.now += 9 * second
	w.Resume(w.now)
	w.expect("it had no need to send", 9, 0)
	w.now += 2 * second
	w.Resume(w.now)
	w.expect("it should have sent", 11, 11, "a silent")
	w.sends("a", 0)
	w.expect("it sends", 0, 0)
}

// A damaged disk may return any bytes.
func FuzzRestore(f *testing.F) {
	w := newWorld(nil)
	w.every("a", 10, 4)
	w.Written(Key{Pair: "eu"}, w.now, w.now, w.now)
	f.Add(w.AppendTo(nil, w.now))
	f.Add(NewTenant(1).AppendTo(nil, 0))
	f.Fuzz(func(t *testing.T, saved []byte) {
		tenant := NewTenant(300 * second)
		if tenant.Restore(saved, 1_000_000*second) != nil {
			if len(tenant.senders) > 0 {
				t.Error("part of a refused file was taken")
			}
			return
		}
		tenant.Marks(1_000_000*second, 1_000_000*second)
		again := tenant.AppendTo(nil, 1_000_000*second)
		if err := NewTenant(300*second).Restore(again, 1_000_000*second); err != nil {
			t.Errorf("cannot read what was written: %v", err)
		}
	})
}

// An HA pair sends from two addresses, and one of them is enough.
func TestAPairIsOneSender(t *testing.T) {
	w := newWorld(t)
	for range 10 {
		w.now += 10 * second
		w.Begin(w.now)
		w.Written(Key{Pair: "eu"}, w.now, w.now, w.now)
	}
	w.now += 30 * second
	if m := w.Marks(w.now, w.now); len(m.Late) != 1 || m.Late[0].Sender != "HA pair eu" {
		t.Errorf("late are %v, want the pair", m.Late)
	}
}

// Any sender of a tenant could otherwise fill the memory, by changing its User-Agent.
func TestSendersAreBounded(t *testing.T) {
	w := newWorld(t)
	for i := range MaxSenders + 10 {
		w.sends(fmt.Sprint(i), 0)
	}
	if n := len(w.senders); n != MaxSenders || w.Unwatched() != 10 {
		t.Errorf("%d senders, %d requests of others; want %d and 10", n, w.Unwatched(), MaxSenders)
	}
}

// expected returns a tenant with a sender that has sent fresh samples ten times, each 15 s, and the present.
func expected() (w *Tenant, now int64) {
	w, now = NewTenant(300*second), 1_700_000_000_000
	for range 10 {
		now += 15 * second
		w.Written(named("a"), now, now-100, now)
	}
	return w, now
}

// A sender that sends old samples besides fresh ones for good drains no backlog. Rules wait for its old samples until
// the timeout, and then only when they have become rare and come again.
func TestOldSamplesBesidesFreshOnes(t *testing.T) {
	w, now := expected()
	rounds := func(n int, old int64) (behind int) {
		for range n {
			now += 15 * second
			w.Written(named("a"), now, now-100, now)
			if old > 0 {
				w.Written(named("a"), now, now-old, now)
			}
			if m := w.Marks(now, now); len(m.Late) > 0 && m.Late[0].Reason == Behind {
				behind++
			}
		}
		return behind
	}
	if n := rounds(20, 600*second); n < 19 {
		t.Errorf("in the first five minutes, rules wait %d of 20 times", n)
	}
	rounds(2, 600*second)
	if n := rounds(240, 600*second); n > 0 {
		t.Errorf("in the next hour, rules wait %d times", n)
	}
	if gone := w.Gone(now); len(gone) != 1 || gone[0].Reason != Uneven {
		t.Errorf("told: %v, want one sender that is uneven", gone)
	}
	if gone := w.Gone(now); len(gone) != 0 {
		t.Errorf("told again: %v", gone)
	}
	rounds(30, 0)
	if n := rounds(1, 600*second); n != 1 {
		t.Error("old samples after a long time without any are no backlog")
	}
}

// A backlog that shrinks is one, however long it takes.
func TestASlowBacklog(t *testing.T) {
	w, now := expected()
	for lag := int64(3600 * second); lag > 60*second; lag -= second {
		now += 5 * second
		w.Written(named("a"), now, now-lag, now)
		if m := w.Marks(now, now); len(m.Late) != 1 || m.Late[0].Reason != Behind {
			t.Fatalf("with a lag of %d s, late is %v", lag/second, m.Late)
		}
	}
}

// While this process stands still, no sender can be heard. That time does not count.
func TestAPausedProcess(t *testing.T) {
	w, now := expected()
	now += 360 * second
	w.Paused(now, 359*second)
	if gone, m := w.Gone(now), w.Marks(now, now); len(gone) > 0 || len(m.Late) != 1 || m.Late[0].Reason != Silent {
		t.Errorf("after a pause of six minutes: gone %v, late %v; want the sender late", gone, m.Late)
	}
	w.Written(named("a"), now, now-100, now)
	if m := w.Marks(now, now); len(m.Late) > 0 {
		t.Errorf("after the sender has sent: late %v", m.Late)
	}
}

// A sender that is not heard because it was asked to send again later is not called silent.
func TestRefusedSendersAreGone(t *testing.T) {
	w, now := expected()
	var gone []Late
	for begun := now; len(gone) == 0 && now < begun+330*second; {
		now += 5 * second
		w.SentBack(now)
		gone = w.Gone(now)
	}
	if len(gone) != 1 || gone[0].Reason != Refused {
		t.Errorf("gone: %v, want one sender that was refused", gone)
	}
}
