package blocks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/tsdb"
)

// shardLabel is the label by which Mimir's compactor says which series a block has: "1_of_4".
const shardLabel = "__compactor_shard_id__"

// Shard says that a block has one part of the series, I of 1 to N.
type Shard struct{ I, N int }

func parseShard(text string) (s Shard, err error) {
	_, err = fmt.Sscanf(text, "%d_of_%d", &s.I, &s.N)
	if err != nil || s.I < 1 || s.I > s.N {
		return Shard{}, fmt.Errorf("meta.json: %s is %.80q, want a shard such as 1_of_4", shardLabel, text)
	}
	return s, nil
}

// partition is what Cortex' compactor says of a block that has some of the series of its parents.
type partition struct {
	ID      int   `json:"partition_id"` // from 0 on
	Count   int   `json:"partition_count"`
	Group   int64 `json:"partitioned_group_id"`            // of a tenant and a time
	Created int64 `json:"partitioned_group_creation_time"` // Unix milliseconds
}

// family are the blocks of one split compaction: N shards, of the same parents or of the same group.
type family struct {
	of string
	n  int
}

func familyOf(b Block) family {
	if b.group != "" {
		return family{b.group, b.Shard.N}
	}
	var names []string
	for _, p := range b.Meta.Compaction.Parents {
		names = append(names, p.ULID.String())
	}
	slices.Sort(names)
	return family{strings.Join(names, " "), b.Shard.N}
}

// markReplaced marks the blocks whose samples all are in others. A block that is left out itself replaces none, unless
// its samples are in others. A shard replaces its parents only together with all other shards of them, since each has
// some of the series: without one, the parents are needed, and queries merge what is there twice.
func markReplaced(all []Block) {
	at := map[ulid.ULID]int{}
	for i, b := range all {
		at[b.ID] = i
	}
	replaced := make([]bool, len(all))
	shards := map[family]map[int]bool{} // those whose samples are imported
	replaces := func(b Block, p tsdb.BlockDesc) bool {
		i, there := at[p.ULID]
		return there && !replaced[i] && (b.Shard == all[i].Shard || b.Shard.N == len(shards[familyOf(b)]))
	}
	for changed := true; changed; { // until the parents of parents are found
		changed = false
		for i, b := range all {
			if !replaced[i] && (b.Replaced || b.Resolution > 0 || b.Err != nil) {
				continue
			}
			if b.Shard.N > 0 {
				f := familyOf(b)
				if shards[f] == nil {
					shards[f] = map[int]bool{}
				}
				changed = changed || !shards[f][b.Shard.I]
				shards[f][b.Shard.I] = true
			}
			for _, p := range b.Meta.Compaction.Parents {
				if replaces(b, p) {
					replaced[at[p.ULID]], changed = true, true
				}
			}
		}
	}
	for i := range all {
		all[i].Replaced = all[i].Replaced || replaced[i]
	}
}
