package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A process that is asked to stop waits for its clients for as long as the configuration says, but not longer than
// until another signal, or until the parts stop for another reason. Meanwhile it passes the lead on each time that it
// has come back.
func TestRetirement(t *testing.T) {
	const delay = 61 * time.Second
	for _, c := range []struct {
		name        string
		hurry, stop time.Duration // when it happens; 0 for never
		want        time.Duration
	}{
		{"the whole delay", 0, 0, delay},
		{"another signal", 5 * time.Second, 0, 5 * time.Second},
		{"a part failed", 0, 7 * time.Second, 7 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := retirement{hurried: make(chan struct{})}
				if r.hurry() {
					t.Error("a process that does not wait is hurried")
				}
				r.waiting.Store(true)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if c.hurry > 0 {
					time.AfterFunc(c.hurry, func() {
						if !r.hurry() {
							t.Error("hurry does not know of the wait")
						}
					})
				}
				if c.stop > 0 {
					time.AfterFunc(c.stop, stop)
				}
				begun, handed := time.Now(), 0
				r.wait(ctx, delay, func() { handed++ })
				if took := time.Since(begun); took != c.want {
					t.Errorf("waited %v, want %v", took, c.want)
				}
				if want := int(c.want / handOverEvery); handed != want {
					t.Errorf("the lead was passed on %d times, want %d", handed, want)
				}
				if r.hurry() {
					t.Error("after the wait, a signal still hurries")
				}
			})
		})
	}
}
