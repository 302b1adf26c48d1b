package collector

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"

	"github.com/prometheus/prometheus/model/labels"
)

// Once a line's window is closed, each value of the line is in one state, whatever the line holds. The
// aggregator got exactly the samples in the state Window.
func TestEverySampleIsInTheBooks(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		m, err := mapping.New(mapping.Config{Rules: []mapping.Rule{{Match: "noise.*", Action: "drop"},
			{Match: "open", UpDown: true}}}, labels.EmptyLabels())
		if err != nil {
			t.Fatal(err)
		}
		o.Mapper = m
	})
	l := f.listeners()[0]
	l.Tick(second * 1e9)
	lines := []string{
		"open:1:-2|c", "open:-4|c|#x", "a:1:2:3|c", "a:-1:4|c", "a:1e308|c", "a:1e308|c", "noise.x:1:2|c", "noise.y:1|g",
		"broken", "a:x|c", "_e{9,9}:x|y", "t:1:2|ms", "s:a:b|s", "_sc|up|0", "_sc|up|9", "g:1:2|g", "t:h3,9,0;1,5,4|nh",
		"t:h0,1,0;1,1e308,1e308|nh", "t:h3,9,0;1|nh",
	}
	for i := range 1030 { // values of one series, each with its own time; 1,024 fit
		lines = append(lines, fmt.Sprintf("timed:1|c|T%d", second-i))
	}
	l.Packet([]byte(strings.Join(lines, "\n")), second*1e9)
	f.flush(t, l, (second+1)*1e9)

	b := f.Ledger.Books().Tenants["default"].Samples
	if b.Difference != 0 {
		t.Errorf("the ledger has a difference of %d, want 0: %+v", b.Difference, b)
	}
	wantRefused := map[string]uint64{"rule": 3, "negative": 1, "overflow": 2, "too_many_times": 6}
	wantMalformed := map[string]uint64{
		"no_type": 1, "bad_value": 1, "event_length": 1, "check_status": 1, "bad_histogram": 1,
	}
	if !maps.Equal(b.Refused, wantRefused) || !maps.Equal(b.Malformed, wantMalformed) {
		t.Errorf("refused %v, malformed %v; want %v, %v", b.Refused, b.Malformed, wantRefused, wantMalformed)
	}
	// The samples in windows are 3 up/down counters, 3 + 1 + 1 counters, 2 values of a timer and a line
	// of buckets, 1 member of a set, 1 check, 2 gauges, and 1,024 gauges with times.
	if b.Window != 1039 || b.Received != 1039+12+5 {
		t.Errorf("%d samples in windows, %d received, want 1039, 1056", b.Window, b.Received)
	}
	if last := f.Ledger.Books().Boundary; last != (second+1)*1000 {
		t.Errorf("the ledger last balanced at %d, want %d", last, int64(second+1)*1000)
	}
}

// The samples and datagrams of a window that is refused permanently are in the ledger.
func TestRefusedWindowsAreInTheBooks(t *testing.T) {
	f := newFixture(t, nil).start(t)
	f.aggregator.refuse(fmt.Errorf("%w: too long", batch.ErrRefused))
	send(t, dial(t, "udp", f.address("udp")), "a:1|c\na:1|c", "a:1|c")
	refused := func() uint64 { return f.Ledger.Books().Tenants["default"].Samples.Refused["not_taken"] }
	await(t, "the refusal", func() bool { return refused() == 3 })
	f.aggregator.refuse(errors.New("down"))
	send(t, dial(t, "unixgram", f.address("unixgram")), "a:1|c")
	await(t, "the push", func() bool { return len(f.aggregator.refusals()) >= 2 })
	f.stop()
	b := f.Ledger.Books().Tenants["default"]
	if s := b.Samples; s.Window != 0 || s.Unsent["not_acknowledged"] != 1 || s.Difference != 0 {
		t.Errorf("the books %+v", s)
	}
	if d := b.Datagrams; d.Received != 3 || d.Read != 3 {
		t.Errorf("the ledger has the datagrams %+v, want 3 received and read", d)
	}
}

