package journal

import (
	"fmt"
	"strings"
)

// Report is what Open found.
type Report struct {
	Checkpoint string   // file of the whole checkpoint, "" if there is none
	Sections   int      // to load
	Segments   int      // to replay
	Records    uint64   // in them that can be read
	Last       Position // of all records so far; the next one's is one higher

	Damage      []Damage // the first maxDamage, checkpoints before segments
	MoreDamage  int      // places beyond those
	LostRecords uint64   // at most; the sum over all places
	LostBytes   int64    // of segments: passed over or cut off
}

// maxDamage bounds the report of a file that is damaged all over.
const maxDamage = 100

// Damage is one place that could not be read. Damage to a checkpoint loses no
// record while the one before it is whole.
type Damage struct {
	File    string // "" if it is not in one
	Offset  int64
	Bytes   int64
	Records uint64 // lost, at most; 0 also if that cannot be known
	Reason  string
}

// String names the place, the loss and the reason.
func (d Damage) String() string {
	var b strings.Builder
	if d.File != "" {
		fmt.Fprintf(&b, "%s, byte %d: ", d.File, d.Offset)
	}
	fmt.Fprintf(&b, "%s (%d bytes", d.Reason, d.Bytes)
	if d.Records > 0 {
		fmt.Fprintf(&b, ", at most %d records lost", d.Records)
	}
	b.WriteString(")")
	return b.String()
}

func (r *Report) add(d Damage) {
	r.LostRecords += d.Records
	if _, isCheckpoint := checkpointFormat.ParseName(d.File); !isCheckpoint {
		r.LostBytes += d.Bytes
	}
	if len(r.Damage) == maxDamage {
		r.MoreDamage++
		return
	}
	r.Damage = append(r.Damage, d)
}
