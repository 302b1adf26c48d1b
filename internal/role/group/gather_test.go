package group

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// Requests that come while another one is on its way into the log share one write and one sync.
func TestRequestsShareAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, s := memfs.New(), newStores(t)
		var slow chan struct{}
		calls := 0
		disk := sickFS{fs, func(name string) error {
			if strings.HasSuffix(name, ".segment") {
				calls++
				if slow != nil {
					<-slow
				}
			}
			return nil
		}}
		p := start(t, fs, s, func(o *Options) { o.FS = disk })
		p.mustCount("a", "c", 1)
		synctest.Wait()
		slow, calls = make(chan struct{}), 0
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				if _, err := p.Write(t.Context(), request(t, "a", fmt.Sprint("r", i), time.Now(), 1)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(slow)
		all.Wait()
		if calls != 4 {
			t.Errorf("six requests cost %d writes and syncs, want two of each", calls)
		}
		p.terminate()
	})
}

// senders simulates senders that each send a request when their last one is answered. It returns how
// many requests each proposal has, and how long requests wait for others while no proposal is on its
// way. A proposal takes 2 ms to get into the log.
func senders(number, proposals int, others time.Duration) (sizes []int, waited time.Duration) {
	const log = 2 * time.Millisecond
	var w gathering
	now := time.Unix(0, 0)
	var arrivals []time.Time
	for i := range number {
		arrivals = append(arrivals, now.Add(time.Duration(i)*log/2))
	}
	var lands time.Time // zero if nothing is on its way
	for len(sizes) < proposals {
		left := time.Duration(0)
		if lands.IsZero() && len(w.ids) > 0 {
			if left = w.wait(now); left <= 0 {
				sizes, lands = append(sizes, len(w.take(now))), now.Add(log)
			}
		}
		next := slices.Clone(arrivals)
		if !lands.IsZero() {
			next = append(next, lands)
		} else if left > 0 {
			next = append(next, now.Add(left))
		}
		then := slices.MinFunc(next, time.Time.Compare)
		if left > 0 {
			waited += then.Sub(now)
		}
		now = then
		if now.Equal(lands) {
			for i := range w.flying {
				arrivals = append(arrivals, now.Add(others+time.Duration(i)*log/20))
			}
			lands = time.Time{}
			w.landed(now)
		}
		for i := 0; i < len(arrivals); i++ {
			if !arrivals[i].After(now) {
				w.add(member.ID(1), 1)
				arrivals = slices.Delete(arrivals, i, i+1)
				i--
			}
		}
	}
	return sizes, waited
}

// A few senders soon share each proposal. A sender that is alone never waits. Senders seldom wait if
// their next requests come too late to share a proposal.
func TestSendersShareProposals(t *testing.T) {
	for _, c := range []struct {
		senders int
		others  time.Duration // from the end of a proposal to the next request
		least   int           // requests in each of the last proposals
		most    time.Duration // of all waits in 1,000 proposals
	}{
		{senders: 1, others: time.Millisecond, least: 1},
		{senders: 2, others: 1500 * time.Microsecond, least: 2, most: 200 * time.Millisecond},
		{senders: 4, others: 1500 * time.Microsecond, least: 4, most: 500 * time.Millisecond},
		{senders: 2, others: 7 * time.Millisecond, least: 1, most: 100 * time.Millisecond},
	} {
		sizes, waited := senders(c.senders, 1000, c.others)
		if least := slices.Min(sizes[900:]); least < c.least || waited > c.most {
			t.Errorf("%d senders whose next requests come after %v: proposals had at least %d requests, and all "+
				"waits took %v", c.senders, c.others, least,
				waited)
		}
	}
}
