package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/ledger"
)

// onlyLocal reports whether a request asks for the figures of this node alone, by local=true.
func onlyLocal(r *http.Request) (bool, error) {
	text := r.FormValue("local")
	if text == "" {
		return false, nil
	}
	local, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("local = %.40q: want true, for the figures of this node alone, or false", text)
	}
	return local, nil
}

// refuseParameter answers a request whose parameter cannot be read, in the form of the Prometheus API.
func refuseParameter(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{ // fails only if the client is gone
		"status": "error", "errorType": "bad_data", "error": err.Error(),
	})
}

// toldFigures are the figures of another node, or the error if the node could not be asked for them.
type toldFigures struct {
	node string
	json []byte
	err  error
}

// askFigures asks all other nodes at once for their figures. It takes at most statusTime.
func (s *server) askFigures(ctx context.Context, of peer.Figures, tenant string) []toldFigures {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	var all []toldFigures
	for _, a := range s.config.Cluster.Nodes {
		if a.Node != s.config.Cluster.Node {
			all = append(all, toldFigures{node: a.Node})
		}
	}
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i].json, all[i].err = s.nodes.tell(ctx, all[i].node, of, tenant) })
	}
	wg.Wait()
	return all
}

// whyNot says why figures of a node are missing. Only an operator may see the addresses of nodes.
func whyNot(err error, operator bool) string {
	switch {
	case operator:
		return err.Error()
	case errors.Is(err, peer.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return "the node does not answer"
	}
	return "the node cannot say its figures"
}

// toldBooks are the books of another node.
type toldBooks struct {
	node  string
	books *answer.Ledger // the last known books, or nil, if err is set
	age   time.Duration  // age of the last known books
	err   error
}

// seenBooks has the last known books of other nodes.
type seenBooks struct {
	mu   sync.Mutex
	last map[bookKey]oldBooks
}

type bookKey struct{ node, tenant string }

type oldBooks struct {
	*answer.Ledger
	at time.Time
}

// maxSeenBooks bounds the books that are remembered, each of a few kB. Further books are not remembered,
// so they are missing when their node does not answer.
const maxSeenBooks = 1000

// askLedgers asks all other nodes for the books of a tenant.
func (s *server) askLedgers(ctx context.Context, tenant string) (all []toldBooks) {
	for _, f := range s.askFigures(ctx, peer.Ledger, tenant) {
		t := toldBooks{node: f.node, err: f.err}
		if t.err == nil {
			t.books, t.err = readLedger(f.json)
		}
		t.books, t.age = s.seenBooks.note(bookKey{f.node, tenant}, t.books)
		all = append(all, t)
	}
	return all
}

func readLedger(text []byte) (*answer.Ledger, error) {
	l := new(answer.Ledger)
	if err := json.Unmarshal(text, l); err != nil {
		return nil, fmt.Errorf("read the books of another node: %w", err)
	}
	if l.Copied == nil {
		return nil, errors.New("read the books of another node: they do not say which part is a copy")
	}
	return l, nil
}

// note remembers `books`. If `books` is nil, note returns the last known books and their age instead.
func (s *seenBooks) note(key bookKey, books *answer.Ledger) (*answer.Ledger, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.last[key]
	if books == nil {
		if !known {
			return nil, 0
		}
		return old.Ledger, time.Since(old.at)
	}
	if s.last == nil {
		s.last = map[bookKey]oldBooks{}
	}
	if known || len(s.last) < maxSeenBooks {
		kept := *books
		kept.Collectors = nil // they may be many, and tell the next leader
		s.last[key] = oldBooks{&kept, time.Now()}
	}
	return books, 0
}

// sumCollectors makes one list of the collectors that the nodes know, and returns their books. Several nodes may have
// had the books of a collector, one after the other. The newest count.
func sumCollectors(l *answer.Ledger, others []toldBooks) (books []ledger.Tenant) {
	newest := map[string]answer.LedgerCollector{}
	note := func(all []answer.LedgerCollector) {
		for _, c := range all {
			key := c.ID + c.Name
			if last, known := newest[key]; c.Books != nil && (!known || c.Told < last.Told) {
				newest[key] = c
			}
		}
	}
	note(l.Collectors)
	for _, t := range others {
		if t.books != nil {
			note(t.books.Collectors)
		}
	}
	l.Collectors = slices.SortedFunc(maps.Values(newest), func(a, b answer.LedgerCollector) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	for i := range l.Collectors {
		c := &l.Collectors[i]
		books = append(books, *c.Books)
		c.Books = nil
		if !c.Ended && c.Told > oldBooksAfter.Seconds() {
			l.Short, c.AgeSeconds = true, &c.Told
			c.Error = "the collector tells nothing"
		}
	}
	return books
}

const (
	// watchBooksEvery is how often a node asks for the books of others, so that it has them when a node dies.
	watchBooksEvery = 10 * time.Second

	// watchedTenants bounds the tenants whose books a node asks for.
	watchedTenants = 20
)

// watchBooks remembers the books of the other nodes until ctx is done.
func (s *server) watchBooks(ctx context.Context) error {
	for {
		tenants := slices.Sorted(maps.Keys(s.ledger.Books().Tenants))
		for _, tenant := range tenants[:min(len(tenants), watchedTenants)] {
			s.askLedgers(ctx, tenant)
		}
		select {
		case <-time.After(watchBooksEvery):
		case <-ctx.Done():
			return nil
		}
	}
}
