package segment

import (
	"fmt"
	"strings"
)

// Damage is one place of a log that could not be read and was skipped.
type Damage struct {
	File   string // "" if it is in no file
	Offset int64
	Bytes  int64
	Frames uint64 // at most this many are lost; also 0 if unknown
	Reason string
}

// String describes the place, the loss and the reason.
func (d Damage) String() string {
	var b strings.Builder
	if d.File != "" {
		fmt.Fprintf(&b, "%s, byte %d: ", d.File, d.Offset)
	}
	fmt.Fprintf(&b, "%s (%d bytes", d.Reason, d.Bytes)
	if d.Frames > 0 {
		fmt.Fprintf(&b, ", at most %d frames lost", d.Frames)
	}
	b.WriteString(")")
	return b.String()
}
