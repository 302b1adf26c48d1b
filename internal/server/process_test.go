package server

import (
	"os"
	"testing"

	"github.com/freshet-io/freshet/internal/answer"
)

// readStat finds the fields after any process name, and returns an error if fields are missing.
func TestReadStat(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 300 22"
	for stat, ok := range map[string]bool{
		"1 (freshet)" + rest:       true,
		"1 (a ) b (c) 4 5)" + rest: true,
		"1 (freshet) S 1 2":        false,
		"":                         false,
	} {
		var p answer.Process
		if err := readStat(&p, []byte(stat)); (err == nil) != ok {
			t.Errorf("%q: %v", stat, err)
		}
		if ok && (p.Threads != 17 || p.ResidentBytes != 300*uint64(os.Getpagesize())) {
			t.Errorf("%q: got %d threads, %d bytes", stat, p.Threads, p.ResidentBytes)
		}
	}
}

// The figures of this test process are plausible.
func TestProcessFigures(t *testing.T) {
	var before, after answer.Process
	for _, p := range []*answer.Process{&before, &after} {
		readRuntime(p)
		if err := readKernel(p); err != nil {
			t.Fatal(err)
		}
	}
	if before.ResidentBytes == 0 || before.ResidentBytes > 2*before.MaxResidentBytes || before.Threads < 1 ||
		before.Goroutines < 1 || before.HeapObjects == 0 {
		t.Errorf("got %+v", before)
	}
	if after.AllocatedBytesTotal < before.AllocatedBytesTotal ||
		after.CPUUserSeconds+after.CPUSystemSeconds < before.CPUUserSeconds+before.CPUSystemSeconds {
		t.Errorf("a total decreased: first %+v, then %+v", before, after)
	}
}
