package gateway

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Node is what a node reported about itself.
type Node struct {
	Name  string
	URL   string // of its HTTP API: http://HOST:PORT
	Host  string // of the node, as the configuration here names it
	Ready bool
	Leads bool
	Lag   time.Duration
}

// node is a Node while it is known.
type node struct {
	Node
	scheme, host string

	gone   context.Context // done when the node has not answered for goneTime
	leave  context.CancelCauseFunc
	last   time.Time // when it answered last
	failed time.Time // when a request to it failed; zero if it has answered Look since
}

// known are the nodes that a Relay knows.
type known struct {
	mu    sync.Mutex
	nodes map[string]*node
	turn  int // advances with each request, so that equally good nodes take turns
}

const (
	// lookEvery is how often the nodes are asked for their state.
	lookEvery = time.Second

	// goneTime is how long a node may leave questions unanswered. Its waiting requests then go to another node.
	goneTime = 3 * time.Second

	// sameLag is the smallest difference of lags that matters. Nodes whose lags differ by less are equally good.
	sameLag = time.Second
)

var errGone = errors.New("the node has not answered for some seconds")

// run asks the nodes for their state until ctx is done.
func (k *known) run(ctx context.Context, look func(context.Context) []Node) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		begun := time.Now()
		limited, cancel := context.WithTimeout(ctx, askTime)
		k.note(begun, look(limited))
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			k.note(time.Now().Add(goneTime), nil) // no request waits any longer
			return nil
		}
	}
}

// note stores the nodes' answers to questions that were asked at `begun`.
func (k *known) note(begun time.Time, answered []Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.nodes == nil {
		k.nodes = map[string]*node{}
	}
	for _, a := range answered {
		at, err := url.Parse(a.URL)
		if err != nil || at.Host == "" {
			continue // its HTTP server does not listen yet
		}
		n := k.nodes[a.Name]
		if n == nil {
			n = &node{}
			n.gone, n.leave = context.WithCancelCause(context.Background())
			k.nodes[a.Name] = n
		}
		n.Node, n.scheme, n.host, n.last = a, at.Scheme, at.Host, begun
		if n.failed.Before(begun) {
			n.failed = time.Time{}
		}
	}
	for name, n := range k.nodes {
		if begun.Sub(n.last) >= goneTime {
			n.leave(errGone)
			delete(k.nodes, name)
		}
	}
}

// elsewhere returns the address of the node at `address` with the host that the configuration here names: the name that
// a node tells may be unknown outside of its own network. It returns "" if no node is at `address`.
func (k *known) elsewhere(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.nodes {
		if n.host == address && n.Host != "" {
			return net.JoinHostPort(n.Host, port)
		}
	}
	return ""
}

// fail notes that a node did not answer a request. The node is the last choice until it answers a question.
func (k *known) fail(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.nodes[name]; n != nil {
		n.failed = time.Now()
	}
}

// ready reports whether a node answers at its usual speed.
func (k *known) ready() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.nodes {
		if n.well() {
			return true
		}
	}
	return false
}

// well reports whether a node is ready, as far as it is known. It is called with mu held.
func (n *node) well() bool { return n.Ready && n.failed.IsZero() }

// order returns copies of the nodes, the best one for a request first. Nodes that are equally good take turns.
func (k *known) order(what kind) []node {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]node, 0, len(k.nodes))
	least := time.Duration(-1)
	for _, n := range k.nodes {
		all = append(all, *n)
		if n.well() && (least < 0 || n.Lag < least) {
			least = n.Lag
		}
	}
	slices.SortFunc(all, func(a, b node) int { return cmp.Compare(a.Name, b.Name) })
	if len(all) > 0 {
		k.turn = (k.turn + 1) % len(all)
		all = append(all[k.turn:], all[:k.turn]...)
	}
	rank := func(n *node) int { // less is better
		switch {
		case !n.failed.IsZero():
			return 4
		case what == writes && n.Leads:
			return 0
		case !n.Ready:
			return 3
		case n.Lag-least >= sameLag:
			return 2
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b node) int {
		if c := cmp.Compare(rank(&a), rank(&b)); c != 0 || rank(&a) < 2 {
			return c
		}
		return cmp.Compare(a.Lag, b.Lag)
	})
	return all
}
