package member

import (
	"bytes"
	"cmp"
	"errors"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/seen"
	"github.com/freshet-io/freshet/internal/core/write"
)

// deltaOf returns an increment of 2 for a series.
func deltaOf(t *testing.T, name string, kind remotewrite.MetricType, at int64, hash uint64) entry.Entry {
	var in write.Incoming
	var b remotewrite.Builder
	b.Begin(&in.Request, nil)
	b.Series()
	b.Label("__name__", name)
	b.Type(kind)
	b.Sample(remotewrite.Sample{Time: at, Value: 2})
	b.Finish()
	r := bodyOf(t, &in, "one", at)
	r.MaxSeries, r.Hash = 3, hash
	return entry.Entry{Kind: entry.KindDeltas, Request: r}
}

// The group knows a bounded number of a tenant's requests, and counts those that it forgets early.
func TestForgottenDeltas(t *testing.T) {
	m := withGauge(t)
	for i := range seen.MaxRequests + 3 {
		apply(t, m, deltaOf(t, "a", remotewrite.CounterType, base, uint64(i)+1))
	}
	if requests, refusals := m.Forgotten(); requests != 3 || refusals != 0 {
		t.Errorf("%d requests and the refusals of %d requests were forgotten, want 3 and 0", requests, refusals)
	}
}

// Whether deltas count depends on their hash, which is known for 10 minutes, and on the totals.
func TestDeltasInTheLog(t *testing.T) {
	m := withGauge(t) // the first of three series
	const minute = 60_000
	counter, gauge := remotewrite.CounterType, remotewrite.GaugeType
	for i, c := range []struct {
		name    string
		kind    remotewrite.MetricType
		at      int64
		hash    uint64
		counted int
		refused outcome.Reason // if not 0
		why     string
	}{
		{"a", counter, base, 1, 1, 0, "it is new"},
		{"a", counter, base + 1, 1, 0, 0, "its hash says that it comes again"},
		{"a", counter, base + 2, 2, 1, 0, "another request"},
		{"a", gauge, base + 3, 3, 0, outcome.Mixed, "it is a counter"},
		{"g", counter, base + 3, 4, 0, outcome.Mixed, "it is a gauge of windows"},
		{"b", gauge, base + 4, 5, 1, 0, "there is room for one series more"},
		{"c", counter, base + 5, 6, 0, outcome.TooManySeries, "the tenant has three"},
		{"c", counter, base + 6, 6, 0, outcome.TooManySeries, "and it comes again: nothing of it counted"},
		{"a", counter, base + 10*minute - 1, 1, 0, 0, "it comes again within 10 minutes"},
		{"a", counter, base + 10*minute, 1, 1, 0, "it was forgotten"},
	} {
		done, _ := apply(t, m, deltaOf(t, c.name, c.kind, c.at, c.hash))
		counted := 0
		if f := done.Windows.Folded["one"]; f != nil {
			counted = int(f.Samples)
		}
		written := 1
		if c.refused != 0 {
			written = 0
		}
		if o := done.Outcome; counted != c.counted || o.Written.Samples != written ||
			o.Refused[c.refused].Samples != 1-written {
			t.Errorf("request %d, %s: counted %d, want %d; outcome %s", i+1, c.why, counted, c.counted, o.Text())
		}
	}
	before, stored := m.Digests("one")
	if before.Index != m.Index() || stored != (Digest{}) {
		t.Errorf("the digests are %+v and %+v, want one with index %d and an empty one", before, stored, m.Index())
	}
}

