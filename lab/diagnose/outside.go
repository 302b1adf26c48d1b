package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/core/diagnose"
)

// outside is a fault that comes from outside the process: from files, a cgroup, a setting or a client.
// Some rows only look like such a fault and do no harm.
type outside struct {
	cause string // the cause that must be named first, or `none`
	also  string // another right answer, or empty
	// Texts that the cause must contain. DIR is replaced by the data directory.
	says    []string
	args    []string                                        // flags of the server; DIR is replaced by the data directory
	quiet   bool                                            // the load has no DogStatsD
	mount   func(dir string) (undo func() error, err error) // undo runs after the server has ended
	prepare func(dir string) error
	begin   func(dir string, s *server) (undo func() error, err error) // called once the server is ready
	before  time.Duration                                              // how long the load runs before the client begins
	run     func(ctx context.Context, dir string, s *server) error     // runs the client until ctx is done
	wait    time.Duration                                              // time until the diagnosis; 0 means warmUp
}

// socket is the Unix datagram socket in the data directory.
const socket = "lab.sock"

// storeWait is the time until the first tile is due. This tile opens its store.
const storeWait = 20 * time.Second

// outsides are the faults from outside, by the name of their row. The load takes a fifth of a
// processor; its remote write alone takes an eighth.
var outsides = map[string]outside{
	"cpu_quota": {
		cause: diagnose.CPUThrottling, says: []string{"freshet-lab-", "0.08 processors", "Raise the quota"},
		begin: quota(0.08),
	},
	"cpu_quota_remote_write": {
		cause: diagnose.CPUThrottling, says: []string{"freshet-lab-", "0.05 processors", "Raise the quota"}, quiet: true,
		begin: quota(0.05),
	},
	"cpu_quota_unused": {cause: none, begin: quota(64)},

	"small_buffer": {
		cause: diagnose.KernelDrops, says: []string{"4KiB", "Raise dogstatsd.receive_buffer, which is 4KiB"},
		args: []string{"--dogstatsd-receive-buffer", "4KiB"},
	},
	"short_queue_unfilled": {
		cause: none, args: []string{"--dogstatsd-unixgram", "DIR/" + socket}, run: send("unixgram", "lab.fine:1|c"),
	},

	"store_at_start": {
		cause: diagnose.Stores, says: []string{"tenant default, store raw", "move the file DIR/tsdb/default/raw away"},
		prepare: fileAt("tsdb/default/raw"),
	},
	"store_10s_at_start": {
		cause: diagnose.Stores, says: []string{"tenant default, store 10s", "move the file DIR/tsdb/default/10s away"},
		prepare: fileAt("tsdb/default/10s"),
	},
	"store_while_running": {
		cause: diagnose.Stores, says: []string{"tenant default, store 10s", "move the file DIR/tsdb/default/10s away"},
		begin: blocking("tsdb/default/10s"), wait: storeWait,
	},
	"store_raw_while_running": {
		cause: diagnose.Stores, says: []string{"tenant default, store raw", "move the file DIR/tsdb/default/raw away"},
		begin: blocking("tsdb/default/raw"),
	},
	"store_of_a_tenant": {
		cause: diagnose.Stores, says: []string{"tenant b, store 10s", "move the file DIR/tsdb/b/10s away"},
		args: []string{"--config", "DIR/lab.yaml"}, prepare: tenantB, begin: blocking("tsdb/b/10s"),
		run: send("unixgram", "lab.b:1|c"), wait: storeWait,
	},
	"store_moved": {
		cause: diagnose.Stores,
		says:  []string{"tenant default, store raw", "move the directory back to DIR/tsdb/default/raw"},
		run:   moveRaw, wait: storeWait,
	},

	"disk_full": {
		cause: diagnose.Stores, also: diagnose.Disk,
		says:  []string{"tenant default, store raw", "no space left on device", "free some space on its disk"},
		mount: onMemory, before: warmUp, run: fill, wait: 15 * time.Second,
	},
	"disk_frozen": {
		cause: diagnose.Disk, also: diagnose.Stores, says: []string{"goroutines wait for it", "system calls took"},
		mount: onLoop, before: warmUp, run: freeze, wait: 15 * time.Second,
	},

	"malformed_udp": {
		cause: diagnose.Malformed, says: []string{"tenant default", "what 127.0.0.1:", "50 %", "lab.bad:one|c"},
		run: send("udp", "lab.good:1|c\nlab.bad:one|c"),
	},
	"malformed_unixgram": {
		cause: diagnose.Malformed,
		says:  []string{"tenant default", fmt.Sprintf("what process %d (", os.Getpid()), "50 %", "lab.bad:one|c"},
		args:  []string{"--dogstatsd-unixgram", "DIR/" + socket}, run: send("unixgram", "lab.good:1|c\nlab.bad:one|c"),
	},
	"malformed_once": {cause: none, run: sendOnce},

	// During the first two steps of ten seconds, a flood below every limit looks like the series of
	// a server that has just started.
	"cardinality_remote_write": {
		cause: diagnose.Cardinality,
		says:  []string{"tenant default, metric requests_total, label request, from 127.0.0.1 (shop/1)"}, run: floodSeries,
		wait: 32 * time.Second,
	},
	// During the first two minutes and three steps, growth looks like the new series of a server that
	// has just started.
	"growth": {
		cause: diagnose.Growth,
		says: []string{
			"tenant default, metric requests_total, label request, from 127.0.0.1 (shop/1)",
			"distributor.max_series (1,000,000) is reached in",
		},
		before: 2 * time.Minute, run: growSeries, wait: 42 * time.Second,
	},
	"queries": {
		cause: diagnose.Queries,
		says: []string{
			"tenant default asks sum by (pod) (rate(http_request_duration_seconds_bucket{job=~?,pod=~?}[?])), " +
				"from 127.0.0.1 (Grafana/12.1), dashboard lab, panel ", "of its queries wait",
		},
		before: 20 * time.Second, run: dashboards(40, 0), wait: 15 * time.Second,
	},
	"queries_few": {cause: none, before: 20 * time.Second, run: dashboards(1, time.Second)},
	"small_requests": {
		cause: diagnose.SmallRequests,
		says:  []string{"of tenant default, from 127.0.0.1 (tiny/1)", "max_samples_per_send: 2000 would make them"},
		run:   sendTiny(100, 0), wait: 15 * time.Second,
	},
	"small_requests_few": {cause: none, run: sendTiny(4, 50)},
}

