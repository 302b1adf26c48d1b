package catalogue

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

const minute = int64(60_000)

func termsAt(now int64, most int) *Terms {
	t := &Terms{Now: now, MaxNames: most, Unused: 40 * 24 * 60 * minute}
	for kind := range t.Kept {
		t.Kept[kind] = 30 * minute
	}
	return t
}

// find returns the name of an owner, "?" if it has none.
func (s *Shared) find(words string) string {
	c := claim(words)
	name, _, known := s.Of(c.Tenant).Find([]byte(c.Name), c.Kind, c.Buckets)
	if !known {
		return "?"
	}
	return name
}

// A name has one owner, as on one machine, and the saved state has all that later decisions need.
func TestSharedNames(t *testing.T) {
	s := NewShared()
	now := 1000 * minute
	for _, step := range []struct {
		why, words, want string
		after            int64 // minutes since the step before
	}{
		{"the first kind owns the name", "counter x", "x", 0},
		{"another kind gets another name", "gauge x", "x_gauge", 0},
		{"each keeps its name", "counter x", "x", 60},
		{"a gauge of that name is another metric", "gauge x_gauge", "x_gauge_gauge", 0},
		{"timers", "timer y", "y", 0},
		{"of another form", "classic timer y", "y_classic", 0},
		{"a name that classic timers need", "counter y_classic_sum", "y_classic_sum_counter", 0},
		{"timers", "classic timer z", "z", 0},
		{"whose form is changed, long after", "fine timer z", "z", 60},
		{"and which come again after all", "classic timer z", "z_classic", 0},
	} {
		now += step.after * minute
		s.Claim(termsAt(now, 100), claim(step.words))
		if got := s.find(step.words); got != step.want {
			t.Errorf("%s: %s is stored as %s, want %s", step.why, step.words, got, step.want)
		}
		restored := NewShared()
		if err := restored.Parse(s.Append(nil)); err != nil {
			t.Fatal(err)
		}
		s = restored
	}
	if got := s.find("set x"); got != "?" {
		t.Errorf("an owner that claimed nothing has the name %s", got)
	}
	if n := len(s.Metadata("t")); n != 8 {
		t.Errorf("%d names, want 8", n)
	}
}

// A tenant without room gives back names of a flood, and meanwhile stores further metrics under names with a hash.
func TestSharedNamesOfAFlood(t *testing.T) {
	s := NewShared()
	now := 1000 * minute
	for i := range 10 {
		s.Claim(termsAt(now, 10), claim(fmt.Sprint("counter flood", i)))
	}
	late := claim("counter late")
	if name, full := s.Of("t").Full(termsAt(now, 10), late); full {
		t.Errorf("before the first search for unused names, Full returned %s, want room", name)
	}
	s.Claim(termsAt(now, 10), late)
	name, full := s.Of("t").Full(termsAt(now, 10), late)
	if !full || name != unremembered(late) || s.find("counter late") != "?" {
		t.Errorf("without room, Full returned %s, %v, want a name with a hash, true", name, full)
	}
	now += 40 * minute
	if _, full := s.Of("t").Full(termsAt(now, 10), late); full {
		t.Error("40 min after the flood, Full still reports no room")
	}
	s.Claim(termsAt(now, 10), late)
	if got := s.find("counter late"); got != "late" || len(s.Metadata("t")) != 10 {
		t.Errorf("after the flood, the name is %s, want late; %d names, want 10", got, len(s.Metadata("t")))
	}
	later := termsAt(now, 10)
	later.Now += later.Unused + minute
	s.Claim(later, claim("counter only"))
	if n := len(s.Metadata("t")); n != 1 {
		t.Errorf("%d names are remembered, want 1", n)
	}
}

// A catalogue that is saved and loaded at random moments decides like a catalogue that is not. So
// members agree, whenever they restart.
func TestSharedNamesAfterRestarts(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		plain, saved := NewShared(), NewShared()
		now := 1000 * minute
		for range 300 {
			now += rnd.Int64N(20 * minute)
			kinds := []string{"counter", "gauge", "timer", "classic timer", "fine timer"}
			words := fmt.Sprint(kinds[rnd.IntN(5)], " n", rnd.IntN(8))
			terms := termsAt(now, 8+rnd.IntN(3))
			plain.Claim(terms, claim(words))
			saved.Claim(terms, claim(words))
			if rnd.IntN(3) == 0 {
				b := saved.Append(nil)
				if saved = NewShared(); saved.Parse(b) != nil {
					t.Fatalf("%x cannot be read", b)
				}
			}
			if !bytes.Equal(plain.Append(nil), saved.Append(nil)) {
				t.Fatalf("seed %d: after %s, restarts make a difference", seed, words)
			}
		}
	}
}

// The names of one machine keep their owners in a Shared.
func TestSharedNamesOfOneMachine(t *testing.T) {
	one := New(100)
	for _, words := range []string{"counter x", "gauge x", "timer y", "classic timer y"} {
		one.Resolve(1000*minute, claim(words))
	}
	s := NewShared()
	s.Load(one.Dirty())
	for _, words := range []string{"classic timer y", "gauge x", "counter x", "timer y"} {
		want, _, _ := one.Peek(claim(words))
		s.Claim(termsAt(1001*minute, 100), claim(words))
		if got := s.find(words); got != want {
			t.Errorf("%s is stored as %s, want %s as on one machine", words, got, want)
		}
	}
}

func FuzzParseShared(f *testing.F) {
	s := NewShared()
	f.Add(s.Append(nil))
	for _, words := range []string{"counter x", "gauge x", "timer y", "classic timer y"} {
		s.Claim(termsAt(1000*minute, 3), claim(words))
	}
	f.Add(s.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := NewShared()
		if s.Parse(b) != nil {
			return
		}
		if got := s.Append(nil); !bytes.Equal(got, b) {
			t.Fatalf("%x is saved again as %x", b, got)
		}
		s.Claim(termsAt(1000*minute, 3), claim("counter x"))
		_ = s.Metadata("t")
	})
}