// A request that comes again gets the same answer as at first, even if the member restarts in between. The
// answer used to be that all of it was written, although a limit had refused a part of it.
func TestARepeatIsRefusedLikeTheFirst(t *testing.T) {
	m := withGauge(t) // the first of three series
	group := m.AppendGroup(nil)
	var in write.Incoming
	var b remotewrite.Builder
	b.Begin(&in.Request, nil)
	for _, name := range []string{"a", "g", "b", "c", "c2"} {
		b.Series()
		b.Label("__name__", name)
		b.Sample(remotewrite.Sample{Time: base, Value: 2})
	}
	b.Finish()
	e := entry.Entry{Kind: entry.KindDeltas, Request: bodyOf(t, &in, "one", base)}
	e.Request.MaxSeries, e.Request.Hash = 3, 1
	first, _ := apply(t, m, e)
	o := first.Outcome
	if o.Written.Samples != 2 || o.Refused[outcome.Mixed].Samples != 1 || o.Refused[outcome.TooManySeries].Samples != 2 {
		t.Fatalf("the first: %s", o.Text())
	}
	restored, err := Restore(7, &config, group)
	for number := range uint16(1024) {
		if b, index, has := m.AppendShard(nil, number); err == nil && has {
			err = restored.RestoreShard(number, index, b)
		}
	}
	if err := cmp.Or(err, restored.RestoreDecisions(m.AppendDecisions(nil, m.Index()-1))); err != nil {
		t.Fatal(err)
	}
	restored.Restored(nil)
	apply(t, restored, e) // it is in the log, behind the checkpoint
	if a, b := m.AppendGroup(nil), restored.AppendGroup(nil); !bytes.Equal(a, b) {
		t.Errorf("after a restart the state is\n%x, want\n%x", b, a)
	}
	for _, m := range []*Member{m, restored} {
		again, _ := apply(t, m, e)
		var texts [2]string
		for i, o := range []*outcome.Outcome{o, again.Outcome} {
			texts[i], _, _ = strings.Cut(o.Text(), o.First.Cause)
		}
		f := again.Windows.Folded["one"]
		if again.Outcome.Refused != o.Refused || again.Outcome.Written != o.Written || texts[0] != texts[1] ||
			!strings.Contains(again.Outcome.First.Cause, "when the request came for the first time") {
			t.Errorf("first outcome  %s\nrepeat outcome %s", o.Text(), again.Outcome.Text())
		}
		if f.Samples != 0 || f.Repeated != 2 || len(again.Deltas.New) > 0 {
			t.Errorf("the repeat was counted: %+v", f)
		}
	}
	// The proposer's rules now drop all series but one, so fewer samples come than were refused at
	// first.
	e = deltaOf(t, "a", remotewrite.CounterType, base+1, 1)
	again, _ := apply(t, m, e)
	if got := again.Outcome; got.Written != (outcome.Counts{}) || got.Refused != o.Refused ||
		again.Windows.Folded["one"].Repeated != 0 {
		t.Errorf("repeat with other rules: %+v", got)
	}
}

// A checkpoint needs its last section, the decisions: the totals in its shards are from different
// entries.
func TestDecisionsAreMissing(t *testing.T) {
	m := withGauge(t)
	group := m.AppendGroup(nil)
	e := deltaOf(t, "g", remotewrite.CounterType, base, 1)
	apply(t, m, e)
	restore := func(decisions []byte) error {
		restored, err := Restore(7, &config, group)
		for number := range uint16(1024) {
			if b, index, has := m.AppendShard(nil, number); err == nil && has {
				err = restored.RestoreShard(number, index, b)
			}
		}
		if err == nil && decisions != nil {
			err = restored.RestoreDecisions(decisions)
		}
		if err != nil {
			return err
		}
		restored.Restored(nil)
		done, err := restored.Apply(restored.Index()+1, e.Append(nil))
		if err == nil && done.Outcome.Refused[outcome.Mixed].Samples != 1 {
			t.Errorf("outcome %+v", done.Outcome)
		}
		return err
	}
	e.Group, e.Shape = 7, 1
	decisions := m.AppendDecisions(nil, m.Index()-1)
	if err := restore(decisions); err != nil {
		t.Error(err)
	}
	if err := restore(nil); !errors.Is(err, ErrEntry) || !strings.Contains(err.Error(), "decisions end at entry 0") {
		t.Error(err)
	}
	for n := range decisions {
		if err := restore(decisions[:n]); !errors.Is(err, errSection) && n > 0 {
			t.Errorf("the first %d of %d bytes: error %v", n, len(decisions), err)
		}
	}
}

// Members that decide differently have different digests. Exemplars do not matter.
func TestDigests(t *testing.T) {
	o := outcome.Outcome{Written: outcome.Counts{Samples: 3, Exemplars: 1}}
	other, kept := o, o
	other.Refused[outcome.TooOld].Samples = 1
	kept.Written.Exemplars, kept.NotKept, kept.First.Cause = 0, 1, "of no importance"
	hash := func(all ...outcome.Outcome) (d Digest) {
		for i := range all {
			d.add(uint64(i)+2, &all[i])
		}
		return d
	}
	if a, b := hash(o, o), hash(kept, o); a != b {
		t.Errorf("exemplars change the digest from %v to %v", a, b)
	}
	if a, b := hash(o, o), hash(other, o); a == b {
		t.Errorf("another outcome has the same digest, %v", a)
	}
	if a, b := hash(o, other), hash(other, o); a == b {
		t.Errorf("another order has the same digest, %v", a)
	}
}
