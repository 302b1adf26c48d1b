package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/core/capture"
	"github.com/freshet-io/freshet/internal/core/tail"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/role/collector"
	"github.com/freshet-io/freshet/internal/settings"
)

// A tail shows at most as many lines a second as its rate, and says how many it left out.
func TestTailer(t *testing.T) {
	var out bytes.Buffer
	s := &tailer{selector: tail.New(tail.Filter{}, nil), rate: 2, out: json.NewEncoder(&out)}
	if err := s.show([]capture.Datagram{{Data: []byte("a:1|c\nb:1|c\nc:1|c\nd:1|c")}}, 7); err != nil {
		t.Fatal(err)
	}
	s.second = s.second.Add(-tapNotice) // the second is over
	if err := s.show(nil, 0); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 3 ||
		lines[2] != `{"left_out":2,"missed":7}` {
		t.Errorf("the tail printed %s", &out)
	}
}

// A tap of an unknown socket is refused, since it would wait for ever.
func TestTapOfNoListener(t *testing.T) {
	all := []collector.Listening{
		{Network: "udp", Address: "127.0.0.1:8125", Tenant: "default"},
		{Network: "unixgram", Address: "/run/freshet.sock", Tenant: "default"},
		{Network: "udp", Address: "127.0.0.1:8126", Tenant: "other"},
	}
	for _, tt := range []struct{ listener, want string }{
		{"", ""},
		{"unixgram:///run/freshet.sock", ""},
		{"udp:127.0.0.1:8125",
			"listener = udp:127.0.0.1:8125: the tenant default has no such socket; it has udp://127.0.0.1:8125, " +
				"unixgram:///run/freshet.sock"},
		{"udp://127.0.0.1:8126",
			"listener = udp://127.0.0.1:8126: the tenant default has no such socket; it has udp://127.0.0.1:8125, " +
				"unixgram:///run/freshet.sock"},
	} {
		err := knownListener(collector.TapOptions{Tenant: "default", Listener: tt.listener}, all)
		if got := fmt.Sprint(cmp.Or(err, errors.New(""))); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.listener, got, tt.want)
		}
	}
	if err := knownListener(collector.TapOptions{Tenant: "new"}, all); err != nil {
		t.Errorf("for a tenant without sockets, got the error %v, want none", err)
	}
}

// A stream continues beyond the read timeout of requests, and ends when the server stops.
func TestStreamOutlivesReadTimeout(t *testing.T) {
	config := settings.DefaultDogStatsD()
	config.UDP = "" // the test needs no datagrams
	c, err := collector.New(collector.Options{
		Config: config, Now: time.Now, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mux := http.NewServeMux()
	web := httptest.NewUnstartedServer(mux)
	web.Config.ReadTimeout = time.Second // less, and a request may come too late
	web.Config.BaseContext = func(net.Listener) context.Context {
		return tenant.NewContext(context.Background(), "default")
	}
	open := func(_ exposure, h http.Handler) http.Handler { return h }
	(&server{collector: c, http: httpServers{{server: web.Config}}}).newTapAPI().register(&routes{mux, open})
	web.Start()
	defer web.Close()

	_, err = (apiclient.Server{Address: web.URL}).Follow(t.Context(), "/api/v1/status/capture",
		url.Values{"listener": {"nope"}})
	if err == nil || !strings.Contains(err.Error(), "no such socket; it has none") {
		t.Errorf("with an unknown socket, got the error %v, want one about the unknown socket", err)
	}
	body, err := apiclient.Server{Address: web.URL}.Follow(t.Context(), "/api/v1/status/capture", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, body)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("the stream ended too early: %v", err)
	case <-time.After(2 * web.Config.ReadTimeout):
	}
	if err := web.Config.Shutdown(t.Context()); err != nil { // waits for the stream
		t.Error(err)
	}
	<-ended
}

// printed collects the output of a running command.
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

// tailing starts the command `freshet tail` for a server. The returned function ends the command.
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
			t.Errorf("tail %v: exit code %d, want 0: %s", args, code, notes)
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

// A tail finds a metric by its name in PromQL as well as by the name that the client sends. While a
// tail has shown nothing, it says what it waits for.
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
			t.Errorf("--name %s: the notes are %q, want %q", glob, notes, said)
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
		{"requests", "shop.cart.requests:2|c"}, // renamed by a rule
		{"latency_bucket", "latency:3|ms"},     // a series of a classic histogram
		{"latency_sum", "latency:3|ms"},
		{"db_up", "_sc|db.up|0"},
		{"level_counter", "level:5|c"}, // a gauge of this name came first, so the counter has a suffix
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
