package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/top"
)

func newSendersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "senders",
		Short: "Show who sends, how much, how late, and what is refused",
		Long: `Prints the senders of a tenant, those with the most samples first: of remote write and
OTLP in the last 15 minutes, of DogStatsD in the last 10 seconds, and collectors. Lag is
the age of the newest sample. Refused counts samples, lines and whole requests by reason.
At a node of a cluster, the senders of all nodes are listed.`,
		Example: `  freshet senders
  freshet senders --watch
  freshet senders --json | jq '.data.senders[] | select(.refused)'`,
	}
	server := apiclient.Flags(cmd.Flags())
	limit := cmd.Flags().Int("limit", top.DefaultRows, fmt.Sprintf("`rows`, at most %d", top.MaxRows))
	watch := cmd.Flags().Bool("watch", false, "repeat each second until interrupted")
	raw := cmd.Flags().Bool("json", false, "print the server's answer unchanged")
	local := cmd.Flags().Bool("local", false, "in a cluster, the senders of the asked node alone")
	cmd.Args = withRows(limit)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := sendersView{pages: newPages(cmd, *raw, *watch), server: *server, limit: *limit, local: *local}
		return v.run(cmd.Context(), v.show)
	}
	return cmd
}

// sendersView shows the senders of a server to people.
type sendersView struct {
	pages
	server apiclient.Server
	limit  int
	local  bool
}

// countingTries is how often the command asks, each second, until a server counts senders of DogStatsD. A server has
// counted a whole second up to 2.5 s after the first request.
const countingTries = 4

func (v *sendersView) show(ctx context.Context) error {
	body, senders, err := v.ask(ctx)
	for try := 1; err == nil && !senders.Counting && !v.live && try < countingTries; try++ {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		body, senders, err = v.ask(ctx)
	}
	if err != nil {
		return fmt.Errorf("senders: %w", err)
	}
	if v.raw {
		return terminal.WriteJSON(v.Out, body)
	}
	text, err := sendersPage(senders, time.Now())
	if err != nil {
		return err
	}
	return v.draw(text)
}

func (v *sendersView) ask(ctx context.Context) (body []byte, senders *answer.Senders, err error) {
	of := url.Values{"limit": {strconv.Itoa(v.limit)}}
	if v.local {
		of.Set("local", "true")
	}
	body, a, err := v.server.Ask(ctx, "/api/v1/status/senders", of)
	if err != nil {
		return nil, nil, err
	}
	senders = new(answer.Senders)
	if err := json.Unmarshal(a.Data, senders); err != nil {
		return nil, nil, fmt.Errorf("read the answer of %s: %w", v.server, err)
	}
	return body, senders, nil
}

// sendersPage lays out senders for people.
func sendersPage(a *answer.Senders, now time.Time) (string, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "senders of tenant %s\n", terminal.Printable(a.Tenant))
	for _, n := range a.Nodes {
		if n.Error != "" {
			fmt.Fprintf(&out, "node %s is missing: %s\n", terminal.Printable(n.Name), terminal.Printable(n.Error))
		}
	}
	if len(a.Senders) == 0 {
		out.WriteString("\nNobody has sent anything: no remote write or OTLP in the last minutes, and no DogStatsD since " +
			"the command began. --watch looks longer.\n")
		return out.String(), nil
	}
	rows := [][]string{{"SENDER", "INPUT", "NODE", "REFUSED", "SAMPLES/S", "LAST SEEN", "LAG"}}
	for i := range a.Senders {
		s := &a.Senders[i]
		lag := ""
		if s.Lag != nil {
			lag = seconds(*s.Lag)
		}
		rows = append(rows, []string{
			nameOfSender(s), terminal.Printable(s.Input), terminal.Printable(s.Node), reasonsText(s.Refused),
			perSecond(s.Samples), seconds(float64(now.UnixMilli())/1000-s.Seen) + " ago", lag,
		})
	}
	if a.Others.Senders > 0 {
		rows = append(rows, []string{others(a.Others.Senders), "", "", "", perSecond(a.Others.Samples), "", ""})
	}
	out.WriteByte('\n')
	err := terminal.WriteTable(&out, rows, 3)
	return out.String(), err
}

// seconds writes a time exact enough for people.
func seconds(s float64) string {
	if s = max(0, s); s < 10 {
		return strconv.FormatFloat(s, 'f', 1, 64) + "s"
	}
	return time.Duration(s * float64(time.Second)).Truncate(time.Second).String()
}

// nameOfSender joins the names and addresses of a sender.
func nameOfSender(s *answer.Sender) string {
	var parts []string
	if s.Name != "" {
		parts = append(parts, terminal.Printable(s.Name))
	}
	if s.Name == "" && s.Agent == "" || s.ViewSender != (top.ViewSender{}) {
		parts = append(parts, describeSender(s.ViewSender))
	}
	if s.Agent != "" {
		parts = append(parts, terminal.Printable(s.Agent))
	}
	return strings.Join(parts, ", ")
}

// reasonsText lists what was refused, the most frequent first.
func reasonsText(refused map[string]uint64) string {
	reasons := slices.SortedFunc(maps.Keys(refused), func(a, b string) int {
		return cmp.Or(cmp.Compare(refused[b], refused[a]), strings.Compare(a, b))
	})
	for i, r := range reasons {
		reasons[i] = terminal.Thousands(refused[r]) + " " + terminal.Printable(r)
	}
	return strings.Join(reasons, ", ")
}
