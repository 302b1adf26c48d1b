//go:build !sim

// Package mutant has the mistakes that the simulation must find. They are constants in every build
// but one with the tag sim, so the compiler removes them.
package mutant

// Each constant stands for one mistake, which sim.go describes.
const (
	BesideFlight = false
	CommitGroups = false
	Hasty        = false
	LocalClock   = false
	NoteAhead    = false
	OldTerm      = false
	OwnConfig    = false
	PastCommit   = false
	Reopened     = false
	UnstoredLost = false
	WrongClock   = false
)
