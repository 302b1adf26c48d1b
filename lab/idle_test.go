package main

import (
	"testing"
	"time"
)

// Each server in the comparison of idle servers starts, and reports its processor time and memory.
func TestIdle(t *testing.T) {
	for _, r := range watched(serverLab(t).freshet) {
		percent, bytes, err := r.idle(t.Context(), 0, 10*time.Millisecond, 2)
		if err != nil || len(percent) != 2 || len(bytes) != 2 || bytes[1] < 1e6 {
			t.Errorf("%s: got %v percent and %v bytes, want two values of each; error: %v", r.name, percent, bytes, err)
		}
	}
}
