package tile

// Reason is why a store did not take a sample. Retrying cannot help.
type Reason uint8

const (
	TooOld    Reason = iota // before the out-of-order window
	Invalid                 // not a sample: no labels, or a contradictory histogram
	Duplicate               // the sender chose a time at which another value is stored
	Conflict                // the tile is already stored with another value, which stays: a bug of ours
	NumReasons
)

var reasonNames = [NumReasons]string{"too_old", "invalid", "duplicate", "conflict"}

// String returns the reason's name in metrics, the ledger and documentation.
func (r Reason) String() string { return reasonNames[r] }

// Count is a number of samples.
type Count struct {
	Samples int
	Raw     uint64 // values on the wire that the samples stand for
}

// Add counts one more sample.
func (c *Count) Add(s *Sample) {
	c.Samples++
	c.Raw += s.Raw
}

// Written has the fates of the samples of a write. Each sample has one fate, so the counts add up
// to the number of samples.
type Written struct {
	Stored   Count             // new
	Repeated Count             // already stored, or twice in this write, with the same value
	Refused  [NumReasons]Count // for good, by Reason

	Exemplars        int // exemplars of stored or repeated samples, new or already there
	ExemplarsNotKept int // exemplars left out: store.exemplars is 0, or the time is ahead of the clock or too old
}
