package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/world"
)

// ciSeeds is the number of runs in CI, and ciSeconds the virtual seconds of each. A run takes 2 to 3 s of
// processor time. `make soak` has more and longer runs. freshSeeds is the number of further runs, with
// seeds that nobody has tried before.
const ciSeeds, freshSeeds, ciSeconds = 60, 5, 60

// soaking reports whether `make soak` runs the tests, with larger numbers.
var soaking = os.Getenv("FRESHET_SOAK") != ""

var (
	oneSeed = flag.Uint64("seed", 0, "run TestSim with this seed alone, and print its story")
	seconds = flag.Int64("seconds", ciSeconds, "virtual seconds of each run of TestSim")
)

// least has the numbers of events that the runs of CI must reach together. With fewer events, they have
// not tested enough. The runs reach about twice as many.
var least = coverage{windows: 3000, leaves: 30, requests: 4000, reads: 5000, retries: 2000, elections: 80, late: 1000,
	lateGauges: 400, truncations: 30, restored: 40, requeued: 4, turns: 25, limits: 700, tooOld: 300, duplicates: 60,
	ahead: 40, full: 15, kills: 18, powerLosses: 18, outages: 4, torn: 12, pauses: 8, parts: 25, transfers: 10, changes: 4,
	slow: 6, hangs: 15, clocks: 8, checkpoints: 400, replaced: 6, messagesLost: 2000, messagesTwice: 800, cut: 500,
	noted: 500, histograms: 1000, stale: 200, deltas: 1500, deltasAgain: 120, deltaLimits: 40, sickDisks: 7, logErrors: 20,
	checkpointErrors: 3, storeErrors: 40, waited: 4, held: 30, cutCrashes: 20, openingKills: 25, yields: 10, behind: 15,
	events: 1500, eventsAgain: 100, conflicts: 140}

// failedSeeds is the file of the seeds that failed in earlier runs, one a line. A fresh seed that fails
// is added.
var failedSeeds = filepath.Join("testdata", "seeds")

// A group of three whole members loses nothing that it acknowledged and counts nothing twice. Its members
// have the same state, the same samples and the same outcomes. No read misses what was acknowledged before.
// All that holds whatever happens to network, disks, clocks, stores and processes.
func TestSim(t *testing.T) {
	var mu sync.Mutex
	var sum coverage
	run := func(seed uint64, seconds int64, counts, fresh bool) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := simulate(t, seed, seconds, mistakes{})
			if *oneSeed != 0 || s.Failed != nil {
				t.Log(s.Story.String())
			}
			mu.Lock()
			defer mu.Unlock()
			if s.Failed != nil {
				t.Errorf("seed %d: %v; to repeat: go test ./sim -run TestSim -v -seed %d -seconds %d",
					seed, s.Failed, seed, seconds)
			}
			if s.Failed != nil && fresh {
				keep(t, seed)
			}
			if counts {
				world.Sum(sum.each(), s.covered.each())
			}
		})
	}
	if *oneSeed != 0 {
		run(*oneSeed, *seconds, false, false)
		return
	}
	t.Cleanup(func() {
		world.Enough(t, sum.each(), least.each())
	})
	last, lasts := uint64(ciSeeds), *seconds
	if soaking {
		last, lasts = 1000, 120
	}
	for seed := uint64(1); seed <= last; seed++ {
		run(seed, lasts, true, false)
	}
	for _, seed := range kept(t) {
		run(seed, *seconds, false, false)
	}
	first := uint64(time.Now().Unix()) * freshSeeds
	for seed := range uint64(freshSeeds) {
		run(first+seed, *seconds, false, true)
	}
}

// kept returns the seeds in failedSeeds.
func kept(t *testing.T) (all []uint64) {
	b, err := os.ReadFile(failedSeeds)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		text, _, _ := strings.Cut(line, " ")
		seed, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", failedSeeds, err)
		}
		all = append(all, seed)
	}
	return all
}

func keep(t *testing.T, seed uint64) {
	f, err := os.OpenFile(failedSeeds, os.O_APPEND|os.O_WRONLY, 0o666)
	if err == nil {
		_, err = fmt.Fprintln(f, seed)
	}
	if err != nil {
		t.Error(err)
		return
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// The promises also hold while leaders evaluate rules, tenants set some, and operators import and remove blocks. No
// evaluation, change, import or removal that was acknowledged is lost: see rules_test.go and imports_test.go.
func TestRules(t *testing.T) {
	evaluations, changes, results, imports := 0, 0, 0, 0
	for seed := range uint64(8) {
		s := simulate(t, seed+1, ciSeconds, mistakes{rules: true})
		if s.Failed != nil {
			t.Errorf("seed %d: %v", seed+1, s.Failed)
		}
		evaluations += s.covered.evaluations
		changes += s.covered.ruleSets
		results += s.covered.results
		imports += min(s.covered.imports, s.covered.removals)
	}
	if min(evaluations, changes, results) < 60 || imports < 30 {
		t.Errorf("%d evaluations, %d changes, %d results and %d imports show nothing", evaluations, changes, results, imports)
	}
}

// The promises also hold with impatient collectors: see mistakes.impatient.
func TestImpatientCollectors(t *testing.T) {
	for seed := range uint64(4) {
		if s := simulate(t, seed+1, ciSeconds, mistakes{impatient: true}); s.Failed != nil {
			t.Errorf("seed %d: %v", seed+1, s.Failed)
		}
	}
}

// A seed gives the same story again, to the last byte, so a failure can be repeated. The digest in its last
// line covers the messages between members with their entries, the effect and the outcome of each entry, what
// readers found, and the samples and sections at the end.
func TestSameSeedSameStory(t *testing.T) {
	stories := map[string]bool{}
	for seed := uint64(1); seed <= 5; seed++ {
		var all [2]string
		var both sync.WaitGroup
		for i := range all {
			both.Go(func() { all[i] = simulate(t, seed, ciSeconds, mistakes{}).Story.String() })
		}
		both.Wait()
		if all[0] != all[1] {
			t.Errorf("seed %d: %s", seed, firstDifference(all[0], all[1]))
		}
		if strings.Count(all[0], "\n") < 10 {
			t.Errorf("seed %d has too short a story:\n%s", seed, all[0])
		}
		stories[all[0]] = true
	}
	if len(stories) < 5 {
		t.Errorf("five seeds gave %d different stories, want 5", len(stories))
	}
}

// firstDifference shows where two stories begin to differ.
func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d is\n%s\nand then\n%s", i+1, x[i], y[i])
		}
	}
	return fmt.Sprintf("one story has %d lines, and the other %d", len(x), len(y))
}
