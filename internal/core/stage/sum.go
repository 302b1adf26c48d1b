package stage

import (
	"fmt"
	"slices"
	"sync"
)

// Sum adds up the stages of other processes, each of which tells its figures since its start. The sum only grows,
// also when a process ends or is forgotten. The zero Sum is empty. It is safe for concurrent use.
type Sum struct {
	mu    sync.Mutex
	cells [NumStages][NumInputs]Stats
}

// Add adds what a process counted between two of its reports. `before` is empty if the process has started since.
// Both reports were checked.
func (s *Sum) Add(before, now []Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range now {
		of := &now[i]
		last := &Stats{}
		if at := slices.IndexFunc(before, of.same); at >= 0 {
			last = &before[at]
		}
		cell := &s.cells[of.Stage][of.Input]
		cell.Samples += grown(last.Samples, of.Samples)
		cell.Spent.grow(&last.Spent, &of.Spent)
		cell.Age.grow(&last.Age, &of.Age)
	}
}

func (s *Stats) same(other Stats) bool { return s.Stage == other.Stage && s.Input == other.Input }

// grown returns by how much a count has grown. A process that is not trusted may also let it fall.
func grown(before, now uint64) uint64 { return max(now, before) - before }

func (h *Histogram) grow(before, now *Histogram) {
	h.Zero += grown(before.Zero, now.Zero)
	h.Sum += max(0, now.Sum-before.Sum)
	if h.Buckets == nil && len(now.Buckets) > 0 {
		h.Buckets = map[int]int64{}
	}
	for bucket, n := range now.Buckets {
		if more := n - before.Buckets[bucket]; more > 0 {
			h.Buckets[bucket] += more
		}
	}
	h.Count = h.Zero
	for _, n := range h.Buckets {
		h.Count += uint64(n)
	}
}

// Stats returns the sum for each stage that a batch of another process has passed.
func (s *Sum) Stats() (all []Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.cells {
		for in := range s.cells[st] {
			if c := s.cells[st][in]; c.Samples > 0 || c.Spent.Count > 0 {
				c.Stage, c.Input = Stage(st), Input(in)
				c.Spent, c.Age = c.Spent.clone(), c.Age.clone()
				all = append(all, c)
			}
		}
	}
	return all
}

func (h Histogram) clone() Histogram {
	buckets := make(map[int]int64, len(h.Buckets))
	for bucket, n := range h.Buckets {
		buckets[bucket] = n
	}
	h.Buckets = buckets
	return h
}

// maxTold bounds each count that another process tells, so that sums over 1,000 processes cannot overflow.
const maxTold = 1 << 50

// Check returns an error if no process has such figures.
func (s *Stats) Check() error {
	if s.Stage >= NumStages || s.Input >= NumInputs {
		return fmt.Errorf("there is no stage %d of input %d", s.Stage, s.Input)
	}
	if s.Samples > maxTold {
		return fmt.Errorf("stage %v has %d samples, and at most %d are possible", s.Stage, s.Samples, uint64(maxTold))
	}
	for _, h := range []*Histogram{&s.Spent, &s.Age} {
		if err := h.check(); err != nil {
			return fmt.Errorf("stage %v: %w", s.Stage, err)
		}
	}
	return nil
}

func (h *Histogram) check() error {
	if !(h.Sum >= 0 && h.Sum <= maxTold) || h.Zero > maxTold {
		return fmt.Errorf("the sum of its times is %v s, and %d are zero", h.Sum, h.Zero)
	}
	for bucket, n := range h.Buckets {
		if bucket < firstBucket || bucket >= firstBucket+numBuckets || n < 0 || n > maxTold {
			return fmt.Errorf("bucket %d has %d times, and buckets are %d to %d", bucket, n, firstBucket,
				firstBucket+numBuckets-1)
		}
	}
	return nil
}
