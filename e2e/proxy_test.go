package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// door is an address at which a server can be reached: its own, or a proxy's.
type door struct {
	name   string
	client http.Client
	host   string // the host in its URL
}

// atTCP returns the door at a TCP address.
func atTCP(name, address string) *door {
	return &door{name: name, host: address, client: http.Client{Timeout: 10 * time.Second}}
}

// atSocket returns the door at a Unix socket.
func atSocket(name, path string) *door {
	return &door{name: name, host: "localhost", client: http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}}}
}

// ask sends a request with the given headers, which are separated by "; ". The header Host sets the
// request's field Host.
func (d *door) ask(method, path, headers string) (status int, body string, err error) {
	r, err := http.NewRequest(method, "http://"+d.host+path, nil)
	if err != nil {
		return 0, "", err
	}
	for header := range strings.SplitSeq(headers, "; ") {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			r.Host = value
		} else if name != "" {
			r.Header.Add(name, value)
		}
	}
	resp, err := d.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// operates checks that operator endpoints answer requests through a door, or refuse them if `want` is
// false.
func (d *door) operates(t *testing.T, headers string, want bool) {
	t.Helper()
	for _, path := range []string{"GET /debug/pprof/cmdline",
		"GET /api/v1/status/records", "POST /-/reload", "POST /api/v1/status/diff"} {
		method, path, _ := strings.Cut(path, " ")
		status, text, err := d.ask(method, path, headers)
		if err != nil || (status == http.StatusOK) != want || !want && status != http.StatusForbidden {
			t.Errorf("%s, headers %q: %s %s returned %d %s, error %v; want an answer: %t",
				d.name, headers, method, path, status, text, err, want)
		}
	}
}

// proxies are a real HAProxy and a real nginx in front of a server.
type proxies struct {
	forwardfor *door // HAProxy with option forwardfor
	silent     *door // HAProxy that adds nothing
	nginx      *door // nginx with its defaults
	realIP     *door // nginx with X-Real-IP
}

// startProxies starts both proxies. HAProxy inherits listeners on ports that the kernel chose;
// nginx listens on Unix sockets.
func startProxies(t *testing.T, server string) (p proxies) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".cache"))
	if err != nil {
		t.Fatal(err)
	}
	dir := dataDir(t)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := write("haproxy.cfg", fmt.Sprintf(`defaults
  mode http
  timeout connect 10s
  timeout client 10s
  timeout server 10s
listen forwardfor
  bind fd@3
  option forwardfor
  server freshet %[1]s
listen silent
  bind fd@4
  server freshet %[1]s
`, server))
	haproxy := exec.Command(filepath.Join(root, "haproxy", "usr/sbin/haproxy"), "-db", "-f", config)
	libraries, _ := filepath.Glob(filepath.Join(root, "haproxy", "*/lib*/*-linux-gnu"))
	more, _ := filepath.Glob(filepath.Join(root, "haproxy", "lib/*-linux-gnu"))
	haproxy.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(append(libraries, more...), ":"))
	var addresses []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		file, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		defer l.Close()
		haproxy.ExtraFiles = append(haproxy.ExtraFiles, file)
		addresses = append(addresses, l.Addr().String())
	}
	runProxy(t, haproxy, "e2e/proxy/install")

	config = write("nginx.conf", fmt.Sprintf(`daemon off;
user root;
pid %[1]s/nginx.pid;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  server { listen unix:%[1]s/nginx.sock; location / { proxy_pass http://%[2]s; } }
  server { listen unix:%[1]s/real.sock; location / { proxy_set_header X-Real-IP $remote_addr; proxy_pass http://%[2]s; } }
}
`, dir, server))
	runProxy(t,
		exec.Command(filepath.Join(root, "nginx", "usr/sbin/nginx"), "-p", dir, "-c", config, "-e",
			filepath.Join(dir, "error.log")), "lua/install")
	p = proxies{
		forwardfor: atTCP("HAProxy with forwardfor", addresses[0]), silent: atTCP("HAProxy that adds nothing", addresses[1]),
		nginx:  atSocket("nginx with its defaults", filepath.Join(dir, "nginx.sock")),
		realIP: atSocket("nginx with X-Real-IP", filepath.Join(dir, "real.sock")),
	}
	for _, d := range []*door{p.silent, p.nginx} { // these two do not reveal a proxy to the server
		eventually(t, startLimit, d.name+" answers", func() error {
			_, _, err := d.ask(http.MethodGet, "/-/healthy", "")
			return err
		})
	}
	return p
}

// runProxy runs a proxy until the test ends.
func runProxy(t *testing.T, cmd *exec.Cmd, install string) {
	t.Helper()
	said := &output{}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s, which %s installs: %v", cmd.Path, install, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("%s logged:\n%s", cmd.Path, said)
		}
	})
}

