package ledger

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
)

func received(n uint64) Transfer { return Transfer{From: Outside, To: Received, Samples: n} }

// The samples of a window have every possible fate between the socket and the store.
func TestBooksClose(t *testing.T) {
	l := New()
	l.Post("a", received(100),
		Transfer{From: Received, To: Malformed, Reason: "no_type", Samples: 3},
		Transfer{From: Received, To: Malformed, Reason: "bad_value", Samples: 1},
		Transfer{From: Received, To: Refused, Reason: "negative", Samples: 6},
		Transfer{From: Received, To: Window, Samples: 90})
	l.Post("a", Transfer{From: Outside, To: Restored, Samples: 10}, Transfer{From: Restored, To: Tile, Samples: 10})
	l.Post("a",
		Transfer{From: Window, To: Tile, Samples: 70},
		Transfer{From: Window, To: Late, Reason: "late_gauge", Samples: 5},
		Transfer{From: Window, To: Unsent, Reason: "shutdown", Samples: 4},
		Transfer{From: Window, To: Discarded, Reason: "no_aggregator", Samples: 3})
	l.Post("a", Transfer{From: Tile, To: Stored, Samples: 60},
		Transfer{From: Tile, To: Refused, Reason: "too_old", Samples: 2})
	l.Note("a", Folded, 7)
	l.Note("a", LateKept, 8)
	l.Note("a", Ahead, 9)
	l.Note("a", Respelled, 10)
	l.Datagrams("a", Datagrams{Read: 5, KernelDropped: 2, Oversized: 1, CutFrames: 1, RefusedConnections: 4})
	l.Datagrams("a", Datagrams{Read: 1})
	l.Client("a", PacketsDropped, 2.5)
	l.Close(2000)
	l.Close(1000) // another listener, which closes its window later

	got, err := json.Marshal(l.Books())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"boundary_ms":2000,"tenants":{"a":{"samples":{"received":100,"restored":10,` +
		`"malformed":{"bad_value":1,"no_type":3},"refused":{"negative":6,"too_old":2},"late":{"late_gauge":5},` +
		`"unsent":{"shutdown":4},"discarded":{"no_aggregator":3},` +
		`"window":8,"tile":18,"stored":60,"difference":0,"of_which":{"folded":7,"late_kept":8,"ahead":9,"respelled":10}},` +
		`"datagrams":{"received":10,"read":6,"kernel_dropped":2,"oversized":1,"cut_frames":1,"refused_connections":4},` +
		`"clients":{"bytes_dropped":0,"bytes_dropped_queue":0,"bytes_dropped_writer":0,"bytes_sent":0,"events":0,` +
		`"metric_dropped_on_receive":0,"metrics":0,"packets_dropped":2.5,"packets_dropped_queue":0,` +
		`"packets_dropped_writer":0,` +
		`"packets_sent":0,"service_checks":0}}}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Each kind of mistake in our code shows as a difference.
func TestMistakesAreSeen(t *testing.T) {
	for _, test := range []struct {
		name  string
		posts []Transfer
		want  int64
	}{
		{"samples are read and get no fate", []Transfer{received(5), {From: Received, To: Window, Samples: 3}}, 2},
		{"samples get a fate and were not read", []Transfer{{From: Received, To: Window, Samples: 3}}, -3},
		{"more samples leave an account than came",
			[]Transfer{received(3), {From: Received, To: Window, Samples: 3}, {From: Window, To: Tile, Samples: 5}}, -2},
		{"samples that are stored twice", []Transfer{
			{From: Outside, To: Restored, Samples: 3}, {From: Restored, To: Tile, Samples: 3},
			{From: Tile, To: Stored, Samples: 3}, {From: Tile, To: Stored, Samples: 3}}, -3},
		{"the read is posted a moment later",
			[]Transfer{{From: Window, To: Tile, Samples: 3}, received(3), {From: Received, To: Window, Samples: 3}}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := New()
			l.Post("a", test.posts...)
			if s := l.Books().Tenants["a"].Samples; s.Difference != test.want {
				t.Errorf("difference is %d, want %d: %+v", s.Difference, test.want, s)
			}
		})
	}
}

func TestNoSuchTransfer(t *testing.T) {
	for _, x := range []Transfer{
		{From: Stored, To: Tile}, {From: Malformed, To: Refused, Reason: "x"}, {From: Received, To: Restored},
		{From: Window, To: Window}, {From: Outside, To: Stored}, {From: Window, To: Late},
		{From: Window, To: Tile, Reason: "x"},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was posted", x)
				}
			}()
			New().Post("a", x)
		}()
	}
}

// The books stay small and have no difference, for any number and names of tenants.
func TestTenantsAreBounded(t *testing.T) {
	l := New()
	for i := range 2 * MaxTenants {
		l.Post(fmt.Sprint(i), received(1), Transfer{From: Received, To: Window, Samples: 1})
	}
	b := l.Books()
	if len(b.Tenants) != MaxTenants+1 || b.Tenants[Others].Samples.Window != MaxTenants ||
		b.Tenants["0"].Samples.Window != 1 {
		t.Errorf("%d tenants; others: %+v", len(b.Tenants), b.Tenants[Others].Samples)
	}
}

