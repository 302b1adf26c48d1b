package slogring

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// at is a helper that moves an empty ring to a position, as after long use.
func (r *ring) at(number, first uint32) *ring {
	r.tail.Store(place(number, first))
	r.head.Store(place(number, first))
	return r
}

// For any order of push, take and release, and when the counters wrap around, lines come out as they
// went in, and a push fails only if there is no contiguous room.
func TestRingModel(t *testing.T) {
	const size, line = 1024, 256
	const words = size / minRecord
	type record struct {
		line string
		cut  bool
		end  int
	}
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 3))
		first := 1<<32 - rng.IntN(20000)
		r := newRing(size, line).at(uint32(numbers-rng.IntN(100)), uint32(first))
		pushes, longest := 4+rng.IntN(4), line
		if seed%2 == 0 {
			longest = 50 // lines are short, so the ring runs out of words first
		}
		var waiting []record
		head, tail := first, first
		var earlier struct {
			end  uint64
			tail int
		}
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d, %d records in the ring, %d to %d: %s",
				seed, len(waiting), head, tail, fmt.Sprintf(format, args...))
		}
		for range 500 {
			if full := tail-head+line > size || len(waiting) == words; r.full() != full {
				fail("full is %v", !full)
			}
			if r.isReady() != (len(waiting) > 0) || r.len() != len(waiting) {
				fail("ready is %v, len %d", r.isReady(), r.len())
			}
			if rng.IntN(8) < pushes {
				e := record{line: strings.Repeat(string(rune('a'+rng.IntN(26))), 1+rng.IntN(longest)), cut: rng.IntN(2) == 0}
				begin := tail
				if begin%size+len(e.line) > size {
					begin += size - begin%size
				}
				e.end = begin + len(e.line)
				room, half := e.end-head <= size && len(waiting) < words, e.end-head > size/2 || len(waiting) > words/2
				if pushed, high := r.push([]byte(e.line), e.cut); pushed != room || high != (room && half) {
					fail("push of %d bytes: %v, %v", len(e.line), pushed, high)
				}
				if room {
					waiting, tail = append(waiting, e), e.end
				}
				continue
			}
			most := 1 + rng.IntN(size)
			lines, n := r.take(most)
			end := r.end()
			if rng.IntN(2) == 0 {
				earlier.end, earlier.tail = end, tail
			}
			if n == 0 && len(waiting) == 0 {
				continue
			}
			var want string
			var whole, cut uint64
			written := rng.IntN(len(lines) + 1)
			for _, e := range waiting[:n] {
				if want += e.line; len(want) > written {
				} else if e.cut {
					cut++
				} else {
					whole++
				}
			}
			if string(lines) != want || n == 0 || n > 1 && len(lines) > most {
				fail("%d lines of at most %d bytes:\n%s\nwant\n%s", n, most, lines, want)
			}
			if gotWhole, gotCut := r.release(n, written); gotWhole != whole || gotCut != cut {
				fail("release of %d bytes returned %d whole and %d cut lines, want %d and %d",
					written, gotWhole, gotCut, whole, cut)
			}
			head, waiting = waiting[n-1].end, waiting[n:]
			if earlier.tail > 0 && r.passed(earlier.end) != (head >= earlier.tail) {
				fail("passed %d: %v", earlier.tail, r.passed(earlier.end))
			}
		}
	}
}

func TestClosedRing(t *testing.T) {
	r := newRing(1024, 256)
	r.push([]byte("line"), false)
	r.close()
	if pushed, _ := r.push([]byte("line"), false); pushed || !r.full() || r.len() != 1 {
		t.Errorf("a closed ring with one line accepted another, was not full, or holds %d lines, want 1", r.len())
	}
	if lines, n := r.take(100); string(lines) != "line" || n != 1 {
		t.Errorf("take returned %d lines, %q, want the one line that was pushed", n, lines)
	}
}

// Many goroutines push and one takes. Every line comes out once, whole and in order.
func TestRingTogether(t *testing.T) {
	const goroutines, each = 4, 20000
	r := newRing(4096, 256).at(numbers-1000, 1<<32-10000)
	var pushing sync.WaitGroup
	var pushed [goroutines]int
	for g := range goroutines {
		pushing.Go(func() {
			for i := range each {
				line := fmt.Appendf(nil, "%d %d %s\n", g, i, strings.Repeat(string(rune('a'+g)), i%200))
				if !r.full() {
					if ok, _ := r.push(line, false); ok {
						pushed[g]++
					}
				}
			}
		})
	}
	end := make(chan struct{})
	go func() {
		pushing.Wait()
		close(end)
	}()
	var taken, last [goroutines]int
	for over := false; !over || r.len() > 0; {
		select {
		case <-end:
			over = true
		default:
		}
		lines, n := r.take(1000)
		for line := range bytes.Lines(lines) {
			var g, i int
			var text string
			if _, err := fmt.Sscanf(string(line), "%d %d %s\n", &g, &i, &text); err != nil && i%200 > 0 ||
				text != strings.Repeat(string(rune('a'+g)), i%200) {
				t.Fatalf("the line is garbled: %q", line)
			}
			if i < last[g] {
				t.Fatalf("line %d came after line %d", i, last[g])
			}
			last[g] = i
			taken[g]++
			n--
		}
		if n != 0 {
			t.Fatalf("take returned %d lines too few: %q", n, lines)
		}
		r.release(bytes.Count(lines, []byte{'\n'}), len(lines))
	}
	if taken != pushed {
		t.Errorf("lines taken, by goroutine: got %v, want %v, as pushed", taken, pushed)
	}
}

// full returns false for a ring with room, even if head and tail move between its two reads.
func TestRingIsNotFull(t *testing.T) {
	const goroutines, each = 4, 50000
	r := newRing(2048, 256)
	var taken [goroutines]atomic.Int64
	var pushing sync.WaitGroup
	for g := range goroutines {
		pushing.Go(func() {
			line := bytes.Repeat([]byte{byte(g)}, 50)
			for i := range int64(each) {
				for taken[g].Load() < i {
					runtime.Gosched()
				}
				full := r.full()
				if pushed, _ := r.push(line, false); !pushed || full {
					t.Errorf("full returned %v and push %v, want false and true", full, pushed)
					taken[g].Store(each)
					return
				}
			}
		})
	}
	end := make(chan struct{})
	go func() {
		pushing.Wait()
		close(end)
	}()
	for {
		lines, n := r.take(1000)
		if n == 0 {
			select {
			case <-end:
				return
			default:
				runtime.Gosched()
				continue
			}
		}
		var of []byte
		for i := range n {
			of = append(of, lines[i*50])
		}
		r.release(n, len(lines))
		for _, g := range of {
			taken[g].Add(1)
		}
	}
}
