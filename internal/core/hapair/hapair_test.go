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
		accepted        bool
		why             string
	}{
		{0, "a", "c", "1", true, "the first that comes is elected"},
		{1, "a", "c", "2", false, "its copy is not taken"},
		{1, "a", "d", "2", true, "each cluster has its own"},
		{1, "b", "c", "2", true, "each tenant, too"},
		{30, "a", "c", "2", false, "the elected one is late, and not gone"},
		{31, "a", "c", "2", true, "it is gone"},
		{32, "a", "c", "1", false, "it is back, and now the copy"},
		{70, "a", "c", "2", true, "the elected one was late, and nobody took over"},
		{100, "a", "c", "1", false, "time counts from its last request"},
	} {
		if got := tracker.Accept(c.tenant, c.cluster, c.replica, start.Add(time.Duration(c.second)*time.Second)); got != c.accepted {
			t.Errorf("step %d, %s: accepted: %v", i+1, c.why, got)
		}
	}
}

func TestClustersAreBounded(t *testing.T) {
	tracker := New(time.Minute)
	for i := range maxClusters + 10 {
		if !tracker.Accept("a", fmt.Sprint(i), "1", time.Unix(0, 0)) {
			t.Fatalf("cluster %d is not taken", i)
		}
	}
	if n := len(tracker.tenants["a"]); n != maxClusters {
		t.Errorf("%d clusters are known", n)
	}
	if !tracker.Accept("a", "another", "1", time.Unix(0, 0)) || !tracker.Accept("a", "another", "2", time.Unix(0, 0)) {
		t.Error("of a cluster that is not known, not everything is taken")
	}
}
