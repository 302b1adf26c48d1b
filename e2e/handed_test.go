package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// handed are sockets that the test holds, as systemd would, and hands to each
// process: what is sent while none runs waits in them.
type handed struct {
	http, udp, unixgram, unix string // addresses
	files                     []*os.File
}

func bindSockets(t *testing.T, dir string) *handed {
	t.Helper()
	h := &handed{unixgram: filepath.Join(dir, "dgram.sock"), unix: filepath.Join(dir, "stream.sock")}
	keep := func(socket interface{ File() (*os.File, error) }, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		f, err := socket.File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		h.files = append(h.files, f)
	}
	web, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	keep(web, err)
	h.http = web.Addr().String()
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	keep(udp, err)
	h.udp = udp.LocalAddr().String()
	dgram, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: h.unixgram, Net: "unixgram"})
	keep(dgram, err)
	stream, err := net.ListenUnix("unix", &net.UnixAddr{Name: h.unix, Net: "unix"})
	keep(stream, err)
	stream.SetUnlinkOnClose(false)
	for _, duplicate := range []interface{ Close() error }{web, udp, dgram, stream} {
		_ = duplicate.Close()
	}
	return h
}

func (h *handed) address(network string) string {
	return map[string]string{"udp": h.udp, "unixgram": h.unixgram, "unix": h.unix}[network]
}

// startWith runs freshet with these sockets, as systemd does.
func startWith(t *testing.T, h *handed, dir string, args ...string) *process {
	t.Helper()
	script := fmt.Sprintf(`export LISTEN_PID=$$ LISTEN_FDS=%d; exec "$@"`, len(h.files))
	cmd := exec.Command("sh", append([]string{"-c", script, "sh", freshet, "serve", "--data-dir", dir, "--http-listen", h.http,
		"--dogstatsd-udp", h.udp, "--dogstatsd-unixgram", h.unixgram, "--dogstatsd-unix", h.unix}, args...)...)
	cmd.ExtraFiles = h.files
	return launch(t, dir, cmd)
}

// restartInPlace has the process replace itself and waits until it is ready.
func (p *process) restartInPlace(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(freshet, "restart", "--data-dir", p.dataDir).CombinedOutput(); err != nil {
		t.Fatalf("restart in place: %v\n%s", err, out)
	}
}
