package index

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func (x *Index) all(hash uint64) (numbers []uint32) {
	s := x.Search(hash)
	for n := s.Next(); n != 0; n = s.Next() {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}

// The index agrees with a map while numbers are inserted and removed at random. Many of their hashes
// are equal, or equal in the bits that select the slot.
func TestAgainstAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	hashes := make([]uint64, 3000)
	for i := range hashes {
		switch i % 3 {
		case 0:
			hashes[i] = random.Uint64()
		case 1: // home slots at the end of one segment, so that entries wrap around to its first slots
			hashes[i] = 5<<58 | 0xffff_ff00 | random.Uint64()%64
		case 2:
			hashes[i] = hashes[random.IntN(i)]
		}
	}
	var x Index
	model := map[uint64][]uint32{}
	next := uint32(0)
	check := func(hash uint64) {
		t.Helper()
		want := slices.Clone(model[hash])
		for other, numbers := range model { // a search may find numbers of other hashes, too
			if other != hash && uint32(other) == uint32(hash) && other>>(64-segmentBits) == hash>>(64-segmentBits) {
				want = append(want, numbers...)
			}
		}
		slices.Sort(want)
		if got := x.all(hash); !slices.Equal(got, want) {
			t.Fatalf("hash %x: %v, want %v", hash, got, want)
		}
	}
	check(7) // in an empty index
	if x.Begin(7) != nil {
		t.Error("Begin returned an address in an empty index")
	}
	for range 20_000 {
		hash := hashes[random.IntN(len(hashes))]
		if numbers := model[hash]; len(numbers) > 0 && random.IntN(2) == 0 {
			at := random.IntN(len(numbers))
			x.Remove(hash, numbers[at])
			model[hash] = slices.Delete(numbers, at, at+1)
		} else if len(numbers) < 4 {
			next++
			x.Insert(hash, next)
			model[hash] = append(model[hash], next)
			if *(*slot)(x.Begin(hash)) == (slot{}) {
				t.Fatalf("hash %x: the search begins at an empty slot", hash)
			}
		}
		check(hash)
	}
	var want, got []uint64
	for _, hash := range hashes {
		check(hash)
	}
	for hash, numbers := range model {
		for _, n := range numbers {
			want = append(want, uint64(uint32(hash))<<32|uint64(n))
		}
	}
	for hash, n := range x.All {
		got = append(got, uint64(hash)<<32|uint64(n))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("All yielded %d numbers, want %d", len(got), len(want))
	}
	for range x.All {
		break // the iterator must stop here
	}
	for hash, numbers := range model {
		for _, n := range numbers {
			x.Remove(hash, n)
		}
	}
	for i := range x.segments {
		if n := len(x.segments[i].slots); n > minSlots {
			t.Errorf("an empty segment has %d slots, want at most %d", n, minSlots)
		}
	}
}

// If one number is inserted under two hashes, Remove removes the entry of the given hash.
func TestEqualNumbers(t *testing.T) {
	var x Index
	for hash := range uint64(20) {
		x.Insert(hash, 1)
	}
	for hash := range uint64(20) {
		if x.Remove(hash, 1); len(x.all(hash)) != 0 || hash < 19 && len(x.all(hash+1)) != 1 {
			t.Errorf("after Remove, hash %d has the numbers %v, want none; the next hash has %v, want one",
				hash, x.all(hash), x.all(hash+1))
		}
	}
}
