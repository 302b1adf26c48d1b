package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/load"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/run"
	"github.com/freshet-io/freshet/internal/settings"
)

func newDogStatsDCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dogstatsd [-- FLAGS OF SERVE]",
		Short: "Measure the cost of receiving DogStatsD",
		Long: `Starts this program as serve --role collector in a temporary directory, sends it a
load, and prints the CPU time that each metric cost the server, as the server counts it
(rusage). If the server's books (freshet ledger) do not account for every packet and
sample, the exit code is 1. --server measures a running server on this machine instead.
No other program should send to that server.

Cost depends on the rate: a figure without its rate means nothing.`,
		Example: `  freshet bench dogstatsd
  freshet bench dogstatsd --metrics-per-packet 1 --rate 40000
  freshet bench dogstatsd --contexts 10000 --runs 5
  freshet bench dogstatsd --to unixgram --rate max
  freshet bench dogstatsd --find-max --pin --gso
  freshet bench dogstatsd --sources 16 --rate 1000000 -- --dogstatsd-readers 2
  freshet bench dogstatsd --new-contexts 10000 -- --limits-max-series 0 \
      --limits-max-series-per-metric 0 --limits-max-new-series-per-minute 0
  freshet bench dogstatsd --server http://127.0.0.1:7125 --json`,
	}
	b := packetBench{load: load.Standard(), pace: pace{rate: 120_000}}
	flags := cmd.Flags()
	b.loadFlags(flags)
	flags.Func("rate", "`number` of metrics a second; max: as fast as possible (default 120000)", b.setRate)
	duration := command.DurationFlag(flags, "duration", 8*time.Second,
		"measure for this `duration`, after a warm-up of 1s (default 8s)")
	flags.IntVar(&b.runs, "runs", 1, "measure this `number` of times, print medians")
	flags.BoolVar(&b.findMax, "find-max", false, "find the highest rate without loss, in steps of 2s or --duration")
	flags.StringVar(&b.to, "to", "udp",
		"`way` to send: udp or unixgram; with --server also udp://HOST:PORT or unixgram:PATH")
	flags.BoolVar(&b.sender.GSO, "gso", false,
		"hand the kernel up to 64 UDP packets at once (UDP_SEGMENT): cheaper sending")
	flags.IntVar(&b.sender.Sources, "sources", 1, "`number` of sockets to send from; several readers need several")
	flags.BoolVar(&b.sender.DropRefused, "drop-refused", false,
		"drop packets if a Unix socket is full, as most clients do; otherwise wait")
	flags.StringVar(&b.server.Address, "server", "", "measure the server at this `address`; start none")
	b.server.CredentialFlags(flags)
	flags.StringVar(&b.role, "role", settings.RoleCollector, "`role` of the started receiver: collector or all")
	flags.BoolVar(&b.pin, "pin", false, "give the receiver one core (GOMAXPROCS=1), and the sender another")
	flags.BoolVar(&b.asJSON, "json", false, "print JSON, with units in the names")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if dash := cmd.ArgsLenAtDash(); len(args) > 0 && dash != 0 {
			return fmt.Errorf("%s takes only flags, got %q; put flags for the receiver after --", cmd.CommandPath(), args[0])
		}
		b.serveFlags, b.pace.duration = args, *duration
		if b.findMax && !flags.Changed("duration") {
			b.pace.duration = 2 * time.Second
		}
		return b.check(flags)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := run.WithSignals(cmd.Context())
		defer cancel()
		ctx, cancel = untilHangup(ctx)
		defer cancel()
		b.view = terminal.New(cmd.OutOrStdout(), cmd.ErrOrStderr())
		b.line = terminal.NewLine(cmd.ErrOrStderr())
		return b.run(ctx)
	}
	return cmd
}

func (b *packetBench) loadFlags(flags *pflag.FlagSet) {
	flags.IntVar(&b.load.Contexts, "contexts", b.load.Contexts, "`number` of distinct contexts (names with tags)")
	flags.Func("kinds", "`weights` of the kinds of metrics (default "+b.load.Kinds.String()+")",
		func(text string) (err error) {
			b.load.Kinds, err = load.ParseMix(text)
			return err
		})
	flags.IntVar(&b.load.Tags, "tags", b.load.Tags, "`number` of tags of each metric; with 4 it takes 100 bytes")
	flags.IntVar(&b.load.MetricsPerPacket, "metrics-per-packet", 0, "`number` of metrics in a packet; 0: as many as fit")
	flags.IntVar(&b.load.PacketSize, "packet-size", 0,
		"most `bytes` of a packet (default 1432 with udp, 8192 with unixgram)")
	flags.Float64Var(&b.newContexts, "new-contexts", 0, "`number` of metrics a second with a context that occurs once")
	flags.Uint64Var(&b.load.Seed, "seed", b.load.Seed, "`number` that seeds the load: same seed, same bytes")
}

func (b *packetBench) setRate(text string) error {
	if text == "max" {
		b.pace.rate = 0
		return nil
	}
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil || !(rate >= 1 && rate <= 1e9) {
		return errors.New("is not a rate; write a number of metrics a second, or max")
	}
	b.pace.rate = rate
	return nil
}

