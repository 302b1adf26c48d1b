//go:build sim

package sim

import (
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/mutant"
)

// The simulation finds each of these mistakes with the seed recorded here. `make soak` looks for the first
// seed that finds the mistake. core/replica finds eight more mistakes, and core/marks and adapter/tsdb find one each.
func TestMistakesAreFound(t *testing.T) {
	for _, m := range []struct {
		name string

		// set switches the mistake on in production code. These switches exist only in builds with the
		// tag sim. set is nil if the simulated world makes the mistake: see the type mistakes.
		set *bool

		mistakes
		seed uint64
		want string // a part of the error
	}{
		{name: "local clock in apply", set: &mutant.LocalClock, seed: 21, want: "has the outcome"},
		{name: "own configuration in fold", set: &mutant.OwnConfig, seed: 1, want: "other sections of shard"},
		{name: "note of an entry too many", set: &mutant.NoteAhead, seed: 30, want: "have the digest"},
		{name: "random commit grouping", set: &mutant.CommitGroups, seed: 4, want: "has the outcome"},
		{name: "store reopened", set: &mutant.Reopened, seed: 6, want: "has the outcome"},
		{name: "checkpoint without store sync", mistakes: mistakes{noSync: true}, seed: 11, want: "has the outcome"},
		{name: "no cut after a power loss", mistakes: mistakes{noCut: true}, seed: 154, want: "store raw of tenant"},
		{name: "replay past commit", set: &mutant.PastCommit, seed: 14, want: "has the effect"},
		{name: "pipelined collector", mistakes: mistakes{pipelined: true}, seed: 1, want: "was acknowledged before"},
		{name: "boundary right after an election", set: &mutant.Hasty, seed: 2, want: "and tiles are closed"},
		{name: "decisions beside proposals in flight", set: &mutant.BesideFlight, mistakes: mistakes{impatient: true},
			seed: 1, want: "was sent"},
		{name: "proposal of an old term", set: &mutant.OldTerm, seed: 2, want: "has no outcome"},
		{name: "replay drops what is unstored", set: &mutant.UnstoredLost, seed: 4, want: "\nand node"},
		{name: "senders missing in a fill", set: &mutant.NoSenders, mistakes: mistakes{fills: true}, seed: 1,
			want: "has the events"},
		{name: "imports missing in a checkpoint", set: &mutant.NoImports, mistakes: mistakes{rules: true}, seed: 1,
			want: "imported"},
		{name: "log truncated under a fill", mistakes: mistakes{fills: true, calm: true, noPins: true}, seed: 7,
			want: "and then lacks entries"},
		{name: "remove, then promote", set: &mutant.RemoveFirst, mistakes: mistakes{fills: true}, seed: 1,
			want: "the group has the voters"},
		{name: "a vote after an emptied disk", mistakes: mistakes{fills: true, sameID: true}, seed: 1,
			want: "lost its disk, and sends"},
		{name: "a leader's clock an hour ahead", set: &mutant.WrongClock, seed: 2, want: "early"},
	} {
		t.Run(m.name, func(t *testing.T) {
			if m.set != nil {
				*m.set = true
				defer func() { *m.set = false }()
			}
			seconds := int64(ciSeconds)
			if m.mistakes.fills {
				seconds = fillSeconds
			}
			s := simulate(t, m.seed, seconds, m.mistakes)
			found := func(s *sim) bool { return s.Failed != nil && strings.Contains(s.Failed.Error(), m.want) }
			if !found(s) {
				t.Errorf("seed %d fails with %v, want %q", m.seed, s.Failed, m.want)
			}
			if !soaking {
				return
			}
			seed := uint64(1)
			for {
				s := simulate(t, seed, seconds, m.mistakes)
				if found(s) {
					t.Logf("the first seed that finds the mistake is %d: %.300s", seed, s.Failed)
					return
				}
				if seed++; seed > 1000 {
					t.Fatal("1,000 seeds do not find the mistake")
				}
			}
		})
	}
}
