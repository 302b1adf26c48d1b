package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/freshet-io/freshet/internal/core/segment"
)

// copyAttempts bounds how often Copy starts over because checkpoints have removed the files that it
// was about to read. Such a file is removed only if two checkpoints end during one Copy.
const copyAttempts = 3

// Copy writes to an empty directory the files that a start at this moment would need: the newest
// checkpoint and the segments after it. The journal may be in use. The copy has all frames that
// were appended before the call, and perhaps the first few that were appended during the call. Copy
// returns the number of bytes written. The copy survives a power loss.
func Copy(from, to segment.FS) (sizeBytes int64, err error) {
	for range copyAttempts {
		sizeBytes, err = copyOnce(from, to)
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("copy the journal: %w", err)
	}
	return sizeBytes, nil
}

func copyOnce(from, to segment.FS) (sizeBytes int64, err error) {
	names, err := from.List()
	if err != nil {
		return 0, err
	}
	var wanted []segment.File
	base := Position(0)
	if checkpoints := checkpointFormat.Files(names); len(checkpoints) > 0 {
		newest := checkpoints[len(checkpoints)-1] // a complete file, since only a complete checkpoint gets its name
		wanted, base = append(wanted, newest), newest.First
	}
	wanted = append(wanted, segment.After(segmentFormat.Files(names), base)...)
	for _, f := range wanted {
		n, err := copyFile(from, to, f.Name)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f.Name, err)
		}
		sizeBytes += n
	}
	return sizeBytes, to.SyncDir()
}

// copyFile copies the present content of a file. The last segment may be growing: a frame cut in
// two is a torn tail to the reader.
func copyFile(from, to segment.FS, name string) (n int64, err error) {
	r, size, err := from.Open(name)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	w, err := to.Create(name)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(w, io.NewSectionReader(r, 0, size))
	if err == nil {
		err = w.Sync()
	}
	return n, errors.Join(err, w.Close())
}
