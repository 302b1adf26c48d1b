package server

import (
	"context"
	"os"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/memory"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/settings"
)

// unknownMemory is the memory that we assume if the machine does not report its memory.
const unknownMemory = 1 << 30

// findMemory finds how much memory the process may use, and sets the runtime's memory limit.
func (s *server) findMemory() (err error) {
	if s.memory, err = memory.FindLimit(); err != nil {
		s.memory = memory.Limit{Bytes: unknownMemory, Of: "a machine that does not report it"}
		s.logger.Warn("the memory of this machine is unknown: queries are limited as if it had 1 GiB; set "+
			"query.max_memory to change the limit", "error", err)
	}
	s.memory.Keep()
	return nil
}

// queryMemory is the memory for queries if query.max_memory is not set: a quarter of the limit.
// According to the sizing in docs/operations.md, the other three quarters are for series, at 6 kB each,
// for the garbage of writes and for the kernel's caches.
func queryMemory(of memory.Limit) promapi.Memory {
	return promapi.Memory{Bytes: of.Bytes / 4, Of: "a quarter of the memory of " + of.Of, Process: of.Bytes}
}

var (
	// collectorGarbage bounds the garbage in a process that is only a collector: a few MB with 10,000
	// contexts. A collector makes 13 kB of garbage a second, so collecting it more often costs almost
	// nothing.
	collectorGarbage = memory.Garbage{Percent: 25, Most: 16 << 20}

	// storeGarbage bounds the garbage in a process with stores. Tiles of 100,000 contexts make 2 MB of garbage a
	// second, and marking their live memory takes 0.3 s of CPU. Requests of remote write make a hundred times as
	// much garbage, and then it may be as large as the live memory.
	storeGarbage = memory.Garbage{Percent: 25, Apart: time.Minute}
)

// openingGarbage bounds the garbage while stores are opened. Nearly all memory that an opening takes stays live: a
// collection frees little, and collections at each growth by a quarter take a third of the processor time. A sixteenth
// of the memory that the process may use is little beside large stores.
func openingGarbage(of memory.Limit) memory.Garbage {
	return memory.Garbage{Percent: 1000, Most: uint64(of.Bytes) / 16, Least: 25}
}

// usualGarbage bounds the garbage once the stores in use are open.
func usualGarbage(roles settings.Roles) memory.Garbage {
	if roles.Has(settings.RoleIngester) {
		return storeGarbage
	}
	return collectorGarbage
}

// limitGarbage bounds the garbage until ctx is done, unless the user has set GOGC.
func limitGarbage(ctx context.Context, to memory.Garbage) {
	if _, said := os.LookupEnv("GOGC"); !said {
		to.Limit(ctx)
	}
}
