package marks

import "testing"

func TestDifference(t *testing.T) {
	all := []Mark{{64, 1}, {128, 2}, {192, 3}, {256, 4}}
	for _, c := range []struct {
		name          string
		other         []Mark
		differs, last uint64
	}{
		{"none", nil, 0, 0},
		{"equal", all, 0, 256},
		{"behind", all[:2], 0, 128},
		{"with a gap", []Mark{{64, 1}, {256, 4}, {320, 5}}, 0, 256},
		{"the second differs", []Mark{{128, 9}, {192, 3}}, 128, 192},
		{"all differ since the third", []Mark{{128, 2}, {192, 8}, {256, 9}}, 192, 256},
		{"nothing in common", []Mark{{320, 9}}, 0, 0},
	} {
		if differs, last := Difference(all, c.other); differs != c.differs || last != c.last {
			t.Errorf("%s: %d, %d", c.name, differs, last)
		}
		if differs, last := Difference(c.other, all); differs != c.differs || last != c.last {
			t.Errorf("%s, the other way round: %d, %d", c.name, differs, last)
		}
	}
}

// Marks that wait for a store are bounded, and so are those that are kept.
func TestBounds(t *testing.T) {
	var m Marks
	for index := uint64(Every); index <= 1000*Every; index += Every {
		if o := m.Begin(index, true); o != nil {
			m.Wait(o, "one")
			m.End(o)
		}
	}
	if len(m.All()) != 0 || len(m.waits["one"]) != most {
		t.Errorf("%d marks are done, and %d wait", len(m.All()), len(m.waits["one"]))
	}
	m.Settle("one", 1000*Every, 7, 8)
	if all := m.All(); len(all) != most || len(m.waits) != 0 || m.open != 0 {
		t.Errorf("%d marks are done, %d tenants have some that wait", len(all), len(m.waits))
	}
	for index := uint64(1001 * Every); index <= 2000*Every; index += Every {
		m.End(m.Begin(index, true))
	}
	if all := m.All(); len(all) != most || all[most-1].Index != 2000*Every {
		t.Errorf("%d marks", len(all))
	}
}
