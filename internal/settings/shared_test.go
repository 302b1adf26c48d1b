package settings

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// The digests of two nodes differ exactly for the sections that the nodes configure differently.
// Settings that must differ between nodes, such as their addresses, do not count.
func TestDigests(t *testing.T) {
	before := Default().Digests()
	if names := slices.Sorted(maps.Keys(before)); !slices.Equal(names, slices.Sorted(slices.Values(shared))) {
		t.Errorf("there are digests of the sections %v, want %v", names, shared)
	}
	for _, c := range []struct {
		change func(c *Config)
		want   []string
	}{
		{func(*Config) {}, nil},
		{func(c *Config) { c.Limits.MaxSeries++ }, []string{"limits"}},
		{func(c *Config) { c.Aggregator.GaugeTTL += time.Second }, []string{"aggregator"}},
		{func(c *Config) { c.Distributor.Tenants = map[string]Override{"a": {}, "b": {}} }, []string{"distributor"}},
		{func(c *Config) { c.Mapping.OriginLabels = []string{"pod_uid"} }, []string{"mapping"}},
		{func(c *Config) { c.Store.Idle, c.Events.Retention = 1, 1 }, []string{"events", "store"}},
		{func(c *Config) {
			c.Distributor.OTLP.GRPCListen, c.HTTP.Listen, c.DataDir, c.Cluster.Node = "10.0.0.1:4317", "x:1", "/d", "b"
		}, nil},
	} {
		after := Default()
		c.change(&after)
		var differ []string
		for section, digest := range after.Digests() {
			if digest != before[section] {
				differ = append(differ, section)
			}
		}
		if slices.Sort(differ); !slices.Equal(differ, c.want) {
			t.Errorf("the sections %v differ, want %v", differ, c.want)
		}
	}
}
