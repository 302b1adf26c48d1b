package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// busiest are the fields of status/top that these tests read.
type busiest struct {
	Seconds   int
	Samples   float64 `json:"samples_per_second"`
	Datagrams float64 `json:"datagrams_per_second"`
	Metrics   []struct {
		Metric, Kind string
		Series       int
		Samples      float64 `json:"samples_per_second"`
	}
	Senders []struct {
		Address   string
		Process   *struct{ PID, UID int }
		Datagrams float64 `json:"datagrams_per_second"`
	}
	Newest []newest `json:"newest_series"`
	Labels []struct {
		Metric, Label string
		Values        int
	}
}

type newest struct {
	Metric string
	Labels map[string]string
}

// in returns how many events a rate per second gives in b.Seconds.
func (b *busiest) in(rate float64) int { return int(math.Round(rate * float64(b.Seconds))) }

// TestTop checks that status/top shows a known load: its total, its senders and its metrics. Two
// senders use UDP, and one uses a Unix socket. Some time after the last request, the server stops
// counting.
func TestTop(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	look := func() (b busiest) {
		t.Helper()
		if err := p.ask("/api/v1/status/top", url.Values{"limit": {"10"}}, &b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	if b := look(); len(b.Metrics) != 0 || len(b.Senders) != 0 {
		t.Errorf("before anything was sent, status/top is %+v, want no metrics and no senders", b)
	}

	open := func(network, address string) net.Conn {
		t.Helper()
		conn, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	busy, quiet, local := open("udp", p.UDP), open("udp", p.UDP), open("unixgram", p.Unixgram)
	for i := range 200 {
		send := func(conn net.Conn, format string, args ...any) {
			t.Helper()
			if _, err := fmt.Fprintf(conn, format, args...); err != nil {
				t.Fatal(err)
			}
		}
		send(busy, "top.hits:1:1:1|c|#page:p%d,env:prod", i%40)
		if i%2 == 0 {
			send(local, "top.took:3|ms|#op:o%d", i%4)
		}
		if i%10 == 0 {
			send(quiet, "top.depth:7|g")
		}
	}
	var b busiest
	eventually(t, 30*time.Second, "top shows what was sent", func() error {
		b = look()
		if samples, datagrams := b.in(b.Samples), b.in(b.Datagrams); samples != 720 || datagrams != 320 || len(b.Labels) < 2 {
			return fmt.Errorf("top shows %d samples in %d datagrams, want 720 in 320; the labels are %v, want at least 2",
				samples, datagrams, b.Labels)
		}
		return nil
	})
	for i, want := range []struct {
		metric, kind    string
		series, samples int
	}{{"top_hits", "counter", 40, 600}, {"top_took", "timer", 2, 100}, {"top_depth", "gauge", 1, 20}} {
		if m := b.Metrics[i]; m.Metric != want.metric || m.Kind != want.kind || m.Series != want.series ||
			b.in(m.Samples) != want.samples {
			t.Errorf("metric %d: got %+v in %d s, want %+v", i, m, b.Seconds, want)
		}
	}
	if len(b.Senders) != 3 || b.Senders[0].Address != busy.LocalAddr().String() ||
		b.Senders[2].Address != quiet.LocalAddr().String() {
		t.Fatalf("senders %+v", b.Senders)
	}
	if s := b.Senders[1]; s.Process == nil || s.Process.PID != os.Getpid() || s.Process.UID != os.Getuid() ||
		b.in(s.Datagrams) != 100 {
		t.Errorf("the sender on the Unix socket is %+v, want this process with 100 datagrams", s)
	}
	if l := b.Labels[0]; l.Metric != "top_hits" || l.Label != "page" || l.Values != 40 {
		t.Errorf("the label with the most values is %+v, want the label page of top_hits with 40 values", l)
	}
	// The order of series from two sockets is not defined.
	first := slices.IndexFunc(b.Newest, func(n newest) bool { return n.Metric == "top_hits" })
	if len(b.Newest) != 10 || first < 0 || b.Newest[first].Labels["page"] != "p39" {
		t.Errorf("newest series: %+v", b.Newest)
	}

	page, err := exec.Command(freshet, "top", "--server", p.HTTP).CombinedOutput()
	for _, want := range []string{"top_hits", busy.LocalAddr().String(), fmt.Sprintf("pid %d", os.Getpid()), "LABELS",
		`env="prod"`} {
		if err != nil || !strings.Contains(string(page), want) {
			t.Fatalf("%v: no %q in\n%s", err, want, page)
		}
	}
	if counting, err := p.ownMetric("freshet_top_counting"); err != nil || counting != 1 {
		t.Errorf("right after a request, freshet_top_counting is %v, want 1; error %v", counting, err)
	}
	eventually(t, 40*time.Second, "counting stops some time after the last request", func() error {
		counting, err := p.ownMetric("freshet_top_counting")
		rows, err2 := p.ownMetric("freshet_top_rows")
		if err := errors.Join(err, err2); err != nil || counting != 0 || rows != 0 {
			return fmt.Errorf("counting is %v, and there are %v rows, want 0 and 0; %w", counting, rows, err)
		}
		return nil
	})
	p.terminate(t)
}

// On a terminal freshet top redraws its page every second, and Ctrl-C restores the screen.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	master, slave := openTerminal(t)
	cmd := exec.Command(freshet, "top", "--server", p.HTTP, "--interval", "100ms")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.Env = append(os.Environ(), "TERM=xterm") // a dumb terminal would get lines
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	slave.Close()

	shown := &output{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(shown, master) // ends with an error when the other side is closed
	}()
	const page = "\x1b[H\x1b[1mtenant default at "
	eventually(t, 30*time.Second, "top has drawn three pages", func() error {
		if n := strings.Count(shown.String(), page); n < 3 {
			return fmt.Errorf("top drew %d pages, want at least 3, in %q", n, shown)
		}
		return nil
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("top ended after Ctrl-C with %v, want exit code 0", err)
	}
	<-ended
	text := shown.String()
	if !strings.HasPrefix(text, "\x1b[?1049h\x1b[?25l") || !strings.HasSuffix(text, "\x1b[?25h\x1b[?1049l") {
		t.Errorf("top did not restore the terminal: %q", text)
	}
	p.terminate(t)
}

// openTerminal returns both sides of a terminal of 100 columns and 30 rows.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// With --json each update is a line, until the command is interrupted.
func TestTopAsJSON(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	cmd := exec.Command(freshet, "top", "--json", "--server", p.HTTP, "--interval", "50ms")
	printed := &output{}
	cmd.Stdout = printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	eventually(t, 30*time.Second, "top has printed two lines", func() error {
		if n := strings.Count(printed.String(), "\n"); n < 2 {
			return fmt.Errorf("there are %d lines, want at least 2", n)
		}
		return nil
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("top ended after Ctrl-C with %v, want exit code 0", err)
	}
	for line := range bytes.Lines([]byte(printed.String())) {
		var a struct {
			Status string
			Data   busiest
		}
		if err := json.Unmarshal(line, &a); err != nil || a.Status != "success" || a.Data.Seconds < 1 {
			t.Errorf("top printed an invalid update: %v: %s", err, line)
		}
	}
	p.terminate(t)
}
