package journal

import "github.com/freshet-io/freshet/internal/core/segment"

// Report is what Open found.
type Report struct {
	Checkpoint string   // file of the whole checkpoint; "" if there is none
	Sections   int      // to load
	Segments   int      // to replay
	Frames     uint64   // readable frames in these segments
	Unsynced   bool     // newer checkpoints do not count: stores were not synced for them, and the machine lost power
	Last       Position // position of the last frame; the next frame's is one higher

	// Damage lists the first maxDamage damaged places. Places in checkpoints come before places in
	// segments. Damage to a checkpoint loses no frame if the checkpoint before it is whole.
	Damage     []segment.Damage
	MoreDamage int    // number of damaged places beyond Damage
	LostFrames uint64 // an upper bound, summed over all damaged places
	LostBytes  int64  // bytes of segments that were skipped or cut off
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