// A reader sees books without a difference while others post; run with -race.
func TestBooksAreNeverHalfPosted(t *testing.T) {
	l := New()
	var wg sync.WaitGroup
	for seed := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, seed))
			for range 500 {
				n, bad := r.Uint64N(100), r.Uint64N(100)
				l.Post("a", received(n+bad), Transfer{From: Received, To: Window, Samples: n},
					Transfer{From: Received, To: Malformed, Reason: "no_type", Samples: bad})
				l.Post("a", Transfer{From: Window, To: Tile, Samples: n})
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for looks := 0; ; looks++ {
		if s := l.Books().Tenants["a"].Samples; s.Difference != 0 {
			t.Fatalf("%+v", s)
		}
		select {
		case <-done:
			t.Logf("looked %d times", looks)
			return
		default:
		}
	}
}

func TestClientCountOf(t *testing.T) {
	for c := range numClientCounts {
		if got, ok := ClientCountOf([]byte(clientPrefix + c.String())); !ok || got != c {
			t.Errorf("%s is read as %v, found %t", c, got, ok)
		}
	}
	for _, name := range []string{"", "metrics", clientPrefix, clientPrefix + "metrics_by_type",
		clientPrefix + "aggregated_context", "datadog.dogstatsd.clients.metrics"} {
		if c, ok := ClientCountOf([]byte(name)); ok {
			t.Errorf("%q is read as %v", name, c)
		}
	}
	name := []byte(clientPrefix + "bytes_dropped_writer")
	if n := testing.AllocsPerRun(100, func() { ClientCountOf(name) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// In a cluster, a process that received samples hands them over to the leader, and each node gets them
// from the log. The books of the process and of the node have no difference.
func TestTheBooksOfACluster(t *testing.T) {
	l := New()
	l.Post("a", Transfer{From: Outside, To: Received, Samples: 5}, Transfer{From: Received, To: Window, Samples: 5},
		Transfer{From: Window, To: HandedOver, Samples: 5},
		Transfer{From: Outside, To: Collected, Samples: 12}, Transfer{From: Collected, To: Tile, Samples: 11},
		Transfer{From: Collected, To: Late, Reason: "gauge", Samples: 1}, Transfer{From: Tile, To: Stored, Samples: 11})
	s := l.Books().Tenants["a"].Samples
	if s.Difference != 0 || s.HandedOver != 5 || s.Collected != 12 || s.Stored != 11 {
		t.Errorf("the books are %+v", s)
	}
}

// Three nodes get the same windows from the log, and requests come in at one node each. The sum counts
// each sample once as received and once as collected. If a node makes a mistake, the sum has the
// difference of that node.
func TestSumOfACluster(t *testing.T) {
	nodes := make([]*Ledger, 3)
	for i := range nodes {
		nodes[i] = New()
		came := uint64(i + 1) // samples in windows; a separate collector has 10 more
		nodes[i].Post("a", Transfer{From: Outside, To: Received, Samples: came + 103},
			Transfer{From: Received, To: Malformed, Reason: "no_type", Samples: 3},
			Transfer{From: Received, To: Stored, Samples: 90}, // a request
			Transfer{From: Received, To: Refused, Reason: "too_old", Samples: 10},
			Transfer{From: Received, To: Window, Samples: came})
		nodes[i].Post("a", Transfer{From: Outside, To: Restored, Samples: 2}, // the outbox
			Transfer{From: Restored, To: Window, Samples: 2}, Transfer{From: Window, To: HandedOver, Samples: came + 1})
		nodes[i].Post("a", Transfer{From: Outside, To: Restored, Samples: 5}, // tiles
			Transfer{From: Restored, To: Tile, Samples: 5})
		nodes[i].Post("a", Transfer{From: Outside, To: Collected, Samples: 1 + 2 + 3 + 3*1 + 10},
			Transfer{From: Collected, To: Tile, Samples: 16}, Transfer{From: Collected, To: Late, Reason: "gauge", Samples: 2},
			Transfer{From: Collected, To: Refused, Reason: "too_old", Samples: 1},
			Transfer{From: Tile, To: Stored, Samples: 20})
		nodes[i].Note("a", Folded, 1)
		nodes[i].Note("a", LateKept, 4)
		nodes[i].Datagrams("a", Datagrams{Read: 7, KernelDropped: 1})
		nodes[i].Client("a", PacketsSent, 2)
	}
	sum := func() Tenant {
		var all []Tenant
		for _, n := range nodes {
			all = append(all, n.Books().Of("a"))
		}
		return Sum(all, all[1].Copied)
	}
	got := sum()
	want := Samples{Received: 6 + 3*103, Restored: 3*2 + 5, Collected: 19, Malformed: map[string]uint64{"no_type": 9},
		Refused: map[string]uint64{"too_old": 31}, Late: map[string]uint64{"gauge": 2}, Unsent: map[string]uint64{},
		Discarded: map[string]uint64{}, HandedOver: 9, Window: 3, Tile: 1, Stored: 3*90 + 20,
		OfWhich: OfWhichBook{Folded: 3, LateKept: 4}}
	if !reflect.DeepEqual(got.Samples, want) {
		t.Errorf("got  %+v\nwant %+v", got.Samples, want)
	}
	if d := got.Samples.difference(); d != 0 {
		t.Errorf("the sum of correct books has the difference %d, want 0", d)
	}
	if d := got.Datagrams; d.Received != 24 || d.Read != 21 || d.KernelDropped != 3 || got.Clients["packets_sent"] != 6 {
		t.Errorf("%+v, clients %v", d, got.Clients)
	}
	nodes[2].Post("a", received(4)) // the fate of these samples is not posted
	if d := sum().Samples.Difference; d != 4 {
		t.Errorf("a node has the difference 4, but the sum has %d", d)
	}
}
