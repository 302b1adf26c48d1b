package rulestate

import (
	"bytes"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

func some() Group {
	at := time.Unix(1_700_000_000, 123).UTC()
	return Group{
		File: "/etc/rules.yaml", Name: "shop", Interval: 15 * time.Second, Slot: at,
		Rules: []Rule{{
			Name: "QueueLong", Labels: `{severity="page"}`, Nth: 1,
			Alerts: []Alert{
				{
					State: Firing, Labels: labels.FromStrings("alertname", "QueueLong", "severity", "page", "shop", "north"),
					Annotations: labels.FromStrings("summary", "12 orders wait"), Value: math.Inf(1), ActiveAt: at.Add(-time.Hour),
					FiredAt: at.Add(-time.Minute), LastSentAt: at.Add(-time.Second), ValidUntil: at.Add(time.Minute),
				},
				{State: Resolved, ActiveAt: at, ResolvedAt: at.Add(1), KeepFiringSince: at.Add(2)},
				{State: Pending, ActiveAt: at},
			},
		}},
	}
}

func TestAGroupIsReadAsItWasWritten(t *testing.T) {
	want := some()
	got, err := Decode(want.AppendTo(nil))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, error %v; want %+v", got, err, want)
	}
	if last := want.LastSent(); !last.Equal(want.Slot.Add(-time.Second)) {
		t.Errorf("last sent %v, want the time of the alert that fires", last)
	}
}

// A damaged disk may return any bytes. A group that Decode accepts has one encoding.
func FuzzDecode(f *testing.F) {
	group := some()
	f.Add(group.AppendTo(nil))
	f.Add((&Group{}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := Decode(b)
		if err == nil && !bytes.Equal(g.AppendTo(nil), b) {
			t.Errorf("% x is encoded as % x", b, g.AppendTo(nil))
		}
	})
}
