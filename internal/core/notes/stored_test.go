package notes

import (
	"maps"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// Notes of another boot are ignored. If the present boot is unknown, all notes are ignored.
func TestNotesHoldForOneBoot(t *testing.T) {
	log := opened(memfs.New())
	s, err := ReadStored(log, "first")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Rewrite(0, nil); err != nil {
		t.Fatal(err)
	}
	for tenant, at := range map[string]uint64{"a": 1 << 40, "b": 5, "waits": 6, "": 7} {
		if err := s.Raise(tenant, at); err != nil {
			t.Fatal(err)
		}
	}
	for boot, want := range map[string]map[string]uint64{"first": s.upTo, "second": {}, "": {}} {
		if got, err := ReadStored(log, boot); err != nil || !maps.Equal(got.upTo, want) {
			t.Errorf("boot %q: read %v, error %v; want %v", boot, got.upTo, err, want)
		}
	}
	if err := s.Rewrite(7, func(tenant string) bool { return tenant == "waits" }); err != nil {
		t.Fatal(err)
	}
	if got, _ := ReadStored(log, "first"); !maps.Equal(got.upTo, map[string]uint64{"a": 1 << 40, "waits": 6, "": 7}) {
		t.Errorf("the notes after Rewrite are %v", got.upTo)
	}
}
