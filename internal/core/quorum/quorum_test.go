package quorum

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/core/outcome"
)

// script is a job for replicas that each do as it says.
type script struct {
	t       *testing.T
	began   time.Time
	memory  []byte // what Done frees, which the race detector watches
	replica func(n int) (outcome.Outcome, error)

	mu       sync.Mutex
	running  int
	failures []error
	done     time.Duration // after it began
	freed    int           // how often
}

func newScript(t *testing.T, replica func(n int) (outcome.Outcome, error)) *script {
	return &script{t: t, began: time.Now(), memory: []byte("request"), replica: replica}
}

func (s *script) Write(n int) (outcome.Outcome, error) {
	s.enter(1)
	defer s.enter(-1)
	defer func() {
		if string(s.memory) != "request" {
			s.t.Errorf("replica %d reads %q", n, s.memory)
		}
	}()
	return s.replica(n)
}

func (s *script) enter(more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running += more
}

func (s *script) Failed(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed > 0 {
		s.t.Errorf("replica %d failed after Done", n)
	}
	s.failures = append(s.failures, err)
}

func (s *script) Done() {
	clear(s.memory)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running > 0 {
		s.t.Errorf("Done while %d replicas write", s.running)
	}
	s.done = time.Since(s.began)
	s.freed++
}

// end is what Failed and Done were told so far.
func (s *script) end() (failures []error, done time.Duration, freed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures, s.done, s.freed
}

// numbers are replicas, each of which is its number.
func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

const parts = 10 // of the request that is written

// refusing is the outcome of a replica that refuses so much of a request.
func refusing(n int) (o outcome.Outcome) {
	o.Written.Samples = parts - n
	if n > 0 {
		o.Refuse(outcome.TooOld, outcome.Counts{Samples: n})
		o.Tell("up", errors.New("cause"))
	}
	return o
}

var errFault = errors.New("out of order")

// answers of replicas, as letters: one that writes says how much it refuses.
const (
	mistake = 'm'
	fault   = 'f'
)

func say(letter byte) (outcome.Outcome, error) {
	switch letter {
	case mistake:
		return outcome.Outcome{}, fmt.Errorf("replica: %w", &MistakeError{errors.New("malformed")})
	case fault:
		return outcome.Outcome{}, errFault
	}
	return refusing(int(letter - '0')), nil
}

// reference says after how many of the answers, in the order in which they come, a write
// returns and what: a mistake, a fault, or a letter of what is refused.
func reference(answers string) (after int, result byte) {
	all, quorum := len(answers), len(answers)/2+1
	for after = 1; ; after++ {
		heard := answers[:after]
		m, f := strings.Count(heard, "m"), strings.Count(heard, "f")
		writers := strings.NewReplacer("m", "", "f", "").Replace(heard)
		switch {
		case len(writers) == quorum:
			return after, slices.Max([]byte(writers))
		case all-m < quorum, after == all && m >= f:
			return after, mistake
		case all-f < quorum, after == all:
			return after, fault
		}
	}
}

// Every sequence of answers, of replicas that say one thing a second, against the reference.
// The order of the replicas is that of their answers: which one it is does not matter.
func TestEveryOrderOfAnswers(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		for _, answers := range sequences("03mf", n) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(t, func(n int) (outcome.Outcome, error) {
					time.Sleep(time.Duration(n+1) * time.Second)
					return say(answers[n])
				})
				after, want := reference(answers)
				o, err := Write(numbers(n), s)
				if took := time.Since(s.began); took != time.Duration(after)*time.Second {
					t.Errorf("%s: returns after %v, want %d answers", answers, took, after)
				}
				if got := letter(o, err); got != want {
					t.Errorf("%s: %c (%+v, %v), want %c", answers, got, o, err, want)
				}
				if n > 1 && errors.Is(err, ErrNotReached) != (err != nil) {
					t.Errorf("%s: error %v", answers, err)
				}
				time.Sleep(time.Minute)
				failures, done, freed := s.end()
				if freed != 1 || done != time.Duration(n)*time.Second || len(failures) != strings.Count(answers, "m")+strings.Count(answers, "f") {
					t.Errorf("%s: done %d times, after %v, failures %v", answers, freed, done, failures)
				}
			})
		}
	}
}

// sequences are all of length n.
func sequences(of string, n int) (all []string) {
	if n == 0 {
		return []string{""}
	}
	for _, rest := range sequences(of, n-1) {
		for _, c := range of {
			all = append(all, rest+string(c))
		}
	}
	return all
}

// letter is say's inverse.
func letter(o outcome.Outcome, err error) byte {
	var m *MistakeError
	switch {
	case errors.As(err, &m):
		return mistake
	case err != nil:
		return fault
	}
	refused := o.AllRefused()
	if o.Written.Samples+refused.Samples != parts {
		return '?'
	}
	return '0' + byte(refused.Samples)
}

