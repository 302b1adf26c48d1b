package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func newLedgerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "Show what became of every sample and datagram",
		Long: `Prints a server's books since its start: what it received, and the one state that each
sample and each datagram is in. The difference must be 0. docs/ledger.md explains each
state and reason. At a node of a cluster, the books of all nodes are added up.`,
		Example: `  freshet ledger
  freshet ledger --watch
  freshet ledger --local      one node of a cluster
  freshet ledger --json | jq .data.samples`,
		Args: command.NoWords,
	}
	server := apiclient.Flags(cmd.Flags())
	watch := cmd.Flags().Bool("watch", false, "repeat each second, with rates, until interrupted")
	raw := cmd.Flags().Bool("json", false, "print the server's answer unchanged")
	local := cmd.Flags().Bool("local", false, "in a cluster, the books of the asked node alone")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l := ledgerView{pages: newPages(cmd, *raw, *watch), server: *server, local: *local}
		return l.run(cmd.Context(), l.show)
	}
	return cmd
}

// ledgerView shows the books of a server to people.
type ledgerView struct {
	pages
	server apiclient.Server
	local  bool            // only the books of the asked node
	seen   []answer.Ledger // the latest answers, to compute rates
}

// rateWindow is the number of answers over which a rate is computed. Tiles are stored in bursts, ten
// seconds apart, so a shorter window would show jumps.
const rateWindow = 10

func (l *ledgerView) show(ctx context.Context) error {
	of := url.Values{}
	if l.local {
		of.Set("local", "true")
	}
	body, a, err := l.server.Ask(ctx, "/api/v1/status/ledger", of)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if l.raw {
		return terminal.WriteJSON(l.Out, body)
	}
	var books answer.Ledger
	if err := json.Unmarshal(a.Data, &books); err != nil {
		return fmt.Errorf("ledger: read the answer of %s: %w", l.server, err)
	}
	if len(l.seen) > 0 && !l.seen[0].SameBooks(&books) {
		l.seen = nil // a new process has new books
	}
	l.seen = append(l.seen, books)
	if len(l.seen) > rateWindow+1 {
		l.seen = l.seen[1:]
	}
	text, err := l.page()
	if err != nil {
		return err
	}
	return l.draw(text)
}

// page lays out the books for people.
func (l *ledgerView) page() (string, error) {
	now := &l.seen[len(l.seen)-1]
	t := ledgerTable{before: &l.seen[0], seconds: float64(now.Boundary-l.seen[0].Boundary) / 1000}
	t.samples(&now.Samples, &t.before.Samples)
	t.datagrams(&now.Datagrams, &t.before.Datagrams)
	t.clients(now.Clients, t.before.Clients)
	t.notifications(now.Notifications, t.before.Notifications)

	var table bytes.Buffer
	if err := terminal.WriteTable(&table, t.rows, len(t.rows[0])-1); err != nil {
		return "", err
	}
	var out strings.Builder
	closed := "no window is closed yet"
	if now.Boundary > 0 {
		closed = "closed at " + time.UnixMilli(now.Boundary).Format(time.DateTime)
	}
	fmt.Fprintf(&out, "tenant %s%s since %s, %s\n", terminal.Printable(now.Name), booksOf(now),
		time.UnixMilli(now.Started).Format(time.DateTime), closed)
	l.writeNodes(&out, now)
	out.WriteString("\n")
	for i, line := range slices.Collect(strings.Lines(table.String())) {
		if colour := t.colours[i]; colour != "" && l.Colour {
			line = colour + strings.TrimSuffix(line, "\n") + plain + "\n"
		}
		out.WriteString(line)
	}
	if now.Samples.Difference != 0 {
		fmt.Fprintf(&out, "\nThe books%s do not close, which is a bug in Freshet: please report it with the output of "+
			"freshet ledger --json.\n", booksThatDiffer(now))
	}
	if n := now.Samples.Refused["negative"]; n > 0 {
		fmt.Fprintf(&out,
			"\nOf the refused samples, %s would have decreased a counter: a mapping rule with updown: "+
				"true turns it into a gauge that adds up.\n", terminal.Thousands(n))
	}
	if w := now.Waiting; w != nil && w.Error != "" {
		fmt.Fprintf(&out, "\nOf the samples in tiles, %s have waited for a store since %s: %s\n",
			terminal.Thousands(w.Samples),
			time.UnixMilli(w.Since).Format(time.DateTime), terminal.Printable(w.Error))
		if w.Refused {
			fmt.Fprint(&out,
				"The limit store.pending is reached: new samples are refused until the store takes the waiting samples.\n")
		}
	}
	if p := now.Previous; p != nil {
		kind := "final books"
		if !p.Final {
			kind = "last books, which are not final,"
		}
		fmt.Fprintf(&out, "\nThe previous process: %s of %s with %s received, %s stored, %s in tiles, difference %d.\n", kind,
			time.UnixMilli(p.Written).Format(time.DateTime), terminal.Thousands(p.Samples.Received),
			terminal.Thousands(p.Samples.Stored), terminal.Thousands(p.Samples.Tile), p.Samples.Difference)
	}
	return out.String(), nil
}

