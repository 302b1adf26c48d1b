package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/capture"
	"github.com/freshet-io/freshet/internal/core/tail"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// aCapture has three datagrams, half a second apart.
func aCapture(t *testing.T) (file string, whole []byte) {
	t.Helper()
	var b bytes.Buffer
	w := capture.NewWriter(&b)
	for i, data := range []string{"a:1|c|#env:prod", "b:oops|c\nb:1|g", "c:1|c"} {
		d := capture.Datagram{
			Time: 1_795_228_020e9 + int64(i)*5e8, Network: "udp", Address: "127.0.0.1:8125", Data: []byte(data),
			Missed: uint64(i / 2),
		}
		if err := w.Write(&d); err != nil {
			t.Fatal(err)
		}
	}
	file = filepath.Join(t.TempDir(), "bug.capture")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, b.Bytes()
}

// receiver returns the address of a socket, and a function that returns the next datagram from the
// socket.
func receiver(t *testing.T) (to string, next func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return "unixgram:" + path, func() string {
		buf := make([]byte, 1<<16)
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil {
			return "" // nothing arrived
		}
		return string(buf[:n])
	}
}

func TestReplay(t *testing.T) {
	file, _ := aCapture(t)
	for _, tt := range []struct {
		name string
		args []string
		want string        // datagrams
		took time.Duration // the least time that the replay may take
	}{
		{"at ten times the speed", []string{"--speed", "10"}, "a,b,c", 100 * time.Millisecond},
		{"as fast as possible", []string{"--speed", "max"}, "a,b,c", 0},
		{"at a rate, whatever their times", []string{"--rate", "20", "--loop", "2"}, "a,b,c,a,b,c", 200 * time.Millisecond},
		{"a part, sent at once", []string{"--from", "400ms", "--until", "900ms"}, "b", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			to, next := receiver(t)
			begun := time.Now()
			code, stdout, stderr := freshet(t, append([]string{"replay", file, "--to", to, "--json"}, tt.args...)...)
			if took := time.Since(begun); took < tt.took {
				t.Errorf("the replay took %v, want at least %v", took, tt.took)
			}
			var got []string
			for range strings.Split(tt.want, ",") {
				got = append(got, next()[:1])
			}
			var sum replayed
			if err := json.Unmarshal([]byte(stdout), &sum); err != nil || code != command.OK || stderr != "" {
				t.Fatalf("exit code %d, output %q, errors %q; want 0, JSON, no errors", code, stdout, stderr)
			}
			if names := strings.Join(got, ","); names != tt.want || sum.Sent != uint64(len(got)) || sum.Errors != 0 {
				t.Errorf("received %s, want %s; result %+v", names, tt.want, sum)
			}
		})
	}
}

