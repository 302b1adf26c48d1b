package limit

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

const second = int64(time.Second)

// begin is the time when tests begin.
const begin = 1_763_680_000 * second

func key(kind series.Kind, name string, id int) []byte {
	return series.AppendKey(nil, kind, labels.FromStrings("__name__", name, "env", "prod", "id", fmt.Sprint(id)))
}

func claim(key []byte) *Claim { return &Claim{Key: key, Samples: 1} }

func newTenant(c Config) *Tenant { return New(c, 5*time.Minute, time.Hour).Tenant("a") }

func TestWhichLimitAndWhatFate(t *testing.T) {
	for _, test := range []struct {
		why    string
		config Config
		known  [][]byte
		claim  Claim
		want   Verdict
	}{
		{"a metric at its limit folds into its own overflow series", Config{MaxSeriesPerMetric: 1},
			[][]byte{key(series.Counter, "a", 0)}, Claim{Key: key(series.Counter, "a", 1)},
			Verdict{Fate: FoldedMetric, Reason: MetricSeries}},
		{"timers fold", Config{MaxSeriesPerMetric: 1},
			[][]byte{key(series.Timer, "a", 0)}, Claim{Key: key(series.Timer, "a", 1)},
			Verdict{Fate: FoldedMetric, Reason: MetricSeries}},
		{"sets fold", Config{MaxSeriesPerMetric: 1},
			[][]byte{key(series.Set, "a", 0)}, Claim{Key: key(series.Set, "a", 1)},
			Verdict{Fate: FoldedMetric, Reason: MetricSeries}},
		{"gauges cannot be summed", Config{MaxSeriesPerMetric: 1},
			[][]byte{key(series.Gauge, "a", 0)}, Claim{Key: key(series.Gauge, "a", 1)},
			Verdict{Fate: Refused, Reason: MetricSeries}},
		{"nor can checks", Config{MaxSeries: 1},
			[][]byte{key(series.Gauge, "a", 0)}, Claim{Key: key(series.Check, "b", 1)},
			Verdict{Fate: Refused, Reason: TenantSeries}},
		{"a source of a merged gauge takes a place", Config{MaxSeriesPerMetric: 1},
			[][]byte{key(series.Gauge, "a", 0)}, Claim{Key: key(series.Gauge, "a", 0), Source: 7},
			Verdict{Fate: Refused, Reason: MetricSeries}},
		{"a metric without series has no overflow series of its own", Config{MaxSeries: 1},
			[][]byte{key(series.Counter, "a", 0)}, Claim{Key: key(series.Counter, "b", 0)},
			Verdict{Fate: FoldedKind, Reason: TenantSeries}},
		{"a full tenant folds the metrics that it has", Config{MaxSeries: 1},
			[][]byte{key(series.Counter, "a", 0)}, Claim{Key: key(series.Counter, "a", 1)},
			Verdict{Fate: FoldedMetric, Reason: TenantSeries}},
		{"too many new ones in a minute", Config{MaxNewSeriesPerMinute: 1},
			[][]byte{key(series.Counter, "a", 0)}, Claim{Key: key(series.Counter, "a", 1)},
			Verdict{Fate: FoldedMetric, Reason: NewSeries}},
		{"a name that the catalogue does not know may belong to another kind", Config{MaxSeries: 1},
			[][]byte{key(series.Timer, "a", 0)}, Claim{Key: key(series.Counter, "a", 0), Unnamed: true},
			Verdict{Fate: FoldedKind, Reason: TenantSeries}},
		{"such a name has no place, even if there is room by now", Config{},
			nil, Claim{Key: key(series.Counter, "a", 0), Unnamed: true}, Verdict{Fate: FoldedKind, Reason: NewSeries}},
	} {
		t.Run(test.why, func(t *testing.T) {
			tenant := newTenant(test.config)
			for _, key := range test.known {
				if v := tenant.Admit(begin, claim(key)); v.Fate != Admitted {
					t.Fatalf("%q: %+v", key, v)
				}
			}
			test.claim.Samples = 3
			if got := tenant.Admit(begin, &test.claim); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			r := tenant.Report(begin)
			if r.Folded[test.want.Reason]+r.Refused[test.want.Reason] != 3 || tenant.Over() != begin || len(r.Offenders) != 1 {
				t.Errorf("%+v", r)
			}
			for _, key := range test.known {
				if v := tenant.Admit(begin, claim(key)); v.Fate != Admitted {
					t.Errorf("a series with a place lost it: %+v", v)
				}
			}
		})
	}
}

