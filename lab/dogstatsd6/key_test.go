package dogstatsd6

import (
	"hash/maphash"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/twmb/murmur3"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

// spelled is a metric in the form that the techniques get. For techniques that sort tags, the tags are
// already cut apart, and this is not timed. The kind is not part of a key, since each name in the traffic
// has only one kind.
type spelled struct {
	name, tags []byte
	cutName    string
	cutTags    []string
}

// spellings has the contexts of the traffic in the order of its packets.
var spellings = func() []spelled {
	all := make([]spelled, 0, len(traffic))
	var p dogstatsd.Parser
	for _, packet := range traffic {
		p.Reset(slices.Clone(packet))
		p.Next()
		s := spelled{name: slices.Clone(p.Metric.Name), tags: slices.Clone(p.Metric.Tags), cutName: string(p.Metric.Name)}
		for tag := range dogstatsd.Tags(p.Metric.Tags) {
			s.cutTags = append(s.cutTags, string(tag))
		}
		all = append(all, s)
	}
	return all
}()

// keying is a technique. It returns the number of a metric's context, and numbers contexts from 0, in
// the order of their first metrics.
type keying struct {
	name string
	make func() func(*spelled) int
}

var keyings = []keying{
	{"string", byString}, {"murmur3", byMurmur3}, {"xxhash64", byXXHash}, {"ours", bySpan},
}

// BenchmarkKey measures how long a technique takes to find a metric's context among 1,000.
//
// Bound for our technique: 0 allocs/op, and less time than any technique that sorts.
func BenchmarkKey(b *testing.B) {
	for _, k := range keyings {
		b.Run(k.name, func(b *testing.B) {
			find, mask := k.make(), len(spellings)-1
			measure(b, func(n int) {
				for i := range n {
					find(&spellings[i&mask])
				}
			})
		})
	}
}

func TestKeys(t *testing.T) {
	var want []int
	for _, k := range keyings {
		find := k.make()
		var got []int
		for i := range spellings {
			got = append(got, find(&spellings[i]))
		}
		if n := slices.Max(got) + 1; n != 1000 {
			t.Errorf("%s: got %d contexts, want 1000", k.name, n)
		}
		if want == nil {
			want = got
		} else if !slices.Equal(got, want) {
			t.Errorf("%s and %s number contexts differently", k.name, keyings[0].name)
		}
	}
}

// Techniques that sort find the same context for any order of the tags.
func TestKeysOfReorderedTags(t *testing.T) {
	for _, k := range keyings[:len(keyings)-1] {
		find, s := k.make(), spellings[0]
		first := find(&s)
		s.cutTags = slices.Clone(s.cutTags)
		slices.Reverse(s.cutTags)
		if find(&s) != first {
			t.Errorf("%s: with the tags in reverse order, got another context, want the same", k.name)
		}
	}
}

// byString is the first version: the sorted tags and the name become one string.
func byString() func(*spelled) int {
	contexts := map[string]int{}
	return func(s *spelled) int {
		tags := slices.Clone(s.cutTags)
		sort.Strings(tags)
		return number(contexts, s.cutName+","+strings.Join(tags, ","))
	}
}

// byMurmur3 is the version of the talk: it sorts tags in place, which needs a copy here, and hashes them to
// 128 bits by a hasher that is reused. A buffer collects the key, since writing to the library's hasher
// through its interface is slower.
func byMurmur3() func(*spelled) int {
	type sum struct{ high, low uint64 }
	contexts := map[sum]int{}
	var tags []string
	var buffer []byte
	return func(s *spelled) int {
		tags = append(tags[:0], s.cutTags...)
		selectionSort(tags)
		buffer = append(append(buffer[:0], s.cutName...), ',')
		for _, tag := range tags {
			buffer = append(append(buffer, tag...), ',')
		}
		var key sum
		key.high, key.low = murmur3.Sum128(buffer)
		return number(contexts, key)
	}
}

// byXXHash uses a hash of 64 bits. Datadog measured it, and rejected it since contexts might collide.
func byXXHash() func(*spelled) int {
	contexts := map[uint64]int{}
	var tags []string
	var buffer []byte
	return func(s *spelled) int {
		tags = append(tags[:0], s.cutTags...)
		selectionSort(tags)
		buffer = append(append(buffer[:0], s.cutName...), ',')
		for _, tag := range tags {
			buffer = append(append(buffer, tag...), ',')
		}
		return number(contexts, xxhash.Sum64(buffer))
	}
}

// selectionSort is the Agent's in-place sort for few tags.
func selectionSort(tags []string) {
	for i := range tags {
		least := i
		for j := i + 1; j < len(tags); j++ {
			if tags[j] < tags[least] {
				least = j
			}
		}
		tags[i], tags[least] = tags[least], tags[i]
	}
}

func number[K comparable](contexts map[K]int, key K) int {
	n, ok := contexts[key]
	if !ok {
		n = len(contexts)
		contexts[key] = n
	}
	return n
}

// bySpan is Freshet's technique, as in core/window. It looks up the raw bytes of name and tags by a seeded
// hash, and compares them. If the tags of a context come in two orders, the context has two entries, which
// lead to one series.
func bySpan() func(*spelled) int {
	type slot struct {
		hash   uint32
		number uint32 // from 1; 0 means that the slot is free
	}
	const factor = 0x9e3779b97f4a7c15
	seed := maphash.MakeSeed()
	slots := make([]slot, 1<<11) // for 1,000 contexts, at most half full
	names, tags := [][]byte{nil}, [][]byte{nil}
	return func(s *spelled) int {
		hash := maphash.Bytes(seed, s.name)*factor + maphash.Bytes(seed, s.tags)
		mask := uint64(len(slots) - 1)
		i := hash & mask
		for ; slots[i].number != 0; i = (i + 1) & mask {
			if n := slots[i].number; slots[i].hash == uint32(hash) && string(names[n]) == string(s.name) &&
				string(tags[n]) == string(s.tags) {
				return int(n) - 1
			}
		}
		slots[i] = slot{uint32(hash), uint32(len(names))}
		names, tags = append(names, s.name), append(tags, s.tags)
		return len(names) - 2
	}
}
