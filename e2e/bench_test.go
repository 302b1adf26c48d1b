package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// benchAnswer is what `freshet bench dogstatsd --json` says, as far as it is looked at.
type benchAnswer struct {
	Load struct {
		Network          string
		MetricsPerPacket uint64 `json:"metrics_per_packet"`
	}
	Runs []struct {
		SentPackets       uint64            `json:"sent_packets"`
		SentSamples       uint64            `json:"sent_samples"`
		SentByKind        map[string]uint64 `json:"sent_samples_by_kind"`
		CounterIncrements uint64            `json:"sent_counter_increments"`
		ReceivedPackets   uint64            `json:"received_packets"`
		ReceivedSamples   uint64            `json:"received_samples"`
		KernelDropped     uint64            `json:"kernel_dropped_packets"`
		LostSamples       uint64            `json:"lost_samples"`
		NotKept           map[string]uint64 `json:"received_not_kept_samples"`
		Measured          map[string]float64
	}
	Measured map[string]struct{ Median, Lowest, Highest float64 }
}

// bench runs the command, which must end with exit code 0.
func bench(t *testing.T, args ...string) (a benchAnswer) {
	t.Helper()
	out, err := exec.Command(freshet, append([]string{"bench", "dogstatsd", "--json"}, args...)...).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		t.Fatalf("bench %v: %v, %s", args, err, failed.Stderr)
	}
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	if err != nil {
		t.Fatalf("bench %v: %v in %s", args, err, out)
	}
	return a
}

// The books of a receiver that bench starts close over what it sent, and every
// figure is there.
func TestBenchClosesTheBooks(t *testing.T) {
	for _, network := range []string{"udp", "unixgram"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			a := bench(t, "--duration", "1s", "--rate", "20000", "--to", network)
			if len(a.Runs) != 1 || a.Load.Network != network {
				t.Fatalf("%+v", a)
			}
			r := a.Runs[0]
			if r.SentSamples == 0 || r.ReceivedSamples != r.SentSamples-r.LostSamples || r.ReceivedPackets != r.SentPackets-r.KernelDropped {
				t.Errorf("the books do not close: %+v", r)
			}
			var kinds uint64
			for _, n := range r.SentByKind {
				kinds += n
			}
			if kinds != r.SentSamples || len(r.SentByKind) != 6 {
				t.Errorf("%d samples by kind: %v", kinds, r.SentByKind)
			}
			for _, figure := range []string{"cpu_us_per_metric", "sent_metrics_per_second", "resident_bytes"} {
				one, all := r.Measured[figure], a.Measured[figure]
				if one <= 0 || all.Median != one || all.Lowest != one || all.Highest != one {
					t.Errorf("%s is %v, over all runs %+v", figure, one, all)
				}
			}
			if sum := r.Measured["cpu_user_us_per_metric"] + r.Measured["cpu_system_us_per_metric"]; sum < 0.99*r.Measured["cpu_us_per_metric"] || sum > 1.01*r.Measured["cpu_us_per_metric"] {
				t.Errorf("user and system are %v together: %v", sum, r.Measured)
			}
		})
	}
}

// A receiver that cannot keep up loses packets, and the kernel's count of them makes
// up for all that did not come.
func TestBenchCountsWhatTheKernelDropped(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t), "--dogstatsd-receive-buffer", "4KiB")
	r := bench(t, "--server", "http://"+p.HTTP, "--rate", "max", "--duration", "200ms").Runs[0]
	if r.KernelDropped == 0 || r.LostSamples == 0 {
		t.Errorf("nothing was lost: %+v", r)
	}
	if r.ReceivedPackets+r.KernelDropped != r.SentPackets || r.ReceivedSamples+r.LostSamples != r.SentSamples {
		t.Errorf("the books do not close: %+v", r)
	}
}

// A mistake in the receiver's flags is one on the command line, told in its words.
func TestBenchTellsMistakesInTheReceiversFlags(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(freshet, "bench", "dogstatsd", "--", "--nonsense").CombinedOutput()
	failed := (*exec.ExitError)(nil)
	if !errors.As(err, &failed) || failed.ExitCode() != 2 || string(out) != "freshet: flags behind --: unknown flag: --nonsense; see freshet serve --help\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// The books of a server that sends itself something do not tell whose it is.
func TestBenchWantsAServerThatDoesNotProbe(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t), "--self-probe")
	out, err := exec.Command(freshet, "bench", "dogstatsd", "--server", "http://"+p.HTTP, "--duration", "1s").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "start it with --self-probe=false") {
		t.Errorf("%v: %s", err, out)
	}
}

// A receiver that stores has no such probes.
func TestBenchOfAllRoles(t *testing.T) {
	t.Parallel()
	a := bench(t, "--role", "all", "--rate", "20000", "--duration", "1s")
	if len(a.Runs) != 1 || a.Runs[0].SentPackets == 0 {
		t.Errorf("%+v", a)
	}
}

// Neither a terminal that is closed nor a pipe that nobody reads leaves a directory.
func TestBenchLeavesNothingBehind(t *testing.T) {
	for name, end := range map[string]func(*exec.Cmd, *os.File) error{
		"hangup":      func(c *exec.Cmd, _ *os.File) error { return c.Process.Signal(syscall.SIGHUP) },
		"closed pipe": func(_ *exec.Cmd, out *os.File) error { return out.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			reading, writing, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(freshet, "bench", "dogstatsd", "--rate", "20000", "--duration", "1s")
			cmd.Env, cmd.Stdout = append(os.Environ(), "TMPDIR="+dir), writing
			if err := errors.Join(cmd.Start(), writing.Close()); err != nil {
				t.Fatal(err)
			}
			left := func() []os.DirEntry { all, _ := os.ReadDir(dir); return all }
			eventually(t, 30*time.Second, "the receiver has a directory", func() error {
				if len(left()) == 0 {
					return errors.New("it has none")
				}
				return nil
			})
			if err := end(cmd, reading); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("it ended with %v, want exit status 1", err)
			}
			if all := left(); len(all) > 0 {
				t.Errorf("%v is left", all)
			}
		})
	}
}

// The increments of all counters are what the store answers.
func TestBenchKnowsTheSumOfItsCounters(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	r := bench(t, "--server", "http://"+p.HTTP, "--to", "unixgram", "--contexts", "100", "--rate", "10000", "--duration", "200ms").Runs[0]
	if r.LostSamples != 0 || len(r.NotKept) != 0 {
		t.Fatalf("%+v", r)
	}
	eventually(t, 30*time.Second, "all counters are there", func() error {
		sum, err := p.value(`sum({__name__=~"bench_requests_.*"})`)
		if err == nil && sum != float64(r.CounterIncrements) {
			err = fmt.Errorf("their sum is %v, %d was sent", sum, r.CounterIncrements)
		}
		return err
	})
}
