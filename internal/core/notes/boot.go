package notes

// Log is the part of a log that keeps notes: see File.
type Log interface {
	Notes() ([][]byte, error)
	BeginNotes(all [][]byte) error
	Note(note []byte) error
}

// bootNotes are notes that hold for one boot of the machine only. Stores sync only now and then, at the
// latest for a checkpoint. So after a power loss they may lack samples that they took since the last
// checkpoint, and the owner of the log writes these again. The first note in the log names the boot.
type bootNotes struct {
	log  Log
	boot string // if empty, nothing is noted
}

// read returns the notes of the last process, or none if that process ran in another boot.
func (n *bootNotes) read() ([][]byte, error) {
	all, err := n.log.Notes()
	if err != nil || n.boot == "" || len(all) == 0 || string(all[0]) != n.boot {
		return nil, err
	}
	return all[1:], nil
}

// begin replaces all notes.
func (n *bootNotes) begin(all [][]byte) error {
	if n.boot == "" {
		return nil
	}
	return n.log.BeginNotes(append([][]byte{[]byte(n.boot)}, all...))
}

func (n *bootNotes) add(note []byte) error {
	if n.boot == "" {
		return nil
	}
	return n.log.Note(note)
}
