package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/diagnose"
	"github.com/freshet-io/freshet/internal/core/record"
	"github.com/freshet-io/freshet/internal/lib/run"
)

func newDiagnoseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diagnose [flags] [FILE.zip]",
		Short: "Say why a server is slow, with evidence",
		Long: `Makes a server record itself, which takes about six seconds, and names likely causes,
with evidence. It also reads a record from a file, or one that the server kept when a
stage was over its budget. docs/diagnose.md lists the causes, and says what to do.`,
		Example: `  freshet diagnose
  freshet diagnose --last                       the newest record that the server kept
  freshet diagnose --record 20261121T235756.730-queue
  freshet diagnose --save slow.zip              and keep the record, to pass it on
  freshet diagnose slow.zip
  freshet diagnose --json | jq '.causes[0].name'`,
	}
	d := diagnosing{}
	server := apiclient.Flags(cmd.Flags())
	cmd.Flags().StringVar(&d.id, "record", "", "diagnose the server's record with this `id`")
	cmd.Flags().BoolVar(&d.last, "last", false, "diagnose the server's newest record")
	cmd.Flags().StringVar(&d.save, "save", "", "keep the record in this `file`")
	cmd.Flags().BoolVar(&d.raw, "json", false, "print the diagnosis as JSON")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		asked := 0
		for _, is := range []bool{len(args) > 0, d.id != "", d.last} {
			if is {
				asked++
			}
		}
		switch {
		case len(args) > 1:
			return errors.New("diagnose reads one record; name one file")
		case asked > 1:
			return errors.New("diagnose reads one record; name a file, or give --record or --last")
		case len(args) == 1 && d.save != "":
			return errors.New("--save: the record is already in a file; copy that file")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := run.WithSignals(cmd.Context())
		defer cancel()
		d.View, d.server = terminal.New(cmd.OutOrStdout(), cmd.ErrOrStderr()), *server
		text, err := d.record(ctx, args)
		if err == nil {
			err = d.show(text)
		}
		if err != nil {
			return fmt.Errorf("diagnose: %w", err)
		}
		return nil
	}
	return cmd
}

// diagnosing is one run of freshet diagnose.
type diagnosing struct {
	terminal.View
	server apiclient.Server
	id     string
	last   bool
	save   string
	raw    bool
}

// maxRecord bounds how much is read of a record, in bytes. Usual records have 1 to 5 MB.
const maxRecord = 512 << 20

// record returns the zip file of the record that the command line names.
func (d *diagnosing) record(ctx context.Context, args []string) (text []byte, err error) {
	if len(args) == 1 {
		file, err := os.Open(args[0])
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return readRecord(file)
	}
	id := d.id
	switch {
	case d.last:
		id, err = d.newest(ctx)
	case id == "":
		var made record.Listed
		made, err = d.make(ctx)
		id = made.ID
		d.note(made)
	}
	if err != nil {
		return nil, err
	}
	resp, err := d.server.Get(ctx, "/api/v1/status/records/"+url.PathEscape(id), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, d.server.Refusal(resp)
	}
	if text, err = readRecord(resp.Body); err != nil || d.save == "" {
		return text, err
	}
	return text, os.WriteFile(d.save, text, 0o640)
}

func readRecord(from io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxRecord+1))
	if err == nil && len(text) > maxRecord {
		err = fmt.Errorf("the record has more than %d bytes, so it is not a record of freshet", maxRecord)
	}
	return text, err
}

// note warns if the server has not kept the record.
func (d *diagnosing) note(r record.Listed) {
	if r.NotKept == "" {
		return
	}
	text := fmt.Sprintf("the server has not kept record %s: %s", r.ID, r.NotKept)
	if d.save == "" {
		text += "; --save FILE keeps one here"
	}
	fmt.Fprintln(d.Notes, terminal.Printable(text))
}

