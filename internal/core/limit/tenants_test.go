package limit

import (
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/series"
)

// A new claim time applies to existing tenants and to new ones.
func TestAReloadChangesTheClaimTime(t *testing.T) {
	l := New(Config{MaxSeries: 1}, 5*time.Minute, time.Hour)
	l.Tenant("old")
	l.Configure(Config{MaxSeries: 1}, time.Hour, time.Hour)
	for _, name := range []string{"old", "new"} {
		tenant := l.Tenant(name)
		tenant.Load(begin, begin, key(series.Gauge, "a", 0), 0)
		if tenant.Admit(begin+3599*second, claim(key(series.Gauge, "b", 0))).Fate == Admitted {
			t.Errorf("%s: a place was given away within the claim time", name)
		}
		if tenant.Admit(begin+3601*second, claim(key(series.Gauge, "b", 0))).Fate != Admitted {
			t.Errorf("%s: a place is kept beyond the claim time", name)
		}
	}
}

// A tenant without a listener is dropped once it has no series and its counts have been scraped. A
// tenant that is in use, or that Tenant has just returned, stays the same object.
func TestTenantsThatNobodyUsesAreDropped(t *testing.T) {
	l := New(Config{MaxSeries: 1}, 5*time.Minute, time.Hour)
	used, left, asked := l.Tenant("used"), l.Tenant("left"), l.Tenant("asked")
	left.Load(begin, begin, key(series.Gauge, "a", 0), 0)
	left.Admit(begin, claim(key(series.Gauge, "b", 0))) // over the limit
	var gone int64
	for now := begin; now < begin+3600*second; now += second {
		all := l.Tenants(now, func(name string) bool { return name == "used" })
		if all["left"] == nil && gone == 0 {
			gone = (now - begin) / second
		}
		if l.Tenant("asked") != asked || all["used"] != used {
			t.Fatalf("second %d: Tenant returned another object for a tenant in use", (now-begin)/second)
		}
	}
	// The tenant's offender is reported for ten minutes, and the tenant stays for two more.
	if gone < 719 || gone > 725 {
		t.Errorf("the tenant was dropped after %d s, want some 720", gone)
	}
}

func TestLookingForATenantMakesNone(t *testing.T) {
	l := New(Config{}, time.Minute, time.Hour)
	if none := l.Find("a"); none.MetricSeries("a") != 0 || len(none.Newest())+len(none.Keys()) != 0 {
		t.Error("an unknown tenant has series")
	}
	if all := l.Tenants(begin, func(string) bool { return true }); len(all) != 0 {
		t.Errorf("%d tenants", len(all))
	}
	if a := l.Tenant("a"); l.Find("a") != a {
		t.Error("a tenant is not found")
	}
}