// A proxy on the server's machine opens no operator endpoint to its clients, whatever headers the
// clients send and the proxy adds. The proxy's requests come from a loopback address. An empty
// X-Forwarded-For, to which a real HAProxy adds nothing, once hid the proxy from the server. Once the
// server has seen a proxy, it answers operators only on operator.sock.
func TestProxies(t *testing.T) {
	t.Parallel()
	for _, headers := range []string{"", "; X-Forwarded-For: ", "; X-Forwarded-For: 127.0.0.1"} {
		p := start(t, dataDir(t))
		front := startProxies(t, p.HTTP)
		own, operator := atTCP("loopback", p.HTTP), atSocket("operator.sock", filepath.Join(p.dataDir, "operator.sock"))
		local := "Host: " + p.HTTP
		for _, d := range []*door{front.forwardfor, front.realIP, front.silent, front.nginx, own} {
			d.operates(t, local+headers, false) // once the first door reveals a proxy, all doors refuse
		}
		operator.operates(t, "", true)
		p.says(t, "operator endpoints are no longer answered on loopback")
		if headers != "" {
			continue
		}
		if n, err := p.ownMetric("freshet_http_operator_loopback"); err != nil || n != 0 {
			t.Errorf("freshet_http_operator_loopback is %g, want 0; error %v", n, err)
		}

		// The server remembers the proxy across a restart in place, and operator.sock stays open.
		if out, err := exec.Command(freshet, "restart", "--data-dir", p.dataDir).CombinedOutput(); err != nil {
			t.Fatalf("restart: %v: %s", err, out)
		}
		own.operates(t, local, false)
		operator.operates(t, "", true)

		// A stop and a start forget the proxy.
		p.terminate(t)
		if _, err := os.Lstat(filepath.Join(p.dataDir, "operator.sock")); !os.IsNotExist(err) {
			t.Errorf("a regular stop left operator.sock: %v", err)
		}
		again := start(t, p.dataDir)
		atTCP("loopback", again.HTTP).operates(t, "", true)
	}
}

// A server behind proxies that add no header refuses operators on loopback if http.operator_loopback
// is false. Commands find operator.sock without any setting.
func TestProxiesThatAddNothing(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t), "--http-operator-loopback=false", "--http-hosts=metrics.example")
	front := startProxies(t, p.HTTP)
	for _, d := range []*door{front.silent, front.nginx, atTCP("loopback", p.HTTP)} {
		d.operates(t, "Host: "+p.HTTP, false)
	}
	for _, args := range [][]string{{"diff", "-"}, {"diagnose"}, {"top", "--once"}, {"query", "1"}, {"ledger"}} {
		cmd := exec.Command(freshet, args...)
		cmd.Env = append(os.Environ(), "FRESHET_DATA_DIR="+p.dataDir, "FRESHET_SERVER=")
		if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "needs a restart") {
			t.Errorf("freshet %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	for _, tt := range []struct {
		method, path, host string
		refused            bool
	}{
		{http.MethodGet, "/api/v1/query?query=1", "metrics.example", false},
		{http.MethodGet, "/api/v1/query?query=1", "other.example", true},
		{http.MethodPost, "/api/v1/write", "other.example", false}, // not from a browser
	} {
		status, text, err := front.silent.ask(tt.method, tt.path, "Host: "+tt.host)
		if err != nil || (status == http.StatusForbidden) != tt.refused {
			t.Errorf("%s %s with host %s: got %d %s, error %v", tt.method, tt.path, tt.host, status, text, err)
		}
	}
}

// Behind a real HAProxy that the server trusts, a sender has the address that HAProxy saw, whatever header the sender
// adds itself. A sender that does not come through HAProxy has its own address. Senders of one address have the names
// of their tokens.
func TestSendersBehindAProxy(t *testing.T) {
	t.Parallel()
	tokens := "tenants:\n- name: fleet\n  tokens:\n"
	for _, name := range []string{"web", "shop"} {
		tokens += fmt.Sprintf("  - {name: %s, sha256: %x}\n", name, sha256.Sum256([]byte("token-of-"+name)))
	}
	file := filepath.Join(t.TempDir(), "tenants.yaml")
	if err := os.WriteFile(file, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dataDir(t), "--http-trusted-proxies=127.0.0.1", "--http-tenants-file", file)
	front := startProxies(t, p.HTTP)
	for _, c := range []struct{ token, from, to string }{
		{"token-of-web", "127.0.0.2", front.forwardfor.host},
		{"token-of-shop", "127.0.0.2", front.forwardfor.host},
		{"token-of-web", "127.0.0.3", p.HTTP},
	} {
		d, dialer := atTCP("a sender", c.to), net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.from)}}
		d.client.Transport = &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
		_, text, err := d.ask(http.MethodPost, "/api/v1/write", "User-Agent: agent/1; X-Forwarded-For: 198.51.100.1; "+
			"Authorization: Bearer "+c.token)
		if err != nil || !strings.Contains(text, "snappy") {
			t.Fatalf("a write without a body is answered %q, want a refusal that names snappy; error %v", text, err)
		}
	}
	cmd := exec.Command(freshet, "senders", "--server", p.HTTP)
	cmd.Env = append(os.Environ(), "FRESHET_TOKEN=token-of-web")
	out, err := cmd.CombinedOutput()
	var listed []string
	for line := range strings.Lines(string(out)) {
		if name, _, found := strings.Cut(line, ", agent/1"); found {
			listed = append(listed, name)
		}
	}
	slices.Sort(listed)
	if want := []string{"shop, 127.0.0.2", "web, 127.0.0.2", "web, 127.0.0.3"}; err != nil || !slices.Equal(listed, want) {
		t.Errorf("freshet senders lists %q, want %q; error %v\n%s", listed, want, err, out)
	}
}
