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
	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/run"
	"github.com/freshet-io/freshet/internal/settings"
)

func newRemoteWriteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remote-write [-- FLAGS OF SERVE]",
		Short: "Measure the cost of receiving and storing remote write",
		Long: `Starts this program as serve in a temporary directory, sends it requests of Prometheus
remote write, and prints the CPU time that each sample and each new series cost the
server, as the server counts it (rusage). Then it queries all acknowledged samples: if one
is missing, the exit code is 1. --server measures a running server on this machine
instead. No other program should send to that server.

Each series has one sample a round. The first round, in which all series are new, is
measured separately. The samples' times are --interval apart and end about now; with
--live they are the times of sending.`,
		Example: `  freshet bench remote-write
  freshet bench remote-write --version 2 --series 1000000 --rounds 10 -- --distributor-max-series 0
  freshet bench remote-write --series 10000 --batch 100 --duration 10s
  freshet bench remote-write --rate 200000 --new-share 0.01 --duration 30s
  freshet bench remote-write --server http://127.0.0.1:7125 --live --duration 5m --json`,
	}
	b := writeBench{load: remoteload.Standard()}
	flags := cmd.Flags()
	b.loadFlags(flags)
	interval := command.DurationFlag(flags, "interval", 15*time.Second,
		"`duration` between two samples of a series (default 15s)")
	flags.Func("rate", "`number` of samples a second; max: as fast as possible (default max)", b.setRate)
	flags.IntVar(&b.rounds, "rounds", defaultRounds,
		"`number` of samples of each series; 0: as many as fit into --duration")
	duration := command.DurationFlag(flags, "duration", 0,
		"send for this `duration`; without --rounds, any number of rounds")
	flags.BoolVar(&b.live, "live", false, "send each round at the time of its samples, --interval apart")
	flags.IntVar(&b.writer.Connections, "connections", 2, "`number` of requests at once")
	flags.StringVar(&b.server.Address, "server", "", "measure the server at this `address`; start none")
	b.server.CredentialFlags(flags)
	flags.StringVar(&b.tenant, "tenant", "", "`name` for the header X-Scope-OrgID, if the server trusts it")
	flags.BoolVar(&b.asJSON, "json", false, "print JSON, with units in the names")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if dash := cmd.ArgsLenAtDash(); len(args) > 0 && dash != 0 {
			return fmt.Errorf("%s takes only flags, got %q; put flags for the receiver after --", cmd.CommandPath(), args[0])
		}
		b.serveFlags, b.duration, b.load.Interval = args, *duration, interval.Milliseconds()
		if b.duration > 0 && !flags.Changed("rounds") {
			b.rounds = 0
		}
		return b.check()
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

// defaultRounds is high enough that the runtime collects garbage several times, and low enough that no
// series gets the 120 samples that fill a chunk.
const defaultRounds = 60

func (b *writeBench) loadFlags(flags *pflag.FlagSet) {
	flags.IntVar(&b.load.Version, "version", b.load.Version, "`version` of the protocol, 1 or 2")
	flags.IntVar(&b.load.Series, "series", b.load.Series, "`number` of series")
	flags.IntVar(&b.load.Labels, "labels", b.load.Labels, "`number` of labels of each series")
	flags.IntVar(&b.load.Batch, "batch", b.load.Batch, "`number` of samples in a request")
	flags.Float64Var(&b.load.NewShare, "new-share", 0,
		"`share` of the series, 0 to 1, that each round replaces with new ones")
	flags.Uint64Var(&b.load.Seed, "seed", b.load.Seed, "`number` that seeds the values")
}

func (b *writeBench) setRate(text string) error {
	if text == "max" {
		b.rate = 0
		return nil
	}
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil || !(rate >= 1 && rate <= 1e9) {
		return errors.New("is not a rate; write a number of samples a second, or max")
	}
	b.rate = rate
	return nil
}

const (
	// fastest is a rate, in samples a second, that no server can store. Without a --rate, the load has
	// enough rounds for this rate.
	fastest = 5e6

	// longestSpan is how old the first sample may be. Servers keep 40 days.
	longestSpan = 30 * 24 * time.Hour
)

// check refuses flags that contradict each other, and completes the load.
func (b *writeBench) check() error {
	switch {
	case b.rounds < 0 || b.rounds == 1:
		return fmt.Errorf("--rounds = %d: must be 2 or more, because all series are new in the first round, "+
			"or 0 with a --duration",
			b.rounds)
	case b.duration < 0 || b.rounds == 0 && b.duration == 0:
		return errors.New("--rounds = 0: needs a --duration")
	case b.writer.Connections < 1 || b.writer.Connections > 1000:
		return fmt.Errorf("--connections = %d: must be 1 to 1000", b.writer.Connections)
	case b.live && b.rate > 0:
		return errors.New("--live and --rate: give only one of them; --live sends all series each --interval")
	case b.server.Address != "" && len(b.serveFlags) > 0:
		return errors.New("--server: flags after -- are only for a receiver that bench starts; leave them out")
	}
	if err := checkServeFlags(b.serveFlags); err != nil {
		return err
	}
	b.load.Begin = time.Now().UnixMilli()
	if err := b.load.Check(); err != nil {
		return err
	}
	if b.live {
		b.rate = float64(b.load.Series) * 1000 / float64(b.load.Interval)
		if b.rounds == 0 {
			b.rounds = 1 + int(b.duration.Milliseconds()/b.load.Interval)
		}
		return nil
	}
	fit := int(longestSpan.Milliseconds() / b.load.Interval)
	if b.rounds == 0 {
		rate := b.rate
		if rate == 0 {
			rate = fastest
		}
		b.rounds = min(fit, 2+int(rate*b.duration.Seconds()/float64(b.load.Series)))
	}
	if b.rounds > fit {
		return fmt.Errorf("--rounds = %d: the rounds reach back more than %v if they are %v apart; "+
			"choose a shorter --interval", b.rounds, longestSpan, b.interval())
	}
	b.load.Begin -= int64(b.rounds) * b.load.Interval
	return nil
}

// run measures, queries what was stored, and prints the result.
func (b *writeBench) run(ctx context.Context) (err error) {
	b.line.Draw("rendering " + terminal.Thousands(uint64(b.load.Series)) + " series")
	defer b.line.Clear()
	traffic, err := remoteload.New(b.load)
	if err != nil {
		return err
	}
	b.line.Draw("starting the receiver")
	receiver := &receiver{server: b.server}
	if b.server.Address == "" {
		if receiver, err = startReceiver(ctx, settings.RoleAll, false, b.serveFlags); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, receiver.stop()) }()
	if err := b.aim(receiver.server); err != nil {
		return err
	}
	writer, err := loadgen.NewWriter(b.writer, traffic)
	if err != nil {
		return err
	}
	m := writeMeasurement{writeBench: b, server: receiver.server, sender: writer}
	r, err := m.run(ctx)
	if err != nil {
		return err
	}
	return b.print(r)
}
