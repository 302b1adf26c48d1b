package entrylog

import (
	"errors"

	"github.com/freshet-io/freshet/internal/core/segment"
)

// copiedAtOnce is how many bytes of entries are read at a time.
const copiedAtOnce = 1 << 20

// CopyTo writes a log for another member to a directory without a log: the entries after `base`, up to `last`. The
// copy has no vote. `mark` is that of Options.
func (l *Log) CopyTo(to segment.FS, mark uint32, base, last uint64) error {
	begin, err := l.BaseAt(base)
	if err != nil {
		return err
	}
	log, err := Create(to, Options{Mark: mark}, begin)
	if err != nil {
		return err
	}
	for next := base + 1; next <= last && err == nil; {
		var some []Entry
		if some, err = l.Read(next, last+1, copiedAtOnce); err == nil {
			newest := some[len(some)-1]
			err = log.Append(&Write{Entries: some, State: &State{Term: newest.Term, Commit: newest.Index}})
			next = newest.Index + 1
		}
	}
	return errors.Join(err, log.Close())
}

// KeepVote writes the term and the vote of a member to a copy of another member's log, with which the member goes on.
// `mark` is that of Options.
func KeepVote(fs segment.FS, mark uint32, term, vote uint64) error {
	log, err := Open(fs, Options{Mark: mark})
	if err != nil {
		return err
	}
	state, _, err := log.InitialState()
	if err == nil && term >= state.GetTerm() {
		err = log.Append(&Write{Sync: true, State: &State{Term: term, Vote: vote, Commit: state.GetCommit()}})
	}
	return errors.Join(err, log.Close())
}
