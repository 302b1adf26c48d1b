//go:build sim

// Package mutant has the mistakes that the simulation must find.
package mutant

// Each variable switches on one mistake. A test sets one of them before anything runs.
var (
	BesideFlight bool // a leader decides about windows while earlier ones are under way
	CommitGroups bool // a late sample is looked up in the store while other samples wait for the same commit
	DamageRead   bool // a store answers although it is damaged and another member has its data
	Hasty        bool // a new leader closes tiles before it has heard the senders
	LocalClock   bool // the clock of each member decides which samples are too far ahead
	NoImports    bool // a checkpoint lacks the imported blocks
	NoSenders    bool // a copy for another node lacks what the senders of deltas have sent
	NoteAhead    bool // a note of requests claims one entry more than the store has
	OldTerm      bool // another leader's entry at a proposal's index answers the proposal
	OwnConfig    bool // each member closes tiles by its own times to live
	OwnDigest    bool // a member trusts its own digest, as a leader does that takes itself for the truth
	PastCommit   bool // a restart replays all entries in the log, committed or not
	RemoveFirst  bool // a voter that is replaced leaves before its successor votes
	Reopened     bool // the cache's newest sample of a series is trusted, however old it is
	UnstoredLost bool // a restart forgets closed tiles that the stores do not have
	WrongClock   bool // a member with a wrong clock leads, and closes tiles by that clock
)
