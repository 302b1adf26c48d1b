package tsdb

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/compression"

	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Config is the "store" section of the configuration file.
type Config struct {
	Retention      Retention     `yaml:"retention"`
	OutOfOrder     time.Duration `yaml:"out_of_order" help:"how much older than a store's newest sample a sample may be; at most the shortest retention" reload:"restart"`
	Exemplars      int           `yaml:"exemplars" help:"exemplars held for each tenant: so many from remote write and OTLP, and as many again from DogStatsD; 0: none" reload:"restart"`
	MaxTenants     int           `yaml:"max_tenants" help:"number of tenants that can have stores; samples of further tenants are refused" reload:"restart"`
	Pending        conf.Bytes    `yaml:"pending" help:"memory for a tenant's tiles that wait for its store, at least 1MiB; once full, the tenant's new samples are refused" reload:"restart"`
	Idle           time.Duration `yaml:"idle" help:"close a store that was neither written to nor queried for this time, at least 1m; a store with less than 1 MiB of logs closes after 5m, unless it was needed again in this time; it opens again on demand" reload:"restart"`
	MaxOpen        int           `yaml:"max_open" help:"number of stores that a starting server opens before it is ready; of the stores in use, the largest come first" reload:"restart"`
	Scrub          time.Duration `yaml:"scrub" help:"time in which the server reads all blocks and complete logs in search of damage, at least 1h; it reads 1 MiB a second or more; 0: never" reload:"restart"`
	WALCompression string        `yaml:"wal_compression" help:"compression of the write-ahead log: none, snappy or zstd" reload:"restart"`
	WALFsync       string        `yaml:"wal_fsync" help:"when the write-ahead log of remote write and OTLP is synced, against power loss: interval (every minute) or commit (before each acknowledgement)" reload:"restart"`
}

// Values of Config.WALFsync.
const (
	FsyncInterval = "interval"
	FsyncCommit   = "commit"
)

// Retention is how long each of a tenant's stores keeps its samples.
type Retention struct {
	Raw     time.Duration `yaml:"raw" help:"retention of samples of remote write and OTLP, and of the results of rules; at least 4h"`
	Tile10s time.Duration `yaml:"10s" help:"retention of tiles of 10 s; at least 4h"`
	Tile1m  time.Duration `yaml:"1m" help:"retention of tiles of 1 min, and of unused names; at least 4h"`
}

// DefaultConfig keeps samples for a little more than a month, so that a dashboard of "this month" is
// complete. It keeps tiles of 10 s for only two days, to compare today with yesterday. At 1.5 bytes a
// sample, a series takes 26 kB for 17,280 tiles of 10 s, and 86 kB for 57,600 tiles of 1 min.
//
// 100 tenants have 300 databases. A nearly empty open database takes 0.45 MB: see BenchmarkSmallDatabase.
func DefaultConfig() Config {
	return Config{
		Retention:  Retention{Raw: 40 * day, Tile10s: 2 * day, Tile1m: 40 * day},
		OutOfOrder: 30 * time.Minute,
		Exemplars:  10_000,
		MaxTenants: 100,
		// A sample takes 56 bytes, and a series has seven samples a minute. At that rate, 10,000
		// series fill this memory in an hour, 100,000 series in 6 minutes, and a million series in 40
		// seconds. The memory fills only if a store falls behind for that long.
		Pending: 256 << 20,
		// A tenant that is queried once a day should not take memory all day. Opening a store
		// again takes as long as reading its WAL: a second for a million samples.
		Idle: time.Hour,
		// This is enough for all three stores of 100 tenants. Further stores open at their first use.
		MaxOpen:        300,
		Scrub:          7 * day, // 1 TB in a week is 1.7 MB a second
		WALCompression: compression.Snappy,
		WALFsync:       FsyncInterval,
	}
}

const (
	day = 24 * time.Hour

	// blockDuration is the length of the smallest block on disk. The newest samples, up to 1.5 times
	// this length, are in memory.
	blockDuration = 2 * time.Hour

	// maxBlockDuration bounds the largest block. Retention deletes whole blocks, so a block may
	// take no more than a tenth of the retention. A sample of 2.2 bytes then has 0.28 bytes of index in the store of
	// 10 s, whose blocks stay at 2 h, and 0.17 in the store of 1 min, a week old. With blocks of 6 h, the store
	// of 10 s would save 0.14 bytes, and keep 4 % more samples.
	maxBlockDuration = 31 * day
)

