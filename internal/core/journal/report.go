package journal

import "github.com/freshet-io/freshet/internal/core/segment"

// Report is what Open found.
type Report struct {
	Checkpoint string   // file of the whole checkpoint, "" for none
	Sections   int      // to load
	Segments   int      // to replay
	Frames     uint64   // readable frames in them
	Last       Position // of all frames so far; the next frame's is one higher

	// Damage has the first maxDamage places, checkpoints before segments. Damage to a checkpoint
	// loses no frame while the one before it is whole.
	Damage     []segment.Damage
	MoreDamage int    // further places
	LostFrames uint64 // at most; the sum over all places
	LostBytes  int64  // of segments: skipped or cut off
}

// maxDamage bounds the report of a file that is damaged all over.
const maxDamage = 100

func (r *Report) add(d segment.Damage) {
	r.LostFrames += d.Frames
	if _, isCheckpoint := checkpointFormat.ParseName(d.File); !isCheckpoint {
		r.LostBytes += d.Bytes
	}
	if len(r.Damage) == maxDamage {
		r.MoreDamage++
		return
	}
	r.Damage = append(r.Damage, d)
}