// The cases that FACTS D.6 names, of which the last replica hangs for an hour if it can.
func TestAHangingReplicaIsNotWaitedFor(t *testing.T) {
	for _, c := range []struct {
		answers string
		want    byte
		took    time.Duration
	}{
		{"00_", '0', 0},
		{"03_", '3', 0}, // what one of the quorum refused is not acknowledged
		{"mm_", mistake, 0},
		{"f_f", fault, 0},
		{"0mf", mistake, 0}, // as many of both
		{"mff", fault, 0},
		{"0f_", fault, time.Hour}, // might have become a quorum
		{"mf_", fault, time.Hour}, // which family is larger was open
		{"f_", fault, 0},          // two of two must
		{"0_", fault, time.Hour},  // and the other one may still
		{"mmf__", fault, time.Hour},
		{"000__", '0', 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(t, func(n int) (outcome.Outcome, error) {
				if c.answers[n] == '_' {
					time.Sleep(time.Hour)
					return say(fault)
				}
				return say(c.answers[n])
			})
			o, err := Write(numbers(len(c.answers)), s)
			if got, took := letter(o, err), time.Since(s.began); got != c.want || took != c.took {
				t.Errorf("%s: %c after %v: %v", c.answers, got, took, err)
			}
			time.Sleep(2 * time.Hour)
			last := time.Hour
			if !strings.Contains(c.answers, "_") {
				last = 0
			}
			if _, done, freed := s.end(); freed != 1 || done != last {
				t.Errorf("%s: done %d times, after %v", c.answers, freed, done)
			}
		})
	}
}

// Write has no way to give up but those of its replicas, whose time is theirs to bound.
func TestWhatEndsTheReplicasEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s := newScript(t, func(int) (outcome.Outcome, error) {
			<-ctx.Done()
			return outcome.Outcome{}, context.Cause(ctx)
		})
		if _, err := Write(numbers(3), s); !errors.Is(err, context.DeadlineExceeded) || time.Since(s.began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(s.began))
		}
	})
}

// A panic costs a replica, and no waiter waits for its answer.
func TestAPanicIsAnError(t *testing.T) {
	for _, c := range []struct {
		why  string
		bad  func() (outcome.Outcome, error)
		want string
	}{
		{"a panic", explode, "panic: BUG: a test"},
		{"the end of the goroutine", func() (outcome.Outcome, error) { runtime.Goexit(); return outcome.Outcome{}, nil }, errEnded.Error()},
	} {
		for bad, want := range []string{"", "", "quorum not reached: 0 of 3 replicas have the write so far, and 2 must: " + c.want} {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(t, func(n int) (outcome.Outcome, error) {
					if n < bad {
						return c.bad()
					}
					time.Sleep(time.Second)
					return say('0')
				})
				_, err := Write(numbers(3), s)
				if (err != nil) != (want != "") || err != nil && err.Error() != want {
					t.Errorf("%s of %d replicas: %v, want %q", c.why, bad, err, want)
				}
				time.Sleep(time.Minute)
				failures, _, freed := s.end()
				if freed != 1 || len(failures) != bad {
					t.Errorf("%s of %d replicas: done %d times, failures %v", c.why, bad, freed, failures)
				}
				for _, err := range failures {
					var p *PanicError
					if err.Error() != c.want || errors.As(err, &p) && !bytes.Contains(p.Stack, []byte("quorum.explode")) {
						t.Errorf("%s: %+v", c.why, err)
					}
				}
			})
		}
	}
}

func explode() (outcome.Outcome, error) { panic("BUG: a test") }

// A replica that is alone is a call: its panic is the caller's, and the memory is free.
func TestOneReplicaIsCalledStraight(t *testing.T) {
	s := newScript(t, func(int) (outcome.Outcome, error) { return explode() })
	func() {
		defer func() {
			if p := recover(); p != "BUG: a test" {
				t.Errorf("panic %v", p)
			}
		}()
		_, _ = Write(numbers(1), s)
	}()
	if s.freed != 1 {
		t.Errorf("done %d times", s.freed)
	}
}

func TestNoReplica(t *testing.T) {
	s := newScript(t, nil)
	if _, err := Write(nil, s); !errors.Is(err, ErrNotReached) || s.freed != 1 {
		t.Errorf("%v, done %d times", err, s.freed)
	}
}

// quick is a job that is done at once.
type quick struct{ written, done int }

func (q *quick) Write(int) (outcome.Outcome, error) { q.written++; return outcome.Outcome{}, nil }
func (q *quick) Failed(int, error)                  {}
func (q *quick) Done()                              { q.done++ }

func TestOneReplicaDoesNotAllocate(t *testing.T) {
	replicas, q := numbers(1), new(quick)
	if n := testing.AllocsPerRun(100, func() { _, _ = Write(replicas, q) }); n != 0 || q.written != q.done {
		t.Errorf("%v allocations, %d written, %d done", n, q.written, q.done)
	}
}

// still is quick for several goroutines.
type still struct{}

func (still) Write(int) (outcome.Outcome, error) { return outcome.Outcome{}, nil }
func (still) Failed(int, error)                  {}
func (still) Done()                              {}

// BenchmarkWrite is what it costs to write to replicas that take no time.
//
// Bound: 0 allocs/op with one replica. With three 20 us, which for the 2000 samples of a
// request are 10 ns each, so that goroutines need no pool.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("replicas=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			replicas := numbers(n)
			for b.Loop() {
				if _, err := Write(replicas, still{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