// Validate returns all problems of the section.
func (c Config) Validate() []conf.Problem {
	var problems []conf.Problem
	shortest := c.Retention.Raw
	for _, r := range []struct {
		key  string
		kept time.Duration
	}{{"retention.raw", c.Retention.Raw}, {"retention.10s", c.Retention.Tile10s}, {"retention.1m", c.Retention.Tile1m}} {
		shortest = min(shortest, r.kept)
		if r.kept < 2*blockDuration {
			problems = append(problems, conf.Problem{Key: r.key,
				Text: fmt.Sprintf("is too short, because blocks of %v are deleted as a whole; set it to %v or more",
					blockDuration, 2*blockDuration)})
		}
	}
	if c.OutOfOrder < 0 || c.OutOfOrder > shortest {
		problems = append(problems, conf.Problem{Key: "out_of_order",
			Text: fmt.Sprintf("is not between 0s and the shortest retention; set it to %v or less", shortest)})
	}
	if c.Exemplars < 0 {
		problems = append(problems, conf.Problem{Key: "exemplars", Text: "is negative; set it to 0 or more"})
	}
	if c.MaxTenants < 1 {
		problems = append(problems, conf.Problem{
			Key: "max_tenants", Text: "leaves no room for any tenant; set it to 1 or more"})
	}
	if c.Pending < 1<<20 {
		problems = append(problems, conf.Problem{
			Key: "pending", Text: "is less than a flush of a few thousand series; set it to 1MiB or more"})
	}
	if c.Idle < time.Minute {
		problems = append(problems, conf.Problem{
			Key: "idle", Text: "is so short that stores would open and close all the time; set it to 1m or more"})
	}
	if c.Scrub != 0 && c.Scrub < time.Hour {
		problems = append(problems, conf.Problem{
			Key: "scrub", Text: "is so short that reading would disturb queries; set it to 1h or more, or to 0"})
	}
	if c.MaxOpen < 0 {
		problems = append(problems, conf.Problem{Key: "max_open", Text: "is negative; set it to 0 or more"})
	}
	if types := compression.Types(); !slices.Contains(types, c.WALCompression) {
		problems = append(problems, conf.Problem{Key: "wal_compression",
			Text: "is unknown; set it to one of " + strings.Join(types, ", ")})
	}
	if c.WALFsync != FsyncInterval && c.WALFsync != FsyncCommit {
		problems = append(problems, conf.Problem{Key: "wal_fsync",
			Text: fmt.Sprintf("must be %s or %s", FsyncInterval, FsyncCommit)})
	}
	return problems
}

const (
	// slowSeries is how far the newest sample of a series may lie behind the tenant's newest sample,
	// even if the out-of-order window is shorter. Prometheus has the same bound.
	slowSeries = int64(time.Hour / time.Millisecond)

	// spareWindow is how much wider tsdb's out-of-order window is than the window of any request. With
	// it, tsdb refuses no sample because of its time. Such refusals would depend on when tsdb opened,
	// compacted and committed, and so would differ between servers that write the same requests: for
	// example, after tsdb cuts a head, it counts the end of the last block as the time of the newest
	// sample.
	spareWindow = slowSeries + int64(blockDuration/time.Millisecond)
)

// Numbers of stripes in tsdb's table of series. Each stripe has a map of its own. 16,384 stripes take
// 4 MB, too much for hundreds of small databases. With few stripes and 100,000 series, the maps are so large that a
// sample of a known series costs a third more.
const (
	fewStripes  = 64
	manyStripes = 16_384

	// mostWide is how many databases may be open with many stripes before only those with large logs get them. They
	// take 32 MB. A database keeps its stripes while it is open: to open it again when it has grown would cost as
	// much as 3 us a series, and slows down its samples, too.
	mostWide = 8
)

// of returns the retention of one store, or 0 for an unknown store and for History, which is kept until an
// operator removes it. 0 means the same to tsdb.
func (r Retention) of(store string) time.Duration {
	switch store {
	case Raw, Rules:
		return r.Raw
	case tile.Width10s.String():
		return r.Tile10s
	case tile.Width1m.String():
		return r.Tile1m
	default:
		return 0
	}
}

// options returns tsdb's options for one store. There can be hundreds of small stores, so the options
// let tsdb allocate little in advance: with tsdb's defaults, a database with a single sample takes 4
// MB.
func (c Config) options(store string) *tsdb.Options {
	retention := c.Retention.of(store)
	o := tsdb.DefaultOptions()
	o.RetentionDuration = retention.Milliseconds()
	o.MinBlockDuration = blockDuration.Milliseconds()
	o.MaxBlockDuration = max(blockDuration, min(maxBlockDuration, retention/10)).Milliseconds()
	o.OutOfOrderTimeWindow = c.OutOfOrder.Milliseconds() + spareWindow
	o.WALCompression = c.WALCompression
	o.FloatChunkEncoding = chunkenc.EncXOR
	o.StripeSize = fewStripes
	// A query may see a part of a commit that is under way. With isolation, tsdb would keep a list for each series of
	// which commits its samples came by: 60 to 130 bytes. tsdb also uses it to wait before a compaction for commits that
	// began before the head was due. Here there are none, since the writes of a store have a lock: see database.writes.
	o.IsolationDisabled = true
	o.HeadChunksWriteBufferSize = chunks.MinWriteBufferSize
	// Tiles of 1 min carry no exemplars: the exemplars of the 10 s tiles are enough. Rules make none, and
	// blocks have none.
	o.EnableExemplarStorage = (store == Raw || store == tile.Width10s.String()) && c.Exemplars > 0
	o.MaxExemplars = int64(c.Exemplars)
	return o
}
