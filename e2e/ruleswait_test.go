package e2e

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// feed is a sender of remote write. Each second it sends the samples of that second: a counter `c`, which
// rises by 10 a second, and a gauge `level`, which is 1. It repeats a request that failed. While it is stalled,
// samples gather, and it sends them afterwards, in order and in pieces.
type feed struct {
	stalled atomic.Bool
	taken   atomic.Int64 // when the last request was acknowledged, as Unix milliseconds
	stop    chan struct{}
	done    chan struct{}
}

func startFeed(t *testing.T, p *process) *feed { return feedTo(t, func() *process { return p }) }

// feedTo sends each request to the process that `to` returns.
func feedTo(t *testing.T, to func() *process) *feed {
	f := &feed{stop: make(chan struct{}), done: make(chan struct{})}
	begun := time.Now().Unix()
	go func() {
		defer close(f.done)
		next := begun
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-tick.C:
			case <-f.stop:
				tick.Stop()
				return
			}
			if f.stalled.Load() || next > time.Now().Unix() {
				continue
			}
			last := min(next+4, time.Now().Unix())
			body := pack(t, feedRequest(begun, next, last))
			status, _, _, err := to().writeWithin(5*time.Second, remoteWriteV2, body)
			if err != nil || status != http.StatusNoContent {
				continue
			}
			next = last + 1
			f.taken.Store(time.Now().UnixMilli())
		}
	}()
	t.Cleanup(f.end)
	return f
}

func (f *feed) end() {
	select {
	case <-f.done:
	default:
		close(f.stop)
		<-f.done
	}
}

// feedRequest has the samples of the seconds from `first` to `last`.
func feedRequest(begun, first, last int64) *writev2.Request {
	m := requestV2(0, 0, "c", "level")
	for i := range m.Timeseries {
		m.Timeseries[i].Samples = nil
	}
	for s := first; s <= last; s++ {
		m.Timeseries[0].Samples = append(m.Timeseries[0].Samples,
			writev2.Sample{Timestamp: s * 1000, Value: float64(10 * (s - begun))})
		m.Timeseries[1].Samples = append(m.Timeseries[1].Samples, writev2.Sample{Timestamp: s * 1000, Value: 1})
	}
	return m
}

// Rules for the feed. TrafficFell and Silent are false as long as the data are whole.
const feedRules = `
groups:
- name: recorded
  interval: 5s
  rules:
  - {record: "c:increase", expr: "sum(increase(c[20s]))"}
  - {record: "c:increase:double", expr: "2 * c:increase"}
- name: alerts
  interval: 5s
  rules:
  - {alert: TrafficFell, expr: "sum(rate(c[20s])) < 5"}
  - {alert: Silent, expr: "absent_over_time(c[30s])"}
  - {alert: AlwaysOn, expr: "level > 0"}
`

// firingSet is which alerts fire as of a time, by name.
type firingSet struct {
	at    time.Time
	names string
}

// watchAlerts notes every change of the alerts that fire, until the test ends.
func watchAlerts(t *testing.T, am *process) (changes func() []string) {
	end := watchFiring(t, am)
	return func() (log []string) {
		for _, c := range end() {
			log = append(log, c.names)
		}
		return log
	}
}

// watchFiring is watchAlerts with the times of the changes.
func watchFiring(t *testing.T, am *process) (changes func() []firingSet) {
	stop, done := make(chan struct{}), make(chan struct{})
	var log []firingSet
	go func() {
		defer close(done)
		before := ""
		for tick := time.NewTicker(250 * time.Millisecond); ; {
			select {
			case <-tick.C:
			case <-stop:
				tick.Stop()
				return
			}
			all, err := am.firing()
			if err != nil {
				continue
			}
			if now := strings.Join(slices.Sorted(maps.Keys(all)), " "); now != before {
				log = append(log, firingSet{time.Now(), now})
				before = now
			}
		}
	}()
	end := func() []firingSet {
		select {
		case <-done:
		default:
			close(stop)
			<-done
		}
		return log
	}
	t.Cleanup(func() { end() })
	return end
}

// waitingState is the answer of /api/v1/status/rules.
type waitingState struct {
	Watermark int64 `json:"watermark_ms"`
	Late      []struct{ Sender, Reason string }
	Gone      []struct{ Sender string }
	Waiting   []struct {
		Name  string
		Stale bool
	}
}

// noGroupWaits checks that rules wait for nothing, and that data are complete.
func (p *process) noGroupWaits() error {
	var state waitingState
	if err := p.ask("/api/v1/status/rules", nil, &state); err != nil {
		return err
	}
	if len(state.Waiting) > 0 || time.Now().UnixMilli()-state.Watermark > 10_000 {
		return fmt.Errorf("the state is %+v", state)
	}
	return nil
}

// checkRecording checks that a recording has a sample every five seconds, each with the right value.
func checkRecording(t *testing.T, p *process, name string, want float64, from, to time.Time) {
	t.Helper()
	s, err := p.slots(name, want, 5*time.Second, from, to)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range s.faults {
		t.Error(fault)
	}
}

// slots says how whole a recording is.
type slots struct {
	due, missing, wrong int
	faults              []string
}

// slots compares a recording of the feed, whose value is always `want`, with the slots of its group between two
// times.
func (p *process) slots(name string, want float64, every time.Duration, from, to time.Time) (s slots, err error) {
	var data struct{ Result []result }
	err = p.ask("/api/v1/query", url.Values{"query": {name + "[30m]"}}, &data)
	if err != nil || len(data.Result) != 1 {
		return s, fmt.Errorf("%s: %v, error %w", name, data, err)
	}
	s.due = int(to.Sub(from)/every) - 1
	n, last := 0, 0.0
	for _, v := range data.Result[0].Values {
		if at := time.UnixMilli(int64(v.T * 1000)); at.Before(from) || at.After(to) {
			continue
		}
		if last != 0 && math.Abs(v.T-last-every.Seconds()) > 0.01 {
			s.faults = append(s.faults, fmt.Sprintf("%s has nothing between %v and %v", name, last, v.T))
		}
		if math.Abs(v.V-want) > want/10 {
			s.wrong++
			s.faults = append(s.faults, fmt.Sprintf("%s is %v at %v, want %v", name, v.V, v.T, want))
		}
		n, last = n+1, v.T
	}
	if s.missing = max(s.due-n, 0); s.missing > 0 {
		s.faults = append(s.faults, fmt.Sprintf("%s has %d samples, want at least %d", name, n, s.due))
	}
	return s, nil
}
