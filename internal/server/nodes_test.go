package server

import (
	"testing"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/settings"
)

// A node tells the others the hashes of the configuration in force, also after a reload.
func TestHashesAreOfTheConfigurationInForce(t *testing.T) {
	s := &server{}
	c := settings.Default()
	s.current.Store(&c)
	before := s.digests()
	delete(before, "limits") // the map belongs to the caller
	if again := s.digests(); again["limits"] == "" || again["store"] != before["store"] {
		t.Errorf("the hashes are %v, then %v", before, again)
	}
	next := c
	next.Limits.MaxSeries++
	s.current.Store(&next)
	if after := s.digests(); after["limits"] == c.Digests()["limits"] || after["store"] != before["store"] {
		t.Errorf("after a reload with other limits, the hashes are %v, before they were %v", after, before)
	}
}

// A node ends if another node of its cluster has a later recovery epoch. A node that joins a cluster that was recovered
// before does not.
func TestALaterEpochEndsANode(t *testing.T) {
	joined := peer.Self{Cluster: peer.Cluster{1}, Epoch: 2}
	for _, tt := range []struct {
		name  string
		self  peer.Self
		heard uint64
		ends  bool
	}{
		{"the other node takes no part yet", joined, 0, false},
		{"the other node is from before the recovery", joined, 1, false},
		{"both are in the same epoch", joined, 2, false},
		{"the cluster went on without this node", joined, 3, true},
		{"this node has not joined yet", peer.Self{Epoch: 1}, 3, false},
	} {
		n := &nodes{epochs: make(chan uint64, 1), handler: peerHandler{self: func() peer.Self { return tt.self }}}
		n.hear(tt.heard)
		n.hear(tt.heard) // must not block
		if ends := len(n.epochs) > 0; ends != tt.ends {
			t.Errorf("%s: the node ends: %v, want %v", tt.name, ends, tt.ends)
		}
	}
}
