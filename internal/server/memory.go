package server

import (
	"context"
	"os"

	"github.com/freshet-io/freshet/internal/adapter/memory"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/settings"
)

// unknownMemory is assumed for a machine that does not report its memory.
const unknownMemory = 1 << 30

// findMemory finds how much memory the process may have, and sets it as the runtime's limit.
func (s *server) findMemory() (err error) {
	if s.memory, err = memory.FindLimit(); err != nil {
		s.memory = memory.Limit{Bytes: unknownMemory, Of: "a machine that does not report it"}
		s.logger.Warn("the memory of this machine is unknown: queries are limited as if it had 1 GiB; set "+
			"query.max_memory to change the limit", "error", err)
	}
	s.memory.Keep()
	return nil
}

// queryMemory is the memory that queries may take unless query.max_memory is set. By the sizing in
// docs/operations.md, the other three quarters go to series, at 6 kB each, to the garbage of writes
// and to the kernel's caches.
func queryMemory(of memory.Limit) promapi.Memory {
	return promapi.Memory{Bytes: of.Bytes / 4, Of: "a quarter of the memory of " + of.Of, Process: of.Bytes}
}

// collectorGarbage limits the garbage in a process with only a collector: a few MB with 10,000
// contexts. A collector makes 13 kB of garbage a second, so more frequent collections cost almost
// nothing. Stores make a hundred times as much.
var collectorGarbage = memory.Garbage{Percent: 25, Most: 16 << 20}

// limitGarbage applies collectorGarbage until ctx is done, unless the process has stores or the user
// has set GOGC.
func limitGarbage(ctx context.Context, c settings.Config) {
	if _, said := os.LookupEnv("GOGC"); !said && !c.Roles().Has(settings.RoleIngester) {
		collectorGarbage.Limit(ctx)
	}
}
