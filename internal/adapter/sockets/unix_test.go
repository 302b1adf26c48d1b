//go:build linux

package sockets

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

var unixNetworks = []string{"unixgram", "unix"}

func TestUnixSocketFileHasItsModeAndLeavesWithItsListener(t *testing.T) {
	for _, network := range unixNetworks {
		for _, c := range []struct{ mode, want fs.FileMode }{{0, 0o722}, {0o600, 0o600}} {
			t.Run(fmt.Sprintf("%s %o", network, c.mode), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "s")
				l := listen(t, Config{Network: network, Address: path, Mode: c.mode})
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				if got := info.Mode().Perm(); got != c.want {
					t.Errorf("mode %o, want %o", got, c.want)
				}
				run(t, l, newRecorder())() // starts and stops the listener
				if _, err := os.Lstat(path); !os.IsNotExist(err) {
					t.Errorf("the file is still there: %v", err)
				}
			})
		}
	}
}

func TestUnixPathInUse(t *testing.T) {
	for _, network := range unixNetworks {
		for _, other := range unixNetworks {
			t.Run(network+" where "+other+" listens", func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "s")
				l := listen(t, Config{Network: other, Address: path})
				_, err := Listen(Config{Network: network, Address: path})
				want := fmt.Sprintf("listen on %s %s: the path is in use by another process; `ss -xap src %s` shows which: "+
					"stop that process, or choose another path", network, path, path)
				if err == nil || err.Error() != want {
					t.Fatalf("error\n%v\nwant\n%s", err, want)
				}
				r := newRecorder()
				run(t, l, r)
				wire := map[string][]byte{"unixgram": []byte("a:1|c"), "unix": frame("a:1|c")}
				write(t, dial(t, l), wire[other])
				r.expect(t, []string{"a:1|c"}) // the probe did not disturb the listener
			})
		}
	}
}

// A killed process leaves its socket file behind.
func TestUnixStaleFileIsReplaced(t *testing.T) {
	for _, network := range unixNetworks {
		for _, left := range unixNetworks {
			t.Run(network+" after "+left, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "s")
				leave(t, left, path)
				l := listen(t, Config{Network: network, Address: path})
				run(t, l, newRecorder())
				dial(t, l)
			})
		}
	}
}

// leave binds a socket of the given type and closes it without removing its file.
func leave(t *testing.T, network, path string) {
	t.Helper()
	address := &net.UnixAddr{Name: path, Net: network}
	var err error
	if network == "unixgram" {
		var c *net.UnixConn
		if c, err = net.ListenUnixgram(network, address); err == nil {
			err = c.Close()
		}
	} else {
		var ln *net.UnixListener
		if ln, err = net.ListenUnix(network, address); err == nil {
			ln.SetUnlinkOnClose(false)
			err = ln.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
}

func TestUnixOrdinaryFileInTheWayIsKept(t *testing.T) {
	for _, network := range unixNetworks {
		t.Run(network, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Listen(Config{Network: network, Address: path})
			if err == nil || !strings.Contains(err.Error(), path+": a file that is not a socket is in the way; move it") {
				t.Errorf("error %v", err)
			}
			if b, _ := os.ReadFile(path); string(b) != "precious" {
				t.Errorf("the file now holds %q", b)
			}
		})
	}
}

// A user removes the file by hand and starts a second process. When the first process stops, it must
// not remove the file of the second.
func TestUnixSuccessorsFileIsKept(t *testing.T) {
	for _, network := range unixNetworks {
		t.Run(network, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			first := listen(t, Config{Network: network, Address: path})
			stop := run(t, first, newRecorder())
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			second := listen(t, Config{Network: network, Address: path})
			stop()
			run(t, second, newRecorder())
			dial(t, second)
		})
	}
}

// While a listener drains, a sender must get an error: otherwise the kernel would accept
// datagrams that nothing reads.
func TestUnixgramSendersAreToldAtTheDrain(t *testing.T) {
	l := listen(t, Config{Network: "unixgram", Address: filepath.Join(t.TempDir(), "s")})
	c := dial(t, l)
	write(t, c, []byte("a:1|c"))
	l.socket.(*datagrams).release()
	if _, err := c.Write([]byte("b:1|c")); err == nil {
		t.Error("a write during the drain succeeded")
	}
	r := newRecorder()
	run(t, l, r)
	r.expect(t, []string{"a:1|c"})
}

func TestUnixgramQueueWarning(t *testing.T) {
	if w := queueWarning("/run/s", "512\n"); w != nil {
		t.Errorf("warnings %q for a long queue, want none", w)
	}
	if w := queueWarning("/run/s", ""); w != nil {
		t.Errorf("warnings %q for a setting that cannot be read, want none", w)
	}
	want := "unixgram /run/s: the kernel queues only 10 datagrams, and further ones fail on the sender's side; " +
		"run `sysctl -w net.unix.max_dgram_qlen=512`, then stop and start Freshet: a restart in place keeps the " +
		"socket and its queue"
	if w := queueWarning("/run/s", "10\n"); len(w) != 1 || w[0] != want {
		t.Errorf("warnings %q, want %q", w, want)
	}
}

// Of datagrams that come one by one, one in TimedEvery is timed. Between two of them, the reader finds the socket
// empty once.
func TestDatagramsThatComeOneByOneAreTimed(t *testing.T) {
	var timed atomic.Int64
	l := listen(t, Config{Network: "unixgram", Address: testAddress(t, "unixgram"), Timed: func(Timing) { timed.Add(1) }})
	r := newRecorder()
	stop := run(t, l, r)
	c := dial(t, l)
	for i := range 3 * TimedEvery {
		write(t, c, []byte("a:1|c"))
		r.wait(t, "the packet that was sent", func() bool { return r.count() > i })
	}
	stop()
	if n := timed.Load(); n != 3 {
		t.Errorf("%d batches of %d were timed, want 3", n, 3*TimedEvery)
	}
}
