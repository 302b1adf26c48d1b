package e2e

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// feed is a sender of remote write. Each second it sends the samples of that second: a counter `c`, which
// rises by 10 a second, and a gauge `level`, which is 1. While it is stalled, samples gather, and it sends
// them afterwards, in order and in pieces.
type feed struct {
	patient bool // a write may fail, and is tried again
	stalled atomic.Bool
	stop    chan struct{}
	done    chan struct{}
}

func startFeed(t *testing.T, p *process) *feed { return runFeed(t, p, false) }

// startPatientFeed is startFeed for a server that is sometimes down.
func startPatientFeed(t *testing.T, p *process) *feed { return runFeed(t, p, true) }

func runFeed(t *testing.T, p *process, patient bool) *feed {
	return feedTo(t, func() *process { return p }, patient)
}

// feedTo sends each request to the process that `to` returns.
func feedTo(t *testing.T, to func() *process, patient bool) *feed {
	f := &feed{patient: patient, stop: make(chan struct{}), done: make(chan struct{})}
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
			status, text, _, err := to().writeWithin(5*time.Second, remoteWriteV2, body)
			if err != nil || status != http.StatusNoContent {
				if f.patient {
					continue
				}
				t.Errorf("remote write: %d %s, error %v", status, text, err)
				return
			}
			next = last + 1
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

// watchAlerts notes every change of the alerts that fire, until the test ends.
func watchAlerts(t *testing.T, am *process) (changes func() []string) {
	stop, done := make(chan struct{}), make(chan struct{})
	var log []string
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
			var names []string
			for name := range all {
				names = append(names, name)
			}
			slices.Sort(names)
			if now := strings.Join(names, " "); now != before {
				log = append(log, now)
				before = now
			}
		}
	}()
	end := func() []string {
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

// TestRulesWaitForTheirData stalls a sender for longer than the ranges of the rules. By the clock, two
// alerts would fire and recordings would have holes. After the stall all is as if there had been none.
func TestRulesWaitForTheirData(t *testing.T) {
	t.Parallel() // it mostly waits
	am := startAlertmanager(t, freeAddress(t))
	p, _ := ruleServer(t, feedRules, am.HTTP)
	f := startFeed(t, p)
	checkStall(t, p, am, "silent", func(stalled bool) { f.stalled.Store(stalled) })
}

// TestRulesWaitForSendersThatWereSentBack does the same with a sender that gets a 503: it holds data
// because the server told it to.
func TestRulesWaitForSendersThatWereSentBack(t *testing.T) {
	t.Parallel() // it mostly waits
	am := startAlertmanager(t, freeAddress(t))
	p, _ := ruleServer(t, feedRules, am.HTTP)
	config := filepath.Join(p.dataDir, "freshet.yaml")
	usual, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	startPatientFeed(t, p)
	checkStall(t, p, am, "refused", func(stalled bool) {
		text := string(usual)
		if stalled {
			text += "distributor: {rate: 1}\n"
		}
		write(t, config, text)
		if status, text := p.post(t, "/-/reload"); status != http.StatusOK {
			t.Fatalf("the reload answers %d: %s", status, text)
		}
	})
}

// checkStall lets `stall` hold back the data of the feed for a while, and checks that the rules wait.
func checkStall(t *testing.T, p, am *process, reason string, stall func(bool)) {
	t.Helper()
	lasting := 60 * time.Second
	if soak {
		lasting = 4 * time.Minute
	}
	reach(time.Now().Add(30 * time.Second)) // ranges are full; before, the traffic was indeed low
	eventually(t, time.Minute, "the alert of level fires alone", func() error { return firesAlone(am, "AlwaysOn") })
	changes := watchAlerts(t, am)
	begun := time.Now()

	stall(true)
	stalled := time.Now()
	eventually(t, 2*time.Minute, "both groups are stale", func() error {
		var state waitingState
		if err := p.ask("/api/v1/status/rules", nil, &state); err != nil {
			return err
		}
		stale := 0
		for _, g := range state.Waiting {
			if g.Stale {
				stale++
			}
		}
		late := map[string]bool{}
		for _, l := range state.Late {
			late[l.Reason] = true
		}
		if stale != 2 || !late[reason] {
			return fmt.Errorf("the state is %+v", state)
		}
		return nil
	})
	t.Logf("stale after %v", time.Since(stalled).Round(time.Second))
	if n, err := p.ownMetric("freshet_rules_stale_groups"); err != nil || n != 2 {
		t.Errorf("freshet_rules_stale_groups is %v, error %v", n, err)
	}
	reach(stalled.Add(lasting))
	stall(false)
	ended := time.Now()
	eventually(t, 3*time.Minute, "no group waits", p.noGroupWaits)
	t.Logf("caught up after %v", time.Since(ended).Round(time.Second))
	reach(time.Now().Add(10 * time.Second))

	log := slices.DeleteFunc(changes(), func(s string) bool { return s == "AlwaysOn FreshetRulesWaiting" })
	if got := strings.Join(slices.Compact(log), ", "); got != "AlwaysOn" {
		t.Errorf("the Alertmanager saw %s; want AlwaysOn to fire throughout, and nothing else", got)
	}
	for name, want := range map[string]float64{"c:increase": 200, "c:increase:double": 400} {
		checkRecording(t, p, name, want, begun, ended)
	}
}

// checkRecording checks that a recording has a sample every five seconds, each with the right value.
func checkRecording(t *testing.T, p *process, name string, want float64, from, to time.Time) {
	t.Helper()
	var data struct{ Result []result }
	if err := p.ask("/api/v1/query", url.Values{"query": {name + "[30m]"}}, &data); err != nil || len(data.Result) != 1 {
		t.Fatalf("%s: %v, error %v", name, data, err)
	}
	n, last := 0, 0.0
	for _, s := range data.Result[0].Values {
		if at := time.UnixMilli(int64(s.T * 1000)); at.Before(from) || at.After(to) {
			continue
		}
		if last != 0 && math.Abs(s.T-last-5) > 0.01 {
			t.Errorf("%s has nothing between %v and %v", name, last, s.T)
		}
		if math.Abs(s.V-want) > want/10 {
			t.Errorf("%s is %v at %v, want %v", name, s.V, s.T, want)
		}
		n, last = n+1, s.T
	}
	if least := int(to.Sub(from).Seconds()/5) - 1; n < least {
		t.Errorf("%s has %d samples, want at least %d", name, n, least)
	}
}