// Over UDP, the kernel does not report a datagram without a receiver until the next datagram is sent. So
// replay must ask the kernel after the last datagram. A datagram without a receiver does not count as
// sent.
func TestReplayToNobody(t *testing.T) {
	file, _ := aCapture(t)
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := "udp://" + gone.LocalAddr().String()
	gone.Close()
	code, stdout, stderr := freshet(t, "replay", file, "--to", to, "--speed", "max", "--json")
	var sum replayed
	if err := json.Unmarshal([]byte(stdout), &sum); err != nil {
		t.Fatalf("%q: %v", stdout, err)
	}
	if sum.Sent != 0 || sum.Bytes != 0 || sum.Errors != 3 {
		t.Errorf("got %+v", sum)
	}
	if code != command.Failure || !strings.Contains(stderr, "3 datagrams could not be sent; the first: send to "+to) ||
		!strings.Contains(stderr, "is a server listening there?") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// A capture that is cut off is sent up to the cut.
func TestReplayOfACutCapture(t *testing.T) {
	file, whole := aCapture(t)
	if err := os.WriteFile(file, whole[:len(whole)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	to, next := receiver(t)
	code, stdout, stderr := freshet(t, "replay", file, "--to", to, "--speed", "max")
	if code != command.OK || !strings.HasPrefix(stdout, "sent 2 datagrams, 29 bytes ") ||
		!strings.Contains(stderr, "cut off") {
		t.Errorf("exit code %d, output %q, errors %q", code, stdout, stderr)
	}
	next()
	if got := next(); got != "b:oops|c\nb:1|g" {
		t.Errorf("the receiver got %q, want both lines of the second datagram", got)
	}
}

func TestReplayPrints(t *testing.T) {
	file, _ := aCapture(t)
	code, stdout, _ := freshet(t, "replay", file, "--print", "--from", "500ms", "--until", "1s")
	at := time.Unix(1_795_228_020, 5e8).Format("15:04:05.000")
	indent := strings.Repeat(" ", len(at)+2+21+2)
	want := at + "  -                      b:oops|c\n" + indent +
		"  ^ bad_value: expected a decimal number, such as 1, -0.5 or 1e3\n" +
		at + "  -                      b:1|g\n"
	if code != command.OK || stdout != want {
		t.Errorf("exit code %d\n%s\nwant\n%s", code, stdout, want)
	}
}

// The mark is below the faulty byte, whatever precedes that byte. This also holds for lines that
// came as JSON text.
func TestTailMarksTheByte(t *testing.T) {
	for _, tt := range []struct{ line, shown, mark string }{
		{"price:1,5|g", "price:1,5|g", "       ^ "},
		{"t\tab:1,5|c", `t\x09ab:1,5|c`, "         ^ "},
		{"\x1b\xe4ad:1,5|c", `\x1b\xe4ad:1,5|c`, "            ^ "},
		{"日本:1,5|c", "日本:1,5|c", "      ^ "},
	} {
		for line := range tail.New(tail.Filter{}, nil).Lines(&capture.Datagram{Data: []byte(tt.line)}) {
			text, err := json.Marshal(line)
			if err != nil {
				t.Fatal(err)
			}
			var got tail.Line
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := writeLine(terminal.New(&out, io.Discard), &got); err != nil {
				t.Fatal(err)
			}
			indent := strings.Repeat(" ", len("15:04:05.000")+2+21+2)
			if lines := strings.Split(out.String(), "\n"); !strings.HasSuffix(lines[0], "  "+tt.shown) ||
				!strings.HasPrefix(lines[1], indent+tt.mark) {
				t.Errorf("%q:\n%s", tt.line, &out)
			}
		}
	}
}

func TestMistakesOfTaps(t *testing.T) {
	file, _ := aCapture(t)
	for _, tt := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"replay", file, "--speed", "0"}, command.Usage, "is not a speed; write a number above 0, or max"},
		{[]string{"replay", "-", "--loop", "2"}, command.Usage, "--loop = 2: must be 1 or more, and 1 for standard input"},
		{[]string{"replay", file, "--rate", "0"}, command.Usage,
			"--rate = 0: must be a number of datagrams a second above 0"},
		{[]string{"replay", file, "--rate", "10", "--speed", "2"}, command.Usage,
			"--rate and --speed: give only one of them"},
		{[]string{"replay", file, "--from", "2s", "--until", "1s"}, command.Usage,
			"--until = 1s: must be after --from, which is 2s"},
		{[]string{"replay", file, "--from", "2s", "--print"}, command.Failure,
			"--from = 2s: is after the last datagram of the capture, which lasts 1s"},
		{[]string{"replay", file, "--to", "udp://127.0.0.1"}, command.Usage,
			"--to = udp://127.0.0.1: has no port from 1 to 65535; write udp://HOST:PORT"},
		{[]string{"replay", file, "--to", "udp://[::1]:x"}, command.Usage, "has no port"},
		{[]string{"replay", file, "--to", "tcp://x"}, command.Usage,
			"--to = tcp://x: is not an address; write udp://HOST:PORT, unixgram:PATH or unix:PATH"},
		{[]string{"replay", file, "--to", "unixgram:/nowhere"}, command.Failure, "is a server listening there?"},
		{[]string{"replay", file + "x"}, command.Failure, "no such file"},
		{[]string{"tail", "--sample", "0"}, command.Usage, "sample = 0: must be above 0 and at most 1, such as 0.01"},
		{[]string{"tail", "--sender", "web-1"}, command.Usage,
			"sender = web-1: must be an address or a network, such as 10.1.2.3 or 10.0.0.0/8"},
		{[]string{"tail", "--max-rate", "-1"}, command.Usage, "max_rate = -1: must be a number of lines a second, " +
			"or 0 for no limit"},
	} {
		if code, _, stderr := freshet(t, tt.args...); code != tt.code || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%v: exit code %d, %q", tt.args, code, stderr)
		}
	}
}

// A capture ends when it has enough datagrams, never overwrites a file, and reports how many
// datagrams the server missed.
func TestCapture(t *testing.T) {
	_, whole := aCapture(t)
	answering := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(whole)
	}))
	defer answering.Close()
	server := answering.URL
	file := filepath.Join(t.TempDir(), "new.capture")
	code, stdout, stderr := freshet(t, "capture", file, "--server", server, "--datagrams", "2")
	if code != command.OK || !strings.HasPrefix(stdout, file+": 2 datagrams, 29 bytes in ") {
		t.Errorf("exit code %d, output %q, errors %q", code, stdout, stderr)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(whole, got) {
		t.Errorf("the file holds %q, want a beginning of %q; error %v", got, whole, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if code, _, stderr := freshet(t, "capture", file, "--server", server); code != command.Failure ||
		!strings.Contains(stderr, "exists already") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	code, stdout, stderr = freshet(t, "capture", "-", "--json", "--server", server)
	if code != command.Failure || stdout != string(whole) || !strings.Contains(stderr, "the server ended the stream") {
		t.Errorf("exit code %d, output %q, errors %q", code, stdout, stderr)
	}
}
