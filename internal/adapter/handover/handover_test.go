//go:build linux

package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The test binary is also the program that receives the sockets.
func TestMain(m *testing.M) {
	switch os.Getenv("HANDOVER_TEST") {
	case "tell":
		tell()
	case "again": // pass them on to another image, as a restart in place does
		s, err := Inherit()
		if err == nil {
			_, _ = os.Setenv("HANDOVER_TEST", "tell"), os.Setenv("HANDOVER_AGAIN", "1")
			err = Exec(os.Args[0], os.Args, s.Left())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	default:
		os.Exit(m.Run())
	}
}

// told has the fields that the receiving program prints about a socket.
type told struct {
	Network, Address, Name string
	Shared, Known          bool
	SharedLater            bool // the result of Sockets.Shared for the socket's file
}

func tell() {
	s, err := Inherit()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	all := []told{}
	for _, l := range s.Left() {
		later, err := s.Shared(l.File)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		all = append(all, told{l.Network, l.Address, l.Name, l.Shared, l.Cookie > 0, later})
	}
	if again := os.Getenv("HANDOVER_AGAIN") != ""; s.Again() != again {
		fmt.Fprintln(os.Stderr, "passed by an image before:", s.Again())
	}
	for _, name := range os.Environ() {
		if strings.HasPrefix(name, "LISTEN_") {
			fmt.Fprintln(os.Stderr, "left in the environment:", name)
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(all)
}

func files(t *testing.T, sockets ...interface{ File() (*os.File, error) }) (all []*os.File) {
	t.Helper()
	for _, s := range sockets {
		f, err := s.File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		all = append(all, f)
	}
	return all
}

// noIPv6 reports whether err means that this machine has no IPv6.
func noIPv6(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// Sockets pass from systemd to a program, and from there to its next image.
func TestSocketsReachTheProgramAndItsNextImage(t *testing.T) {
	dir := t.TempDir()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = udp.Close() }()
	tcp, err := net.Listen("tcp", "[::1]:0")
	if noIPv6(err) {
		tcp, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tcp.Close() }()
	gram, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "gram"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = gram.Close() }()
	stream, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "stream"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	want := []told{
		{"udp", udp.LocalAddr().String(), "a", true, true, true},
		{"tcp", tcp.Addr().String(), "b", true, true, true},
		{"unixgram", gram.LocalAddr().String(), "", true, true, true},
		{"unix", stream.Addr().String(), "", true, true, true},
	}
	for _, what := range []string{"tell", "again"} {
		cmd := exec.Command("sh", "-c", `export LISTEN_PID=$$; exec "$0"`, os.Args[0])
		cmd.Env = append(os.Environ(), "HANDOVER_TEST="+what, "LISTEN_FDS=4", "LISTEN_FDNAMES=a:b")
		cmd.ExtraFiles = files(t, udp.(*net.UDPConn), tcp.(*net.TCPListener), gram, stream)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || stderr.Len() > 0 {
			t.Fatalf("%s: %v\n%s", what, err, &stderr)
		}
		var got []told
		if err := json.Unmarshal(out, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", what, err, got, want)
		}
	}
}

func TestVariables(t *testing.T) {
	for _, tt := range []struct {
		why, env, want string
	}{
		{"nothing was passed", "", "[] <nil>"},
		{"meant for the parent", "LISTEN_PID=6 LISTEN_FDS=2", "[] <nil>"},
		{"systemd", "LISTEN_PID=7 LISTEN_FDS=2 LISTEN_FDNAMES=x", "[{3 x true} {4  true}] <nil>"},
		{"not a number", "LISTEN_PID=7 LISTEN_FDS=many", "[] LISTEN_FDS=many is not a number of sockets"},
		{"more than descriptors", "LISTEN_PID=7 LISTEN_FDS=2000000000",
			"[] LISTEN_FDS=2000000000 is not a number of sockets"},
		{"the previous image's variable wins over systemd's",
			`LISTEN_PID=7 LISTEN_FDS=1 LISTEN_FRESHET=[{"fd":9,"name":"n"}]`,
			"[{9 n false}] <nil>"},
		{"a value that no image writes", "LISTEN_FRESHET=3",
			"[] LISTEN_FRESHET=3: json: cannot unmarshal number into Go value of type []handover.passed"},
	} {
		t.Run(tt.why, func(t *testing.T) {
			list, err := parse(7, func(name string) (string, bool) {
				for _, pair := range strings.Fields(tt.env) {
					if value, ok := strings.CutPrefix(pair, name+"="); ok {
						return value, true
					}
				}
				return "", false
			})
			if got := fmt.Sprint(list, err); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestWhichSocketServesWhichAddress(t *testing.T) {
	for _, tt := range []struct {
		bound, wanted string
		same          bool
	}{
		{"127.0.0.1:8125", "127.0.0.1:8125", true},
		{"127.0.0.1:8125", "localhost:8125", true},
		{"127.0.0.1:8125", "127.0.0.1:8126", false},
		{"127.0.0.1:8125", "0.0.0.0:8125", false},
		{"0.0.0.0:8125", "0.0.0.0:8125", true},
		{"[::]:8125", "0.0.0.0:8125", true},
		{"[::]:8125", ":8125", true},
		{"[::]:8125", "[::]:8125", true},
		{"0.0.0.0:8125", "[::]:8125", false},
		{"0.0.0.0:8125", "127.0.0.1:8125", false},
		{"[::1]:8125", "[::1]:8125", true},
	} {
		if got := sameAddress(tt.bound, tt.wanted, false); got != tt.same {
			t.Errorf("a socket bound to %s serves the address %s: got %t, want %t", tt.bound, tt.wanted, got, tt.same)
		}
	}
}

// A socket of a unit with BindIPv6Only=ipv6-only does not serve an address that needs IPv4 as well.
func TestASocketForIPv6OnlyServesNoIPv4(t *testing.T) {
	for _, only := range []int{0, 1} {
		fd, err := syscall.Socket(syscall.AF_INET6, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
		if noIPv6(err) {
			return // then systemd cannot pass such a socket either
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, only); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Bind(fd, &syscall.SockaddrInet6{}); err != nil {
			t.Fatal(err)
		}
		s, err := inspect(passed{FD: fd})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.File.Close() }()
		_, port, err := net.SplitHostPort(s.Address)
		if err != nil {
			t.Fatal(err)
		}
		for wanted, want := range map[string]bool{"[::]:" + port: true, "0.0.0.0:" + port: only == 0, ":" + port: only == 0} {
			if got := s.is("udp", wanted); got != want {
				t.Errorf("with IPV6_V6ONLY=%d the socket serves %s: got %t, want %t", only, wanted, got, want)
			}
		}
	}
}

func TestTakeLeavesTheOthers(t *testing.T) {
	dir := t.TempDir()
	s := &Sockets{left: []Socket{
		{Network: "udp", Address: "127.0.0.1:40001", Name: "127.0.0.1:0"},
		{Network: "tcp", Address: "127.0.0.1:8125"},
		{Network: "udp", Address: "127.0.0.1:8125", Name: "one"},
		{Network: "udp", Address: "127.0.0.1:8125", Name: "two", Shared: true},
		{Network: "unixgram", Address: filepath.Join(dir, "s")},
	}}
	count := func(network, address string, want int) {
		t.Helper()
		if got := s.Take(network, address); len(got) != want {
			t.Errorf("%s %s: %d sockets, want %d", network, address, len(got), want)
		}
	}
	count("udp", "127.0.0.1:8125", 2)
	count("udp", "127.0.0.1:8125", 0)
	count("udp", "two", 0)
	count("udp", "127.0.0.1:0", 1)
	count("unix", filepath.Join(dir, "s"), 0)
	count("unixgram", filepath.Join(dir, ".", "s"), 1)
	if left := s.Left(); len(left) != 1 || left[0].Network != "tcp" {
		t.Errorf("left: %+v", left)
	}
}

// Two addresses with port 0 have the same spelling, but are two sockets.
func TestTakeOneLeavesTheOtherOfTheSameName(t *testing.T) {
	s := &Sockets{left: []Socket{
		{Network: "tcp", Address: "127.0.0.1:40001", Name: "127.0.0.1:0"},
		{Network: "udp", Address: "127.0.0.1:40002", Name: "127.0.0.1:0"},
		{Network: "tcp", Address: "127.0.0.1:40003", Name: "127.0.0.1:0"},
	}}
	for _, want := range []string{"127.0.0.1:40001", "127.0.0.1:40003", ""} {
		if one, ok := s.TakeOne("tcp", "127.0.0.1:0"); one.Address != want || ok != (want != "") {
			t.Errorf("took %q, %t; want %q", one.Address, ok, want)
		}
	}
	if left := s.Left(); len(left) != 1 || left[0].Network != "udp" {
		t.Errorf("left: %+v", left)
	}
}

func TestInheritRefusesWhatIsNoSocket(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	fd, err := syscall.Dup(int(null.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	t.Setenv("LISTEN_FRESHET", `[{"fd":`+strconv.Itoa(fd)+`,"name":"x"}]`)
	if _, err := Inherit(); err == nil || !strings.Contains(err.Error(), `socket "x" that was passed as file`) {
		t.Errorf("got %v", err)
	}
}

func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	if err := Notify(Ready); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if n, err := c.Read(b); err != nil || string(b[:n]) != "READY=1" {
		t.Errorf("systemd got %q, %v", b[:n], err)
	}
	t.Setenv("NOTIFY_SOCKET", path+"-gone")
	if err := Notify(Ready); err == nil || !strings.HasPrefix(err.Error(), "tell systemd READY=1: ") {
		t.Errorf("got %v", err)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify(Ready); err != nil {
		t.Errorf("without systemd: %v", err)
	}
}
