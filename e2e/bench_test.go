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

// benchAnswer is the output of `freshet bench dogstatsd --json`, as far as these tests read it.
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

// The ledger of the receiver that bench starts accounts for everything that bench sent, and
// no figure is missing.
func TestBenchClosesTheBooks(t *testing.T) {
	for _, network := range []string{"udp", "unixgram"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			a := bench(t, "--duration", "1s", "--rate", "20000", "--to", network)
			if len(a.Runs) != 1 || a.Load.Network != network {
				t.Fatalf("unexpected answer: %+v", a)
			}
			r := a.Runs[0]
			if r.SentSamples == 0 || r.ReceivedSamples != r.SentSamples-r.LostSamples ||
				r.ReceivedPackets != r.SentPackets-r.KernelDropped {
				t.Errorf("the books do not close: %+v", r)
			}
			var kinds uint64
			for _, n := range r.SentByKind {
				kinds += n
			}
			if kinds != r.SentSamples || len(r.SentByKind) != 6 {
				t.Errorf("the kinds add up to %d samples, want %d of six kinds: %v", kinds, r.SentSamples, r.SentByKind)
			}
			for _, figure := range []string{"cpu_us_per_metric", "sent_metrics_per_second", "resident_bytes"} {
				one, all := r.Measured[figure], a.Measured[figure]
				if one <= 0 || all.Median != one || all.Lowest != one || all.Highest != one {
					t.Errorf("%s over all runs is %+[3]v, want %[2]v as in the only run", figure, one, all)
				}
			}
			if sum := r.Measured["cpu_user_us_per_metric"] + r.Measured["cpu_system_us_per_metric"]; sum <
				0.99*r.Measured["cpu_us_per_metric"] || sum > 1.01*r.Measured["cpu_us_per_metric"] {
				t.Errorf("user and system time add up to %v, want the value of cpu_us_per_metric in %v",
					sum, r.Measured)
			}
		})
	}
}

// The ledger also has no difference if the receiver cannot keep up: the kernel's count of
// dropped packets explains every sample that did not arrive.
func TestBenchCountsWhatTheKernelDropped(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t), "--dogstatsd-receive-buffer", "4KiB")
	r := bench(t, "--server", "http://"+p.HTTP, "--rate", "max", "--duration", "200ms").Runs[0]
	if r.KernelDropped == 0 || r.LostSamples == 0 {
		t.Errorf("no packet was lost, so this test checks nothing: %+v", r)
	}
	if r.ReceivedPackets+r.KernelDropped != r.SentPackets || r.ReceivedSamples+r.LostSamples != r.SentSamples {
		t.Errorf("the books do not close: %+v", r)
	}
}

// Bench reports a mistake in the receiver's flags as a mistake in its own command line, with the text
// that serve prints.
func TestBenchReportsMistakesInTheReceiversFlags(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(freshet, "bench", "dogstatsd", "--", "--nonsense").CombinedOutput()
	failed := (*exec.ExitError)(nil)
	if !errors.As(err, &failed) || failed.ExitCode() != 2 ||
		string(out) != "freshet: flags behind --: unknown flag: --nonsense; see freshet serve --help\n" {
		t.Errorf("bench with a wrong flag ended with %v, want exit status 2 and the error of the flag: %s", err, out)
	}
}

// Bench refuses a server that probes itself, since the ledger cannot separate the server's probes
// from bench's samples.
func TestBenchRefusesAServerThatProbes(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t), "--self-probe")
	out, err := exec.Command(freshet, "bench", "dogstatsd", "--server", "http://"+p.HTTP, "--duration",
		"1s").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "start it with --self-probe=false") {
		t.Errorf("bench of a server that probes ended with %v, want an error that names the flag: %s", err, out)
	}
}

// Bench starts a receiver that has all roles and does not probe itself.
func TestBenchOfAllRoles(t *testing.T) {
	t.Parallel()
	a := bench(t, "--role", "all", "--rate", "20000", "--duration", "1s")
	if len(a.Runs) != 1 || a.Runs[0].SentPackets == 0 {
		t.Errorf("nothing was sent: %+v", a)
	}
}

// Bench removes its directory even if its terminal, or the pipe that it writes to, is closed.
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
					return errors.New("there is no directory")
				}
				return nil
			})
			if err := end(cmd, reading); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("bench ended with %v, want exit status 1", err)
			}
			if all := left(); len(all) > 0 {
				t.Errorf("bench did not remove %v", all)
			}
		})
	}
}

// A query returns the increments of all counters that bench sent.
func TestBenchCountersAddUp(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	r := bench(t, "--server", "http://"+p.HTTP, "--to", "unixgram", "--contexts", "100", "--rate", "10000", "--duration",
		"200ms").Runs[0]
	if r.LostSamples != 0 || len(r.NotKept) != 0 {
		t.Fatalf("unexpected run: %+v", r)
	}
	eventually(t, 30*time.Second, "queries return all increments", func() error {
		sum, err := p.value(`sum({__name__=~"bench_requests_.*"})`)
		if err == nil && sum != float64(r.CounterIncrements) {
			err = fmt.Errorf("the counters add up to %v, but bench sent %d", sum, r.CounterIncrements)
		}
		return err
	})
}