// A window that is refused because its tenant's backlog is full has a reason of its own in the ledger.
// It does not delay the next windows.
func TestWindowsOfAFullTenantAreInTheBooks(t *testing.T) {
	f := newFixture(t, nil)
	l := f.listeners()[0]
	f.aggregator.refuse(&batch.FullError{Samples: map[string]uint64{"default": 2}, Cause: errors.New("not a directory")})
	l.Packet([]byte("a:1|c\na:1|c"), second*1e9)
	f.flush(t, l, (second+1)*1e9)
	f.aggregator.refuse(nil)
	l.Packet([]byte("a:1|c"), (second+1)*1e9)
	f.flush(t, l, (second+2)*1e9)
	if b := f.Ledger.Books().Tenants["default"].Samples; b.Refused["store_pending"] != 2 || b.Window != 1 ||
		b.Difference != 0 {
		t.Errorf("the books %+v", b)
	}
	if got := f.aggregator.totals()[`counter {__name__="a"}`]; got != 1 {
		t.Errorf("%v was counted in the next window, want 1", got)
	}
}

// The counts that clients send about themselves are in the ledger, whatever labels they have.
func TestClientTelemetryIsInTheBooks(t *testing.T) {
	f := newFixture(t, nil)
	l := f.listeners()[0]
	for i := range 3 {
		at := int64(second+i) * 1e9
		l.Tick(at)
		l.Packet([]byte("datadog.dogstatsd.client.packets_dropped:2|c|#client:go\n"+
			"datadog.dogstatsd.client.packets_dropped:5|c|#client:py\n"+
			"datadog.dogstatsd.client.bytes_sent:100|c\n"+
			"datadog.dogstatsd.client.metrics_by_type:7|c|#metrics_type:gauge\nmetrics:1|c"), at)
		f.flush(t, l, at+1e9)
	}
	f.expectClients(t, map[string]float64{"packets_dropped": 21, "bytes_sent": 300})
}

func (f *fixture) expectClients(t *testing.T, want map[string]float64) {
	t.Helper()
	got := f.Ledger.Books().Tenants["default"].Clients
	maps.DeleteFunc(got, func(_ string, n float64) bool { return n == 0 })
	if !maps.Equal(got, want) {
		t.Errorf("client counts are %v, want %v", got, want)
	}
}

// The collector counts the drops that clients report even if a limit leaves no place for their series,
// because clients drop most in a flood. It ignores impossible counts.
func TestClientTelemetryWithoutASeriesIsInTheBooks(t *testing.T) {
	const dropped = "datadog.dogstatsd.client.packets_dropped"
	for _, test := range []struct {
		why   string
		rules []mapping.Rule
		limit int
		lines []string
		want  float64
	}{
		{"folded", nil, 1, []string{"a:1|c", dropped + ":500|c|#client:go", dropped + ":7|c|@0.5|#client:py"}, 514},
		{"dropped by a rule", []mapping.Rule{{Match: "datadog.*", Action: "drop"}}, 0,
			[]string{dropped + ":3|c", dropped + ":4|c"}, 7},
		{"refused values", nil, 0, []string{dropped + ":1:-5|c", dropped + ":1.7e308|c", dropped + ":2|g"}, 1},
	} {
		t.Run(test.why, func(t *testing.T) {
			f := newFixture(t, func(o *Options) {
				m, err := mapping.New(mapping.Config{Rules: test.rules}, labels.EmptyLabels())
				if err != nil {
					t.Fatal(err)
				}
				o.Mapper, o.Limiter = m, limit.New(limit.Config{MaxSeries: test.limit}, time.Minute, time.Hour)
			})
			l := f.listeners()[0]
			for window := range int64(2) {
				l.Tick((second + window) * 1e9)
				l.Packet([]byte(strings.Join(test.lines, "\n")), (second+window)*1e9)
				f.flush(t, l, (second+window+1)*1e9)
			}
			f.expectClients(t, map[string]float64{"packets_dropped": 2 * test.want})
		})
	}
}
