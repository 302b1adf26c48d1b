package limit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
)

// In a flood of more metrics than are remembered, only the metric that exceeds its limit all the
// time is steady. The other metrics displace each other.
func TestOnlyWhoStaysIsSteady(t *testing.T) {
	tenant := newTenant(Config{MaxSeriesPerMetric: 1})
	flood := func(now int64, metrics int, heavy string) {
		for i := range 1000 {
			tenant.Admit(now, claim(key(series.Counter, fmt.Sprint("wide", i%metrics), i)))
			if heavy != "" {
				tenant.Admit(now, claim(key(series.Counter, heavy, i)))
			}
		}
	}
	expect := func(now int64, want string) {
		t.Helper()
		var steady []string
		for _, o := range tenant.Report(now).Offenders {
			if o.Steady {
				steady = append(steady, o.Metric)
			}
		}
		if got := strings.Join(steady, " "); got != want {
			t.Errorf("steady metrics: %q, want %q", got, want)
		}
	}
	flood(begin, 1, "")
	expect(begin, "wide0") // steady at once, since no other metric is over a limit
	now := begin + 700*second
	expect(now, "") // forgotten
	for range 5 {
		flood(now, 200, "")
		now += second
	}
	expect(now, "")
	for range 3 {
		flood(now, 200, "heavy")
		now += second
	}
	expect(now, "heavy")
	// The last metric of a flood is not to blame more than the others, so it is not steady. A
	// metric that comes long after the flood is steady.
	now += 120 * second
	expect(now, "heavy")
	tenant.Admit(now, claim(key(series.Counter, "later", 0)))
	tenant.Admit(now, claim(key(series.Counter, "later", 1)))
	expect(now, "heavy later")
}

// The label __name__ has one value in a metric and is not to blame.
func TestTheNameOfAMetricIsNotToBlame(t *testing.T) {
	tenant := newTenant(Config{MaxSeriesPerMetric: 1})
	for id := range 2 {
		tenant.Admit(begin, claim(key(series.Counter, "a", id)))
	}
	for _, l := range tenant.Report(begin).Offenders[0].Labels {
		if l.Name == "__name__" {
			t.Errorf("%+v", l)
		}
	}
}

// Senders choose the length of names and containers, so long ones are cut.
func TestWhatIsRememberedOfAnOffenderIsShort(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	tenant := newTenant(Config{MaxSeries: 1})
	tenant.Admit(begin, claim(key(series.Counter, "a", 0)))
	ls := labels.FromStrings("__name__", "a", "b", long, long, "c")
	tenant.Admit(begin, &Claim{Key: series.AppendKey(nil, series.Counter, ls), Samples: 1, Container: []byte(long)})
	o := tenant.Report(begin).Offenders[0]
	if len(o.Labels) != 2 || len(o.Labels[1].Name) != maxText || len(o.Senders[0].Container) != maxText ||
		len(o.Example) > maxText+3 {
		t.Errorf("the label has %d bytes and the container has %d, want %d each; the example has %d bytes",
			len(o.Labels[1].Name), len(o.Senders[0].Container), maxText, len(o.Example))
	}
}

// A metric that displaces another does not take over the other's labels and senders.
func TestANewOffenderBeginsAnew(t *testing.T) {
	tenant := newTenant(Config{MaxSeriesPerMetric: 1})
	flood := func(metric string, pid int32, claims int) {
		for id := range claims {
			c := claim(key(series.Counter, metric, id))
			c.Sender.PID = pid
			tenant.Admit(begin, c)
		}
	}
	flood("light", 1, 100)
	for i := range maxOffenders - 1 {
		flood(fmt.Sprint("heavy", i), 2, 1000)
	}
	flood("newcomer", 3, 3)
	for _, o := range tenant.Report(begin).Offenders {
		if o.Metric == "light" {
			t.Error("the metric with the fewest samples over a limit is still listed")
		}
		if o.Metric != "newcomer" {
			continue
		}
		want := []SenderSamples{{Sender: sender.Sender{PID: 3}, Samples: 2}}
		if !slices.Equal(o.Senders, want) || o.Labels[0] != (LabelValues{"id", 2}) ||
			o.Example != `{__name__="newcomer", env="prod", id="1"}` {
			t.Errorf("%+v", o)
		}
	}
}

func TestQuotes(t *testing.T) {
	for _, text := range []string{"", "GET /cart", `a"b`, `a\b`, "a\nb", "\x7f", "\xff", "ä", strings.Repeat("x", 300)} {
		if got := string(appendQuoted([]byte("a="), []byte(text))); got != "a="+strconv.Quote(text) {
			t.Errorf("%q is written as %s", text, got)
		}
	}
}