// check refuses flags that contradict each other, and completes the load.
func (b *packetBench) check(flags *pflag.FlagSet) error {
	network, _, err := b.target()
	if err != nil {
		return err
	}
	switch {
	case b.runs < 1 || b.runs > 1000:
		return fmt.Errorf("--runs = %d: must be 1 to 1000", b.runs)
	case b.findMax && b.runs > 1:
		return errors.New("--find-max and --runs: give only one of them")
	case b.findMax && flags.Changed("rate"):
		return errors.New("--find-max and --rate: give only one of them; --find-max looks for the rate")
	case b.sender.Sources < 1 || b.sender.Sources > 1000:
		return fmt.Errorf("--sources = %d: must be 1 to 1000", b.sender.Sources)
	case b.sender.GSO && network != "udp":
		return errors.New("--gso: works with udp only")
	case b.sender.DropRefused && network != "unixgram":
		return errors.New("--drop-refused: works with unixgram only; udp refuses nothing")
	case b.pace.duration < shortestMeasurement:
		return fmt.Errorf("--duration = %v: must be %v or more", b.pace.duration, shortestMeasurement)
	case b.role != settings.RoleAll && b.role != settings.RoleCollector:
		return fmt.Errorf("--role = %s: must be collector or all", b.role)
	case b.server.Address != "" && (b.pin || len(b.serveFlags) > 0 || flags.Changed("role")):
		return errors.New("--server: --pin, --role and flags after -- are only for a receiver that bench starts; " +
			"leave them out")
	case !(b.newContexts >= 0):
		return fmt.Errorf("--new-contexts = %g: must be 0 or more a second", b.newContexts)
	case b.newContexts > 0 && (b.findMax || b.pace.rate == 0):
		return errors.New("--new-contexts: needs a --rate, because new contexts are a part of that rate")
	case b.newContexts > load.MaxNewShare*b.pace.rate && b.pace.rate > 0:
		return fmt.Errorf("--new-contexts = %.0f: must be at most %.0f with --rate %.0f",
			b.newContexts, load.MaxNewShare*b.pace.rate, b.pace.rate)
	}
	if err := checkServeFlags(b.serveFlags); err != nil {
		return err
	}
	if b.newContexts > 0 {
		b.load.NewShare = b.newContexts / b.pace.rate
	}
	if b.load.PacketSize == 0 {
		b.load.PacketSize = 1432
		if network == "unixgram" {
			b.load.PacketSize = 8192
		}
	}
	if err := b.load.Check(); err != nil {
		return err
	}
	metrics := b.pace.rate * b.pace.duration.Seconds()
	if per := b.load.PerPacket(); b.pace.rate > 0 && metrics < float64(fewestPackets*per) {
		return fmt.Errorf("--rate = %g: gives %.0f metrics in %v, and a run needs at least %d packets of %d metrics each; "+
			"choose a higher rate, a longer --duration or a smaller --metrics-per-packet",
			b.pace.rate, metrics, b.pace.duration, fewestPackets, per)
	}
	return nil
}

// A run below one of these limits measures nothing, because bench looks at the clock only every 50 ms.
const (
	shortestMeasurement = 100 * time.Millisecond
	fewestPackets       = 10
)

// target reads --to. If it names no address, the address is empty, and openReceiver asks the
// server.
func (b *packetBench) target() (network, address string, err error) {
	if b.to == "udp" || b.to == "unixgram" {
		return b.to, "", nil
	}
	network, address, err = loadgen.ParseTarget(b.to)
	if err != nil || network == "unix" {
		return "", "", fmt.Errorf("--to = %s: must be udp, unixgram, udp://HOST:PORT or unixgram:PATH", b.to)
	}
	if b.server.Address == "" {
		return "", "", fmt.Errorf("--to = %s: is an address; also name the server with --server, because bench "+
			"reads the server's books", b.to)
	}
	return network, address, nil
}

// run measures and prints the result.
func (b *packetBench) run(ctx context.Context) (err error) {
	traffic, err := load.New(b.load)
	if err != nil {
		return err
	}
	b.line.Draw("starting the receiver")
	defer b.line.Clear()
	r, err := b.openReceiver(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	sender, err := loadgen.Open(b.sender)
	if err != nil {
		return err
	}
	defer sender.Close()
	m := &packetMeasurement{packetBench: b, receiver: r, sender: sender, traffic: traffic}
	m.title = "warm-up"
	if err := m.introduce(ctx, b.pace); err != nil {
		return err
	}
	if b.findMax {
		return b.printMax(m.findMax(ctx))
	}
	var runs []packetRun
	for i := range b.runs {
		m.title = fmt.Sprintf("run %d of %d", i+1, b.runs)
		one, err := m.run(ctx, b.pace)
		if err != nil {
			return err
		}
		runs = append(runs, one)
	}
	return b.printRuns(r, runs)
}

// openReceiver starts a server, or finds the running one, and sets the sender's target to it.
func (b *packetBench) openReceiver(ctx context.Context) (r *receiver, err error) {
	r = &receiver{server: b.server}
	if b.server.Address == "" {
		if r, err = startReceiver(ctx, b.role, b.pin, b.serveFlags); err != nil {
			return nil, err
		}
	}
	b.sender.Network, b.sender.Address, err = b.target()
	if err != nil || b.sender.Address != "" {
		return r, err
	}
	figures, err := r.figures(ctx)
	if err == nil {
		l := figures.Listening
		b.sender.Address = map[string]string{"udp": l.DogStatsDUDP, "unixgram": l.DogStatsDUnixgram}[b.sender.Network]
		if b.sender.Address == "" {
			err = fmt.Errorf("--server = %s: has no %s socket for the tenant of that address; name a socket with --to",
				r.server, b.sender.Network)
			if b.server.Address == "" {
				err = fmt.Errorf("flags after --: the receiver has no %s socket", b.sender.Network)
			}
		}
	}
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}
