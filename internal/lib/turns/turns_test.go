package turns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurns has one slot, held by party a at first. Waiters arrive in the order of the field `come`, and
// each passes the slot on to the next.
func TestTurns(t *testing.T) {
	for _, c := range []struct{ why, come, want string }{
		{"one party is served in the order of coming", "a1 a2 a3", "a1 a2 a3"},
		{"another party does not wait behind the first, which had a turn", "a1 a2 a3 a4 b1", "b1 a1 a2 a3 a4"},
		{"parties alternate", "a1 a2 a3 b1 b2 c1", "b1 c1 a1 b2 a2 a3"},
		{"work that has begun goes before its party's other requests", "b1 a1 a2 a3!", "b1 a3! a1 a2"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(1, 1, 10)
			ctx := context.Background()
			if err := s.Take(ctx, "a", 1); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, who := range strings.Fields(c.come) {
				take := s.Take
				if strings.HasSuffix(who, "!") {
					take = s.Retake
				}
				go func() {
					if err := take(ctx, who[:1], 1); err != nil {
						t.Error(err)
					}
					got = append(got, who)
				}()
				synctest.Wait()
			}
			holder := "a"
			for range strings.Fields(c.come) {
				s.Give(holder, 1)
				synctest.Wait()
				holder = got[len(got)-1][:1]
			}
			s.Give(holder, 1)
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s: waiters arrived in the order %v and were served in the order %v, want %s",
					c.why, c.come, got, c.want)
			}
			if len(s.parties) > 0 || len(s.wanting) > 0 || s.used != 0 {
				t.Errorf("%s: in the end, slots or waiters are left: %+v", c.why, s)
			}
		})
	}
}

// TestAlternating has two parties that request a slot again after each turn. One of them has several
// waiters. That party used to get two of three turns, since it never left the queue.
func TestAlternating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1, 1, 10)
		var got []byte
		for _, name := range []string{"a", "a", "a", "b"} {
			go func() {
				for began := time.Now(); time.Since(began) < 100*time.Second; {
					if err := s.Retake(context.Background(), name, 1); err != nil {
						t.Error(err)
					}
					got = append(got, name[0])
					time.Sleep(time.Second)
					s.Give(name, 1)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := bytes.Count(got, []byte("b")); n < 45 || n > 55 {
			t.Errorf("party b had %d of %d turns, want half: %s", n, len(got), got)
		}
	})
}

// TestComingAndGoing has two parties that leave after each turn and come back, and a third party
// that always has requests and never leaves. Each party must get its turns.
func TestComingAndGoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1, 1, 10)
		had := map[string]int{}
		for _, name := range []string{"stays", "stays", "stays", "comes", "goes"} {
			go func() {
				for began := time.Now(); time.Since(began) < 100*time.Second; {
					if err := s.Take(context.Background(), name, 1); err != nil {
						t.Error(err)
					}
					had[name]++
					time.Sleep(time.Second)
					s.Give(name, 1)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, name := range []string{"stays", "comes", "goes"} {
			if had[name] < 30 {
				t.Errorf("%s had %d of 100 turns, want at least 30: %v", name, had[name], had)
			}
		}
	})
}

func TestOnePartyLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(3, 2, 1)
		ctx, leave := context.WithCancel(context.Background())
		if !s.Try("a", 2) || s.Try("a", 1) {
			t.Fatal("a party got more than 2 of 3 slots")
		}
		waited := make(chan error)
		go func() { waited <- s.Take(ctx, "a", 1) }()
		synctest.Wait()
		if err := s.Take(ctx, "a", 1); !errors.Is(err, ErrFull) {
			t.Errorf("a second Take, where one may wait, returned %v, want ErrFull", err)
		}
		if err := s.Take(ctx, "b", 1); err != nil {
			t.Errorf("Take of another party returned %v", err)
		}
		if s.Wanted("a") || !s.Wanted("b") {
			t.Error("Wanted is true for party a, which itself waits, or false for party b; want the opposite")
		}
		leave()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Errorf("Take, whose context ended, returned %v, want Canceled", err)
		}
		if s.Wanted("b") {
			t.Error("Wanted reports true although nobody waits")
		}
	})
}

// TestLaws lets many parties take and give back slots at the same time. The taken slots never exceed the
// capacity, no party exceeds its limit, and in the end all slots are back.
func TestLaws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const capacity, each = 5, 3
		s := New(capacity, each, 100)
		check := func() {
			var all int64
			s.Each(func(name string, used int64, _ int) {
				if all += used; used > each || all > capacity {
					t.Errorf("%s has %d slots and all parties together have %d, want at most %d and %d",
						name, used, all, each, capacity)
				}
			})
		}
		for i := range 200 {
			name := fmt.Sprint(i % 7)
			go func() {
				n := 1 + rand.Int64N(each)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if rand.IntN(4) == 0 {
					go cancel()
				}
				if s.Take(ctx, name, n) == nil {
					check()
					s.Give(name, n)
				}
			}()
		}
		synctest.Wait()
		if s.used != 0 || len(s.parties) > 0 || len(s.wanting) > 0 {
			t.Errorf("in the end %d slots are taken by %v, want none", s.used, slices.Collect(func(yield func(string) bool) {
				for name := range s.parties {
					if !yield(name) {
						return
					}
				}
			}))
		}
	})
}

// TestLate has two slots. Party a holds both, and is late in some cases. Parties b and c request one
// slot each, and party a requests another slot.
func TestLate(t *testing.T) {
	for _, c := range []struct {
		why  string
		do   func(*Shares)
		want string // the parties that were served
	}{
		{"nobody is late", func(*Shares) {}, ""},
		{"another party gets the extra piece", func(s *Shares) { s.Late("a") }, "b"},
		{"there is one extra piece, however many are late", func(s *Shares) { s.Late("a"); s.Late("a") }, "b"},
		{"the extra piece passes on", func(s *Shares) { s.Late("a"); s.Give("b", 1) }, "bc"},
		{"the late party never gets it", func(s *Shares) { s.Late("a"); s.Give("b", 1); s.Give("c", 1) }, "bc"},
		{"a late piece, once returned, is not extra", func(s *Shares) { s.Late("a"); s.OnTime("a"); s.Give("a", 1) }, "b"},
		{"and what is given back after it is not",
			func(s *Shares) { s.Late("a"); s.OnTime("a"); s.Give("a", 1); s.Give("a", 1) }, "bc"},
		{"an end that overtakes its beginning", func(s *Shares) { s.OnTime("a"); s.Late("a") }, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(2, 2, 10)
			if err := s.Take(t.Context(), "a", 2); err != nil {
				t.Fatal(err)
			}
			ctx, leave := context.WithCancel(t.Context())
			var mu sync.Mutex // two parties may be served at the same time
			var got []byte
			for _, name := range []string{"b", "c", "a"} {
				go func() {
					if s.Take(ctx, name, 1) == nil {
						mu.Lock()
						defer mu.Unlock()
						got = append(got, name[0])
					}
				}()
				synctest.Wait()
			}
			c.do(s)
			synctest.Wait()
			if slices.Sort(got); string(got) != c.want {
				t.Errorf("%s: %q were served, want %q", c.why, got, c.want)
			}
			over := s.used > 2
			if s.used > 3 || over && !s.Wanted("a") {
				t.Errorf("%s: %d of 2 slots are taken and Wanted(a) is %v, want 2 slots, or 3 slots and true",
					c.why, s.used, s.Wanted("a"))
			}
			leave()
			synctest.Wait()
		})
	}
}
