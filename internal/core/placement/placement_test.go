package placement

import (
	"slices"
	"testing"

	"github.com/freshet-io/freshet/internal/core/series"
)

func TestAloneAnInstanceOwnsEverything(t *testing.T) {
	p := Single("a")
	if !slices.Equal(p.Instances(), []string{"a"}) {
		t.Fatalf("instances %v", p.Instances())
	}
	for shard := range uint16(series.Shards) {
		if p.Owner(shard) != "a" {
			t.Fatalf("shard %d is owned by %q", shard, p.Owner(shard))
		}
	}
}
