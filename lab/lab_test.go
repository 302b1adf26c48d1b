package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

var builtDir string // holds the programs that the tests build; removed at the end

func TestMain(m *testing.M) {
	var err error
	if builtDir, err = os.MkdirTemp("", "lab"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(builtDir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// server builds the program once for all tests.
var server = sync.OnceValues(func() (string, error) {
	program := filepath.Join(builtDir, "freshet")
	out, err := exec.Command("go", "build", "-C", "..", "-o", program, "./cmd/freshet").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build freshet: %w\n%s", err, out)
	}
	return program, err
})

// serverLab returns a lab that measures the server.
func serverLab(t *testing.T) *lab {
	program, err := server()
	if err != nil {
		t.Fatal(err)
	}
	return &lab{
		options: options{runs: 1, freshet: program}, dir: t.TempDir(), results: new(report.Results),
		progress: progress{out: t.Output()},
	}
}

// In a short round at a low rate, bare receivers and Freshet take turns, and all report that they received
// everything. Times do not matter here.
func TestRound(t *testing.T) {
	bare, err := buildLimit(t.Context(), "limit/limit.c", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	freshet := serverLab(t).freshet
	for _, c := range []struct {
		network string
		packed  int
		of      []receiver
	}{
		{udp, 14,
			[]receiver{
				bareReceiver(bare, recvfrom), bareReceiver(bare, sleep1), bareReceiver(bare, gro), collectorReceiver(freshet),
				joinedReceiver(freshet),
			}},
		{unixgram, 81, []receiver{bareReceiver(bare, unixRecv), collectorReceiver(freshet)}},
	} {
		w := &workload{
			network: c.network, Load: report.Load{ID: "test", Name: c.network, Packed: c.packed, Rate: 2000, Contexts: 100},
		}
		if err := w.render(); err != nil {
			t.Fatal(err)
		}
		l := serverLab(t)
		if err := l.progress.run(t.Context(), l.costStepsOf(w, c.of, 300*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n := len(l.results.Loads); n != 1 {
			t.Fatalf("%s: the results have %d loads, want 1", c.network, n)
		}
		for i, cost := range l.results.Loads[0].Costs {
			if cost.Name != c.of[i].name || cost.Sent == 0 || cost.Received != cost.Sent {
				t.Errorf("%s: %s received %d of %d, want %s to receive all",
					c.network, cost.Name, cost.Received, cost.Sent, c.of[i].name)
			}
			// In 0.3 s at this rate, the measured CPU time of a bare receiver may be 0.
			if len(cost.Micros) != 1 || !(cost.Micros[0] >= 0) || cost.Resident[0] <= 0 {
				t.Errorf("%s: %s: figures are missing: %+v", c.network, cost.Name, cost)
			}
		}
	}
}

func TestHighest(t *testing.T) {
	for _, c := range []struct {
		name            string
		sends, receives float64 // the highest rates at which the sender sends and the receiver receives
		paced           float64 // the highest rate that the sender can keep up, if lower than sends
		unlucky         bool    // the first try at every rate loses packets
		sender          bool
	}{
		{name: "the receiver is the limit", sends: 10e6, receives: 3e6},
		{name: "the sender is the limit", sends: 2e6, receives: 3e6, sender: true},
		{name: "the sender cannot keep a pace at which the receiver loses", sends: 10e6, receives: 3e6, paced: 2e6,
			sender: true},
		{name: "other processes cost a packet now and then", sends: 10e6, receives: 3e6, unlucky: true},
		{name: "a slow receiver is found, too", sends: 10e6, receives: 40e3},
	} {
		before := map[float64]bool{}
		rate, sender, err := highest(func(rate float64) (tried, error) {
			lost := c.unlucky && !before[rate] && rate > 0
			before[rate] = true
			switch {
			case rate == 0 || rate > c.sends:
				rate = c.sends
			case c.paced > 0:
				rate = min(rate, c.paced)
			}
			return tried{rate, lost || rate > c.receives}, nil
		})
		most := min(c.sends, c.receives)
		if c.paced > 0 {
			most = c.paced
		}
		if err != nil || sender != c.sender || rate > most || rate < most*(1-2*ratePrecision) {
			t.Errorf("%s: found %.0f (sender is the limit: %t, error: %v), want nearly %.0f", c.name, rate, sender, err, most)
		}
	}
}

func TestHighestRateOfAReceiverThatAlwaysLoses(t *testing.T) {
	if rate, _, err := highest(func(float64) (tried, error) { return tried{1e6, true}, nil }); err == nil {
		t.Errorf("for a receiver that always loses packets, the highest rate is %.0f, want an error", rate)
	}
}

func TestParseBenchmarks(t *testing.T) {
	got := parseBenchmarks(`goos: linux
BenchmarkKey/string_key-2         	 1000000	       170.5 ns/op	      96 B/op	       4 allocs/op
BenchmarkKey/string_key-2         	 1000000	       180 ns/op	      96 B/op	       4 allocs/op
BenchmarkKey/ours-2               	 9000000	         4.7 ns/op	  21.00 MB/s	       0 B/op	       0 allocs/op
BenchmarkDeep/ours-2              	 1000000	      1020 ns/op	         0.9100 growth-%	         0.002161 growths/op	       0 B/op	       0 allocs/op
BenchmarkAlone-2                  	 9000000	         4.7 ns/op
PASS
`)
	want := []report.Technique{
		{Group: "Key", Name: "string key", Nanoseconds: []float64{170.5, 180}, Bytes: 96, Allocations: 4},
		{Group: "Key", Name: "ours", Nanoseconds: []float64{4.7}},
		{Group: "Deep", Name: "ours", Nanoseconds: []float64{1020}, Growths: []float64{0.002161},
			GrowthPercent: []float64{0.91}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// Every technique has one turn in each round. Each round records how much time other processes took.
func TestTechniquesTakeTurns(t *testing.T) {
	t.Chdir("..")
	l := &lab{dir: t.TempDir()}
	part := &report.Techniques{}
	if err := l.benchmarkStep(part, "worker pools", "./m3pool", ".", 8, time.Microsecond, 2,
		&part.Pools).do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(part.Pools.All); n != 8 || len(part.Pools.Others) != 2 {
		t.Fatalf("got %d techniques and %d rounds, want 8 and 2", n, len(part.Pools.Others))
	}
	for _, technique := range part.Pools.All {
		if len(technique.Nanoseconds) != 2 || len(technique.Growths) != 2 {
			t.Errorf("%s, %s: got %d turns, want 2", technique.Group, technique.Name, len(technique.Nanoseconds))
		}
	}
	for _, others := range part.Pools.Others {
		if others < 0 || others > 1 {
			t.Errorf("the recorded share of other processes is %v, want 0 to 1", others)
		}
	}
}

// -only accepts exactly the names of the lab's parts.
func TestParts(t *testing.T) {
	all, err := workloads()
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, w := range all {
		have = append(have, w.ID)
	}
	if have = append(have, "idle", "rates", "scale", techniquesPart, remoteWritePart, fairnessPart,
		dashboardsPart, clusterPart, queryPart, rulesPart, packedPart, memoryPart, startPart,
		diskPart); !slices.Equal(parts, have) {
		t.Errorf("-only accepts %v, but the lab has the parts %v", parts, have)
	}
}

// stolenBy returns the share of time that the hypervisor gave to other machines. A large share explains
// odd figures.
func TestStolenTime(t *testing.T) {
	read := func(stat string) processors {
		p, err := readProcessors(stat)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	before := read("cpu  100 0 50 800 5 0 5 40 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	after := read("cpu  150 0 60 810 5 0 5 70 7 0\n")
	if got := after.stolenBy(before); got != .3 {
		t.Errorf("stolenBy returned %v, want 0.3", got)
	}
	if got := after.stolenBy(after); got != 0 {
		t.Errorf("stolenBy returned %v although no time had passed", got)
	}
	if got := before.stolenBy(after); got != 0 {
		t.Errorf("stolenBy returned %v although the counter had decreased", got)
	}
	for _, stat := range []string{"", "cpu  1 2 3", "intr 1 2 3 4 5 6 7 8 9", "cpu  1 2 3 4 5 6 7 x"} {
		if _, err := readProcessors(stat); err == nil {
			t.Errorf("readProcessors accepted %q", stat)
		}
	}
}
