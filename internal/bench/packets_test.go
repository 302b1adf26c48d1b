package bench

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func TestBenchMistakesSayWhatToDo(t *testing.T) {
	for args, want := range map[string]string{
		"--rate fast":                          "is not a rate; write a number of metrics a second, or max",
		"--rate 0":                             "is not a rate",
		"--kinds x:1":                          "write a mix such as c:50,g:20,ms:15,h:5,d:5,s:5",
		"--contexts 0":                         "0 contexts: must be 1 to 2000000",
		"--metrics-per-packet 15":              "with 4 tags they take 1514 bytes, but a packet has 1432",
		"--duration 1":                         "1",
		"--runs 0":                             "--runs = 0: must be 1 to 1000",
		"--find-max --runs 2":                  "--find-max and --runs: give only one of them",
		"--find-max --rate 10":                 "--find-max looks for the rate",
		"--to unixgram --gso":                  "--gso: works with udp only",
		"--to tcp":                             "--to = tcp: must be udp, unixgram, udp://HOST:PORT or unixgram:PATH",
		"--to unix:/run/s":                     "--to = unix:/run/s: must be udp,",
		"--to udp://127.0.0.1:8125":            "also name the server with --server",
		"--role store":                         "--role = store: must be collector or all",
		"--server http://127.0.0.1:1 --pin":    "are only for a receiver that bench starts",
		"--server http://127.0.0.1:1 -- --x":   "are only for a receiver that bench starts",
		"--new-contexts 10 --rate max":         "--new-contexts: needs a --rate",
		"--new-contexts 100000 --rate 100000":  "--new-contexts = 100000: must be at most 95000 with --rate 100000",
		"--new-contexts NaN":                   "--new-contexts = NaN: must be 0 or more",
		"--duration 1ms":                       "--duration = 1ms: must be 100ms or more",
		"--duration 1s --rate 1":               "--rate = 1: gives 1 metrics in 1s, and a run needs at least 10 packets",
		"--drop-refused":                       "--drop-refused: works with unixgram only",
		"-- --role all":                        "--role: goes before --",
		"-- --data-dir=x":                      "--data-dir: bench cannot start a receiver with this flag",
		"--sources 0":                          "--sources = 0: must be 1 to 1000",
		"now":                                  "put flags for the receiver after --",
		"now -- --dogstatsd-readers 2":         "put flags for the receiver after --",
		"--server http://127.0.0.1:1 --role x": "--role = x",
	} {
		code, out, said := freshet(t, append([]string{"bench", "dogstatsd"}, strings.Fields(args)...)...)
		if code != command.Usage || out != "" || !strings.Contains(said, want) {
			t.Errorf("%s: exit code %d, output %q, errors %q; want exit code %d, no output, errors with %q",
				args, code, out, said, command.Usage, want)
		}
	}
	if code, _, said := freshet(t, "bench", "dogstatd"); code != command.Usage ||
		!strings.Contains(said, "did you mean freshet bench dogstatsd?") {
		t.Errorf("exit code %d, %q", code, said)
	}
}

func TestBenchNeedsItsServer(t *testing.T) {
	code, _, said := freshet(t, "bench", "dogstatsd", "--server", "http://127.0.0.1:1")
	if code != command.Failure || !strings.Contains(said, "ask http://127.0.0.1:1") {
		t.Errorf("exit code %d, %q", code, said)
	}
}

