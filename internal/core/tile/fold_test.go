package tile

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/series"
)

// A stamped gauge is taken if its time is in the timed window that the last boundary set. The window of
// the present configuration does not matter, because members of a group may have different ones.
func TestTheLastBoundaryHasTheTimedWindow(t *testing.T) {
	then := &Config{CounterTTL: time.Hour, GaugeTTL: time.Hour, OutOfOrder: 20 * time.Second}
	for how, move := range map[string]func(*Shard){
		"closed": func(s *Shard) { s.Close(base+60_000, then) },
		"skipped": func(s *Shard) {
			if !s.Skip(base+60_000, then) {
				t.Error("Skip finds series in the shard")
			}
		},
	} {
		p := &player{t: t, config: testConfig()}
		p.shard = New(p.config, base+50_000)
		move(p.shard)
		if got := p.run("window start=61s\ngauge g 7 T=40s\ngauge g 8 T=39s"); got != "samples=1 late gauges=1\n" {
			t.Errorf("after the shard was %s: the counts are %s", how, got)
		}
	}
}

// A shard whose first boundary never came begins with its first batch. It used to take the timed window of
// its own configuration, so members of a group with different ones took different gauges.
func TestAShardWithoutABoundary(t *testing.T) {
	var w batch.Writer
	w.Begin(batch.Header{Tenant: []byte("a"), Producer: 1, Incarnation: 1, Sequence: 1, Second: base/1000 + 61})
	key := series.AppendKey(nil, series.Gauge, labels.FromStrings("__name__", "g"))
	shard := series.Shard("a", key)
	for _, second := range []int64{59, 60, 61} { // the first tile begins at 60
		w.Add(shard, &batch.Increment{Key: key, Samples: 1, Value: 7, Time: base/1000 + second})
	}
	b := w.End()[0].Bytes
	var states []string
	for _, own := range []time.Duration{0, time.Minute} {
		config := testConfig()
		config.OutOfOrder = own
		s := NewShards(config)
		if _, f, err := s.Fold(shard, b); err != nil || f.LateGauge != 1 || f.Samples != 2 {
			t.Errorf("own window %v: %+v, %v, want one late gauge of three", own, f, err)
		}
		states = append(states, string(s.AppendState(shard, nil)))
	}
	if states[0] != states[1] {
		t.Error("the shards of two members differ")
	}
}

// A silent producer is remembered for an hour. After its incarnation has left, it is remembered for only
// five minutes.
func TestSilentProducersAreForgotten(t *testing.T) {
	for _, c := range []struct {
		left, after int64 // the incarnation that has left
		knows       bool
	}{
		{0, producerTTL, true}, {0, producerTTL + 10_000, false},
		{1, leftTTL, true}, {1, leftTTL + 10_000, false},
		{2, producerTTL, true},
	} {
		p := &player{t: t, config: testConfig()}
		p.shard = New(p.config, base)
		p.run("window start=3s")
		p.shard.Left(1, uint64(c.left))
		p.shard.Skip(base+c.after, p.config)
		if got := p.shard.Knows(&batch.Header{Producer: 1, Incarnation: 1, Sequence: 1}); got != c.knows {
			t.Errorf("incarnation %d has left: after %v, the producer is known: %v, want %v", c.left,
				time.Duration(c.after)*time.Millisecond, got, c.knows)
		}
	}
}
