//go:build !sim

// Package mutant has the mistakes that the simulation must find. In every build without the tag sim
// they are constants, so the compiler removes them.
package mutant

// Each constant switches off one mistake, which sim.go describes.
const (
	BesideFlight = false
	CommitGroups = false
	DamageRead   = false
	Hasty        = false
	LocalClock   = false
	NoImports    = false
	NoSenders    = false
	NoteAhead    = false
	OldTerm      = false
	OwnConfig    = false
	OwnDigest    = false
	PastCommit   = false
	RemoveFirst  = false
	Reopened     = false
	UnstoredLost = false
	WrongClock   = false
)
