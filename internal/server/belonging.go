package server

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/peer"
)

// belonging says to which cluster a process belongs that is no node. It learns that from the nodes, once and for ever:
// if the addresses lead to another cluster one day, that cluster must not get these windows.
type belonging struct {
	cluster atomic.Pointer[peer.Cluster] // zero until it is known
	keep    func(peer.Cluster) error     // keeps the cluster for the next process

	learning sync.Mutex
}

// answersTime bounds how long a process waits for what the nodes say about their cluster.
const answersTime = 500 * time.Millisecond

// findCluster asks all nodes for their cluster, unless it is known. The process belongs to the cluster of most nodes
// that answer: a single wrong address must not decide.
func (b *belonging) findCluster(
	ctx context.Context, names []string, ask func(ctx context.Context, node string) (peer.Leader, error),
) error {
	b.learning.Lock()
	defer b.learning.Unlock()
	if *b.cluster.Load() != (peer.Cluster{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answersTime)
	defer cancel()
	var wg sync.WaitGroup
	answers, errs := make([]peer.Cluster, len(names)), make([]error, len(names))
	for i, node := range names {
		wg.Go(func() {
			l, err := ask(ctx, node)
			answers[i], errs[i] = l.Cluster, err
		})
	}
	wg.Wait()
	nodes := map[peer.Cluster][]string{}
	for i, c := range answers {
		if c != (peer.Cluster{}) { // else the node does not answer, or has not joined yet
			nodes[c] = append(nodes[c], names[i])
		}
	}
	most := slices.SortedFunc(maps.Keys(nodes), func(a, b peer.Cluster) int { return len(nodes[b]) - len(nodes[a]) })
	switch {
	case len(most) == 0:
		why := "no node has said yet to which cluster it belongs"
		if err := cmp.Or(errs...); err != nil {
			why += fmt.Sprint("; one cannot be asked: ", err) // as text: a wrapped error would be that of another call
		}
		return errors.New(why)
	case len(most) > 1 && len(nodes[most[0]]) == len(nodes[most[1]]):
		return fmt.Errorf("node %s belongs to cluster %s, and node %s to cluster %s: correct cluster.nodes",
			nodes[most[0]][0], most[0], nodes[most[1]][0], most[1])
	}
	if err := b.keep(most[0]); err != nil {
		return err
	}
	b.cluster.Store(&most[0])
	return nil
}

// clusterFile has the cluster of a collector, in hexadecimal digits.
const clusterFile = "cluster"

// readCluster reads which cluster this collector pushes to, if that is known.
func (s *server) readCluster() error {
	var c peer.Cluster
	s.nodes.cluster.Store(&c)
	text, err := os.ReadFile(s.path(clusterFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the cluster of this collector: %w", err)
	}
	id, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(id) != len(c) {
		return fmt.Errorf("the cluster of this collector: %s holds %.40q, not %d hexadecimal digits; remove the file",
			s.path(clusterFile), text, 2*len(c))
	}
	copy(c[:], id)
	return nil
}

func (s *server) keepCluster(c peer.Cluster) error {
	return s.writeOnce(clusterFile, []byte(c.String()+"\n"))
}