// newest returns the ID of the server's newest record.
func (d *diagnosing) newest(ctx context.Context) (string, error) {
	_, a, err := d.server.Ask(ctx, "/api/v1/status/records", nil)
	if err != nil {
		return "", err
	}
	var all []record.Listed
	if err := json.Unmarshal(a.Data, &all); err != nil {
		return "", fmt.Errorf("read the answer of %s: %w", d.server, err)
	}
	if len(all) == 0 {
		return "",
			fmt.Errorf("%s has kept no record: no stage was over its budget; leave out --last to make one now", d.server)
	}
	d.note(all[0])
	return all[0].ID, nil
}

// make asks the server for a new record, and says that this takes a while.
func (d *diagnosing) make(ctx context.Context) (made record.Listed, err error) {
	what := fmt.Sprintf("recording what the server does, which takes a little more than %.0f s", record.Duration.Seconds())
	line := terminal.NewLine(d.Notes)
	if line == nil {
		fmt.Fprintln(d.Notes, what)
	}
	defer line.Clear()
	done := make(chan struct{})
	drawn := make(chan struct{})
	go func() {
		defer close(drawn)
		for begun := time.Now(); ; {
			seconds := int(time.Since(begun).Seconds())
			line.Draw(fmt.Sprintf("%s ... %d s", what, seconds))
			select {
			case <-time.After(time.Second):
			case <-done:
				return
			}
		}
	}()
	defer func() { close(done); <-drawn }()
	resp, err := d.server.Post(ctx, "/-/record", url.Values{"reason": {"freshet diagnose"}}, nil)
	if err != nil {
		return made, err
	}
	_, a, err := d.server.Read(resp)
	if err != nil {
		return made, err
	}
	if err := json.Unmarshal(a.Data, &made); err != nil {
		return made, fmt.Errorf("read the answer of %s: %w", d.server, err)
	}
	return made, nil
}

// show prints the diagnosis of a record.
func (d *diagnosing) show(text []byte) error {
	found, err := diagnose.ReadRecord(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return err
	}
	if d.raw {
		return terminal.PrintJSON(d.Out, found)
	}
	_, err = fmt.Fprint(d.Out, d.page(found))
	return err
}

// page lays out a diagnosis for people. A record may contain any bytes, so control characters must not
// reach the terminal.
func (d *diagnosing) page(found *diagnose.Diagnosis) string {
	var b strings.Builder
	line := func(colour, indent, text string) {
		text = terminal.Printable(text)
		if d.Colour && colour != "" {
			text = colour + text + plain
		}
		fmt.Fprintf(&b, "%s%s\n", indent, text)
	}
	r := found.Record
	line(faint, "",
		fmt.Sprintf("record %s of %s%s, %.0f s: %s; %.1f of %d processors busy",
			r.ID, onNode(r.Node), r.Began.Local().Format(time.DateTime), r.Seconds, r.Reason, r.Cores, r.GOMAXPROCS))
	if len(found.Causes) == 0 {
		line(green, "\n", "The record shows nothing wrong.")
	}
	for i, c := range found.Causes {
		colour := yellow
		if c.Score >= diagnose.Clear {
			colour = red
		}
		line(bold+colour, "\n", fmt.Sprintf("%d. %s", i+1, c.Title))
		line(faint, "   ", fmt.Sprintf("%s, score %.2f: %s", c.Name, c.Score, c.Because))
		for _, e := range c.Evidence {
			line("", "   - ", e.What)
			for _, text := range slices.Concat(e.Figures, e.Stack) {
				line("", "       ", text)
			}
		}
		line(green, "   ", "Next: "+c.Next)
	}
	if len(found.Checked) > 0 {
		line(bold, "\n", "Found fine:")
	}
	for _, text := range found.Checked {
		line("", "  - ", text)
	}
	for _, name := range slices.Sorted(maps.Keys(found.Missing)) {
		line(yellow, "", fmt.Sprintf("not in the record: %s: %s", name, cmp.Or(found.Missing[name], "for an unknown reason")))
	}
	return b.String()
}
