package server

import (
	"context"
	"os"

	"github.com/freshet-io/freshet/internal/adapter/memory"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/settings"
)

// unknownMemory is what a machine is taken to have that does not say it.
const unknownMemory = 1 << 30

// findMemory finds out how much memory the process may have, and has the runtime keep
// to it.
func (s *server) findMemory() (err error) {
	if s.memory, err = memory.FindLimit(); err != nil {
		s.memory = memory.Limit{Bytes: unknownMemory, Of: "a machine that does not say it"}
		s.logger.Warn("queries are bounded as on a machine of 1 GiB; query.max_memory sets it", "error", err)
	}
	s.memory.Keep()
	return nil
}

// queryMemory is what queries may take unless query.max_memory says it. Three quarters
// are for series, at 6 kB each, for the garbage of writes and for the kernel's caches:
// by the sizing of docs/operations.md that is what is left.
func queryMemory(of memory.Limit) promapi.Memory {
	return promapi.Memory{Bytes: of.Bytes / 4, Of: "a quarter of the memory of " + of.Of, Process: of.Bytes}
}

// collectorGarbage is what a collector lets lie: with 10,000 contexts a few MB. It
// makes 13 kB a second while it counts, so that to collect it sooner costs nothing.
// Others have stores, which make a hundred times that.
var collectorGarbage = memory.Garbage{Percent: 25, Most: 16 << 20}

// limitGarbage does so until ctx is done, unless the user has a say.
func limitGarbage(ctx context.Context, c settings.Config) {
	if _, said := os.LookupEnv("GOGC"); !said && !c.Roles().Has(settings.RoleIngester) {
		collectorGarbage.Limit(ctx)
	}
}