// Either the books account for all sent packets, or bench says why they do not.
func TestBenchEntersTheBooks(t *testing.T) {
	const perPacket = 14
	sent := packetRun{SentPackets: 100, SentSamples: 1393} // the last packet was short
	books := func(read, dropped, received uint64) (b answer.Ledger) {
		b.Datagrams.Read, b.Datagrams.KernelDropped = 1000+read, 50+dropped
		b.Samples.Received = 20_000 + received
		return b
	}
	for name, c := range map[string]struct {
		after  answer.Ledger
		change func(*answer.Ledger)
		want   string
	}{
		"all came":                       {after: books(100, 0, 1393)},
		"the kernel dropped two":         {after: books(98, 2, 1365)},
		"one of them the short one":      {after: books(98, 2, 1372)},
		"all were dropped":               {after: books(0, 100, 0)},
		"a packet is missing":            {after: books(99, 0, 1379), want: "1 packets are unexplained"},
		"drops that count for several":   {after: books(95, 1, 1330), want: "counts several dropped packets as one"},
		"a sample is missing":            {after: books(100, 0, 1392), want: "a packet has at most 14 samples"},
		"more is missing than dropped":   {after: books(99, 1, 1378), want: "a packet has at most 14 samples"},
		"less is missing than dropped":   {after: books(98, 2, 1392), want: "a packet has at most 14 samples"},
		"another program sends, too":     {after: books(101, 0, 1400), want: "does another program send to the receiver?"},
		"another program's empty packet": {after: books(101, 0, 1393), want: "does another program send to the receiver?"},
		"another program's samples":      {after: books(100, 0, 1394), want: "does another program send to the receiver?"},
		"the receiver loses one inside": {
			after: books(100, 0, 1393), change: func(b *answer.Ledger) { b.Samples.Difference = 1 },
			want: "1 samples are in no state",
		},
		"the receiver was restarted": {
			after: books(100, 0, 1393), change: func(b *answer.Ledger) { b.Started = 1 }, want: "restarted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := sent
			if c.change != nil {
				c.change(&c.after)
			}
			err := r.enter(books(0, 0, 0), c.after, perPacket)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("enter returned the error %v, want %q", err, c.want)
			}
			if c.want == "" &&
				(r.ReceivedSamples+r.LostSamples != r.SentSamples || r.ReceivedPackets+r.KernelDroppedPackets != r.SentPackets) {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// The report names samples that a receiver accepted and did not keep. A collector without an
// aggregator keeps no samples, so its report has no such line.
func TestBenchNamesWhatIsNotKept(t *testing.T) {
	var r packetRun
	r.enterNotKept(
		ledger.Samples{Refused: map[string]uint64{"series": 5, "kind": 3}},
		ledger.Samples{Refused: map[string]uint64{"series": 12, "kind": 3}, Discarded: map[string]uint64{"no_aggregator": 9}})
	if len(r.NotKept) != 1 || r.NotKept["refused: series"] != 7 {
		t.Errorf("the samples that were not kept are %v, want 7 refused for the reason series", r.NotKept)
	}
}

// The settings of other servers on this machine do not apply to the receiver.
func TestReceiverEnvironment(t *testing.T) {
	all := []string{"PATH=/bin", "FRESHET_DATA_DIR=/var/lib/freshet", "GOMAXPROCS=8", "FRESHET_SERVER=x"}
	if got := receiverEnvironment(all, false); !slices.Equal(got, []string{"PATH=/bin", "GOMAXPROCS=8"}) {
		t.Errorf("without pinning, the environment is %v, want PATH and GOMAXPROCS=8", got)
	}
	if got := receiverEnvironment(all, true); !slices.Equal(got, []string{"PATH=/bin", "GOMAXPROCS=1"}) {
		t.Errorf("with pinning, the environment is %v, want PATH and GOMAXPROCS=1", got)
	}
}

// A receiver's warnings about the sockets in use are shown to the user.
func TestReceiverWarnings(t *testing.T) {
	r := receiver{dir: t.TempDir(), cmd: &exec.Cmd{}}
	const log = `time=1 level=WARN msg="nothing is stored"
time=1 level=WARN msg="udp 127.0.0.1:1: the kernel granted 1 of 2; run ` + "`sysctl -w a=b`" + `"
time=1 level=WARN msg="unixgram /run/s: the kernel queues only 10"
time=1 level=INFO msg="udp is fine"`
	if err := os.WriteFile(r.path("log"), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.warnings("udp"); !slices.Equal(got,
		[]string{"udp 127.0.0.1:1: the kernel granted 1 of 2; run `sysctl -w a=b`"}) {
		t.Errorf("the warnings are %q", got)
	}
}

func TestSpread(t *testing.T) {
	var runs []packetRun
	for _, v := range []float64{3, 1, 2, 10} {
		runs = append(runs, packetRun{Cost: packetCost{CPUMicros: v}})
	}
	cpu := func(c packetCost) float64 { return c.CPUMicros }
	if got := spreadOf(runs, cpu); got != (spread{2.5, 1, 10}) {
		t.Errorf("got %+v", got)
	}
	if got := spreadOf(runs[:3], cpu); got != (spread{2, 1, 3}) {
		t.Errorf("got %+v", got)
	}
}

// The report says whether sender or receiver was the limit.
func TestBenchMaxSaysWhoIsTheLimit(t *testing.T) {
	for want, found := range map[string]packetMax{
		"over 3,000,000 metrics/s. The sender is the limit":                       {Rate: 3e6, LimitIs: "sender"},
		"6,000,000 metrics/s. The receiver is the limit: it made the sender wait": {Rate: 6e6, LimitIs: "receiver"},
		"2,000,000 metrics/s, for 2s. The receiver is the limit: it lost at 2,050,000": {
			Rate: 2e6, Loss: 2.05e6, LimitIs: "receiver", CostThen: packetCost{Seconds: 2.01},
			LossCost: packetCost{CPUPercent: 99},
		},
		"It had used 40 % of a core by then": {
			Rate: 2e6, Loss: 2.05e6, LimitIs: "receiver", LossCost: packetCost{CPUPercent: 40},
		},
		"No rate without loss was found: even 1,000 metrics/s lose some": {Loss: 1000, LimitIs: "receiver"},
		"between 2,500,000 and 5,000,000 metrics/s. The sender did not reach the rates": {
			Rate: 2.5e6, Loss: 5e6, LimitIs: "sender",
		},
	} {
		if got := found.String(); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// The report counts the packets and the samples that the sender dropped.
func TestBenchBooksOfWhatTheSenderDropped(t *testing.T) {
	rows := bookRows([]packetRun{{
		SentPackets: 10, SentSamples: 810, RefusedTimes: 3, SenderDropped: 3, SenderDroppedSamples: 243,
	}})
	if got := rows[len(rows)-1]; !slices.Equal(got, []string{"not sent: the socket was full", "3", "243", ""}) {
		t.Errorf("the last row is %q", got)
	}
	waited := bookRows([]packetRun{{SentPackets: 10, SentSamples: 810, RefusedTimes: 3}})
	if len(waited) != len(rows)-1 {
		t.Errorf("without drops, the report has %q, want no row for them", waited)
	}
}

func TestNoMetricHasNoCost(t *testing.T) {
	var from, to moment
	to.at, to.figures.CPUUserSeconds = from.at.Add(time.Second), 0.5
	if c := costBetween(from, to, 0); c.CPUMicros != 0 || c.CPUPercent != 50 {
		t.Errorf("got %+v", c)
	}
}