func TestNewSeriesAreAllowedByTheMinute(t *testing.T) {
	tenant := newTenant(Config{MaxNewSeriesPerMinute: 60})
	admitted, id := 0, 0
	for now := begin; now < begin+120*second; now += second / 10 {
		for range 10 {
			id++
			if tenant.Admit(now, claim(key(series.Counter, "a", id))).Fate == Admitted {
				admitted++
			}
		}
		if now == begin+second && admitted != 61 {
			t.Errorf("%d series were admitted within a second, want 60 at once and 1 more", admitted)
		}
	}
	if admitted < 178 || admitted > 180 {
		t.Errorf("%d series were admitted in two minutes, want 60 at once and 60 in each minute", admitted)
	}
}

func TestASeriesLeavesWithItsLastHolder(t *testing.T) {
	tenant := newTenant(Config{MaxSeries: 1})
	first, other := key(series.Gauge, "a", 0), key(series.Gauge, "b", 0)
	held := tenant.Admit(begin, claim(first)).Place
	again := tenant.Admit(begin, claim(first)).Place
	if held != again {
		t.Fatal("one series has two places")
	}
	tenant.Leave(begin, held)
	if tenant.Admit(begin, claim(other)).Fate != Refused {
		t.Error("the place was given away while a table held it")
	}
	tenant.Leave(begin, held)
	if tenant.Admit(begin, claim(other)).Fate != Admitted {
		t.Error("the place stayed taken")
	}
}

// A restart or a reload must not refuse a gauge that is measured all the time.
func TestSeriesBeforeARestartOrReloadKeepTheirPlaces(t *testing.T) {
	tenant := newTenant(Config{MaxSeries: 2, MaxNewSeriesPerMinute: 1})
	loaded, held := key(series.Gauge, "a", 0), key(series.Gauge, "b", 0)
	tenant.Load(begin, begin, loaded, 0)
	s := tenant.Admit(begin, claim(held)).Place
	tenant.Release(begin, s, false)
	if tenant.Admit(begin+60*second, claim(key(series.Gauge, "c", 0))).Fate != Refused {
		t.Error("a place that waits for its series was given away")
	}
	for _, key := range [][]byte{loaded, held} {
		if v := tenant.Admit(begin+299*second, claim(key)); v.Fate != Admitted {
			t.Errorf("%q: %+v", key, v)
		}
	}
	if n := tenant.Report(begin + 1000*second).Series; n != 2 {
		t.Errorf("%d series after the claim time, want the 2 that were claimed", n)
	}

	tenant = newTenant(Config{MaxSeries: 1}) // after each reload the claim time begins anew
	for _, now := range []int64{begin, begin + 299*second} {
		tenant.Release(now, tenant.Admit(now, claim(held)).Place, false)
	}
	if tenant.Admit(begin+400*second, claim(loaded)).Fate != Refused {
		t.Error("the end of the first reload's claim time removed a series that the second reload keeps")
	}

	tenant = newTenant(Config{MaxSeries: 1})
	tenant.Load(begin, begin, loaded, 0)
	if tenant.Admit(begin+301*second, claim(held)).Fate != Admitted {
		t.Error("an unclaimed series keeps its place")
	}
}

func TestTenantsAndReloads(t *testing.T) {
	l := New(Config{MaxSeries: 1, Tenants: map[string]Override{"big": {MaxSeries: conf.Some(0)}}}, time.Minute, time.Hour)
	fates := func(tenant string) (all []Fate) {
		for id := range 3 {
			all = append(all, l.Tenant(tenant).Admit(begin, claim(key(series.Counter, "a", id))).Fate)
		}
		return all
	}
	expect := func(tenant, want string) {
		t.Helper()
		if got := fmt.Sprint(fates(tenant)); got != want {
			t.Errorf("%s: %s, want %s", tenant, got, want)
		}
	}
	expect("small", "[admitted folded folded]")
	expect("big", "[admitted admitted admitted]")
	l.Configure(Config{MaxSeries: 2}, time.Minute, time.Hour)
	expect("small", "[admitted admitted folded]")
	expect("big", "[admitted admitted admitted]") // they stay
	if l.Tenant("big").Admit(begin, claim(key(series.Counter, "a", 3))).Fate == Admitted {
		t.Error("a tenant above its new limit got another series")
	}
}

