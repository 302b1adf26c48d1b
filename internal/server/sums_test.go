package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/settings"
)

// nodeWithBooks returns a node that received some samples, and stored those that came in a request. From
// the log, the node also has the windows of the whole cluster.
func nodeWithBooks(t *testing.T, name string, received, windows, collected uint64) *server {
	s := bookServer(t, t.TempDir())
	s.config.Cluster = settings.Cluster{Node: name}
	s.ledger.Post("default", ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: received},
		ledger.Transfer{From: ledger.Received, To: ledger.Window, Samples: windows},
		ledger.Transfer{From: ledger.Received, To: ledger.Stored, Samples: received - windows},
		ledger.Transfer{From: ledger.Window, To: ledger.HandedOver, Samples: windows},
		ledger.Transfer{From: ledger.Outside, To: ledger.Collected, Samples: collected},
		ledger.Transfer{From: ledger.Collected, To: ledger.Tile, Samples: collected},
		ledger.Transfer{From: ledger.Tile, To: ledger.Stored, Samples: collected})
	return s
}

// asks returns the books that a node gets when it asks the node `other` for them.
func asks(t *testing.T, seen *seenBooks, other *server, err error) (all []toldBooks) {
	told := toldBooks{node: other.config.Cluster.Node, err: err}
	if err == nil {
		text, err := other.ownFigures(peer.Ledger, "default")
		if err != nil {
			t.Fatal(err)
		}
		if told.books, err = readLedger(text); err != nil {
			t.Fatal(err)
		}
	}
	told.books, told.age = seen.note(bookKey{told.node, "default"}, told.books)
	return []toldBooks{told}
}

// The sum has each node's own samples, and only one copy of the samples that came through the log. It
// names a node that does not answer, either with its last known books and their age, or as missing.
func TestSumOfLedgers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := nodeWithBooks(t, "a", 100, 40, 50), nodeWithBooks(t, "b", 7, 5, 50), nodeWithBooks(t, "c", 9, 5, 50)
		gone := fmt.Errorf("ask node c at 10.0.0.3:7126: %w: connection refused", peer.ErrUnreachable)
		var seen seenBooks
		sum := func(operator bool, others ...toldBooks) answer.Ledger {
			l := a.ownLedger("default")
			sumLedgers(&l, others, operator)
			return l
		}
		check := func(what string, l answer.Ledger, received, stored uint64, short bool) {
			t.Helper()
			s := l.Samples
			if s.Received != received || s.Collected != 50 || s.Stored != stored || s.Difference != 0 || l.Short != short ||
				len(l.Nodes) != 3 || l.Node != "a" {
				t.Errorf("%s: %+v, nodes %+v, short %t", what, s, l.Nodes, l.Short)
			}
		}
		of := func(err error) []toldBooks { return append(asks(t, &seen, c, err), asks(t, &seen, b, nil)...) }

		l := sum(true, of(gone)...)
		check("a node was never reached", l, 107, 60+2+50, true)
		if n := l.Nodes[2]; !n.Missing() || n.Error != gone.Error() || n.Name != "c" {
			t.Errorf("%+v", n)
		}
		l = sum(true, of(nil)...)
		check("all nodes answer", l, 116, 60+2+4+50, false)
		if want := (answer.LedgerNode{Name: "b", Started: 1_795_160_000_000, Received: 7, HandedOver: 5}); !reflect.DeepEqual(
			l.Nodes[1], want) || l.Samples.HandedOver != 50 {
			t.Errorf("%+v, handed over %d", l.Nodes[1], l.Samples.HandedOver)
		}
		time.Sleep(90 * time.Second)
		l = sum(false, of(gone)...)
		check("a node has died", l, 116, 60+2+4+50, true)
		if n := l.Nodes[2]; n.Missing() || *n.AgeSeconds != 90 || n.Error != "the node does not answer" {
			t.Errorf("a tenant sees %+v", n)
		}
		for i := range 2 * maxSeenBooks {
			seen.note(bookKey{"b", fmt.Sprint(i)}, &l)
		}
		if len(seen.last) != maxSeenBooks {
			t.Errorf("%d books are kept, want 1000", len(seen.last))
		}
	})
}

