package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/capture"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/run"
)

func newCaptureCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "capture [FILE]",
		Short: "Write arriving datagrams to a file, byte for byte",
		Long: `Captures the datagrams that arrive at a server on this machine. It writes them to a
file, with their times and senders, until you interrupt it. freshet replay sends the
datagrams again. Without a name, the file is named after the time; - is standard output.
The file contains whatever applications put into names and tags.`,
		Example: `  freshet capture                                   until Ctrl-C
  freshet capture bug.capture --duration 30s
  freshet capture - --datagrams 1000 | zstd > bug.capture.zst
  freshet capture --listener unixgram:///run/freshet.sock`,
		Args: command.Words(0, 1, "freshet capture, or freshet capture bug.capture"),
	}
	server := apiclient.Flags(cmd.Flags())
	duration := command.DurationFlag(cmd.Flags(), "duration", 0, "end after this `duration` (default when interrupted)")
	datagrams := cmd.Flags().Uint64("datagrams", 0, "end after this `number` of datagrams (default no limit)")
	listener := cmd.Flags().String("listener", "",
		"only datagrams that arrive at this socket: `NETWORK://ADDRESS`, as in /metrics")
	asJSON := cmd.Flags().Bool("json", false, "print the summary as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := capturing{most: *datagrams, begun: time.Now(), notes: cmd.ErrOrStderr()}
		c.File = time.Now().Format("freshet-20060102-150405.capture")
		if len(args) == 1 {
			c.File = args[0]
		}
		ctx, cancel := run.WithSignals(cmd.Context())
		defer cancel()
		if *duration > 0 {
			ctx, cancel = context.WithTimeout(ctx, *duration)
			defer cancel()
		}
		params := url.Values{}
		if *listener != "" {
			params.Set("listener", *listener)
		}
		if err := c.run(ctx, *server, params, cmd.OutOrStdout()); err != nil {
			return fmt.Errorf("capture: %w", err)
		}
		out := cmd.OutOrStdout()
		if c.File == "-" {
			out = cmd.ErrOrStderr()
		}
		if *asJSON {
			return terminal.PrintJSON(out, c.summary())
		}
		_, err := fmt.Fprintf(out, "%s: %s\n", c.File, c.summary())
		return err
	}
	return cmd
}

// captured is the progress of a capture.
type captured struct {
	File      string  `json:"file"`
	Seconds   float64 `json:"seconds"`
	Datagrams uint64  `json:"datagrams"`
	Bytes     uint64  `json:"bytes"` // bytes of the datagrams
	Missed    uint64  `json:"missed"`
}

func (c captured) String() string {
	text := fmt.Sprintf("%d datagrams, %d bytes in %.1fs (%.0f/s)",
		c.Datagrams, c.Bytes, c.Seconds, float64(c.Datagrams)/max(c.Seconds, 0.001))
	if c.Missed > 0 {
		text += fmt.Sprintf("; %d more were missed, because this command read too slowly", c.Missed)
	}
	return text
}

// capturing copies a server's stream into a file, record by record, so that the last record in the
// file is complete.
type capturing struct {
	captured
	most  uint64 // the number of datagrams to capture; 0 for no limit
	begun time.Time
	notes io.Writer
}

func (c *capturing) summary() captured {
	c.Seconds = time.Since(c.begun).Seconds()
	return c.captured
}

func (c *capturing) run(ctx context.Context, server apiclient.Server, params url.Values, stdout io.Writer) error {
	body, err := server.Follow(ctx, "/api/v1/status/capture", params)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted before the server answered")
		}
		return err
	}
	defer body.Close()
	file := stdout
	if c.File == "-" {
		if isTerminal(stdout) {
			return errors.New("a capture cannot be shown on a terminal; name a file, or redirect the output")
		}
	} else {
		created, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // private, because it holds raw data
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s exists already; remove it, or name another file", c.File)
		}
		if err != nil {
			return fmt.Errorf("create the file: %w", err)
		}
		file = created
	}
	err = c.copy(ctx, bufio.NewReaderSize(body, 256<<10), file)
	if closer, ok := file.(io.Closer); ok && c.File != "-" {
		err = errors.Join(err, closer.Close())
	}
	return err
}

// copy copies records until ctx is done or enough datagrams are captured.
func (c *capturing) copy(ctx context.Context, from *bufio.Reader, to io.Writer) error {
	buffer := bufio.NewWriterSize(to, 1<<20)
	reader, writer := capture.NewReader(from), capture.NewWriter(buffer)
	if err := writer.Begin(); err != nil {
		return err
	}
	live := isTerminal(c.notes)
	drawn := c.begun
	var err error
	for d := (capture.Datagram{}); err == nil && (c.most == 0 || c.Datagrams < c.most); {
		err = reader.Next(&d)
		c.Missed += d.Missed
		if err != nil {
			err = errors.Join(ended(ctx, err), writer.Missed(d.Missed))
			break
		}
		c.Datagrams++
		c.Bytes += uint64(len(d.Data))
		err = writer.Write(&d)
		if err == nil && from.Buffered() == 0 { // the next read will wait, so data read so far must reach the file
			err = buffer.Flush()
		}
		if live && time.Since(drawn) > time.Second {
			drawn = time.Now()
			fmt.Fprintf(c.notes, "\r\x1b[K%s", c.summary())
		}
	}
	if live {
		fmt.Fprint(c.notes, "\r\x1b[K")
	}
	return errors.Join(err, buffer.Flush())
}
