package querycost

// ring keeps a sum for each of the last steps, and the step that is not complete.
type ring[V any] [steps + 1]struct {
	begins int64 // Unix seconds, a multiple of the step's length
	sum    V
}

// at returns the sum of the step that `now` is in. `length` is the step's, in seconds.
func (r *ring[V]) at(now, length int64) *V {
	begins := now - now%length
	s := &r[uint64(begins/length)%uint64(len(r))]
	if s.begins != begins {
		var none V
		s.begins, s.sum = begins, none
	}
	return &s.sum
}

// recent calls add for the sum of each step that is kept.
func (r *ring[V]) recent(now, length int64, add func(*V)) {
	for i := range r {
		if s := &r[i]; s.begins > now-int64(len(r))*length && s.begins <= now {
			add(&s.sum)
		}
	}
}

// merge adds the sums of another ring, except those of steps that are no longer kept.
func (r *ring[V]) merge(of *ring[V], add func(sum, of *V)) {
	for i := range r {
		if of[i].begins > r[i].begins {
			r[i] = of[i]
		} else if of[i].begins == r[i].begins {
			add(&r[i].sum, &of[i].sum)
		}
	}
}
