package hapair

import (
	"fmt"
	"testing"
	"time"
)

func TestOneOfAPairIsTaken(t *testing.T) {
	tracker := New(30 * time.Second)
	start := time.Unix(1000, 0)
	for i, c := range []struct {
		second          int
		tenant, cluster string
		replica         string
		taken, changed  bool
		why             string
	}{
		{0, "a", "c", "1", true, true, "the first replica is elected"},
		{1, "a", "c", "2", false, false, "its copy is not taken"},
		{1, "a", "d", "2", true, true, "each cluster elects its own"},
		{1, "b", "c", "2", true, true, "each tenant, too"},
		{30, "a", "c", "2", false, false, "the elected one is late, but within the timeout"},
		{31, "a", "c", "2", true, true, "it is gone"},
		{32, "a", "c", "1", false, false, "it comes back, and is now the spare"},
		{70, "a", "c", "2", true, false, "the elected one was late, but no other took over"},
		{100, "a", "c", "1", false, false, "time counts from its last request"},
	} {
		if taken, changed := tracker.Accept(c.tenant, c.cluster, c.replica,
			start.Add(time.Duration(c.second)*time.Second)); taken != c.taken || changed != c.changed {
			t.Errorf("step %d, %s: taken: %v, changed: %v", i+1, c.why, taken, changed)
		}
	}
}

func TestClustersAreBounded(t *testing.T) {
	tracker := New(time.Minute)
	for i := range maxClusters + 10 {
		if taken, _ := tracker.Accept("a", fmt.Sprint(i), "1", time.Unix(0, 0)); !taken {
			t.Fatalf("cluster %d is not taken", i)
		}
	}
	if n := len(tracker.tenants["a"]); n != maxClusters {
		t.Errorf("%d clusters are known", n)
	}
	for _, replica := range []string{"1", "2"} {
		if taken, changed := tracker.Accept("a", "another", replica, time.Unix(0, 0)); !taken || changed {
			t.Errorf("an untracked cluster: taken: %v, changed: %v", taken, changed)
		}
	}
}
