package server

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/peer"
)

// leads is a node that says who leads, and nothing else.
type leads struct {
	peer.Handler
	cluster peer.Cluster
}

func (l leads) Leader(context.Context) peer.Leader { return peer.Leader{Name: "a", Cluster: l.cluster} }

// A process that is no node belongs to the cluster of most nodes. A list with the address of a node of another cluster,
// which has the same secret, must not make it push its windows there.
func TestMostNodesAreTheCluster(t *testing.T) {
	right, wrong := peer.Cluster{1}, peer.Cluster{2}
	for _, c := range []struct {
		why   string
		nodes map[string]peer.Cluster // zero: it has not joined yet
		want  peer.Cluster            // zero: it cannot be told
		says  string
	}{
		{"the same", map[string]peer.Cluster{"a": right, "b": right, "c": right}, right, ""},
		{"one wrong", map[string]peer.Cluster{"a": wrong, "b": right, "c": right}, right, ""},
		{"one has joined", map[string]peer.Cluster{"a": {}, "b": right, "c": {}}, right, ""},
		{"two clusters", map[string]peer.Cluster{"a": wrong, "b": right}, peer.Cluster{}, "correct cluster.nodes"},
		{"none has joined", map[string]peer.Cluster{"a": {}}, peer.Cluster{}, "no node has said yet"},
	} {
		secret := newSecret(t)
		n := collectorOf(t, c.nodes, secret, secret)
		kept := peer.Cluster{}
		n.keep = func(of peer.Cluster) error { kept = of; return nil }
		for node, of := range c.nodes {
			l, err := n.ask(t.Context(), node)
			if refused := of == wrong || c.want == (peer.Cluster{}); refused != (err != nil) {
				t.Errorf("%s: node %s answers %+v, error %v", c.why, node, l, err)
			}
			if c.says != "" && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: the error is %v, want %q", c.why, err, c.says)
			}
		}
		if own := *n.cluster.Load(); own != c.want || kept != c.want {
			t.Errorf("%s: the process belongs to cluster %v and keeps %v, want %v", c.why, own, kept, c.want)
		}
	}
}

// A process with the secret of another cluster says so: its operator may not see the logs of the nodes that refuse it.
func TestTheSecretOfAnotherCluster(t *testing.T) {
	n := collectorOf(t, map[string]peer.Cluster{"a": {1}}, newSecret(t), newSecret(t))
	eventually(t, "the cause", func() bool {
		_, err := n.ask(t.Context(), "a")
		return err != nil && strings.Contains(err.Error(), "was made with another secret")
	})
}

func newSecret(t *testing.T) *peer.Secret {
	t.Helper()
	secret, err := peer.ParseSecret(peer.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// collectorOf returns a collector's view of nodes of these clusters.
func collectorOf(t *testing.T, clusters map[string]peer.Cluster, secret, own *peer.Secret) *nodes {
	t.Helper()
	n, addresses := &nodes{members: map[string]uint64{}}, map[string]string{}
	var none peer.Cluster
	n.cluster.Store(&none)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for name, cluster := range clusters {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		credentials, err := secret.Node(name)
		if err != nil {
			t.Fatal(err)
		}
		server := peer.NewServer(peer.ServerOptions{Credentials: credentials, Handler: leads{cluster: cluster},
			Self: func() peer.Self { return peer.Self{Cluster: cluster} }, Connections: 10,
			Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
		go func() { _ = server.Run(ctx, l) }() // it ends with the test
		addresses[name] = l.Addr().String()
		n.names = append(n.names, name)
	}
	credentials, err := own.Collector("host")
	if err != nil {
		t.Fatal(err)
	}
	n.peers, err = peer.NewPeers(peer.Options{Name: "host", Collector: true, Credentials: credentials, Nodes: addresses,
		Self:     func() peer.Self { return peer.Self{Cluster: *n.cluster.Load()} },
		Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	go n.peers.Run(ctx)
	return n
}