// tells gives a node the books of a collector that received some samples and handed over a part of them.
func (s *server) tells(name string, producer uint64, received, handed uint64, final bool) {
	l := ledger.New()
	l.Post("default", ledger.Transfer{From: ledger.Outside, To: ledger.Received, Samples: received},
		ledger.Transfer{From: ledger.Received, To: ledger.Window, Samples: received},
		ledger.Transfer{From: ledger.Window, To: ledger.HandedOver, Samples: handed})
	s.collectorBooks.note(name, &ledger.Claim{Producer: producer, Final: final, Tenants: l.Books().Tenants}, nil)
}

// The sum has the books of collectors on other hosts. The newest books of a collector count, whichever node was told
// them. Old books are in the sum for 10 minutes, and make it short, unless the collector has stopped.
func TestCollectorsAreInTheSum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := nodeWithBooks(t, "a", 10, 4, 50), nodeWithBooks(t, "b", 7, 5, 50)
		var seen seenBooks
		sum := func() answer.Ledger {
			l := a.ownLedger("default")
			l.Collectors = a.collectorBooks.of("default")
			sumLedgers(&l, asks(t, &seen, b, nil), true)
			return l
		}
		check := func(when string, l answer.Ledger, collectors int, received, window uint64, short bool) {
			t.Helper()
			if s := l.Samples; s.Received != 17+received || s.HandedOver != 9+received-window || s.Window != window ||
				s.Difference != 0 || l.Short != short || len(l.Collectors) != collectors {
				t.Errorf("%s: %+v, collectors %+v, short %t", when, s, l.Collectors, l.Short)
			}
		}
		a.tells("web-1", 1, 100, 60, false) // a leads at first
		a.tells("web-2", 2, 30, 30, true)
		a.tells("web-2", 3, 5, 5, false) // another one on this host
		check("told to one node", sum(), 3, 135, 40, false)
		time.Sleep(4 * time.Second)
		b.tells("web-1", 1, 200, 200, false)
		b.tells("web-2", 3, 6, 6, false)
		l := sum()
		check("the leader has changed", l, 3, 236, 0, false)
		if c := l.Collectors[0]; c.Name != "web-1" || c.Told != 0 || c.Books != nil || c.ID != "0000000000000001" {
			t.Errorf("%+v", c)
		}
		time.Sleep(2 * time.Minute)
		b.tells("web-2", 3, 7, 7, false)
		l = sum()
		check("a collector has died", l, 3, 237, 0, true)
		if c := l.Collectors[0]; c.AgeSeconds == nil || *c.AgeSeconds != 120 || c.Error == "" {
			t.Errorf("%+v", c)
		}
		if ended := l.Collectors[1]; !ended.Ended || ended.Error != "" || ended.Missing() {
			t.Errorf("a collector that has stopped: %+v", ended)
		}
		time.Sleep(8*time.Minute + time.Second)
		check("10 minutes have passed", sum(), 1, 7, 0, true)
		for i := range maxCollectorBooks + 10 {
			a.tells("web-3", uint64(100+i), 1, 1, false)
		}
		if n := len(a.collectorBooks.of("default")); n != maxCollectorBooks || a.collectorBooks.dropped.Load() != 10 {
			t.Errorf("the books of %d collectors are kept, and %d were not", n, a.collectorBooks.dropped.Load())
		}
		a.tells("web-3", 100, 2, 2, false)
		if a.collectorBooks.dropped.Load() != 10 {
			t.Error("the books of a known collector were dropped")
		}
	})
}

