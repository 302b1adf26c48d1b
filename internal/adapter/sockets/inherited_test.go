//go:build linux

package sockets

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// succeed makes a listener of the socket that l.Leave returns.
func succeed(t *testing.T, l *Listener, c Config, stop func()) *Listener {
	t.Helper()
	file, err := l.Leave()
	if err != nil {
		t.Fatal(err)
	}
	_, drops, _ := l.Booked()
	stop()
	c.Inherited = []Inherited{{File: file, Drops: drops}}
	return listen(t, c)
}

// The reader of a socket may be replaced over and over without effect on senders: each packet is
// handed over once and in order.
func TestNothingIsLostBetweenAListenerAndItsSuccessor(t *testing.T) {
	const successors, packets, queued = 20, 1000, 100 // any receive buffer has room for `queued` packets
	for _, kind := range kinds[:2] {
		t.Run(kind.name, func(t *testing.T) {
			config := kind.config(t)
			l, r := listen(t, config), newRecorder()
			stop := run(t, l, r)
			c := dial(t, l)
			want := numbered(successors * packets)
			sent := make(chan error, 1)
			progress := make(chan struct{}, successors)
			go func() {
				for i, p := range want {
					for i-r.count() >= queued {
						runtime.Gosched()
					}
					if _, err := c.Write(kind.wire(p)); err != nil {
						sent <- err
						return
					}
					if i%packets == packets/2 {
						progress <- struct{}{}
					}
				}
				sent <- nil
			}()
			for range successors {
				<-progress
				l = succeed(t, l, config, stop)
				stop = run(t, l, r)
			}
			if err := <-sent; err != nil {
				t.Fatalf("a sender got an error: %v", err)
			}
			r.expect(t, want)
		})
	}
}

func TestASuccessorTakesConnectionsThatWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	config := Config{Network: "unix", Address: path}
	l, r := listen(t, config), newRecorder()
	stop := run(t, l, r)
	before := dial(t, l)
	write(t, before, frame("first"))
	r.expect(t, []string{"first"})
	write(t, before, frame("second"))
	l = succeed(t, l, config, stop)
	if got := r.got(); len(got) != 2 {
		t.Errorf("got %q: some data written before the end was not handed over", got)
	}
	if _, err := before.Write(frame("lost")); err == nil {
		t.Error("an old connection accepts data, although nothing reads it")
	}
	waiting := dial(t, l)
	write(t, waiting, frame("third"))
	run(t, l, r)
	r.expect(t, []string{"first", "second", "third"})
}

func TestWhoeverStopsLastRemovesTheFile(t *testing.T) {
	for _, network := range []string{"unixgram", "unix"} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/shared=%t", network, shared), func(t *testing.T) {
				config := Config{Network: network, Address: testAddress(t, network)}
				l := listen(t, config)
				file, err := l.Leave()
				if err != nil {
					t.Fatal(err)
				}
				run(t, l, newRecorder())()
				if _, err := os.Lstat(config.Address); err != nil {
					t.Fatalf("the file is gone while a successor waits: %v", err)
				}
				config.Inherited = []Inherited{{File: file, Shared: shared}}
				run(t, listen(t, config), newRecorder())()
				if _, err := os.Lstat(config.Address); os.IsNotExist(err) == shared {
					t.Errorf("after Run, Lstat of the file returned %v; want the file only if the socket is shared",
						err)
				}
			})
		}
	}
}

// The kernel counts drops from a socket's creation. A listener does not report drops that its
// predecessor reported. It does report drops that happened between the two listeners.
func TestDropsAreToldOnceAcrossSuccessors(t *testing.T) {
	config := Config{Network: "udp", Address: "127.0.0.1:0", ReceiveBuffer: 4096}
	l := listen(t, config)
	c := dial(t, l)
	flood := func() {
		for range 500 {
			write(t, c, []byte("a:1|c"))
		}
	}
	flood()
	told := l.Drops()
	flood()
	cookie, booked, ok := l.Booked()
	if told == 0 || !ok || uint64(booked) != told {
		t.Fatalf("Booked returned %d drops and ok = %t; want %d and true", booked, ok, told)
	}
	file, err := l.Leave()
	if err != nil {
		t.Fatal(err)
	}
	config.Inherited = []Inherited{{File: file, Drops: booked}}
	next := listen(t, config)
	if again, _, _ := next.Booked(); again != cookie {
		t.Errorf("the cookie of the socket changed from %d to %d", cookie, again)
	}
	if all := l.Drops(); told+next.Drops() != all || next.Drops() < 500 {
		t.Errorf("the first listener reported %d drops and its successor %d, want %d in total", told, next.Drops(), all)
	}
}

func TestAdoptionKeepsTheLargerReceiveBuffer(t *testing.T) {
	for _, tt := range []struct{ before, wanted, after int }{
		{16 << 10, 64 << 10, 64 << 10},
		{64 << 10, 16 << 10, 64 << 10},
	} {
		config := Config{Network: "udp", Address: "127.0.0.1:0", ReceiveBuffer: tt.before}
		file, err := listen(t, config).Leave()
		if err != nil {
			t.Fatal(err)
		}
		config.ReceiveBuffer, config.Inherited = tt.wanted, []Inherited{{File: file}}
		l := listen(t, config)
		if wanted, granted := l.ReceiveBuffer(); wanted != tt.wanted || granted != tt.after || len(l.Warnings()) > 0 {
			t.Errorf("the old buffer has %d bytes, and %d are wanted: got %d, want %d; warnings %q",
				tt.before, wanted, granted, tt.after, l.Warnings())
		}
	}
}

func TestTheReceiveBufferOfALiveSocketChanges(t *testing.T) {
	l := listen(t, Config{Network: "udp", Address: "127.0.0.1:0", ReceiveBuffer: 16 << 10})
	r := newRecorder()
	run(t, l, r)
	if err := l.SetReceiveBuffer(128 << 10); err != nil {
		t.Fatal(err)
	}
	if wanted, granted := l.ReceiveBuffer(); wanted != 128<<10 || granted != 128<<10 || len(l.Warnings()) > 0 {
		t.Errorf("asked for %d and granted %d, want 131072 for both; warnings %q", wanted, granted, l.Warnings())
	}
	if err := l.SetReceiveBuffer(2 << 30); err == nil && len(l.Warnings()) != 1 {
		t.Errorf("got %q, want a warning about a buffer larger than any kernel grants", l.Warnings())
	}
	c := dial(t, l)
	write(t, c, []byte("a:1|c"))
	r.expect(t, []string{"a:1|c"})
}

func TestAdoptionRefusesASocketOfAnotherKind(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tcp.Close() }()
	udp := listen(t, Config{Network: "udp", Address: "127.0.0.1:0"})
	for network, leave := range map[string]func() (*os.File, error){
		"udp": tcp.(*net.TCPListener).File, "unix": tcp.(*net.TCPListener).File, "unixgram": udp.Leave,
	} {
		file, err := leave()
		if err != nil {
			t.Fatal(err)
		}
		_, err = Listen(Config{Network: network, Address: "/run/s", Inherited: []Inherited{{File: file}}})
		if err == nil || !strings.Contains(err.Error(), "listen on "+network+" /run/s: take over the open socket") {
			t.Errorf("%s: %v", network, err)
		}
		if _, err := file.Stat(); err == nil {
			t.Errorf("%s: the file stays open", network)
		}
	}
}