// booksOf names the node or nodes whose books are shown, in a cluster.
func booksOf(l *answer.Ledger) string {
	switch {
	case len(l.Nodes) > 0:
		return fmt.Sprintf(" in the cluster, node %s", terminal.Printable(l.Node))
	case l.Node != "":
		return fmt.Sprintf(" at node %s alone", terminal.Printable(l.Node))
	}
	return ""
}

// writeNodes names the nodes in the sum, and the nodes and collectors whose books are missing or old.
func (l *ledgerView) writeNodes(out *strings.Builder, now *answer.Ledger) {
	if len(now.Nodes) == 0 {
		return
	}
	var added []string
	for i := range now.Nodes {
		if n := &now.Nodes[i]; !n.Missing() {
			added = append(added, terminal.Printable(n.Name))
		}
	}
	fmt.Fprintf(out, "What came in is the sum of %d of %d nodes: %s%s. What the log brought is node %s's copy.\n",
		len(added), len(now.Nodes), strings.Join(added, ", "), collectorsOf(now), terminal.Printable(now.Node))
	for i := range now.Nodes {
		l.writeShort(out, "node", &now.Nodes[i])
	}
	for i := range now.Collectors {
		l.writeShort(out, "collector", &now.Collectors[i].LedgerNode)
	}
}

// namedCollectors bounds the collectors that a page names.
const namedCollectors = 5

