// Package blocks reads and writes blocks of Prometheus' TSDB that no store of ours has: those of a Prometheus, of
// Thanos or Mimir, and exported ones. It adds labels to a block, packs it for a server, and takes a sample of it.
package blocks

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
)

const (
	// MetaFile is the file with the metadata of a block. Thanos and Mimir upload it last, and delete it first.
	MetaFile = "meta.json"

	// DeletionMark is the file by which Thanos and Mimir mark a block that they delete soon.
	DeletionMark = "deletion-mark.json"
)

// Block is a block on disk.
type Block struct {
	Dir  string
	ID   ulid.ULID
	Meta tsdb.BlockMeta

	// External are the labels that Thanos keeps in the metadata instead of in each series.
	External labels.Labels

	// Resolution is that of a block that Thanos downsampled: its series have five aggregates in place of samples. 0 for
	// other blocks.
	Resolution time.Duration

	// Shard is set in a block that Mimir or Cortex split off: it has the series of shard I of N, and the other blocks that
	// were made of the same ones have the rest. It is zero for other blocks.
	Shard Shard

	// group names the compaction of Cortex that split the block off: its shards may have different parents. Empty for
	// other blocks.
	group string

	// Replaced says that the block is marked for deletion, or that usable blocks beside it have all of its samples.
	Replaced bool

	// Err says why the metadata cannot be used.
	Err error
}

// thanos is what Thanos and Mimir add to the metadata.
type thanos struct {
	Thanos struct {
		Labels     map[string]string `json:"labels"`
		Downsample struct {
			Resolution int64 `json:"resolution"` // milliseconds
		} `json:"downsample"`
		Extensions struct {
			Partition partition `json:"partition_info"`
		} `json:"extensions"`
	} `json:"thanos"`
}

// Find returns the blocks in a directory, in the order of time: in the data directory of a Prometheus, in a snapshot of
// it, in a copy of a bucket of Thanos, or in that of one tenant of Mimir.
func Find(dir string) ([]Block, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []Block
	var others []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if id, err := ulid.ParseStrict(e.Name()); err == nil {
			all = append(all, read(path, id))
		} else if hasBlocks(path) {
			others = append(others, path)
		}
	}
	if len(all) == 0 {
		return nil, None(dir, filepath.Dir(dir), others)
	}
	Order(all)
	return all, nil
}

// None returns the error of a place without blocks: `in` is the place that has it, and `others` are those in it that
// have some.
func None(place, in string, others []string) error {
	if len(others) == 1 { // such as metrics2 in /var/lib/prometheus of Debian
		return fmt.Errorf("%s has no blocks, but %s has: import that", place, others[0])
	}
	if len(others) > 0 {
		return fmt.Errorf("%s has no blocks, but these directories have some, each of a tenant: %s; import one after "+
			"the other", place, strings.Join(others, ", "))
	}
	if _, err := ulid.ParseStrict(filepath.Base(place)); err == nil {
		return fmt.Errorf("%s is a block itself: give the directory in which it is, %s", place, in)
	}
	return fmt.Errorf("%s has no blocks: a block is a directory named like 01JDRSYX5Z8V3M1E0Q6W2T4N7K", place)
}

// Order marks blocks whose samples all are in others, and sorts all by time.
func Order(all []Block) {
	markReplaced(all)
	slices.SortStableFunc(all, func(a, b Block) int { return int(a.Meta.MinTime - b.Meta.MinTime) })
}

func hasBlocks(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		_, err := ulid.ParseStrict(e.Name())
		return err == nil
	})
}

func read(dir string, id ulid.ULID) Block {
	text, err := os.ReadFile(filepath.Join(dir, MetaFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Block{Dir: dir, ID: id, Err: errors.New("it has no meta.json, so it was not uploaded or copied to the end")}
	}
	b := Parse(id, text)
	if err != nil {
		b.Err = fmt.Errorf("meta.json: %w", err)
	}
	b.Dir = dir
	_, err = os.Stat(filepath.Join(dir, DeletionMark))
	b.Replaced = err == nil
	return b
}

// Parse returns the block that a meta.json describes, without its directory.
func Parse(id ulid.ULID, text []byte) Block {
	b := Block{ID: id}
	var more thanos
	err := errors.Join(json.Unmarshal(text, &b.Meta), json.Unmarshal(text, &more))
	switch {
	case err != nil:
		b.Err = fmt.Errorf("meta.json: %w", err)
	case b.Meta.ULID != id || b.Meta.Version != 1 || b.Meta.MinTime >= b.Meta.MaxTime:
		b.Err = errors.New("meta.json does not describe this block")
	}
	external := map[string]string{}
	for name, value := range more.Thanos.Labels {
		if !strings.HasPrefix(name, "__") { // such as shardLabel, which is no label of a series
			external[name] = value
		}
	}
	b.External = labels.FromMap(external)
	if text := more.Thanos.Labels[shardLabel]; text != "" {
		b.Shard, err = parseShard(text)
		b.Err = cmp.Or(b.Err, err)
	} else if p := more.Thanos.Extensions.Partition; p.Count > 1 {
		b.Shard, b.group = Shard{p.ID + 1, p.Count}, fmt.Sprint(p.Group, " ", p.Created)
		if p.ID < 0 || p.ID >= p.Count {
			b.Err = cmp.Or(b.Err, fmt.Errorf("meta.json: partition_id is %d of %d", p.ID, p.Count))
		}
	}
	b.Resolution = time.Duration(more.Thanos.Downsample.Resolution) * time.Millisecond
	return b
}
