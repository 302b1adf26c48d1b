package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/blocks"
	"github.com/freshet-io/freshet/internal/adapter/remoteread"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
)

const historyPath = "/api/v1/admin/history"

// comparedSeries is how many series of each block are compared with what the server answers.
const comparedSeries = 10

// upload sends blocks to the history of a tenant, one after the other.
type upload struct {
	server apiclient.Server
	tenant string
	asJSON bool
	out    io.Writer
	line   *terminal.Line

	known       map[string]answer.HistoryBlock // blocks that the server has
	begun       time.Time
	total, done int64 // bytes of all blocks that are to be sent, and of those that were
	sent        atomic.Int64
	step        importStep  // sums of all blocks
	empty       *importStep // days without samples that were read last, and are not told yet
	failed      []string
}

// importStep is what became of a block, or of all blocks: the last line.
type importStep struct {
	Block    string `json:"block,omitempty"`
	State    string `json:"state"` // imported, known, empty or failed; done at the end
	MinTime  int64  `json:"min_time_ms,omitempty"`
	MaxTime  int64  `json:"max_time_ms,omitempty"`
	Blocks   int    `json:"blocks,omitempty"` // of the last line: imported now
	Known    int    `json:"known,omitempty"`  // of the last line: imported before
	Series   uint64 `json:"series,omitempty"`
	Samples  uint64 `json:"samples,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
	Compared int    `json:"compared_series,omitempty"`
	Error    string `json:"error,omitempty"`
}

// imported asks a server for the history of a tenant.
func imported(ctx context.Context, server apiclient.Server, tenant string) (has answer.History, err error) {
	_, a, err := server.Ask(ctx, historyPath, url.Values{"tenant": {tenant}})
	if err == nil {
		err = json.Unmarshal(a.Data, &has)
	}
	return has, err
}

// newUpload asks the server which blocks it has.
func newUpload(ctx context.Context, f importFlags, out, notes io.Writer) (*upload, error) {
	u := &upload{server: *f.server, tenant: *f.tenant, asJSON: *f.asJSON, out: out, line: terminal.NewLine(notes),
		known: map[string]answer.HistoryBlock{}, begun: time.Now()}
	has, err := imported(ctx, u.server, u.tenant)
	if err != nil {
		return nil, err
	}
	for _, b := range has.Blocks {
		u.known[b.Block] = b
	}
	if u.tenant != "" && has.Unknown { // it may be wanted, or a mistake in the name
		fmt.Fprintf(notes, "note: the tenant %s is new: the server has no samples of it yet; only clients of that tenant "+
			"will see what is imported\n", u.tenant)
	}
	return u, nil
}

// knows reports whether the server has a block.
func (u *upload) knows(id ulid.ULID) bool {
	_, has := u.known[id.String()]
	return has
}

// removal is the command that removes blocks from the history.
func (u *upload) removal(blocks ...string) string {
	command := "freshet import remove " + strings.Join(blocks, " ")
	if u.tenant != "" {
		command += " --tenant " + u.tenant
	}
	return command
}

// has notes that the server had a block before the command.
func (u *upload) has(id string) error {
	u.step.Known++
	return u.tell(importStep{Block: id, State: "known"})
}

// fail notes that a block was not imported. The command goes on with the next one, unless it was interrupted.
func (u *upload) fail(ctx context.Context, id string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w; run the command again to go on", context.Cause(ctx))
	}
	u.failed = append(u.failed, id)
	return u.tell(importStep{Block: id, State: "failed", Error: err.Error()})
}

// sample returns some samples of a block, as the server must answer them when each series has more labels.
func sample(ctx context.Context, b blocks.Block, add labels.Labels) ([]blocks.Points, error) {
	return b.Sample(ctx, comparedSeries, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), add)
}

// add sends the block in a directory, and compares some of its samples with what the server then answers.
func (u *upload) add(ctx context.Context, b blocks.Block, some []blocks.Points) error {
	done, err := u.send(ctx, b)
	if err != nil {
		return err
	}
	if done.Samples != b.Meta.Stats.NumSamples {
		return fmt.Errorf("the server stored %d of %d samples", done.Samples, b.Meta.Stats.NumSamples)
	}
	if err := u.compare(ctx, some); err != nil {
		return fmt.Errorf("the block is imported, but the comparison with it failed: %w; %s removes it", err,
			u.removal(done.Block))
	}
	u.known[done.Block] = done
	u.step.Blocks++
	u.step.Samples += done.Samples
	u.step.Bytes += done.Bytes
	u.step.Compared += len(some)
	return u.tell(importStep{Block: done.Block, State: "imported", MinTime: done.MinTime, MaxTime: done.MaxTime,
		Series: done.Series, Samples: done.Samples, Bytes: done.Bytes, Compared: len(some)})
}

func (u *upload) send(ctx context.Context, b blocks.Block) (done answer.HistoryBlock, err error) {
	bytes, err := blocks.Bytes(b.Dir)
	if err != nil {
		return done, err
	}
	defer u.show(ctx, func() string {
		return b.ID.String() + "  " + progressText(u.done+u.sent.Load(), u.total, time.Since(u.begun))
	})()
	from, to := io.Pipe()
	defer from.Close()
	go func() { to.CloseWithError(blocks.Pack(io.MultiWriter(to, counter{&u.sent}), b.Dir)) }()
	resp, err := u.server.Do(ctx, http.MethodPut, historyPath+"/"+b.ID.String(),
		url.Values{"tenant": {u.tenant}, "bytes": {strconv.FormatInt(bytes, 10)}},
		http.Header{"Expect": {"100-continue"}}, from) // a refusal comes before the block is sent
	if err != nil {
		return done, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return done, u.server.Refusal(resp)
	}
	_, a, err := u.server.Read(resp)
	if err == nil {
		err = json.Unmarshal(a.Data, &done)
	}
	u.done += bytes
	u.sent.Store(0)
	return done, err
}

// counter counts the bytes that are written.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}

// show draws a text that says how far the command is, once a second until the returned function is called.
func (u *upload) show(ctx context.Context, text func() string) (end func()) {
	if u.line == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = each(ctx, time.Second, func() error { // ends by the context only
			u.line.Draw(text())
			return nil
		})
	}()
	return func() {
		cancel()
		<-gone
		u.line.Clear()
	}
}

// progressText says how many bytes are done, and when all will be at this rate.
func progressText(done, total int64, since time.Duration) string {
	if total == 0 {
		return size(done)
	}
	text := fmt.Sprintf("%s of %s, %d%%", size(done), size(total), min(100, 100*done/total))
	if done > 0 && done < total && since > time.Second {
		left := time.Duration(float64(since) * float64(total-done) / float64(done))
		text += fmt.Sprintf(", %s left", left.Round(time.Second))
	}
	return text
}

// compare asks the server for samples of some series. The server may have more: of other imports, or of senders.
func (u *upload) compare(ctx context.Context, some []blocks.Points) error {
	for _, want := range some {
		got, err := u.read(ctx, want)
		if err == nil {
			err = differ(want, got)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// differ returns an error if a sample is not among those that the server has.
func differ(want blocks.Points, got []blocks.Point) error {
	at := map[int64]blocks.Point{}
	for _, p := range got {
		at[p.T] = p
	}
	for _, p := range want.Points {
		switch g, has := at[p.T]; {
		case !has:
			return fmt.Errorf("series %s has %s in the block, and no sample at this time on the server", want.Labels, p)
		case !g.Same(p):
			return fmt.Errorf("series %s has %s in the block, and %s on the server", want.Labels, p, g)
		}
	}
	return nil
}

// read asks the server for a series, by the remote read that users have.
func (u *upload) read(ctx context.Context, of blocks.Points) (points []blocks.Point, err error) {
	var matchers []*labels.Matcher
	of.Labels.Range(func(l labels.Label) {
		matchers = append(matchers, labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value))
	})
	from, to := of.Points[0].T, of.Points[len(of.Points)-1].T
	err = remoteread.Read(ctx, asOperator(u.server, u.tenant), from, to, matchers,
		func(ls labels.Labels, all []chunks.Meta) error {
			if !labels.Equal(ls, of.Labels) { // the series has more labels
				return nil
			}
			more, err := blocks.PointsOf(all)
			points = append(points, more...)
			return err
		})
	return points, err
}

// asOperator sends remote reads to a server of ours, for an operator who names the tenant. The server finds the tenant
// as it does for an import, so what is compared is what was imported.
func asOperator(server apiclient.Server, tenant string) remoteread.Post {
	return postTo(server, historyPath+"/read", url.Values{"tenant": {tenant}})
}

func postTo(server apiclient.Server, path string, params url.Values) remoteread.Post {
	return func(ctx context.Context, header http.Header, body io.Reader) (*http.Response, error) {
		return server.Do(ctx, http.MethodPost, path, params, header, body)
	}
}

// end prints the sums. Its error names the blocks that were not imported.
func (u *upload) end() error {
	u.step.State = "done"
	if err := u.tell(u.step); err != nil {
		return err
	}
	if len(u.failed) == 0 {
		return nil
	}
	return fmt.Errorf("%s not imported: %s", counted(len(u.failed), "block"), joined(u.failed))
}

// lacks notes that there are no samples of a time. A run of such times is one line.
func (u *upload) lacks(from, to int64) {
	if u.empty == nil {
		u.empty = &importStep{State: "empty", MinTime: from}
	}
	u.empty.MaxTime = to
}

// tellEmpty prints the run of times without samples that waits.
func (u *upload) tellEmpty() error {
	if u.empty == nil {
		return nil
	}
	s := *u.empty
	u.empty = nil
	return u.print(s)
}

// tell prints a step.
func (u *upload) tell(s importStep) error { return errors.Join(u.tellEmpty(), u.print(s)) }

func (u *upload) print(s importStep) error {
	if u.asJSON {
		return terminal.PrintJSON(u.out, s)
	}
	text := ""
	switch s.State {
	case "known":
		text = s.Block + "  was imported before"
	case "empty":
		text = fmt.Sprintf("%s to %s  no samples", minute(s.MinTime), minute(s.MaxTime))
	case "failed":
		text = s.Block + "  failed: " + s.Error
	case "imported":
		text = fmt.Sprintf("%s  %s to %s  %d series, %s, %s; %d series compared", s.Block, minute(s.MinTime),
			minute(s.MaxTime), s.Series, counted(s.Samples, "sample"), size(s.Bytes), s.Compared)
	case "done":
		text = fmt.Sprintf("Imported %s with %s, %s, in %s; %d known before", counted(s.Blocks, "block"),
			counted(s.Samples, "sample"), size(s.Bytes), time.Since(u.begun).Round(time.Second/10), s.Known)
	default:
		return errors.New("BUG: unknown state " + s.State)
	}
	_, err := fmt.Fprintln(u.out, text)
	return err
}