// collectorsOf names the collectors in the sum.
func collectorsOf(l *answer.Ledger) string {
	n := len(l.Collectors)
	if n == 0 {
		return ""
	}
	var names []string
	for i := range l.Collectors[:min(n, namedCollectors)] {
		names = append(names, terminal.Printable(l.Collectors[i].Name))
	}
	text := ", with the collectors " + strings.Join(names, ", ")
	if more := n - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// writeShort names a process whose books are missing or old. `part` is node or collector.
func (l *ledgerView) writeShort(out *strings.Builder, part string, n *answer.LedgerNode) {
	if n.Error == "" {
		return
	}
	state := "missing"
	if !n.Missing() {
		state = fmt.Sprintf("%.0f s old", *n.AgeSeconds)
	}
	text := fmt.Sprintf("The sum may be short: the books of %s %s are %s: %s", part, terminal.Printable(n.Name), state,
		terminal.Printable(n.Error))
	if l.Colour {
		text = yellow + text + plain
	}
	out.WriteString(text + "\n")
}

// booksThatDiffer names the nodes and collectors whose own books have a difference.
func booksThatDiffer(l *answer.Ledger) string {
	var all []string
	note := func(part string, n *answer.LedgerNode) {
		if n.Difference != 0 {
			all = append(all, part+" "+terminal.Printable(n.Name))
		}
	}
	for i := range l.Nodes {
		note("node", &l.Nodes[i])
	}
	for i := range l.Collectors {
		note("collector", &l.Collectors[i].LedgerNode)
	}
	if len(all) == 0 {
		return ""
	}
	return " of " + strings.Join(all, ", ")
}

// ledgerTable holds the rows of a page, each with a colour or none.
type ledgerTable struct {
	rows    [][]string
	colours []string
	before  *answer.Ledger // the earlier books, to compute rates
	seconds float64        // time since these books; 0 if there are no rates
	total   uint64         // the count that percentages refer to
}

func (t *ledgerTable) add(colour string, cells ...string) {
	if t.seconds == 0 {
		cells = cells[:3] // without rates the table has no column for them
	}
	t.rows = append(t.rows, cells)
	t.colours = append(t.colours, colour)
}

// count adds a row for a count; `was` is its earlier value.
func (t *ledgerTable) count(colour, name string, n, was uint64) {
	rate := ""
	if t.seconds > 0 {
		rate = terminal.Thousands(uint64(math.Round(float64(n-min(n, was)) / t.seconds)))
	}
	t.add(colour, name, terminal.Thousands(n), terminal.Share(n, t.total), rate)
}

// lost adds a row that is a warning unless its count is 0.
func (t *ledgerTable) lost(name string, n, was uint64) {
	colour := ""
	if n > 0 {
		colour = yellow
	}
	t.count(colour, name, n, was)
}

func (t *ledgerTable) title(name string) {
	if len(t.rows) > 0 {
		t.add("", "", "", "", "")
	}
	t.add("", name, "", "", "per second")
}

func (t *ledgerTable) samples(now, was *ledger.Samples) {
	t.title("SAMPLES")
	t.total = now.Received + now.Restored + now.Collected
	t.count("", "received", now.Received, was.Received)
	t.count("", "in tiles at the start", now.Restored, was.Restored)
	if now.Collected > 0 {
		t.count("", "from collectors", now.Collected, was.Collected)
	}
	before := was.Lost()
	for i, state := range now.Lost() {
		t.lost("  "+state.Account.String(), state.Total(), before[i].Total())
		for _, reason := range slices.Sorted(maps.Keys(state.Reasons)) {
			t.count("", "    "+terminal.Printable(reason), state.Reasons[reason], before[i].Reasons[reason])
		}
	}
	if now.HandedOver > 0 {
		t.count("", "  handed over", now.HandedOver, was.HandedOver)
	}
	t.add("", "  in windows", terminal.Thousands(now.Window), terminal.Share(now.Window, t.total), "")
	t.add("", "  in tiles", terminal.Thousands(now.Tile), terminal.Share(now.Tile, t.total), "")
	t.count("", "  stored", now.Stored, was.Stored)
	colour := green
	if now.Difference != 0 {
		colour = red
	}
	t.add(colour, "difference", strconv.FormatInt(now.Difference, 10), "", "")
	for _, of := range []struct {
		name   string
		n, was uint64
	}{
		{"folded into an overflow series", now.OfWhich.Folded, was.OfWhich.Folded},
		{"late, kept", now.OfWhich.LateKept, was.OfWhich.LateKept},
		{"ahead of the clock", now.OfWhich.Ahead, was.OfWhich.Ahead},
		{"respelled", now.OfWhich.Respelled, was.OfWhich.Respelled},
	} {
		if of.n > 0 {
			t.count("", "of which "+of.name, of.n, of.was)
		}
	}
}

func (t *ledgerTable) notifications(now, before []answer.Notifications) {
	if len(now) == 0 {
		return
	}
	t.title("NOTIFICATIONS")
	t.total = 0
	for _, n := range now {
		var was answer.Notifications
		if i := slices.IndexFunc(before, func(b answer.Notifications) bool {
			return b.Alertmanager == n.Alertmanager
		}); i >= 0 {
			was = before[i]
		}
		t.count("", "sent to "+terminal.Printable(n.Alertmanager), n.Sent, was.Sent)
		t.lost("  dropped", n.Dropped, was.Dropped)
		t.add("", "  waiting", terminal.Thousands(n.Waiting), "", "")
	}
}

func (t *ledgerTable) datagrams(now, was *ledger.DatagramBook) {
	t.title("DATAGRAMS")
	t.total = now.Received
	t.count("", "received", now.Received, was.Received)
	t.count("", "  read", now.Read, was.Read)
	t.lost("  dropped by the kernel", now.KernelDropped, was.KernelDropped)
	t.lost("  oversized", now.Oversized, was.Oversized)
	t.lost("  frames cut off", now.CutFrames, was.CutFrames)
	t.total = 0
	if now.RefusedConnections > 0 {
		t.lost("connections refused", now.RefusedConnections, was.RefusedConnections)
	}
}

// clients adds rows for the counts that clients report about themselves, under the clients' own names
// for the counts. Most clients report only a few of them.
func (t *ledgerTable) clients(now, was map[string]float64) {
	if len(now) == 0 {
		return
	}
	t.title("CLIENTS SAY")
	t.total = 0
	for _, name := range slices.Sorted(maps.Keys(now)) {
		n, before := uint64(math.Round(max(0, now[name]))), uint64(math.Round(max(0, was[name])))
		switch {
		case n == 0:
		case strings.Contains(name, "dropped"):
			t.lost(name, n, before)
		default:
			t.count("", name, n, before)
		}
	}
}
