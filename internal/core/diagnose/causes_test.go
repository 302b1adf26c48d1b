package diagnose

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/record"
)

// healthy returns five seconds of a healthy server with some load: it uses 0.4 of 2 processors.
func healthy() *moment {
	return &moment{
		File: &record.File{Record: record.Record{
			GOMAXPROCS: 2,
			Runtime: map[string]record.Values{
				"/sched/goroutines:goroutines":         {Begin: 70, End: 70},
				"/sched/goroutines-created:goroutines": {Begin: 1000, End: 3000},
				"/gc/heap/allocs:bytes":                {End: 25e6},
			},
			Spreads: map[string]record.Spread{"/sched/latencies:seconds": {Count: 1e4, P50: 1e-5, P99: 5e-4, Max: .01}},
		}},
		seconds: 5,
		missing: map[string]string{},
		cpu: profiled{
			cpu(1.9, "main.serve"), cpu(.05, "runtime.mallocgc", "main.serve"), cpu(.05, "runtime.gcBgMarkWorker"),
		},
		goroutines: profiled{{stack: stack{"runtime.gopark", "main.serve"}, count: 70, value: 70}},
		trace:      traced{seconds: 4},
	}
}

// cpu returns a stack with this many seconds of processor time.
func cpu(seconds float64, calls ...string) sampled {
	return sampled{stack: calls, count: 100 * seconds, value: 1e9 * seconds}
}

// times returns a stack that occurred n times and lasted for the duration each time.
func times(n int, each time.Duration, calls ...string) sampled {
	return sampled{stack: calls, count: float64(n), value: float64(n) * float64(each)}
}

