package journal

import (
	"fmt"

	"github.com/freshet-io/freshet/internal/core/segment"
)

// Copy writes to an empty directory the files that a start at this moment would need: the newest
// checkpoint and the segments after it. The journal may be in use: see segment.Copy. A file that is
// needed is removed only if two checkpoints end during one Copy. The copy has all frames that
// were appended before the call, and perhaps the first few that were appended during the call. Copy
// returns the number of bytes written.
func Copy(from, to segment.FS) (sizeBytes int64, err error) {
	if sizeBytes, err = segment.Copy(from, to, needed); err != nil {
		return 0, fmt.Errorf("copy the journal: %w", err)
	}
	return sizeBytes, nil
}

// needed returns the files that a start needs, among the names of a directory.
func needed(names []string) (files []segment.File) {
	base := Position(0)
	if checkpoints := checkpointFormat.Files(names); len(checkpoints) > 0 {
		newest := checkpoints[len(checkpoints)-1] // a complete file, since only a complete checkpoint gets its name
		files, base = append(files, newest), newest.First
	}
	return append(files, segment.After(segmentFormat.Files(names), base)...)
}
