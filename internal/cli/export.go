package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/blocks"
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/remoteread"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

func newExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export DIR",
		Short: "Write stored samples as blocks that Prometheus opens",
		Long: `Reads samples of a tenant, of every way in and of its history, and writes each day to DIR
as a block of Prometheus' TSDB. A Prometheus that is stopped, and Thanos' and Mimir's
tools, take the blocks from there. Tiles are those that a query of that time reads.

A day that is in DIR is left out, so a command that was interrupted goes on when it is run
again with the same --server, --match and times. Today is not over, and is left out unless
--to is given. Blocks of another server have other names.`,
		Example: `  freshet export /var/lib/prometheus --from 2026-10-01T00:00:00Z --to 2026-11-01T00:00:00Z
  freshet export /backup/api --from 1790812800 --match '{job="api"}'`,
		Args: command.Words(1, 1, "freshet export DIR --from TIME"),
	}
	e := exporting{server: apiclient.Flags(cmd.Flags()), tenant: tenantFlag(cmd.Flags()),
		times: newSpanFlags(cmd.Flags(), "the last midnight in UTC")}
	cmd.Flags().BoolVar(&e.asJSON, "json", false, "print each block as a line of JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e.out, e.dir, e.line = cmd.OutOrStdout(), filepath.Clean(args[0]), terminal.NewLine(cmd.ErrOrStderr())
		if err := e.run(cmd.Context()); err != nil {
			return fmt.Errorf("export to %s: %w", e.dir, err)
		}
		return nil
	}
	return cmd
}

type exporting struct {
	server *apiclient.Server
	tenant *string
	times  spanFlags
	dir    string
	asJSON bool
	out    io.Writer
	line   *terminal.Line

	empty *exportStep // the days without samples that were read last, and are not told yet
	sum   exportStep
}

// exportStep is what became of a day, of a run of days without samples, or of all days: the last line.
type exportStep struct {
	Block   string `json:"block,omitempty"`
	State   string `json:"state"` // exported, known or empty; done at the end
	MinTime int64  `json:"min_time_ms"`
	MaxTime int64  `json:"max_time_ms"`      // exclusive
	Blocks  int    `json:"blocks,omitempty"` // of the last line: exported now
	Known   int    `json:"known,omitempty"`  // of the last line: exported before
	Series  uint64 `json:"series"`           // of the last line: 0, as days share series
	Samples uint64 `json:"samples"`
	Bytes   int64  `json:"bytes"`
}

func (e *exporting) run(ctx context.Context) error {
	// A part of today would be written again tomorrow, under another name beside the first one.
	now := time.Now()
	span, err := e.times.span(now, now.Truncate(sliceTime))
	if err != nil {
		return err
	}
	if err := e.known(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(e.dir, 0o777); err != nil {
		return err
	}
	do := remedies{refused: "check --server", denied: "give a token by --token-file",
		down: "then run the command again"}
	for n, s := range span.slices(e.source()) {
		e.line.Draw("reading " + s.String())
		step, err := e.write(ctx, s)
		e.line.Clear()
		if err != nil {
			return errors.Join(e.tellEmpty(), fmt.Errorf("%s: %w", s, do.goOn(err, n > 0)))
		}
		if err := e.add(step); err != nil {
			return err
		}
	}
	if err := e.tellEmpty(); err != nil {
		return err
	}
	e.sum.State, e.sum.MinTime, e.sum.MaxTime = "done", span.from, span.to
	return e.tell(e.sum)
}

// add counts a step, and tells it. Days without samples wait: most of a span may be older than all samples, and a run
// of them is one line.
func (e *exporting) add(s exportStep) error {
	switch {
	case s.State == "empty" && e.empty != nil:
		e.empty.MaxTime = s.MaxTime
		return nil
	case s.State == "empty":
		e.empty = &s
		return nil
	case s.State == "known":
		e.sum.Known++
	default:
		e.sum.Blocks++
		e.sum.Samples += s.Samples
		e.sum.Bytes += s.Bytes
	}
	return errors.Join(e.tellEmpty(), e.tell(s))
}

// tellEmpty tells the days without samples that wait.
func (e *exporting) tellEmpty() error {
	if e.empty == nil {
		return nil
	}
	s := *e.empty
	e.empty = nil
	return e.tell(s)
}

// source names the server and the tenant. A socket has its whole path: each directory may have one of that name.
func (e *exporting) source() string {
	server := e.server.String()
	if path, is := strings.CutPrefix(server, "unix:"); is {
		if whole, err := filepath.Abs(path); err == nil { // fails only without a working directory
			server = "unix:" + whole
		}
	}
	return fmt.Sprintf("%q %q", server, *e.tenant)
}

// post sends remote reads to the server. Only operators may name a tenant. Others read that of their token.
func (e *exporting) post() remoteread.Post {
	if *e.tenant != "" {
		return asOperator(*e.server, *e.tenant)
	}
	return postTo(*e.server, "/api/v1/read", nil)
}

// known returns an error if the server has no samples of a tenant that is named. A name with a mistake in it would
// export nothing, each night.
func (e *exporting) known(ctx context.Context) error {
	if *e.tenant == "" {
		return nil
	}
	has, err := imported(ctx, *e.server, *e.tenant)
	if err == nil && has.Unknown {
		err = conf.Mistake(fmt.Errorf("--tenant %s: the server has no samples of a tenant of this name", *e.tenant))
	}
	return err
}

// write writes a slice under another name first, so that DIR has whole blocks only. A Prometheus that starts there
// removes what has that name.
func (e *exporting) write(ctx context.Context, s slice) (step exportStep, err error) {
	step = exportStep{Block: s.id.String(), State: "known", MinTime: s.from, MaxTime: s.to}
	whole := filepath.Join(e.dir, s.id.String())
	if _, err := os.Stat(whole); err == nil {
		return step, nil
	}
	part := whole + ".tmp-for-creation"
	if err := os.RemoveAll(part); err != nil { // left by a dead process
		return step, err
	}
	b, err := s.read(ctx, e.post(), labels.EmptyLabels(), part)
	if err != nil {
		return step, err
	}
	if b.Meta.Stats.NumSeries == 0 {
		step.Block, step.State = "", "empty"
		return step, nil
	}
	step.State, step.Series, step.Samples = "exported", b.Meta.Stats.NumSeries, b.Meta.Stats.NumSamples
	if step.Bytes, err = blocks.Bytes(part); err != nil {
		return step, err
	}
	if err := os.Rename(part, whole); err != nil {
		return step, err
	}
	return step, files.SyncDir(e.dir)
}

func (e *exporting) tell(s exportStep) error {
	if e.asJSON {
		return terminal.PrintJSON(e.out, s)
	}
	text := ""
	switch s.State {
	case "known":
		text = s.Block + "  was exported before"
	case "empty":
		text = fmt.Sprintf("%s to %s  no samples", minute(s.MinTime), minute(s.MaxTime))
	case "exported":
		text = fmt.Sprintf("%s  %s to %s  %d series, %s, %s", s.Block, minute(s.MinTime), minute(s.MaxTime), s.Series,
			counted(s.Samples, "sample"), size(s.Bytes))
	case "done":
		text = fmt.Sprintf("Exported %s with %s, %s, to %s; %d known before", counted(s.Blocks, "block"),
			counted(s.Samples, "sample"), size(s.Bytes), e.dir, s.Known)
		if e.times.to.IsZero() {
			text += "; today is not over, and left out: --to includes it"
		}
	default:
		return errors.New("BUG: unknown state " + s.State)
	}
	_, err := fmt.Fprintln(e.out, text)
	return err
}
