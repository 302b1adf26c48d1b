package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/capture"
	"github.com/freshet-io/freshet/internal/core/tail"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/run"
)

func newReplayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Send a capture again, at any speed, or print it",
		Long: `Sends the datagrams of a capture again, in the same order and at the same intervals.
- is standard input. UDP drops what the receiver is too busy to read; Unix sockets wait.
The exit code is 1 if a datagram could not be sent, for example because nothing listens
on this machine. If nothing listens on another machine, UDP does not notice.`,
		Example: `  freshet replay bug.capture
  freshet replay bug.capture --to unixgram:/run/freshet.sock --speed max
  freshet replay bug.capture --rate 10000 --loop 100
  freshet replay bug.capture --from 10s --until 12s --print
  zstd -dc bug.capture.zst | freshet replay - --speed 10`,
	}
	flags := cmd.Flags()
	to := flags.String("to", loadgen.DefaultTarget, "target: udp://HOST:PORT, unixgram:PATH or unix:PATH")
	r := replay{speed: 1}
	flags.Func("speed", "`times` the original speed, or max (default 1)", r.setSpeed)
	flags.Float64Var(&r.rate, "rate", 0, "`number` of datagrams a second, whatever their times")
	loops := flags.Int("loop", 1, "send the capture this `number` of times")
	from := command.DurationFlag(flags, "from", 0, "begin this `duration` after the first datagram")
	until := command.DurationFlag(flags, "until", 0, "end this `duration` after the first datagram")
	lines := flags.Bool("print", false, "print the lines and send nothing")
	asJSON := flags.Bool("json", false, "print the summary, or with --print the lines, as JSON")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		_, _, badTarget := loadgen.ParseTarget(*to)
		switch {
		case len(args) != 1:
			return fmt.Errorf("replay takes one file, got %d words; write freshet replay bug.capture, or - for standard input",
				len(args))
		case badTarget != nil:
			return badTarget
		case *loops < 1 || *loops > 1 && args[0] == "-":
			return fmt.Errorf("--loop = %d: must be 1 or more, and 1 for standard input", *loops)
		case flags.Changed("rate") && !(r.rate > 0 && r.rate <= 1e9):
			return fmt.Errorf("--rate = %g: must be a number of datagrams a second above 0", r.rate)
		case flags.Changed("rate") && flags.Changed("speed"):
			return errors.New("--rate and --speed: give only one of them; --rate ignores the times of the datagrams")
		case *until > 0 && *until <= *from:
			return fmt.Errorf("--until = %v: must be after --from, which is %v", *until, *from)
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.file, r.from, r.until = args[0], *from, *until
		ctx, cancel := run.WithSignals(cmd.Context())
		defer cancel()
		view := terminal.New(cmd.OutOrStdout(), cmd.ErrOrStderr())
		if *lines {
			return r.print(ctx, view, *asJSON)
		}
		if err := r.send(ctx, *to, *loops, view); err != nil {
			return fmt.Errorf("replay %s: %w", r.file, err)
		}
		var err error
		if *asJSON {
			err = terminal.PrintJSON(view.Out, r.replayed)
		} else {
			_, err = fmt.Fprintln(view.Out, r.replayed)
		}
		if r.Errors > 0 {
			err = errors.Join(err,
				fmt.Errorf("replay %s: %d datagrams could not be sent; the first: %w", r.file, r.Errors, r.failure))
		}
		return err
	}
	return cmd
}