// Without a configured limit, the memory for keys limits their length: a key must fit in one block.
func TestKeysThatMemoryHasNoBlockFor(t *testing.T) {
	longest := key(series.Counter, "a", 0)
	for pad := maxKey; len(longest) != maxKey; pad -= len(longest) - maxKey {
		longest = series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", "a", "x", strings.Repeat("x", pad)))
	}
	longer := append(bytes.Clone(longest), 'x')
	l := New(Config{}, time.Minute, time.Hour)
	tenant := l.Tenant("a")
	for _, source := range []uint64{0, 7} {
		v := tenant.Admit(begin, &Claim{Key: longest, Source: source, Length: len(longest)})
		if v.Fate != Admitted || !bytes.Equal(tenant.Key(v.Place), longest) {
			t.Errorf("the longest key, source %d: got %+v, want Admitted", source, v)
		}
	}
	for _, length := range []int{100, len(longer)} { // constant labels may make the key longer than Length
		if v := tenant.Admit(begin, &Claim{Key: longer, Length: length}); v !=
			(Verdict{Fate: FoldedMetric, Reason: SeriesBytes}) {
			t.Errorf("a key that is too long, Length %d: got %+v, want FoldedMetric", length, v)
		}
		if p := l.Peek(begin, "a", longer, 0, length); p.Fate != FoldedMetric || p.Reason != SeriesBytes {
			t.Errorf("a key that is too long, with Length %d: Peek returns %+v", length, p)
		}
	}
	if tenant.TooLong(maxKey) || !tenant.TooLong(maxKey+1) {
		t.Error("TooLong must allow maxKey bytes, and refuse one byte more")
	}
	tenant.Load(begin, begin, longer, 0)
	if n := tenant.Report(begin).Series; n != 2 {
		t.Errorf("%d series, want 2", n)
	}
}

func TestTheOffenderItsLabelAndItsSenderAreNamed(t *testing.T) {
	tenant := newTenant(Config{MaxSeriesPerMetric: 1})
	loud := sender.Sender{Addr: netip.MustParseAddrPort("10.0.0.9:5555")}
	for i := range 20_000 { // 100 metrics exceed their limit now and then, and one metric all the time
		c := claim(key(series.Counter, fmt.Sprint("rare", i%100), i/100%2))
		tenant.Admit(begin, c)
		flood := claim(key(series.Counter, "flood", i))
		flood.Sender = loud
		if i%10 == 0 { // hundreds of other senders
			flood.Sender = sender.Sender{PID: int32(1 + i), UID: 7}
		}
		tenant.Admit(begin+int64(i), flood)
	}
	r := tenant.Report(begin + second)
	if len(r.Offenders) != maxOffenders {
		t.Fatalf("%d offenders", len(r.Offenders))
	}
	o := r.Offenders[0]
	if o.Metric != "flood" || o.Samples[MetricSeries] != 19_999 || o.Fate != FoldedMetric {
		t.Errorf("%+v", o)
	}
	if l := o.Labels[0]; l.Name != "id" || l.Values < 17_000 || l.Values > 23_000 {
		t.Errorf("label %+v", l)
	}
	if s := o.Senders[0]; s.Sender != loud || len(o.Senders) != maxSenders {
		t.Errorf("senders %+v", o.Senders)
	}
	if want := `{__name__="flood", env="prod", id="1"}`; o.Example != want {
		t.Errorf("example %s, want %s", o.Example, want)
	}
	if r = tenant.Report(begin + second + forgetAfter); len(r.Offenders) != 0 {
		t.Error("an offender is reported for too long")
	}
}

func TestAFloodOfNamesIsOneOffender(t *testing.T) {
	tenant := newTenant(Config{MaxSeries: 1})
	tenant.Admit(begin, claim(key(series.Counter, "a", 0)))
	for i := range 5000 {
		tenant.Admit(begin, claim(key(series.Counter, fmt.Sprint("name", i), 0)))
	}
	r := tenant.Report(begin)
	if len(r.Offenders) != 1 || r.Offenders[0].Metric != "freshet_overflow_counter" ||
		r.Offenders[0].Labels[0].Name != "__name__" {
		t.Errorf("%+v", r.Offenders)
	}
}

func TestValidate(t *testing.T) {
	if p := DefaultConfig().Validate(); len(p) != 0 {
		t.Errorf("the defaults: %v", p)
	}
	c := Config{MaxSeries: -1, MaxSeriesPerMetric: -1, MaxNewSeriesPerMinute: -1, Tenants: map[string]Override{"a/b": {}}}
	if p := c.Validate(); len(p) != 4 {
		t.Errorf("%v", p)
	}
}

