package notes

// Since is a collection of notes on what a log has done since its last checkpoint.
type Since struct {
	notes  bootNotes
	failed bool // failed since the last Commit

	begun bool     // a checkpoint is being written
	later [][]byte // notes since it was begun
	bytes int      // of later
}

// ReadSince reads the notes of the last process. It ignores notes of another boot. It writes the
// returned notes anew, so that the next process finds them, too. The result may be used even after
// an error.
func ReadSince(log Log, boot string) (s *Since, all [][]byte, err error) {
	s = &Since{notes: bootNotes{log, boot}}
	if all, err = s.notes.read(); err == nil {
		err = s.notes.begin(all)
	}
	s.failed = err != nil
	return s, all, err
}

// Note adds a note, which must not change afterwards. If writing fails, there are no more notes until
// Commit, and only the first Note returns an error.
func (s *Since) Note(note []byte) error {
	if s.begun && s.bytes < maxBytes {
		s.later, s.bytes = append(s.later, note), s.bytes+len(note)
	}
	if s.failed {
		return nil
	}
	err := s.notes.add(note)
	s.failed = err != nil
	return err
}

// Begin says that a checkpoint is begun. If the checkpoint succeeds, it makes earlier notes
// unnecessary.
func (s *Since) Begin() { s.begun, s.later, s.bytes = true, nil, 0 }

// Abort says that the checkpoint has failed.
func (s *Since) Abort() { s.begun, s.later, s.bytes = false, nil, 0 }

// Commit says that the checkpoint is in place. Only the notes since Begin stay.
func (s *Since) Commit() error {
	err := s.notes.begin(s.later)
	s.failed = err != nil
	s.Abort()
	return err
}
