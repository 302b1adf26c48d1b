package marks

import "testing"

// marksOf returns a mark for each hash, the first one for the entry `from`.
func marksOf(from uint64, hashes ...uint64) (all []Mark) {
	for i, h := range hashes {
		all = append(all, Mark{from + uint64(i)*Every, h})
	}
	return all
}

func TestCompared(t *testing.T) {
	for _, c := range []struct {
		name             string
		a, b, c          []Mark
		differed, agreed [3]uint64
		outvoted         [3]uint64
	}{
		{"one node has nobody to agree with", marksOf(64, 1, 2), nil, nil, [3]uint64{}, [3]uint64{},
			[3]uint64{}},
		{"all agree", marksOf(64, 1, 2), marksOf(64, 1, 2), marksOf(64, 1, 2), [3]uint64{}, [3]uint64{128, 128, 128},
			[3]uint64{}},
		{"one lags", marksOf(64, 1, 2, 3), marksOf(64, 1, 2, 3), marksOf(64, 1), [3]uint64{}, [3]uint64{192, 192, 64},
			[3]uint64{}},
		{"nothing in common", marksOf(64, 1), marksOf(128, 2), nil, [3]uint64{}, [3]uint64{}, [3]uint64{}},
		{"two against one", marksOf(64, 1, 2, 3), marksOf(64, 1, 2, 3), marksOf(64, 1, 9, 8), [3]uint64{0, 0, 128},
			[3]uint64{192, 192, 64}, [3]uint64{0, 0, 128}},
		{"one against one", marksOf(64, 1, 2), marksOf(64, 1, 9), nil, [3]uint64{128, 128}, [3]uint64{64, 64},
			[3]uint64{}},
		{"all differ", marksOf(64, 1), marksOf(64, 2), marksOf(64, 3), [3]uint64{64, 64, 64}, [3]uint64{}, [3]uint64{}},
		{"one differed and agrees again", marksOf(64, 1, 2), marksOf(64, 1, 2), marksOf(64, 9, 2), [3]uint64{0, 0, 64},
			[3]uint64{128, 128, 128}, [3]uint64{0, 0, 64}},
	} {
		for _, later := range []bool{false, true} {
			var all Compared
			for i, m := range [][]Mark{c.c, c.a, c.b} {
				all.Add(string("cab"[i]), m)
			}
			if later { // the table is full of later marks, and has forgotten these
				for index := uint64(1); index <= 2*compared; index++ {
					all.Add("other", []Mark{{1000 + index*Every, 1}})
				}
				if len(all.all) > compared {
					t.Fatalf("%d entries are kept, want at most %d", len(all.all), compared)
				}
			}
			for i, node := range []string{"a", "b", "c"} {
				want := Verdict{Agreed: c.agreed[i], Differed: c.differed[i], Outvoted: c.outvoted[i]}
				if v := all.Verdict(node); v != want {
					t.Errorf("%s, with later marks: %v; node %s: %+v, want %+v", c.name, later, node, v, want)
				}
			}
		}
	}
	var all Compared
	all.Add("a", marksOf(64, 1))
	all.Add("b", marksOf(64, 2))
	all.Forget("a")
	if v := all.Verdict("a"); v != (Verdict{}) {
		t.Error("the marks of a member that was replaced still count")
	}
}

// The number of marks that wait for a store is bounded, and so is the number of marks that are
// kept.
func TestBounds(t *testing.T) {
	var m Marks
	for index := uint64(Every); index <= 1000*Every; index += Every {
		if o := m.Begin(index, true); o != nil {
			m.Wait(o, "one")
			m.End(o)
		}
	}
	if len(m.All()) != 0 || len(m.waits["one"]) != most {
		t.Errorf("%d marks are done, want 0; %d wait, want %d", len(m.All()), len(m.waits["one"]), most)
	}
	m.Settle("one", 1000*Every, 7, 8)
	if all := m.All(); len(all) != most || len(m.waits) != 0 || m.open != 0 {
		t.Errorf("%d marks are done, want %d; marks of %d tenants wait, want 0", len(all), most, len(m.waits))
	}
	for index := uint64(1001 * Every); index <= 2000*Every; index += Every {
		m.End(m.Begin(index, true))
	}
	if all := m.All(); len(all) != most || all[most-1].Index != 2000*Every {
		t.Errorf("%d marks", len(all))
	}
}