// After a reload a series is claimed again and may leave before the claim time is over. It must
// leave only once.
func TestASeriesThatWaitedLeavesOnce(t *testing.T) {
	tenant := newTenant(Config{MaxSeries: 2})
	c := claim(key(series.Gauge, "a", 0))
	tenant.Release(begin, tenant.Admit(begin, c).Place, false)
	tenant.Leave(begin+second, tenant.Admit(begin+second, c).Place)
	if n := tenant.Report(begin + 1000*second).Series; n != 0 {
		t.Errorf("%d series", n)
	}
}

// Repeated reloads do not make the waiting list longer than the number of series.
func TestReloadsDoNotAddUp(t *testing.T) {
	tenant := newTenant(Config{})
	for reload := range int64(100) {
		for i := range 10 {
			s := tenant.Admit(begin+reload*second, claim(key(series.Gauge, "a", i))).Place
			tenant.Release(begin+reload*second, s, false)
		}
	}
	if n := len(tenant.unclaimed[ordinary]); n != 10 {
		t.Errorf("%d places wait, want 10", n)
	}
	if n := tenant.Report(begin + 399*second).Series; n != 10 {
		t.Errorf("got %d series shortly before the claim time of the last reload ends, want 10", n)
	}
	if n := tenant.Report(begin + 401*second).Series; n != 0 {
		t.Errorf("%d series after the claim time of the last reload, want 0", n)
	}
}

// If no series comes back after a restart, many claims share the work of removing the series. The
// tenant's report is exact even so.
func TestNoClaimPaysForAllThatAreLate(t *testing.T) {
	const loaded = 10 * expireAtOnce
	tenant := newTenant(Config{MaxSeries: loaded})
	for i := range loaded {
		tenant.Load(begin, begin, key(series.Gauge, "a", i), 0)
	}
	if tenant.Admit(begin+299*second, claim(key(series.Gauge, "b", 0))).Fate == Admitted {
		t.Error("a place was given away within the claim time")
	}
	if tenant.Admit(begin+301*second, claim(key(series.Gauge, "b", 0))).Fate != Admitted {
		t.Error("there is no room although all other series are late")
	}
	if left := tenant.places.taken - 1; left != loaded-expireAtOnce {
		t.Errorf("after a claim, %d late series are left, want %d of %d removed", left, expireAtOnce, loaded)
	}
	if n := tenant.Report(begin + 301*second).Series; n != 1 {
		t.Errorf("%d series, want only the claimed one", n)
	}
}

// The total of an up/down counter is kept for weeks after its last sample. The counter keeps its
// place for as long, even if listeners forget it, and through a flood and a restart.
func TestAnUpDownCounterKeepsItsPlace(t *testing.T) {
	const minute, hour = 60 * second, 3600 * second
	open := key(series.UpDown, "open", 0)
	for _, c := range []struct {
		why   string
		leave func(tenant *Tenant) (freed int64)
	}{
		{"a table forgets it", func(tenant *Tenant) int64 {
			tenant.Leave(begin, tenant.Admit(begin, &Claim{Key: open}).Place)
			return begin
		}},
		{"a reload gives the table up", func(tenant *Tenant) int64 {
			tenant.Release(begin, tenant.Admit(begin, &Claim{Key: open}).Place, true)
			return begin
		}},
		{"a restart half an hour after its last sample", func(tenant *Tenant) int64 {
			tenant.Load(begin, begin-hour/2, open, 0)
			return begin - hour/2
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			tenant := newTenant(Config{MaxSeries: 1})
			freed := c.leave(tenant)
			other := &Claim{Key: key(series.Gauge, "other", 0)}
			if v := tenant.Admit(begin+second, other); v.Fate != Refused {
				t.Fatalf("another series: %+v", v)
			}
			tenant.LeaveUnclaimed(0, begin, 10)
			if v := tenant.Admit(freed+hour-second, other); v.Fate != Refused {
				t.Errorf("another series, before the counter's time is over: got %+v, want Refused", v)
			}
			if v := tenant.Admit(freed+hour+second+second, other); v.Fate != Admitted {
				t.Errorf("another series, after the counter's time is over: got %+v, want Admitted", v)
			}
		})
	}
	tenant := newTenant(Config{MaxSeries: 1}) // the time of an up/down counter begins anew with each sample
	tenant.Leave(begin, tenant.Admit(begin, &Claim{Key: open}).Place)
	tenant.Leave(begin+hour/2, tenant.Admit(begin+hour/2, &Claim{Key: open}).Place)
	if v := tenant.Admit(begin+hour+minute, &Claim{Key: key(series.Gauge, "other", 0)}); v.Fate != Refused {
		t.Errorf("a new series half an hour after the sample: %+v, want Refused", v)
	}
}
