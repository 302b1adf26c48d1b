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

func TestEachShardHasTheOwnerItWasGiven(t *testing.T) {
	owner := func(shard uint16) string { return string(rune('a' + shard%3)) }
	p := New(7, owner)
	if p.Epoch != 7 || !slices.Equal(p.Instances(), []string{"a", "b", "c"}) {
		t.Fatalf("epoch %d, instances %v", p.Epoch, p.Instances())
	}
	for shard := range uint16(series.Shards) {
		if p.Owner(shard) != owner(shard) {
			t.Fatalf("shard %d is owned by %q", shard, p.Owner(shard))
		}
	}
}