// A node adds up how the stages of collectors grow. What a collector counted while it did not tell this node is not
// added, since it told another leader. A process that has started since counts from 0.
func TestStagesOfCollectors(t *testing.T) { synctest.Test(t, testStagesOfCollectors) }

func testStagesOfCollectors(t *testing.T) {
	of := func(samples uint64, seconds float64) []stage.Stats {
		return []stage.Stats{{Stage: stage.Read, Input: stage.DogStatsD, Samples: samples,
			Spent: stage.Histogram{Sum: seconds, Zero: 1, Buckets: map[int]int64{3: int64(samples)}}}}
	}
	var b collectorBooks
	sum := func() (samples, count uint64, seconds float64) {
		for _, s := range b.stages.Stats() {
			samples, count, seconds = s.Samples, s.Spent.Count, s.Spent.Sum
		}
		return samples, count, seconds
	}
	for _, c := range []struct {
		what     string
		producer uint64
		started  int64
		told     []stage.Stats
		samples  uint64 // of the sum
		count    uint64
		seconds  float64
	}{
		{"its first report", 1, 1, of(100, 50), 0, 0, 0}, // each is 6 s after the one before
		{"it goes on", 1, 1, of(130, 60), 30, 30, 10},
		{"a call without stages", 1, 1, nil, 30, 30, 10},
		{"it goes on again", 1, 1, of(131, 61), 31, 31, 11},
		{"another collector", 2, 1, of(7, 7), 31, 31, 11},
		{"it lies", 1, 1, of(1, 0), 31, 31, 11},
		{"it has started again", 1, 2, of(5, 2), 36, 37, 13},
		{"the other one told nothing for 18 s", 2, 1, of(90, 70), 36, 37, 13},
		{"the other one goes on", 2, 1, of(91, 71), 37, 38, 14},
	} {
		time.Sleep(6 * time.Second)
		b.note("web-1", &ledger.Claim{Producer: c.producer, Started: c.started}, c.told)
		if samples, count, seconds := sum(); samples != c.samples || count != c.count || seconds != c.seconds {
			t.Errorf("%s: the sum has %d samples, and %d times of %v s; want %d, %d, %v", c.what, samples, count, seconds,
				c.samples, c.count, c.seconds)
		}
	}
}

// A node of another release may leave out figures that the sum needs.
func TestBooksThatCannotBeAdded(t *testing.T) {
	for _, text := range []string{"", "{", `{"samples":{"received":1}}`} {
		if l, err := readLedger([]byte(text)); err == nil {
			t.Errorf("%q is read as %+v", text, l)
		}
	}
}

