package space

import (
	"slices"
	"testing"
)

func TestAQuorumWithRoomGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		voters, short, silent []uint64
		stops                 []uint64
	}{
		"all have room":                      {voters: []uint64{1, 2, 3}},
		"one alone does not stop the others": {voters: []uint64{1, 2, 3}, short: []uint64{2}},
		"two of three":                       {voters: []uint64{1, 2, 3}, short: []uint64{1, 3}, stops: []uint64{1, 3}},
		"one of three, and another is away": {voters: []uint64{1, 2, 3}, short: []uint64{2}, silent: []uint64{3},
			stops: []uint64{2}},
		"one that was short, and is away": {voters: []uint64{1, 2, 3}, short: []uint64{2}, silent: []uint64{2}},
		"two are away, and none is short": {voters: []uint64{1, 2, 3}, silent: []uint64{2, 3}},
		"a learner does not count":        {voters: []uint64{1, 2, 3}, short: []uint64{3, 4}},
		"of two nodes, both are needed":   {voters: []uint64{1, 2}, short: []uint64{2}, stops: []uint64{2}},
		"the only node":                   {voters: []uint64{1}, short: []uint64{1}, stops: []uint64{1}},
	} {
		var s Short
		for _, id := range c.voters {
			s.Heard(id, true)
			s.Heard(id, false)
		}
		for _, id := range c.short {
			s.Heard(id, true)
		}
		stops := s.Stops(c.voters, func(id uint64) bool { return !slices.Contains(c.silent, id) })
		if !slices.Equal(stops, c.stops) {
			t.Errorf("%s: the members %v stop the group, want %v", name, stops, c.stops)
		}
	}
}