// replayed is the result of a replay.
type replayed struct {
	Sent    uint64  `json:"sent"`
	Bytes   uint64  `json:"bytes"`  // bytes of the sent datagrams
	Errors  uint64  `json:"errors"` // datagrams that could not be sent
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"rate"`        // datagrams a second
	Lag     float64 `json:"lag_seconds"` // delay of the latest datagram
	Missed  uint64  `json:"missed"`      // datagrams that the capture missed
}

func (r replayed) String() string {
	text := fmt.Sprintf("sent %d datagrams, %d bytes in %.1fs (%.0f/s), at most %.3fs late",
		r.Sent, r.Bytes, r.Seconds, r.Rate, r.Lag)
	if r.Errors > 0 {
		text += fmt.Sprintf("; %d could not be sent", r.Errors)
	}
	if r.Missed > 0 {
		text += fmt.Sprintf("; the capture missed %d", r.Missed)
	}
	return text
}

// replay sends one capture again.
type replay struct {
	file        string
	speed       float64 // 0 for as fast as possible
	rate        float64 // replaces speed, if not 0
	from, until time.Duration
	replayed
	latest  uint64 // bytes of the last datagram sent
	failure error  // the first error
}

func (r *replay) setSpeed(text string) error {
	if text == "max" {
		r.speed = 0
		return nil
	}
	speed, err := strconv.ParseFloat(text, 64)
	if err != nil || !(speed > 0 && speed < 1e9) {
		return errors.New("is not a speed; write a number above 0, or max")
	}
	r.speed = speed
	return nil
}

// walk passes the selected datagrams to `each`, with the time since the first datagram of the
// capture. If a datagram is cut off, walk notes that and ends.
func (r *replay) walk(ctx context.Context, notes io.Writer,
	each func(d *capture.Datagram, after time.Duration) error) error {
	in := io.Reader(os.Stdin)
	if r.file != "-" {
		file, err := os.Open(r.file)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	reader := capture.NewReader(bufio.NewReaderSize(in, 1<<20))
	var first, latest int64
	var d capture.Datagram
	for ctx.Err() == nil {
		err := reader.Next(&d)
		r.Missed += d.Missed
		switch {
		case errors.Is(err, io.EOF):
			if lasts := time.Duration(latest - first); first != 0 && lasts < r.from {
				return fmt.Errorf("--from = %v: is after the last datagram of the capture, which lasts %v", r.from, lasts)
			}
			return nil
		case errors.Is(err, capture.ErrCut):
			_, err := fmt.Fprintln(notes, "note: the capture is cut off inside a datagram; everything before it is whole")
			return err
		case err != nil:
			return err
		}
		if first == 0 {
			first = d.Time
		}
		latest = max(latest, d.Time)
		after := time.Duration(d.Time - first)
		if after < r.from {
			continue
		}
		if r.until > 0 && after >= r.until {
			return nil // a later datagram of another socket may have a slightly earlier time; it is left out, too
		}
		if err := each(&d, after-r.from); err != nil {
			return err
		}
	}
	return nil
}

// send sends the capture `loops` times.
func (r *replay) send(ctx context.Context, to string, loops int, view terminal.View) error {
	target, err := loadgen.DialTarget(ctx, to)
	if err != nil {
		return err
	}
	defer target.Close()
	defer context.AfterFunc(ctx, target.Interrupt)()
	begun := time.Now()
	for range loops {
		if ctx.Err() != nil {
			break
		}
		round := time.Now()
		roundSent := 0.0
		err := r.walk(ctx, view.Notes, func(d *capture.Datagram, after time.Duration) error {
			r.wait(ctx, round, roundSent, after)
			roundSent++
			return r.sendOne(ctx, target, d.Data)
		})
		if err != nil {
			return err
		}
	}
	if err := target.Pending(); err != nil { // the last datagram was refused
		r.refused(err)
	}
	r.Seconds = time.Since(begun).Seconds()
	r.Rate = float64(r.Sent) / max(r.Seconds, 0.001)
	return nil
}

// wait waits until a datagram is due, and notes the datagram's delay. `round` is when the present pass
// through the capture began.
func (r *replay) wait(ctx context.Context, round time.Time, sent float64, after time.Duration) {
	var due time.Time
	switch {
	case r.rate > 0:
		due = round.Add(time.Duration(sent / r.rate * 1e9))
	case r.speed > 0:
		due = round.Add(time.Duration(float64(after) / r.speed))
	default:
		return
	}
	early := time.Until(due)
	if early <= 0 {
		r.Lag = max(r.Lag, -early.Seconds())
		return
	}
	select {
	case <-time.After(early):
	case <-ctx.Done():
	}
}

// sendOne sends a datagram and counts it as sent or failed. It returns an error only if the
// connection has ended.
func (r *replay) sendOne(ctx context.Context, t *loadgen.Target, data []byte) error {
	err := t.Send(data)
	if t.Refused(err) { // the previous datagram was refused, and this datagram is not sent yet
		r.refused(err)
		err = t.Send(data)
	}
	switch {
	case err == nil:
		r.Sent++
		r.latest = uint64(len(data))
		r.Bytes += r.latest
	case ctx.Err() != nil: // the user interrupted the replay, and walk ends
	case t.Broken(err):
		return err
	default:
		r.failed(err)
	}
	return nil
}

// refused counts the last datagram as not sent.
func (r *replay) refused(err error) {
	if r.latest > 0 {
		r.Sent--
		r.Bytes -= r.latest
		r.latest = 0
	}
	r.failed(fmt.Errorf("%w; is a server listening there?", err))
}

func (r *replay) failed(err error) {
	r.Errors++
	if r.failure == nil {
		r.failure = err
	}
}

// print prints the content of the capture.
func (r *replay) print(ctx context.Context, view terminal.View, asJSON bool) error {
	selector := tail.New(tail.Filter{}, nil)
	err := r.walk(ctx, view.Notes, func(d *capture.Datagram, _ time.Duration) error {
		for line := range selector.Lines(d) {
			err := error(nil)
			if asJSON {
				err = terminal.PrintJSON(view.Out, line)
			} else {
				err = writeLine(view, line)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("print %s: %w", r.file, err)
	}
	return nil
}
