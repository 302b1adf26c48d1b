package tile

// Reason is why a store did not take a sample. No repeat helps.
type Reason uint8

const (
	TooOld         Reason = iota // before the out-of-order window
	TooFarAhead                  // more than 10 minutes in the future
	Invalid                      // no sample: no labels, or a histogram that contradicts itself
	Duplicate                    // its sender chose a time at which there is another value
	Conflict                     // a tile is there with another value, which stays: a bug of ours
	TooManyTenants               // its tenant has no store, and gets none
	NumReasons
)

var reasonNames = [NumReasons]string{"too_old", "too_far_ahead", "invalid", "duplicate", "conflict", "too_many_tenants"}

// String is the reason as metrics, the ledger and documentation spell it.
func (r Reason) String() string { return reasonNames[r] }

// Count is a number of samples.
type Count struct {
	Samples int
	Raw     uint64 // values on the wire that they stand for
}

// Add counts one more sample.
func (c *Count) Add(s *Sample) {
	c.Samples++
	c.Raw += s.Raw
}

// Written is what became of the samples of a write. Each has one fate, so that the
// counts add up to its length.
type Written struct {
	Stored   Count             // new
	Repeated Count             // there already, or twice in this write, with the same value
	Refused  [NumReasons]Count // for good, by Reason

	Exemplars        int // of samples that were stored or repeated: new, or there already
	ExemplarsNotKept int // of such samples: store.exemplars is 0, or their time is ahead of the clock or long before the newest of their series
}

// NoTenant reports whether all samples were refused because their tenant has no store.
func (w *Written) NoTenant() bool { return w.Refused[TooManyTenants].Samples > 0 }
