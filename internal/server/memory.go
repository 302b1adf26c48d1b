package server

import (
	"context"
	"os"

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

// collectorGarbage bounds the garbage in a process that is only a collector: a few MB with 10,000
// contexts. A collector makes 13 kB of garbage a second, so collecting it more often costs almost
// nothing. A process with stores makes a hundred times as much.
var collectorGarbage = memory.Garbage{Percent: 25, Most: 16 << 20}

// limitGarbage applies collectorGarbage until ctx is done, unless the process has stores or the user
// has set GOGC.
func limitGarbage(ctx context.Context, c settings.Config) {
	if _, said := os.LookupEnv("GOGC"); !said && !c.Roles().Has(settings.RoleIngester) {
		collectorGarbage.Limit(ctx)
	}
}
