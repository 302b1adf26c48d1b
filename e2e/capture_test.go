package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A capture file can be replayed even if its capture was killed under load: another server gets exactly
// the lines in the file, at full speed.
func TestCaptureAndReplay(t *testing.T) {
	first, second := start(t, dataDir(t)), start(t, dataDir(t))
	file := filepath.Join(t.TempDir(), "bug.capture")
	capture := exec.Command(freshet, "capture", file, "--server", first.HTTP)
	if err := capture.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, startLimit, "the capture is connected", func() error { return wantMetric(first, "freshet_taps", 1) })

	conn, err := net.Dial("unixgram", first.Unixgram)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const lines = 3
	for i := 0; ; i++ {
		if _, err := fmt.Fprintf(conn, "captured:1|c|#n:%d\ncaptured:2|c\nother:1|c", i%10); err != nil {
			t.Fatal(err)
		}
		if i == 20_000 {
			// Some datagrams are in the file, and some are still on their way to it.
			if err := capture.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = capture.Wait() // returns an error, because the process was killed
		}
		if i == 25_000 {
			break
		}
	}
	eventually(t, startLimit, "the server closes the tap of the killed capture", func() error {
		return wantMetric(first, "freshet_taps", 0)
	})

	var printed int
	out := command(t, "replay", file, "--print", "--json")
	for line := range strings.Lines(out) {
		var l struct {
			Name, Type string
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Type != "counter" {
			t.Fatalf("replay printed %s, want a counter: %v", line, err)
		}
		printed++
	}
	var sent struct {
		Sent, Errors, Missed uint64
	}
	if err := json.Unmarshal([]byte(command(t, "replay", file, "--to", "unixgram:"+second.Unixgram, "--speed", "max",
		"--json")), &sent); err != nil {
		t.Fatal(err)
	}
	if sent.Sent == 0 || sent.Sent > 20_001 || sent.Errors != 0 || sent.Sent*lines != uint64(printed) {
		t.Errorf("replay sent %+v, want all datagrams of a file with %d lines, without errors", sent, printed)
	}
	eventually(t, startLimit, "every replayed datagram counts", func() error {
		for query, want := range map[string]uint64{"sum(captured)": 3 * sent.Sent, "sum(other)": sent.Sent} {
			if got, err := second.value(query); err != nil {
				return err
			} else if uint64(got) != want {
				return fmt.Errorf("%s is %v, want %d", query, got, want)
			}
		}
		return nil
	})
}

// freshet tail shows a line within a second of its arrival, with its sender. Filters work, and
// malformed lines are shown with the reason.
func TestTail(t *testing.T) {
	p := start(t, dataDir(t))
	all := startTail(t, p)
	wanted := startTail(t, p, "--name", "page_*", "--tag", "env:prod", "--pid", fmt.Sprint(os.Getpid()))
	malformed := startTail(t, p, "--malformed")
	eventually(t, startLimit, "all three tails are connected", func() error { return wantMetric(p, "freshet_taps", 3) })

	conn, err := net.Dial("unixgram", p.Unixgram)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	send := func(text string) {
		t.Helper()
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	// The server looks up senders only once the tail has started, so the first lines may lack a sender.
	send("warm_up:1|c")
	if l := all.next(t); l.Name != "warm_up" || l.Type != "counter" {
		t.Errorf("tail printed the first line as %+v, want the counter warm_up", l)
	}
	send("page_views:1|c|#env:test\npage_views:1|c|#env:prod\ncpu:1|g|#env:prod\npage_views:oops|c|#env:test")
	if l := wanted.next(t); l.Name != "page_views" || l.Text != "page_views:1|c|#env:prod" ||
		l.Sender != fmt.Sprintf("pid=%d,uid=%d", os.Getpid(), os.Getuid()) {
		t.Errorf("tail printed the filtered line as %+v, want page_views of env:prod, from this process", l)
	}
	if l := malformed.next(t); l.Malformed != "bad_value" || l.At != len("page_views:") ||
		l.Text != "page_views:oops|c|#env:test" {
		t.Errorf("tail printed the malformed line as %+v, want bad_value at the value", l)
	}
	for range 4 {
		all.next(t)
	}

	// A server that stops does not wait for its tails.
	begun := time.Now()
	p.terminate(t)
	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("the server took %v to stop, want at most 8s", took)
	}
	if err := wanted.cmd.Wait(); err == nil || !strings.Contains(wanted.notes.String(), "the server ended the stream") {
		t.Errorf("tail ended with %v and printed %q, want an error and \"the server ended the stream\"", err, &wanted.notes)
	}
}

// tailLine is a line of freshet tail --json.
type tailLine struct {
	Sender, Type, Name, Malformed string
	At                            int
	Text                          string `json:"line"`
}

type tailing struct {
	cmd   *exec.Cmd
	out   *bufio.Reader
	notes strings.Builder
}

func startTail(t *testing.T, p *process, args ...string) *tailing {
	t.Helper()
	s := &tailing{cmd: exec.Command(freshet, append([]string{"tail", "--json", "--server", p.HTTP}, args...)...)}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stderr = &s.notes
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	s.out = bufio.NewReader(out)
	return s
}

// next returns the next line that tail prints. It waits for this line until the test times out.
func (s *tailing) next(t *testing.T) (l tailLine) {
	t.Helper()
	text, err := s.out.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &l); err != nil {
		t.Fatalf("tail printed %s: %v", text, err)
	}
	return l
}

// command runs freshet, which must succeed, and returns its standard output.
func command(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(freshet, args...)
	var notes strings.Builder
	cmd.Stderr = &notes
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("freshet %s: %v\n%s", strings.Join(args, " "), err, notes.String())
	}
	return string(out)
}

func wantMetric(p *process, name string, want float64) error {
	got, err := p.ownMetric(name)
	if err == nil && got != want {
		err = fmt.Errorf("%s is %v, want %v", name, got, want)
	}
	return err
}
