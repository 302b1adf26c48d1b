package run

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// If RUN_TEST_WAIT is set, TestMain is the process to which TestWithSignals sends signals.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_TEST_WAIT") == "" {
		os.Exit(m.Run())
	}
	ctx, _ := WithSignals(context.Background())
	fmt.Println("running")
	<-ctx.Done()
	fmt.Println(context.Cause(ctx))
	time.Sleep(time.Hour) // a drain that does not end
}

// GNU timeout and supervisord signal a process and its group, so each stop arrives twice. The
// second signal used to skip the drain.
func TestASecondSignalSoonIsTheSameStop(t *testing.T) {
	type sent struct {
		after  time.Duration // time since the first signal
		signal syscall.Signal
	}
	for _, tt := range []struct {
		name    string
		signals []sent
		again   syscall.Signal // the signal that ends the process at once; 0 if none does
		at      time.Duration
	}{
		{"a signal to the process and to its group", []sent{{0, syscall.SIGTERM}, {time.Millisecond, syscall.SIGTERM}}, 0, 0},
		{"one stop as two different signals", []sent{{0, syscall.SIGINT}, {100 * time.Millisecond, syscall.SIGTERM}}, 0, 0},
		{"a signal just before SameStop ends", []sent{{0, syscall.SIGTERM}, {SameStop - 1, syscall.SIGTERM}}, 0, 0},
		{"a person who has waited", []sent{{0, syscall.SIGTERM}, {SameStop, syscall.SIGINT}}, syscall.SIGINT, SameStop},
		{"signals that are ignored do not prolong the time",
			[]sent{{0, syscall.SIGTERM}, {time.Second, syscall.SIGTERM}, {3 * time.Second, syscall.SIGTERM}}, syscall.SIGTERM,
			3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				signals := make(chan os.Signal)
				begun := time.Now()
				go func() {
					for _, s := range tt.signals {
						time.Sleep(s.after - time.Since(begun)) // on synctest's clock
						select {
						case signals <- s.signal:
						case <-ctx.Done():
						}
					}
				}()
				var stops []os.Signal
				again, ok := watch(ctx, signals, func(s os.Signal) { stops = append(stops, s) }, func() bool { return false })
				if len(stops) != 1 || stops[0] != tt.signals[0].signal {
					t.Errorf("the stops are %v, want %v once", stops, tt.signals[0].signal)
				}
				if ok != (tt.again != 0) || ok && (again != tt.again || time.Since(begun) != tt.at) {
					t.Errorf("watch returned the second signal %v (%t) after %v, want %v after %v",
						again, ok, time.Since(begun), tt.again, tt.at)
				}
			})
		})
	}
}

// A process that waits before it drains is hurried by a second signal, which may come twice, too. After that, the next
// one ends it at once.
func TestASecondSignalHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal)
		go func() {
			for _, after := range []time.Duration{0, SameStop / 2, SameStop, 0, SameStop / 2, SameStop} {
				time.Sleep(after) // on synctest's clock
				signals <- syscall.SIGTERM
			}
		}()
		waits, hurried, begun := true, time.Duration(0), time.Now()
		hurry := func() bool {
			was := waits
			if waits = false; was {
				hurried = time.Since(begun)
			}
			return was
		}
		_, ok := watch(t.Context(), signals, func(os.Signal) {}, hurry)
		if ended := time.Since(begun); !ok || hurried != 3*time.Second || ended != 6*time.Second {
			t.Errorf("the wait ended after %v, and the process after %v (%t)", hurried, ended, ok)
		}
	})
}

// The process drains after the first signal, and a later signal ends it at once. The test repeats the
// second signal until the process ends.
func TestWithSignals(t *testing.T) {
	for _, tt := range []struct {
		first, second syscall.Signal
		says          string
		status        int
	}{
		{syscall.SIGTERM, syscall.SIGTERM, "received terminated\n", 143},
		{syscall.SIGINT, syscall.SIGINT, "received interrupt\n", 130},
		{syscall.SIGTERM, syscall.SIGINT, "received terminated\n", 130},
	} {
		t.Run(tt.first.String()+", "+tt.second.String(), func(t *testing.T) {
			t.Parallel() // the test mostly waits
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), "RUN_TEST_WAIT=1")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(out)
			if got, err := lines.ReadString('\n'); err != nil || got != "running\n" {
				t.Fatalf("printed %q, %v", got, err)
			}
			begun := time.Now()
			if err := cmd.Process.Signal(tt.first); err != nil {
				t.Fatal(err)
			}
			if got, err := lines.ReadString('\n'); err != nil || got != tt.says {
				t.Fatalf("the process printed %q, %v; want %q", got, err, tt.says)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = io.Copy(io.Discard, lines)
			}()
			for again := time.NewTicker(50 * time.Millisecond); ; {
				select {
				case <-again.C:
					_ = cmd.Process.Signal(tt.second) // fails if the process has ended
					continue
				case <-ended:
					again.Stop()
				}
				break
			}
			_ = cmd.Wait() // the error only holds the exit status, which is checked below
			if got := cmd.ProcessState.ExitCode(); got != tt.status {
				t.Errorf("exit status %d, want %d", got, tt.status)
			}
			if drained := time.Since(begun); drained < SameStop {
				t.Errorf("the process ended %v after the first signal, want it to drain", drained)
			}
		})
	}
}

func TestWithSignalsEnds(t *testing.T) {
	ctx, stop := WithSignals(t.Context())
	stop()
	stop()
	if ctx.Err() == nil {
		t.Error("the context has not ended")
	}
}
