package server

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/freshet-io/freshet/internal/lib/command"
)

// printed is what a running command has printed so far.
type printed struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// tailing begins a freshet tail of a server; the returned function ends it.
func (s *server) tailing(t *testing.T, args ...string) (lines, notes *printed, end func()) {
	t.Helper()
	lines, notes = new(printed), new(printed)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, append([]string{"tail", "--server", s.http[0].addr()}, args...), lines, notes)
	}()
	return lines, notes, func() {
		t.Helper()
		cancel()
		if code := <-ended; code != command.OK {
			t.Errorf("tail %v: exit code %d, %s", args, code, notes)
		}
	}
}

const mappedText = `
dogstatsd: {udp: "127.0.0.1:0", unixgram: "", unix: ""}
mapping:
  rules:
  - {match: shop.*.requests, name: NAME, labels: {shop: $1}}
  - {match: latency, buckets: [1, 10]}
  - {match: noise, action: drop}
`

// A user who sees a name in PromQL, and one who knows what a client sends, find the same lines. A
// tail that shows nothing says what it waits for.
func TestTailByAName(t *testing.T) {
	text := "data_dir: " + t.TempDir() + "\nhttp: {listen: \"127.0.0.1:0\"}\n" + mappedText
	file := writeFile(t, strings.Replace(text, "NAME", "requests", 1))
	s := runningFrom(t, file)
	all := []string{
		"page.views:1|c", "shop.cart.requests:2|c", "latency:3|ms", "_sc|db.up|0", "level:4|g", "level:5|c", "noise:6|g",
	}
	find := func(glob, want string) {
		t.Helper()
		lines, notes, end := s.tailing(t, "--name", glob, "--tag", "*")
		defer end()
		eventually(t, "tail says that it waits", func() bool { return notes.String() != "" })
		said := "waiting for lines at http://" + s.http[0].addr() + " with name " + glob + ", tag *; Ctrl-C ends it\n"
		if notes.String() != said {
			t.Errorf("--name %s: said %q, want %q", glob, notes, said)
		}
		eventually(t, glob+" is seen", func() bool {
			for _, line := range all {
				s.send(t, "default", line+"|#a:b")
			}
			return strings.Contains(lines.String(), "  "+want+"|#a:b\n")
		})
		for line := range strings.Lines(lines.String()) {
			if !strings.HasSuffix(line, "  "+want+"|#a:b\n") {
				t.Errorf("--name %s shows %s", glob, line)
			}
		}
	}
	for _, c := range []struct{ glob, want string }{
		{"page.views", "page.views:1|c"},
		{"page_views", "page.views:1|c"},
		{"page_*", "page.views:1|c"},
		{"shop.cart.requests", "shop.cart.requests:2|c"},
		{"requests", "shop.cart.requests:2|c"}, // by a rule
		{"latency_bucket", "latency:3|ms"},     // of a classic histogram
		{"latency_sum", "latency:3|ms"},
		{"db_up", "_sc|db.up|0"},
		{"level_counter", "level:5|c"}, // since the gauge came first
	} {
		find(c.glob, c.want)
	}

	// Rules are reloaded while a tail runs.
	lines, _, end := s.tailing(t, "--name", "orders")
	defer end()
	if err := os.WriteFile(file, []byte(strings.Replace(text, "NAME", "orders", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if resp, said := s.answer(t, http.MethodPost, "/-/reload", "", "", false); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, said)
	}
	eventually(t, "the new name is seen", func() bool {
		s.send(t, "default", all[1])
		return strings.Contains(lines.String(), all[1])
	})
}
