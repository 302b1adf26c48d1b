package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/freshet-io/freshet/internal/core/segment"
)

// LeftOutError means that a sync left out some stores, because their disks hang or they are broken. All other
// stores are synced.
type LeftOutError struct{ Stores []string }

// Error names the stores.
func (e *LeftOutError) Error() string {
	return "stores are not synced, since their disks hang or they are broken: " + strings.Join(e.Stores, ", ")
}

// unsyncedName is the file that says from which checkpoint a start after a power loss begins.
const unsyncedName = "unsynced"

// Unsynced says that some stores were left out of the syncs of the newest checkpoints. These checkpoints
// count for as long as the machine runs. After a power loss, the checkpoint at Base counts, since all
// stores were synced for it. Journals (core/journal) have the same file for their checkpoints.
type Unsynced struct {
	Base uint64 // index or position of the checkpoint; 0 if there was none
	Boot string // names the boot of the machine in which the newest checkpoints were written
}

// LostPower reports whether the machine may have lost power since the newest checkpoints. `boot` names the
// machine's present boot; it is empty if that is not known.
func (u *Unsynced) LostPower(boot string) bool { return u != nil && (u.Boot != boot || boot == "") }

// ReadUnsynced returns what Write wrote, nil if there is nothing.
func ReadUnsynced(dir segment.FS) (*Unsynced, error) {
	f, size, err := dir.Open(unsyncedName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which stores are not synced: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, size))
	if err != nil {
		return nil, fmt.Errorf("read which stores are not synced: %w", err)
	}
	u := new(Unsynced)
	if _, err := fmt.Sscanf(string(text), "%d %q\n", &u.Base, &u.Boot); err != nil {
		return nil, fmt.Errorf("the file %s is damaged: %w; a start without it may lose samples if the machine lost power",
			unsyncedName, err)
	}
	return u, nil
}

// Write writes the file. It is whole or absent, even after a power loss.
func (u *Unsynced) Write(dir segment.FS) error {
	const temp = unsyncedName + ".tmp"
	f, err := dir.Create(temp)
	if err == nil {
		_, err = fmt.Fprintf(f, "%d %q\n", u.Base, u.Boot)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = dir.Rename(temp, unsyncedName)
	}
	if err == nil {
		err = dir.SyncDir()
	}
	if err != nil {
		return fmt.Errorf("write that stores are not synced: %w", err)
	}
	return nil
}

// EndUnsynced removes the file. Call it when a checkpoint is in place for which all stores were
// synced.
func EndUnsynced(dir segment.FS) error {
	err := dir.Remove(unsyncedName)
	if err == nil {
		err = dir.SyncDir()
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("write that all stores are synced: %w", err)
}
