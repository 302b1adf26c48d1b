package backlog

import "testing"

// The bytes that a member is behind are exact but for the distance of two places. They never are more than the
// truth, since a leader must not refuse writes for a member that keeps up.
func TestBytesBehind(t *testing.T) {
	const most, size = 64_000, 100
	var b Backlog
	for i := uint64(1); i <= 5000; i++ {
		b.Applied(i, size, most)
		for member, behind := range map[uint64]uint64{2: 0, 3: 7, 4: 600} {
			b.Heard(member, i-min(i, behind))
			if got, truth := b.Of(member), int64(min(i, behind)*size); got > truth || got < truth-2*most/steps {
				t.Fatalf("after entry %d, member %d is %d bytes behind, and Of returns %d", i, member, truth, got)
			}
		}
	}
	if len(b.places) > 2*steps+1 {
		t.Errorf("%d places are remembered", len(b.places))
	}
	if got := b.Of(5); got < most {
		t.Errorf("a member that was never heard is %d bytes behind, want at least %d", got, most)
	}
}
