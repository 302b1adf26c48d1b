package usage

import (
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

func exchange(t *testing.T, of *Table, term uint64, now time.Time, from uint64, uses map[string]Use) (
	others map[string]Use, whole bool,
) {
	t.Helper()
	a, err := of.Exchange(term, now, from, uses)
	if err != nil {
		t.Fatal(err)
	}
	return a.Others, a.Whole
}

// Each process gets the series of all others, and each sample of another process once.
func TestEachProcessGetsTheUseOfAllOthers(t *testing.T) {
	var table Table
	at := time.Unix(1000, 0)
	one := map[string]Use{"x": {Samples: 10, Series: 5, New: 5, Metrics: map[string]int{"m": 3}}}
	two := map[string]Use{
		"x": {Samples: 7, Series: 20, New: 2, Metrics: map[string]int{"m": 4, "n": 16}}, "y": {Series: 1},
	}
	exchange(t, &table, 1, at, 1, one)
	got, _ := exchange(t, &table, 1, at, 2, two)
	want := map[string]Use{"x": {Series: 5, Metrics: map[string]int{"m": 3}}, "y": {}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("process 2 begins: it gets %+v, want %+v", got, want)
	}
	got, _ = exchange(t, &table, 1, at.Add(time.Second), 1, one)
	want = map[string]Use{"x": {Samples: 7, Series: 20, New: 2, Metrics: map[string]int{"m": 4}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("process 1 asks again: it gets %+v, want %+v", got, want)
	}
	got, _ = exchange(t, &table, 1, at.Add(time.Second), 1, map[string]Use{"x": {}})
	if want = map[string]Use{"x": {Series: 20}}; !reflect.DeepEqual(got, want) {
		t.Errorf("process 1 asks at once: it gets %+v, want %+v", got, want)
	}
}

// A new leader has not heard of all processes, and says so. A process that is silent is forgotten.
func TestANewTermBeginsEmpty(t *testing.T) {
	var table Table
	at := time.Unix(1000, 0)
	use := map[string]Use{"x": {Series: 5}}
	exchange(t, &table, 1, at, 1, use)
	if _, whole := exchange(t, &table, 1, at.Add(settled-1), 1, use); whole {
		t.Error("the sum is called whole before all processes can have reported")
	}
	got, whole := exchange(t, &table, 1, at.Add(settled), 2, use)
	if !whole || got["x"].Series != 5 {
		t.Errorf("after %v, process 2 gets %+v, whole: %v; want 5 series, true", settled, got, whole)
	}
	if got, whole = exchange(t, &table, 2, at.Add(settled), 2, use); whole || got["x"].Series != 0 {
		t.Errorf("in a new term, process 2 gets %+v, whole: %v; want none, false", got, whole)
	}
	exchange(t, &table, 2, at.Add(settled), 1, use)
	if got, _ = exchange(t, &table, 2, at.Add(settled+silence+1), 2, use); got["x"].Series != 0 {
		t.Errorf("process 1 is silent for %v, but process 2 still gets %+v", silence, got)
	}
	if got, _ = exchange(t, &table, 2, at.Add(settled+silence+2), 2, nil); len(got) != 0 || len(table.totals) != 0 {
		t.Errorf("nobody uses anything: process 2 gets %+v, and the table has %d tenants", got, len(table.totals))
	}
}

func TestATableIsBounded(t *testing.T) {
	var table Table
	at := time.Unix(1000, 0)
	for from := range uint64(MaxProcesses) {
		exchange(t, &table, 1, at, from, nil)
	}
	if _, err := table.Exchange(1, at, MaxProcesses, nil); !errors.Is(err, ErrFull) {
		t.Errorf("process %d gets the error %v, want ErrFull", MaxProcesses, err)
	}
	exchange(t, &table, 1, at.Add(silence+1), MaxProcesses, nil) // the others are forgotten
}

// In whatever order the processes report, each answer has the series of the last reports. The samples in
// the answers to a process add up to the samples that the other processes reported meanwhile.
func TestSumsAgreeWithAModel(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var table Table
		at := time.Unix(1000, 0)
		last := map[uint64]map[string]Use{}
		owed := map[uint64]map[string]int64{} // by process and tenant
		for range 200 {
			from, uses := r.Uint64N(4), map[string]Use{}
			for _, tenant := range []string{"x", "y", "z"} {
				if r.IntN(4) > 0 {
					uses[tenant] = Use{Samples: r.Int64N(9), Series: r.IntN(5), Metrics: map[string]int{"m": r.IntN(3)}}
				}
			}
			for process, of := range owed {
				for tenant, u := range uses {
					if _, told := of[tenant]; told && process != from {
						of[tenant] += u.Samples
					}
				}
			}
			got, _ := exchange(t, &table, 1, at, from, maps.Clone(uses))
			last[from] = uses
			before := owed[from]
			owed[from] = map[string]int64{}
			for tenant := range uses {
				series, metric := 0, 0
				for process, all := range last {
					if process != from {
						series += all[tenant].Series
						metric += all[tenant].Metrics["m"]
					}
				}
				u := got[tenant]
				if u.Series != series || u.Metrics["m"] != metric || u.Samples != before[tenant] {
					t.Fatalf("seed %d, process %d, tenant %s: got %+v, want %d series, %d series of metric m, %d "+
						"samples", seed, from, tenant, u,
						series, metric, before[tenant])
				}
				owed[from][tenant] = 0
			}
		}
	}
}