// Each sample that was folded, refused or delayed came in at one node, so these numbers add up. A node
// may not know all DogStatsD series of the cluster yet, so the largest number counts. All nodes have the
// same stored series.
func TestSumOfLimits(t *testing.T) {
	answerOf := func(node string, series, elsewhere int, refused uint64, requests float64) []byte {
		text, err := json.Marshal(limitsAnswer{Node: node, Tenants: []tenantLimits{
			{Tenant: "default", Series: series, Elsewhere: elsewhere, Folded: 10, Refused: refused,
				Distributor: &distributorLimits{Series: 500, Totals: 70, Refused: refused, Delayed: 1,
					Sender: &answer.TopRequester{Agent: node, Samples: requests}}},
			{Tenant: "only-" + node, Series: 1, Elsewhere: 3},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var sum limitsAnswer
	if err := json.Unmarshal(answerOf("a", 20, 31, 1, 5), &sum); err != nil {
		t.Fatal(err)
	}
	sum.sum([]toldFigures{
		{node: "b", json: answerOf("b", 30, 25, 2, 9)}, {node: "d", err: errors.New("too old")},
		{node: "c", json: answerOf("c", 10, 41, 3, 7)},
	}, true)
	got := sum.Tenants[0]
	sender := got.Distributor.Sender.Agent
	got.Distributor.Sender = nil
	want := tenantLimits{Tenant: "default", Series: 55, Elsewhere: 35, Folded: 30, Refused: 6,
		Distributor: &distributorLimits{Series: 500, Totals: 70, Refused: 6, Delayed: 3}}
	if !reflect.DeepEqual(got, want) || sender != "b" {
		t.Errorf("got %+v, %+v\nbusiest sender of node %s, want node b", got, got.Distributor, sender)
	}
	var tenants []string
	for _, t := range sum.Tenants {
		tenants = append(tenants, fmt.Sprint(t.Tenant, " ", t.Series))
	}
	if got := strings.Join(tenants, ", "); got != "default 55, only-a 4, only-b 4, only-c 4" {
		t.Error(got)
	}
	if nodes := fmt.Sprint(sum.Nodes); !sum.Short || nodes != "[{a } {b } {c } {d too old}]" {
		t.Errorf("%s, short %t", nodes, sum.Short)
	}
}

func TestFiguresOfThisNodeAlone(t *testing.T) {
	s := nodeWithBooks(t, "a", 100, 40, 50) // this node has no other nodes to ask
	for query, want := range map[string]string{
		"local=true": `"received":100,`, "local=1": `"handed_over":40,`, "local=b": "want true",
	} {
		w := httptest.NewRecorder()
		asTenant("default", s.serveLedger)(w, httptest.NewRequest(http.MethodGet, "/?"+query, nil))
		if !strings.Contains(w.Body.String(), want) || strings.Contains(w.Body.String(), `"nodes"`) {
			t.Errorf("%s: %s", query, w.Body)
		}
	}
	if _, err := s.ownFigures(99, "default"); err == nil || !strings.Contains(err.Error(), "upgrade it") {
		t.Errorf("unknown figures: got %v, want an error", err)
	}
}

// A collector may push to one node and report to another. Only its newest push and its newest report
// count. A collector that finds no leader has pushed to no node.
func TestWhatNodesKnowOfACollector(t *testing.T) {
	report := func(bytes uint64) *peer.Report {
		return &peer.Report{Version: "v1", Bytes: bytes, Samples: 2, Oldest: 4}
	}
	var c answer.ClusterCollector
	noteCollector(&c, "a", peer.Pusher{Ago: 50 * time.Second, Told: 50 * time.Second, Report: report(1)}, 0)
	noteCollector(&c, "b", peer.Pusher{Ago: -time.Second, Told: time.Second, Report: report(2)}, time.Second)
	noteCollector(&c, "c", peer.Pusher{Ago: 30 * time.Second, Told: -time.Second}, time.Second)
	want := answer.ClusterCollector{Node: "c", PushedSeconds: new(31.0), Version: "v1", ToldSeconds: new(2.0),
		Outbox: &answer.ClusterOutbox{Bytes: 2, Samples: 2, OldestSeconds: 4}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v", c)
	}
	c = answer.ClusterCollector{}
	noteCollector(&c, "a", peer.Pusher{Ago: -time.Second, Report: report(1)}, time.Minute)
	if c.PushedSeconds != nil || c.Node != "" {
		t.Errorf("%+v", c)
	}
}

func TestVersionsThatDiffer(t *testing.T) {
	c := answer.Cluster{Nodes: []answer.ClusterNode{{Name: "a", Version: "v2"}, {Name: "b", Version: "v1"}, {Name: "c"}},
		Collectors: []answer.ClusterCollector{{Name: "web-1", Version: "v1"}, {Name: "web-2"}}}
	want := []answer.ClusterVersion{
		{Version: "v1", Nodes: []string{"b"}, Collectors: []string{"web-1"}}, {Version: "v2", Nodes: []string{"a"}},
	}
	if got := compareVersions(&c); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	c.Nodes = c.Nodes[1:]
	if got := compareVersions(&c); got != nil {
		t.Errorf("%+v", got)
	}
}