func text(t *testing.T, lines string) samples {
	t.Helper()
	s, err := readSamples([]byte(strings.TrimLeft(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// changed returns a healthy server with one change.
func changed(change func(*moment)) *moment {
	m := healthy()
	change(m)
	return m
}

// cluster returns a node of a healthy cluster, with changes. Its clocks are not known.
func cluster(leader string, changes ...func(*moment)) *moment {
	m := healthy()
	m.Node = "a"
	m.cluster = record.Cluster{Cluster: "1f", Leader: leader}
	for _, name := range []string{"a", "b", "c"} {
		m.cluster.Nodes = append(m.cluster.Nodes, record.Node{Name: name, Lag: new(0.1), LogAppend: new(0.01)})
	}
	for _, change := range changes {
		change(m)
	}
	return m
}

// quota returns the quota of a cgroup over five seconds.
func quota(cores, periods, throttled, stood float64) []record.CPUQuota {
	return []record.CPUQuota{{
		Cgroup: "/sys/fs/cgroup/unit", File: "/sys/fs/cgroup/unit/cpu.max", Cores: cores,
		Periods: record.Values{Begin: 1000, End: 1000 + periods}, Throttled: record.Values{Begin: 40, End: 40 + throttled},
		Stood: record.Values{Begin: 3, End: 3 + stood},
	}}
}

// The evidence names the cgroup, its file and its figures. The advice points to other processes
// in the cgroup if they use most of the quota.
func TestThrottlingSaysWho(t *testing.T) {
	m := changed(func(m *moment) {
		m.CPUQuotas = append(quota(0.2, 159, 156, 18), quota(8, 50, 0, 0)...)
		m.CPUQuotas[1].Cgroup = "/sys/fs/cgroup"
	})
	f := cpuThrottling(m)
	const want = "cgroup /sys/fs/cgroup/unit may use 0.2 processors (/sys/fs/cgroup/unit/cpu.max): " +
		"it was throttled in 156 of 159 periods (98 %), " +
		"and in 90 % of the time in which it had work, 18s on all processors together; the process used 0.40 processors"
	if len(f.Evidence) != 1 || f.Evidence[0].What != want {
		t.Errorf("evidence: %+v", f.Evidence)
	}
	if !strings.Contains(f.Next, "Raise the quota: it is set in /sys/fs/cgroup/unit/cpu.max") ||
		strings.Contains(f.Next, "cgroup.procs") {
		t.Errorf("the process has used up the quota: advice %s, want advice to raise the quota", f.Next)
	}
	m.CPUQuotas[0].Cores = 1
	if f := cpuThrottling(m); !strings.Contains(f.Next, "cgroup.procs") {
		t.Errorf("other processes have used up the quota: advice %s, want cgroup.procs in it", f.Next)
	}
}

const (
	clearly = 2 // the score is Clear or more
	listed  = 1 // the score is at least Listed and below Clear
	fine    = 0
)

// The cases are records of each cause, and records that only resemble them.
func TestCauses(t *testing.T) {
	growth := []string{"runtime.copystack", "runtime.newstack", "runtime.morestack", "main.leaf", "main.deep"}
	held := []string{"sync.(*Mutex).Lock", ourModule + "internal/role/x.(*X).Push"}
	fsync := []string{
		"syscall.Fsync", "internal/poll.(*FD).Fsync", "os.(*File).Sync", ourModule + "internal/core/journal.(*Log).Sync",
	}
	drops := func(n string) string {
		return "freshet_dogstatsd_kernel_dropped_packets_total{listener=\"udp://127.0.0.1:8125\"} " + n +
			"\nfreshet_dogstatsd_packets_total 10000\n"
	}
	for _, c := range []struct {
		name  string
		look  func(*moment) finding
		m     *moment
		want  int
		title string // a part of the title
	}{
		{"a store that cannot be opened", stores, changed(func(m *moment) {
			m.end = text(t,
				"freshet_store_broken{tenant=\"b\",store=\"10s\"} 1\nfreshet_store_broken{tenant=\"b\",store=\"1m\"} 0\n")
			m.broken = []record.BrokenStore{{Tenant: "b", Store: "10s", Error: "not a directory", WayOut: "move the file away"}}
		}), clearly, "Stores that cannot be opened: 1"},
		{"a store that broke while open", stores, changed(func(m *moment) {
			m.broken = []record.BrokenStore{
				{Tenant: "b", Store: "10s", Error: "moved", WayOut: "move it back", Open: true},
				{Tenant: "b", Store: "raw", Error: "not a directory"},
			}
		}), clearly,
			"Stores that broke while open: 1; new samples are refused, or lost when the process ends; " +
				"and 1 that cannot be opened"},
		{"a broken store in an older record", stores,
			changed(func(m *moment) { m.end = text(t, "freshet_store_broken{tenant=\"b\",store=\"10s\"} 1\n") }), clearly,
			"Stores that cannot be opened: 1"},
		{"a log that a repair cut off", stores, changed(func(m *moment) {
			m.end = text(t, "freshet_store_wal_cut_bytes_total{tenant=\"b\",store=\"10s\"} 700\n")
		}), clearly, "were lost when the process started"},
		{"a journal that is missing", stores,
			changed(func(m *moment) { m.end = text(t, "freshet_aggregator_journal_missing 1\n") }), clearly,
			"were lost when the process started"},
		{"a store that hangs", stores, changed(func(m *moment) {
			m.end = text(t,
				"freshet_aggregator_pending_seconds{tenant=\"b\"} 300\nfreshet_aggregator_pending_seconds{tenant=\"a\"} 6\n")
		}), clearly, "Tenants whose store takes nothing: 1"},
		{"stores in order", stores, changed(func(m *moment) {
			m.end = text(t,
				"freshet_store_broken{tenant=\"b\",store=\"10s\"} 0\nfreshet_aggregator_journal_missing "+
					"0\nfreshet_aggregator_pending_seconds{tenant=\"a\"} 36\n")
		}), fine, ""},
		{"no cluster", parted, changed(func(m *moment) { m.cluster.Nodes = []record.Node{{Name: ""}} }), fine, ""},
		{"three nodes that work", parted, cluster("a"), fine, ""},
		{"a node that cannot be reached", parted, cluster("a", func(c *moment) { c.cluster.Nodes[2].Error = "timeout" }),
			clearly, "Nodes that cannot be reached: c; the others go on, and node a leads"},
		{"two nodes that cannot be reached", parted, cluster("", func(c *moment) {
			c.cluster.Nodes[1].Error, c.cluster.Nodes[2].Error = "timeout", "timeout"
		}), clearly, "The cluster has no leader, so it takes no writes; cannot be reached: b, c"},
		{"nodes that elect nobody", parted, cluster(""), clearly, "The cluster has no leader, though all nodes"},
		{"a slow node", slowNode, cluster("a", func(c *moment) {
			c.cluster.Nodes[1].Lag, c.cluster.Nodes[1].LogPins = new(12.0), []string{"shop/raw"}
		}), clearly, "A slow node: node b lags 12s behind, and its log is kept for shop/raw"},
		{"a node that lags a little", slowNode, cluster("a", func(c *moment) { c.cluster.Nodes[1].Lag = new(0.9) }),
			fine, ""},
		{"the last known lag of a node that cannot be reached", slowNode, cluster("a", func(c *moment) {
			c.cluster.Nodes[1].Error, c.cluster.Nodes[1].Lag = "timeout", new(60.0)
		}), fine, ""},
		{"a slow disk under the log", slowLog, cluster("a", func(c *moment) { c.cluster.Nodes[2].LogAppend = new(1.5) }),
			clearly, "A slow disk under the log of the group: node c: a write to the log took 1.5s"},
		{"a usual disk under the log", slowLog, cluster("a", func(c *moment) { c.cluster.Nodes[2].LogAppend = new(.1) }),
			fine, ""},
		{"a clock that is slow", apartClocks, cluster("a", func(c *moment) { c.cluster.Nodes[0].Ahead = new(-3.5) }),
			clearly, "Clocks apart: the clock of node a is 3.5s behind the median"},
		{"clocks that are not known", apartClocks, cluster("a"), fine, ""},
		{"stacks that grow", stackGrowth, changed(func(m *moment) { m.cpu = append(m.cpu, cpu(.4, growth...)) }), clearly,
			"most of it for main.leaf"},
		{"stacks that grow a little", stackGrowth, changed(func(m *moment) { m.cpu = append(m.cpu, cpu(.02, growth...)) }),
			fine, ""},
		{"newstack without a copy is a preempted goroutine",
			stackGrowth, changed(func(m *moment) { m.cpu = append(m.cpu, cpu(1, growth[1:]...)) }), fine, ""},
		{"half of almost no processor time", stackGrowth,
			changed(func(m *moment) { m.cpu = profiled{cpu(.05, growth...), cpu(.05, "main.serve")} }), fine, ""},

		{"garbage", garbage, changed(func(m *moment) {
			m.cpu = append(m.cpu, cpu(1, "runtime.mallocgc", "main.waste"),
				cpu(1, "runtime.scanobject", "runtime.gcBgMarkWorker"))
			m.Runtime["/gc/heap/allocs:bytes"] = record.Values{End: 5e9}
		}), clearly, "1 GB a second"},
		{"collection on idle processors costs nothing", garbage, changed(func(m *moment) {
			m.cpu = append(m.cpu, cpu(4, "runtime.gcDrainMarkWorkerIdle", "runtime.gcBgMarkWorker"))
		}), fine, ""},

		{"a lock that five wait for", lock, changed(func(m *moment) {
			m.block = profiled{times(250, 100*time.Millisecond, held...)}
			m.trace.holders = profiled{times(1, time.Second, "sync.(*Mutex).Unlock", "main.slow")}
		}), clearly, "; main.slow causes the most waiting"},
		{"a lock that is never released: no wait ends",
			lock, changed(func(m *moment) { m.goroutines = append(m.goroutines, sampled{stack: held, count: 40, value: 40}) }),
			clearly, ""},
		{"three goroutines that wait by chance", lock,
			changed(func(m *moment) { m.goroutines = append(m.goroutines, sampled{stack: held, count: 3, value: 3}) }), fine,
			""},
		{"goroutines that wait for work", lock, changed(func(m *moment) {
			m.block = profiled{
				times(250, time.Second, "runtime.chanrecv1", "main.work"),
				times(250, time.Second, "sync.(*Mutex).Lock", "sync.(*Cond).Wait", "main.work"),
			}
		}), fine, ""},
		{"a lock of the runtime", lock, changed(func(m *moment) {
			m.cpu = append(m.cpu, cpu(1.5, "runtime.futex", "runtime.lock2", "runtime.chansend", "main.send"))
		}), clearly, "inside Go's runtime"},

		{"a goroutine storm that waits", goroutines, changed(func(m *moment) {
			m.goroutines = append(m.goroutines,
				sampled{stack: stack{"runtime.gopark", "time.Sleep", "main.linger"}, count: 3e4, value: 3e4})
		}), clearly, "30,07"},
		{"a goroutine storm that ends", goroutines, changed(func(m *moment) {
			m.Runtime["/sched/goroutines-created:goroutines"] = record.Values{End: 5e5}
		}), clearly, "100,000 begin"},
		{"connections, and waiters for a lock and a disk", goroutines, changed(func(m *moment) {
			m.Runtime["/sched/goroutines:goroutines"] = record.Values{Begin: 9e4, End: 9e4}
			for _, s := range []stack{{"runtime.gopark", "internal/poll.runtime_pollWait", "net/http.(*conn).serve"}, held,
				fsync} {
				m.goroutines = append(m.goroutines, sampled{stack: s, count: 3e4, value: 3e4})
			}
		}), fine, ""},

		{"busy goroutines", starvation, changed(func(m *moment) {
			m.cpu = append(m.cpu, cpu(7, "main.busy"))
			m.Spreads["/sched/latencies:seconds"] = record.Spread{P99: .1}
			m.trace.runnable = 60
		}), clearly, "all 2 processors are busy; the process spends 78 % of its processor time in main.busy"},
		{"another process has the processors", starvation, changed(func(m *moment) {
			m.Spreads["/sched/latencies:seconds"] = record.Spread{P99: .1}
			m.trace.runnable = 60
		}), clearly, "gets 0.40 of 2 processors; other processes"},
		{"the machine stood still for a moment", starvation, changed(func(m *moment) {
			m.Spreads["/sched/latencies:seconds"] = record.Spread{P99: .3}
			m.trace.runnable = 4
		}), fine, ""},
		{"a long queue that moves on", starvation, changed(func(m *moment) { m.trace.runnable = 80 }), fine, ""},

		{"a quota that is used up in nearly every period",
			cpuThrottling, changed(func(m *moment) { m.CPUQuotas = quota(0.2, 159, 156, 13.2) }), clearly,
			"cgroup /sys/fs/cgroup/unit may use 0.2 processors, and was throttled in 156 of 159 periods"},
		{"a quota that short bursts reach", cpuThrottling, changed(func(m *moment) { m.CPUQuotas = quota(4, 50, 8, 0.05) }),
			fine, ""},
		{"periods that end just as the quota does", cpuThrottling,
			changed(func(m *moment) { m.CPUQuotas = quota(1, 50, 50, 0.05) }), fine, ""},
		{"a quota that is never reached", cpuThrottling, changed(func(m *moment) { m.CPUQuotas = quota(2, 50, 0, 0) }), fine,
			""},
		{"a quota that was used up before the record", cpuThrottling, changed(func(m *moment) {
			m.CPUQuotas = quota(2, 0, 0, 0)
			m.CPUQuotas[0].Throttled, m.CPUQuotas[0].Stood = record.Values{Begin: 900, End: 900},
				record.Values{Begin: 90, End: 90}
		}), fine, ""},

		{"a slow disk", disk,
			changed(func(m *moment) { m.trace.syscalls = profiled{times(8, 400*time.Millisecond, fsync...)} }), clearly,
			"a call takes 400ms"},
		{"a busy disk that keeps up", disk,
			changed(func(m *moment) { m.trace.syscalls = profiled{times(2e4, 100*time.Microsecond, fsync...)} }), fine, ""},
		{"a slow place beside a quick one", disk, changed(func(m *moment) {
			m.trace.syscalls = profiled{
				times(8, 300*time.Millisecond, fsync...),
				times(1e5, time.Microsecond, "syscall.write", "os.(*File).Write", storeModule+"tsdb/wlog.(*WL).flushPage"),
			}
		}), clearly, "a call takes 300ms"},
		{"a system call that waits for the network", disk, changed(func(m *moment) {
			m.trace.syscalls = profiled{times(8, 400*time.Millisecond, "internal/runtime/syscall.EpollWait", "net.(*conn).Read")}
		}), fine, ""},
		{"a slow disk and no trace", disk, changed(func(m *moment) {
			m.missing[record.Trace] = "lost"
			m.goroutines = append(m.goroutines, sampled{stack: fsync, count: 3, value: 3})
		}), clearly, "3 goroutines were in"},

		{"datagrams that found no room", kernelDrops,
			changed(func(m *moment) { m.begin, m.end = text(t, drops("100")), text(t, drops("9100")) }), clearly,
			"1,800 a second"},
		{"datagrams that found no room before the record",
			kernelDrops, changed(func(m *moment) { m.begin, m.end = text(t, drops("9100")), text(t, drops("9100")) }), fine, ""},

		{"a client that drops at the queue of a Unix socket",
			kernelDrops, changed(func(m *moment) { m.end = text(t, unixgram(1000, 1)) }), clearly,
			"Clients drop datagrams: 200 a second, 9.1 % of theirs, because the queue of unixgram:///run/s is full"},
		{"a short queue that is never full", kernelDrops, changed(func(m *moment) { m.end = text(t, unixgram(0, 1)) }), fine,
			""},

		{"a client with half of its lines malformed", malformed, changed(func(m *moment) {
			m.end = text(t, "freshet_dogstatsd_malformed_lines_total{listener=\"unixgram:///s\",reason=\"bad_value\"} 200\n")
			m.tops = readTops(t, `[{"tenant":"shop","malformed":[
				{"address":"10.0.0.9:7","lines_per_second":9000,"malformed_per_second":50,"share":0.0056,"reason":"no_type","example":"x"},
				{"process":{"pid":41,"uid":1000,"command":"till"},"lines_per_second":80,"malformed_per_second":40,"share":0.5,"reason":"bad_value","example":"sold:\u001bone|c"}]}]`)
		}), clearly, "Malformed lines: 50 % of what process 41 (till) sends, 40 lines a second"},
		{"malformed lines from before the table of senders was on", malformed, changed(func(m *moment) {
			m.end = text(t, "freshet_dogstatsd_malformed_lines_total{listener=\"udp://:8125\",reason=\"bad_value\"} 200\n"+
				"freshet_dogstatsd_samples_total{listener=\"udp://:8125\"} "+
				"200\nfreshet_dogstatsd_samples_total{listener=\"unixgram:///s\"} 99999\n")
		}), clearly, "Malformed lines: 50 % of what comes to udp://:8125, 40 lines a second"},
		{"malformed lines of a client that flushes every 10 s, and not during the record",
			malformed, changed(func(m *moment) {
				m.begin = text(t, "freshet_dogstatsd_malformed_lines_total{listener=\"udp://:8125\",reason=\"bad_value\"} 5000\n")
				m.end = m.begin
				m.tops = readTops(t,
					`[{"tenant":"shop","malformed":[],"malformed_by_listener":[{"listener":"udp://:8125","malformed_per_second":20,`+
						`"share":0.5,"reason":"bad_value"}]}]`)
			}), clearly, "Malformed lines: 50 % of what comes to udp://:8125, 20 lines a second"},
		{"few malformed lines of a sender with many lines", malformed, changed(func(m *moment) {
			m.tops = readTops(t,
				`[{"malformed":[{"address":"10.0.0.9:7","lines_per_second":9000,"malformed_per_second":50,"share":0.0056}]}]`)
		}), fine, ""},
		{"one malformed line by hand", malformed, changed(func(m *moment) {
			m.end = text(t, "freshet_dogstatsd_malformed_lines_total{listener=\"udp://:8125\",reason=\"bad_value\"} 1\n")
			m.tops = readTops(t,
				`[{"malformed":[{"address":"10.0.0.9:7","lines_per_second":0.2,"malformed_per_second":0.2,"share":1}]}]`)
		}), fine, ""},
		{"malformed lines of yesterday", malformed, changed(func(m *moment) {
			m.begin = text(t, "freshet_dogstatsd_malformed_lines_total{listener=\"udp://:8125\",reason=\"bad_value\"} 5000\n")
			m.end = m.begin
		}), fine, ""},

		{"a flood over a limit", cardinality, changed(func(m *moment) {
			m.end = text(t, "freshet_limit_samples_total{tenant=\"a\"} 5000\n")
			m.tops = readTops(t,
				`[{"tenant":"a","over_limits":[{"metric":"m","label":"l","values":7000,"sender":"10.0.0.1",`+
					`"limit":"limits.max_series"}]}]`)
		}), clearly, "1,000 samples a second are over a limit: metric m, label l, from 10.0.0.1"},
		{"a flood of remote write", cardinality, changed(func(m *moment) {
			m.end = text(t, "freshet_distributor_refused_total{reason=\"too_many_series\"} 5000\n")
		}), clearly, "1,000 samples a second"},
		{"samples refused for other reasons", cardinality, changed(func(m *moment) {
			m.end = text(t, "freshet_distributor_refused_total{reason=\"too_old\"} 5000\n")
		}), fine, ""},
		{"a deploy: many new series, and none over a limit", cardinality, changed(func(m *moment) {
			m.end = text(t, "prometheus_tsdb_head_series_created_total 30000\n")
		}), listed, "6,000 new ones a second"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := c.look(c.m)
			got := fine
			if f.Score >= Listed {
				got = listed
			}
			if f.Score >= Clear {
				got = clearly
			}
			if got != c.want || !strings.Contains(f.Title, c.title) {
				t.Errorf("score %.2f: %s\n%s\n%s", f.Score, f.Title, f.Because, f.fine)
			}
			if f.Name == "" || f.Title == "" || f.Because == "" || f.Next == "" || f.fine == "" {
				t.Errorf("the finding lacks a text: %+v", f)
			}
		})
	}
}

// A client that flushes every 10 s may send nothing while a record is made. Earlier malformed lines
// are reported, but are not a cause.
func TestMalformedLinesBeforeARecord(t *testing.T) {
	lines := "freshet_dogstatsd_malformed_lines_total{listener=\"udp://:8125\",reason=\"bad_value\"} 1200\n" +
		"freshet_dogstatsd_malformed_lines_total{listener=\"unixgram:///s\",reason=\"no_type\"} 34\n"
	f := malformed(changed(func(m *moment) { m.begin, m.end = text(t, lines), text(t, lines) }))
	want := "lines: 0 a second are malformed, and 1,234 since the start, most often bad_value from udp://:8125; " +
		"freshet top shows who sends them now"
	if f.Score != 0 || f.fine != want {
		t.Errorf("score %.2f: %s", f.Score, f.fine)
	}
	if f := malformed(changed(func(*moment) {})); f.fine != "lines: 0 a second are malformed" {
		t.Error(f.fine)
	}
}

// The evidence has tenant, sender, share and a line, without control characters.
func TestMalformedEvidence(t *testing.T) {
	f := malformed(changed(func(m *moment) {
		m.tops = readTops(t,
			`[{"tenant":"shop","malformed":[{"process":{"pid":41},"malformed_per_second":40,"share":0.5,"reason":"bad_value",`+
				`"example":"sold:\u001bone|c"}]}]`)
	}))
	want := []Evidence{{
		What:    "tenant shop, what process 41 sends: 40 malformed lines a second, 50 % of its lines",
		Figures: []string{`such as "sold:\x1bone|c" (bad_value)`},
	}}
	if !reflect.DeepEqual(f.Evidence, want) {
		t.Errorf("%+v", f.Evidence)
	}
}

// unixgram returns the /metrics of a Unix datagram socket whose clients report drops.
func unixgram(drops, tooSmall int) string {
	return fmt.Sprintf(`freshet_dogstatsd_kernel_dropped_packets_total{listener="unixgram:///run/s"} 0
freshet_dogstatsd_client_dropped_packets_total{listener="unixgram:///run/s"} %d
freshet_dogstatsd_packets_total{listener="unixgram:///run/s"} 10000
freshet_dogstatsd_setting_too_small{listener="unixgram:///run/s",setting="net.unix.max_dgram_qlen"} %d
`, drops, tooSmall)
}

// udp returns the /metrics of a UDP socket, and of a Unix datagram socket with the default queue,
// which is short.
func udp(drops, granted, wanted int) string {
	return fmt.Sprintf(`freshet_dogstatsd_kernel_dropped_packets_total{listener="udp://:8125"} %d
freshet_dogstatsd_client_dropped_packets_total{listener="udp://:8125"} 30
freshet_dogstatsd_packets_total{listener="udp://:8125"} 10000
freshet_dogstatsd_setting_too_small{listener="udp://:8125",setting="net.core.rmem_max"} 0
freshet_dogstatsd_receive_buffer_bytes{listener="udp://:8125"} %d
freshet_dogstatsd_receive_buffer_wanted_bytes{listener="udp://:8125"} %d
freshet_dogstatsd_kernel_dropped_packets_total{listener="unixgram:///run/s"} 0
freshet_dogstatsd_setting_too_small{listener="unixgram:///run/s",setting="net.unix.max_dgram_qlen"} 1
`, drops, granted, wanted)
}

// Evidence and advice are about the socket whose datagrams were dropped: the size of its receive
// buffer or the length of its queue, and the setting to change. They name no limit of other sockets.
func TestKernelDropsSayWhatIsTooSmall(t *testing.T) {
	for _, c := range []struct {
		name, end string
		want      []string
		never     []string
	}{
		{"a small buffer", udp(5000, 4096, 4096), []string{
			"the receive buffer of udp://:8125 has 4KiB",
			"listener udp://:8125: 5,000 datagrams dropped; its receive buffer (dogstatsd.receive_buffer) has 4KiB, " +
				"room for 9 short datagrams",
			"Raise dogstatsd.receive_buffer, which is 4KiB, to 4MiB",
		}, []string{"max_dgram_qlen", "rmem_max", "unixgram"}},
		{"a buffer that the kernel caps", udp(5000, 212992, 4<<20), []string{
			"has 208KiB", "dogstatsd.receive_buffer asks for 4MiB, and net.core.rmem_max caps it at 208KiB",
			"sysctl -w net.core.rmem_max=4194304",
		}, []string{"max_dgram_qlen", "unixgram"}},
		{"a buffer of usual size", udp(5000, 4<<20, 4<<20),
			[]string{"has 4MiB", "If datagrams come in bursts, raise dogstatsd.receive_buffer", "add dogstatsd.readers"},
			[]string{"max_dgram_qlen", "unixgram"}},
		{"a short queue", unixgram(5000, 1), []string{
			"5,000 datagrams dropped by clients, as their telemetry says (packets_dropped_writer); " +
				"net.unix.max_dgram_qlen is too small", "sysctl -w net.unix.max_dgram_qlen=512",
		}, []string{"rmem_max", "dogstatsd.receive_buffer"}},
		{"a long queue", unixgram(5000, 0), []string{"The queue is long enough"}, []string{"rmem_max", "max_dgram_qlen"}},
		{"an older record", "freshet_dogstatsd_kernel_dropped_packets_total{listener=\"udp://:8125\"} 5000\n",
			[]string{"If datagrams come in bursts, raise dogstatsd.receive_buffer"}, []string{" 0B", "room for"}},
	} {
		f := kernelDrops(changed(func(m *moment) { m.end = text(t, c.end) }))
		shown, err := json.Marshal(f.Cause)
		if err != nil || f.Score < Clear {
			t.Errorf("%s: score %v, %v", c.name, f.Score, err)
		}
		for _, want := range c.want {
			if !strings.Contains(string(shown), want) {
				t.Errorf("%s: %s does not say %q", c.name, shown, want)
			}
		}
		for _, never := range c.never {
			if strings.Contains(string(shown), never) {
				t.Errorf("%s: %s says %q", c.name, shown, never)
			}
		}
	}
}

// A healthy server has no cause.
func TestHealthy(t *testing.T) {
	for _, look := range looks {
		if f := look(healthy()); f.Score >= Listed {
			t.Errorf("%s has a score of %.2f: %s", f.Name, f.Score, f.Because)
		}
	}
}

// A cluster whose nodes work has no cause.
func TestHealthyCluster(t *testing.T) {
	for _, look := range looks {
		if f := look(cluster("b")); f.Score >= Listed {
			t.Errorf("%s has a score of %.2f: %s", f.Name, f.Score, f.Because)
		}
	}
}

// An effect ranks below its clear cause, however high the effect's score is. Without a clear cause
// the effect keeps its score.
func TestRank(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"a flood allocates", "garbage 1 cardinality 0.8", "cardinality 0.8 garbage 0.48"},
		{"garbage takes the processors, and the reader waits",
			"starvation 1 kernel_drops 1 garbage 0.9", "garbage 0.9 starvation 0.54 kernel_drops 0.32"},
		{"a cause that is not clear explains nothing", "kernel_drops 1 starvation 0.4", "kernel_drops 1 starvation 0.4"},
		{"a storm's stacks grow", "stack_growth 1 goroutines 0.6 starvation 1",
			"goroutines 0.6 stack_growth 0.36 starvation 0.36"},
		{"a quota stops the reader", "kernel_drops 1 starvation 0.7 cpu_throttling 0.9",
			"cpu_throttling 0.9 starvation 0.54 kernel_drops 0.32"},
		{"a quota that is reached at times explains no drops",
			"kernel_drops 1 cpu_throttling 0.4", "kernel_drops 1 cpu_throttling 0.4"},
		{"a start that a quota slows down", "cpu_throttling 1 cardinality 1 starvation 1",
			"cpu_throttling 1 cardinality 1 starvation 0.6"},
		{"garbage uses the quota up", "cpu_throttling 1 garbage 0.9", "garbage 0.9 cpu_throttling 0.54"},
		{"a lock is held during writes to a slow disk", "lock 1 disk 0.7", "disk 0.7 lock 0.42"},
		{"a node whose log is on a slow disk lags", "slow_node 1 slow_log 0.8", "slow_log 0.8 slow_node 0.48"},
		{"two unrelated causes", "lock 0.6 garbage 0.4", "lock 0.6 garbage 0.4"},
	} {
		causes := parseCauses(t, c.in)
		rank(causes)
		if got := causesText(causes); got != c.want {
			t.Errorf("%s: %q becomes %q, want %q", c.name, c.in, got, c.want)
		}
	}
}

// The effects have no cycles. In a cycle two causes would lower each other's scores.
func TestEffectsHaveNoCircles(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range effects {
		seen[e.cause] = true
		for _, effect := range e.effects {
			if seen[effect] {
				t.Errorf("%s is an effect of %s, which stands below it: put causes before their effects", effect, e.cause)
			}
		}
	}
}
