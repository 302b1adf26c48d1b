package retry

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

// waits makes n tries that fail and returns how long each wait took.
func waits(t *testing.T, b *Backoff, n int) (all []time.Duration) {
	t.Helper()
	for range n {
		begun := time.Now()
		if err := Wait(t.Context(), b.Next()); err != nil {
			t.Fatal(err)
		}
		all = append(all, time.Since(begun))
	}
	return all
}

// The bound of the wait doubles up to its limit, and starts again at its minimum after a successful
// try.
func TestTheBoundDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Min: 30 * ms, Max: 5 * time.Second}
		for range 3 {
			bounds := []time.Duration{
				30 * ms, 60 * ms, 120 * ms, 240 * ms, 480 * ms, 960 * ms, 1920 * ms, 3840 * ms, 5000 * ms, 5000 * ms,
			}
			for i, wait := range waits(t, &b, len(bounds)) {
				if wait < bounds[i]/2 || wait > bounds[i] {
					t.Errorf("wait %d is %v, want %v to %v", i+1, wait, bounds[i]/2, bounds[i])
				}
			}
			b.Reset()
		}
	})
}

// Half of each wait is fixed, so while the bound doubles, no wait is shorter than the one before.
// The rest is random, from zero to the other half.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			b := Backoff{Min: 30 * ms, Max: 4 * time.Second}
			growing := waits(t, &b, 8) // the bounds: 30 ms, doubled seven times up to 3.84 s
			if !slices.IsSorted(growing) {
				t.Errorf("the waits are %v, want none shorter than the one before it", growing)
			}
			later := waits(t, &b, 200)
			if low, high := slices.Min(later), slices.Max(later); low < 2*time.Second || low > 2300*ms || high < 3700*ms ||
				high > 4*time.Second {
				t.Errorf("later waits lie between %v and %v; want them spread over 2 to 4 s", low, high)
			}
		}
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		begun := time.Now()
		if err := Wait(ctx, time.Hour); !errors.Is(err, why) || time.Since(begun) != time.Second {
			t.Errorf("Wait returned %v after %v, want the cause after 1 s", err, time.Since(begun))
		}
		if err := Wait(ctx, time.Hour); !errors.Is(err, why) || time.Since(begun) != time.Second {
			t.Errorf("the context has ended: Wait returned %v after %v, want the cause at once", err, time.Since(begun))
		}
	})
}
