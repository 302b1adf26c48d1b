package replica

import (
	"flag"
	"os"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/world"
)

// ciSeeds is the number of runs in CI, and ciSeconds the virtual seconds of each. The runs take 4 s
// of one processor.
const ciSeeds, ciSeconds = 40, 60

// soaking reports whether `make soak` runs the tests, with larger numbers.
var soaking = os.Getenv("FRESHET_SOAK") != ""

var oneSeed = flag.Uint64("seed", 0, "run TestGroup with this seed alone, and print its story")

// least is the number of events of each kind that all runs in CI together must reach. With fewer events,
// the runs have not tested enough. At present they reach about twice as many.
var least = coverage{acknowledged: 30_000, reads: 10_000, retries: 2_000, lost: 100, elections: 120,
	truncations: 12, restarts: 80, kills: 35, powerLosses: 40, outages: 8, torn: 25, pauses: 30,
	parts: 60, transfers: 25, swaps: 6, slow: 25, full: 10}

// A group of three loses nothing that it acknowledged. Its members never disagree, and no read is stale.
// Whatever happens to network, disks and processes, the group makes progress whenever it has a quorum.
func TestGroup(t *testing.T) {
	from, to, seconds := uint64(1), uint64(ciSeeds), int64(ciSeconds)
	switch {
	case *oneSeed != 0:
		from, to = *oneSeed, *oneSeed
	case soaking:
		to, seconds = 1000, 120
	}
	var sum coverage
	for seed := from; seed <= to; seed++ {
		s := simulate(seed, seconds, 3)
		if s.Failed != nil || *oneSeed != 0 {
			t.Log(s.Story.String())
		}
		if s.Failed != nil {
			t.Fatalf("seed %d: %v; to repeat it: go test -run TestGroup -v -seed %d", seed, s.Failed, seed)
		}
		world.Sum(sum.each(), s.covered.each())
	}
	if *oneSeed == 0 {
		world.Enough(t, sum.each(), least.each())
	}
}

// A group of one keeps the same promises with only its own disk.
func TestGroupOfOne(t *testing.T) {
	for seed := uint64(1); seed <= ciSeeds/2; seed++ {
		if s := simulate(seed, ciSeconds, 1); s.Failed != nil {
			t.Fatalf("seed %d: %v\n%s", seed, s.Failed, s.Story.String())
		}
	}
}

// A seed repeats the same run to the last byte, so a failure can be reproduced.
func TestSameSeedSameStory(t *testing.T) {
	one, other := simulate(3, ciSeconds, 3), simulate(3, ciSeconds, 3)
	if one.Story.String() != other.Story.String() {
		t.Errorf("%s\nand then\n%s", one.Story.String(), other.Story.String())
	}
	if again := simulate(4, ciSeconds, 3).Story.String(); again == one.Story.String() || strings.Count(again, "\n") < 20 {
		t.Errorf("another seed has the same story, or one of less than 20 lines:\n%s", again)
	}
}

// The simulation finds each of these mistakes with the seed recorded here, which TestGroup runs as
// well. `make soak` looks for the first seed that finds each mistake.
func TestMistakesAreFound(t *testing.T) {
	founding := &entrylog.Base{Index: 1, Term: 1, Members: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}
	for _, m := range []struct {
		name string
		mistakes
		seed uint64
		want string // in the error
	}{
		{"message before store", mistakes{sendBeforeStore: true}, 5, "is damaged: tocommit"},
		{"apply beyond store", mistakes{applyUnstored: true}, 1, "its disk has term 0"},
		{"apply beyond commit", mistakes{applyUncommitted: true}, 5, "was known before it began"},
		{"hard state not saved", mistakes{forgetState: true}, 38, "lead in term"},
		{"a vote after an emptied disk", mistakes{founding: founding}, 3, "lost its disk, and sends"},
		{"proposal of an old term", mistakes{answerOldTerm: true}, 8, "and is lost"},
		{"a barrier ends too early", mistakes{readUnapplied: true}, 1, "was known before it began"},
		{"remove, then promote", mistakes{removeFirst: true}, 3, "has the voters"},
	} {
		t.Run(m.name, func(t *testing.T) {
			mutant = m.mistakes
			defer func() { mutant = mistakes{} }()
			s := simulate(m.seed, ciSeconds, 3)
			if s.Failed == nil || !strings.Contains(s.Failed.Error(), m.want) {
				t.Errorf("seed %d: the simulation finds %v, want %q", m.seed, s.Failed, m.want)
			}
			if !soaking {
				return
			}
			seed := uint64(1)
			for simulate(seed, ciSeconds, 3).Failed == nil {
				if seed++; seed > 1000 {
					t.Fatal("1,000 seeds do not find the mistake")
				}
			}
			t.Logf("the first seed that finds the mistake is %d", seed)
		})
	}
}
