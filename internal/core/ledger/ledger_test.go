package ledger

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
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

// In a cluster, samples leave the process that received them once the leader has them, and each node gets
// them from the log. The books of the process and of the node have no difference.
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
