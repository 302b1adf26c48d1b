package server

import (
	"reflect"
	"testing"

	"github.com/freshet-io/freshet/internal/answer"
)

// The result names each section in which nodes differ, and groups the nodes that agree. Nothing is known
// of a node that was never reached. An older node may lack a section, which is no difference: a rolling upgrade is no
// mistake of the configuration.
func TestSettingsThatDiffer(t *testing.T) {
	nodes := []answer.ClusterNode{
		{Name: "a", Settings: map[string]string{"limits": "2", "mapping": "1", "store": "1"}},
		{Name: "b", Settings: map[string]string{"limits": "1", "mapping": "1"}},
		{Name: "c", Settings: map[string]string{"limits": "1", "mapping": "1", "store": "2"}},
		{Name: "d"},
	}
	want := []answer.ClusterSection{
		{Section: "limits", Nodes: [][]string{{"b", "c"}, {"a"}}},
		{Section: "store", Nodes: [][]string{{"a"}, {"c"}}},
	}
	if got := compareSettings(nodes); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := compareSettings(nodes[1:2]); got != nil {
		t.Errorf("one node: got %+v, want nil", got)
	}
}

// The leader is the node that is named by most answers. A node that was cut off may not know the leader
// yet, and a dead node does not answer.
func TestWhichNodeLeads(t *testing.T) {
	for want, nodes := range map[string][]answer.ClusterNode{
		"":  {{Name: "a", Leader: "a", Error: "gone"}, {Name: "b"}, {Name: "c"}},
		"a": {{Name: "a", Leader: "a"}, {Name: "b", Leader: "a"}, {Name: "c"}},
		"b": {{Name: "a", Leader: "a"}, {Name: "b", Leader: "b"}, {Name: "c", Leader: "b"}}, // a was cut off
		"c": {{Name: "a", Leader: "b"}, {Name: "b", Leader: "b", Error: "gone"}, {Name: "c", Leader: "c"}},
	} {
		if got := leaderOf(nodes); got != want {
			t.Errorf("%+v: got the leader %q, want %q", nodes, got, want)
		}
	}
}