// outsideNames are the rows in the order in which the table shows them.
var outsideNames = []string{
	"cpu_quota", "cpu_quota_remote_write", "cpu_quota_unused", "small_buffer", "short_queue_unfilled",
	"store_at_start", "store_10s_at_start", "store_while_running", "store_raw_while_running", "store_of_a_tenant",
	"store_moved",
	"disk_full", "disk_frozen",
	"malformed_udp", "malformed_unixgram", "malformed_once",
	"cardinality_remote_write", "growth", "queries", "queries_few", "small_requests", "small_requests_few",
}

// untriedError is the reason why a fault cannot be injected on this machine.
type untriedError struct{ error }

func in(dir, text string) string { return strings.ReplaceAll(text, "DIR", dir) }

// unsaid returns the expected texts that are missing in the cause that was named first.
func (o *outside) unsaid(dir string, found *diagnose.Diagnosis) (missing []string) {
	if len(found.Causes) == 0 {
		return nil // the row already shows that the cause is wrong
	}
	c := &found.Causes[0]
	text := c.Title + "\n" + c.Next
	for _, e := range c.Evidence {
		text += "\n" + e.What + "\n" + strings.Join(e.Figures, "\n")
	}
	for _, want := range o.says {
		if want = in(dir, want); !strings.Contains(text, want) {
			missing = append(missing, want)
		}
	}
	return missing
}

// quota puts the server into a cgroup that may use this number of processors.
func quota(cores float64) func(string, *server) (func() error, error) {
	const period = 100_000 // the period of the quota, in microseconds
	return func(_ string, s *server) (func() error, error) {
		name := fmt.Sprintf("freshet-lab-%d", s.cmd.Process.Pid)
		group, file, limit := filepath.Join("/sys/fs/cgroup/cpu", name), "cpu.cfs_quota_us", fmt.Sprint(int(cores*period))
		if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // version 2
			group, file, limit = filepath.Join("/sys/fs/cgroup", name), "cpu.max", fmt.Sprint(int(cores*period), period)
			// If this write fails, cpu.max does not exist, and writing cpu.max fails as well.
			_ = os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu"), 0)
		}
		if err := os.Mkdir(group, 0o755); err != nil {
			return nil, untriedError{fmt.Errorf("make a cgroup: %w", err)}
		}
		undo := func() error { return os.Remove(group) }
		err := os.WriteFile(filepath.Join(group, file), []byte(limit), 0)
		if err == nil {
			err = os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(fmt.Sprint(s.cmd.Process.Pid)), 0)
		}
		if err != nil {
			return nil, untriedError{errors.Join(fmt.Errorf("set the quota of a cgroup: %w", err), undo())}
		}
		return undo, nil
	}
}

// fileAt creates a file where the server expects a directory.
func fileAt(path string) func(dir string) error {
	return func(dir string) error {
		path := filepath.Join(dir, path)
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("in the way"), 0o600))
	}
}

// blocking does the same as fileAt while the server runs.
func blocking(path string) func(string, *server) (func() error, error) {
	return func(dir string, _ *server) (func() error, error) {
		return func() error { return nil }, fileAt(path)(dir)
	}
}

// tenantB makes the server listen for a second tenant.
func tenantB(dir string) error {
	text := in(dir, "dogstatsd: {listeners: [{network: unixgram, address: DIR/"+socket+", tenant: b}]}\n")
	return os.WriteFile(filepath.Join(dir, "lab.yaml"), []byte(text), 0o600)
}

// moveRaw moves the directory of the raw store away after the store has its series. If it moved the
// directory earlier, the server would open a new store with many series.
func moveRaw(ctx context.Context, dir string, _ *server) error {
	select {
	case <-time.After(storeWait / 2):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := os.Rename(filepath.Join(dir, "tsdb/default/raw"), filepath.Join(dir, "away")); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// send sends a datagram 20 times a second.
func send(network, datagram string) func(context.Context, string, *server) error {
	return func(ctx context.Context, dir string, s *server) error {
		address := s.UDP
		if network == "unixgram" {
			address = filepath.Join(dir, socket)
		}
		conn, err := net.Dial(network, address)
		if err != nil {
			return err
		}
		defer conn.Close()
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			if _, err := conn.Write([]byte(datagram)); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return ctx.Err()
			}
		}
	}
}

// sendOnce sends one malformed line during the record, as a user does when trying something out.
func sendOnce(ctx context.Context, _ string, s *server) error {
	conn, err := net.Dial("udp", s.UDP)
	if err != nil {
		return err
	}
	defer conn.Close()
	select {
	case <-time.After(warmUp + 2*time.Second):
		_, err = conn.Write([]byte("lab.bad:one|c"))
	case <-ctx.Done():
	}
	return errors.Join(err, ctx.Err())
}
