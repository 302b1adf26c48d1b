package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/template"
	"time"
)

// nginx is a real nginx with our library, installed below .cache by lua/install. It answers "ok"
// on a Unix socket.
type nginx struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	exited chan struct{}
	client http.Client
	sent   atomic.Int64 // requests that were answered with 200
}

var nginxConf = template.Must(template.New("").Parse(`
load_module {{.Nginx}}/usr/lib/nginx/modules/ndk_http_module.so;
load_module {{.Nginx}}/usr/lib/nginx/modules/ngx_http_lua_module.so;
daemon off;
user root;
worker_processes 2;
pid {{.Dir}}/nginx.pid;
error_log {{.Dir}}/error.log notice;
events { worker_connections 256; }
http {
  access_log off;
  lua_package_path "{{.Lua}}/?.lua;{{.Nginx}}/usr/share/lua/5.1/?.lua;;";
  client_body_temp_path {{.Dir}}/body;
  proxy_temp_path {{.Dir}}/proxy;
  fastcgi_temp_path {{.Dir}}/fastcgi;
  uwsgi_temp_path {{.Dir}}/uwsgi;
  scgi_temp_path {{.Dir}}/scgi;
  init_worker_by_lua_block {
    local metrics = assert(require("resty.freshet").new {
      server = "{{.Server}}", interval = {{.Interval}}, exemplars = true,
    })
    http = assert(require("resty.freshet.http").new(metrics, {
      route = function() return ngx.unescape_uri(ngx.var.arg_route) end,
      {{.Options}},
    }))
  }
  exit_worker_by_lua_block { require("resty.freshet").exit() }
  server {
    listen unix:{{.Dir}}/http.sock;
    location / {
      return 200 "ok";
      log_by_lua_block { http:log() }
    }
  }
}
`))

// traced is the option of resty.freshet.http that takes the trace id from the URL.
const traced = `trace = "$arg_trace"`

// startNginx starts an nginx that sends its counts to a server every interval. `options` are the
// options of resty.freshet.http.
func startNginx(t *testing.T, server string, interval time.Duration, options string) *nginx {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	n := &nginx{t: t, dir: dataDir(t), exited: make(chan struct{})}
	conf, err := os.Create(filepath.Join(n.dir, "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(root, ".cache", "nginx")
	err = nginxConf.Execute(conf, map[string]any{
		"Nginx": installed, "Lua": filepath.Join(root, "lua"), "Dir": n.dir, "Server": server, "Interval": interval.Seconds(),
		"Options": options,
	})
	if err = errors.Join(err, conf.Close()); err != nil {
		t.Fatal(err)
	}
	errorLog := filepath.Join(n.dir, "error.log")
	n.cmd = exec.Command(filepath.Join(installed, "usr/sbin/nginx"), "-p", n.dir, "-c", conf.Name(), "-e", errorLog)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := n.cmd.Start(); err != nil {
		t.Fatalf("start nginx, which lua/install installs: %v", err)
	}
	go func() {
		_ = n.cmd.Wait()
		close(n.exited)
	}()
	t.Cleanup(func() {
		n.end(syscall.SIGTERM)
		if text, _ := os.ReadFile(errorLog); t.Failed() {
			t.Logf("nginx logged:\n%s", text)
		}
	})
	n.client = http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(n.dir, "http.sock"))
		},
		MaxIdleConnsPerHost: 8,
	}}
	eventually(t, startLimit, "nginx answers", func() error { return n.get("home") })
	return n
}

// get sends one request for a route.
func (n *nginx) get(route string) error { return n.getTraced(route, "") }

// getTraced sends one request as part of a trace.
func (n *nginx) getTraced(route, trace string) error {
	answer, err := n.client.Get("http://edge/?" + url.Values{"route": {route}, "trace": {trace}}.Encode())
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK || string(body) != "ok" {
		return fmt.Errorf("nginx answered %s %q %w", answer.Status, body, err)
	}
	n.sent.Add(1)
	return nil
}

// ask sends requests on several connections at once. All must be answered.
func (n *nginx) ask(times int) {
	n.t.Helper()
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for range times / 4 {
				if err := n.get("home"); err != nil {
					n.t.Error(err)
					return
				}
			}
		})
	}
	asking.Wait()
}

func (n *nginx) signal(s os.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

// end stops nginx and waits until it has ended. It closes the client's idle connections first,
// because a worker also waits for connections without a request.
func (n *nginx) end(s os.Signal) {
	n.client.CloseIdleConnections()
	_ = n.cmd.Process.Signal(s)
	select {
	case <-n.exited:
	case <-time.After(stopLimit):
		n.t.Errorf("%v after the signal %v, nginx still runs", stopLimit, s)
		_ = n.cmd.Process.Kill()
		<-n.exited
	}
}

// workers returns the process ids of the workers.
func (n *nginx) workers() (pids []int) {
	n.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", n.cmd.Process.Pid))
	if err != nil {
		n.t.Fatal(err)
	}
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			n.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// counted is a check that waits until Freshet has all requests, in the counter and in the histogram.
func (n *nginx) counted(p *process) {
	n.t.Helper()
	for _, expr := range []string{"sum(http_requests)", "histogram_count(sum(http_request_duration))"} {
		eventually(n.t, 30*time.Second, "all requests are counted", func() error {
			if v, err := p.value(expr); err != nil || v != float64(n.sent.Load()) {
				return fmt.Errorf("%s is %v of %d, %w", expr, v, n.sent.Load(), err)
			}
			return nil
		})
	}
}

// Each request is counted once, whatever happens to the workers. Each reload replaces them, and at
// the end the workers stop at once (TERM) or after their last answer (QUIT).
func TestEdgeCountsEachRequest(t *testing.T) {
	for name, last := range map[string]syscall.Signal{"QUIT": syscall.SIGQUIT, "TERM": syscall.SIGTERM} {
		for _, network := range []string{"unixgram", "udp"} {
			t.Run(name+" "+network, func(t *testing.T) {
				t.Parallel()
				p := start(t, dataDir(t))
				server := "unix:" + p.Unixgram
				if network == "udp" {
					server = "udp://" + p.UDP
				}
				n := startNginx(t, server, 500*time.Millisecond, traced)
				for range 3 {
					n.ask(400)
					n.signal(syscall.SIGHUP)
					n.ask(400)
				}
				n.end(last) // sends the counts of the last half second
				n.counted(p)
				n.ledger(p)
			})
		}
	}
}

// ledger is a check that waits until the ledger has no difference, and no malformed or refused line.
func (n *nginx) ledger(p *process) {
	n.t.Helper()
	eventually(n.t, 30*time.Second, "the books close", func() error {
		now, _, err := p.ledger()
		if err != nil {
			return err
		}
		if s := now.Samples; s.Difference != 0 || len(s.Malformed) > 0 || len(s.Refused) > 0 {
			return fmt.Errorf("the ledger has %+v, want no difference, and no malformed or refused sample", s)
		}
		return nil
	})
}

// If a worker is killed, it loses at most the counts since its last send.
func TestEdgeLosesAtMostOneIntervalOfAKilledWorker(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	n := startNginx(t, "unix:"+p.Unixgram, 200*time.Millisecond, traced)
	n.ask(400)
	n.counted(p)
	before := n.sent.Load()
	n.ask(100) // these may be lost
	for _, pid := range n.workers() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 30*time.Second, "new workers answer", func() error { return n.get("home") })
	n.ask(400)
	most := n.sent.Load()
	n.end(syscall.SIGQUIT)
	eventually(t, 20*time.Second, "the rest is counted", func() error {
		v, err := p.value("sum(http_requests)")
		if err != nil || v < float64(most-100) || v > float64(most) {
			return fmt.Errorf("%v of %d requests are counted, want all but at most 100; %d requests came before the kill; %w",
				v, most, before, err)
		}
		return nil
	})
}

// No request fails while the collector is absent, does not read, or dies. nginx sends the counts of
// that time when the collector is back.
func TestEdgeWaitsForACollector(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	socket := filepath.Join(dir, "dgram.sock")
	n := startNginx(t, "unix:"+socket, 100*time.Millisecond, traced)
	n.ask(400) // the socket does not exist

	// Now there is a reader that never reads. Datagrams in its queue would be lost with it, so the
	// queue is filled with other data before nginx can send to it.
	elsewhere := socket + ".new"
	deaf, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: elsewhere})
	if err != nil {
		t.Fatal(err)
	}
	filler, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: elsewhere})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = filler.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if err == nil {
			_, err = filler.Write([]byte("full:1|c"))
		}
	}
	if err := os.Rename(elsewhere, socket); err != nil {
		t.Fatal(err)
	}
	n.ask(400)
	_ = filler.Close()
	// The path is removed before the reader is closed, since closing empties its queue.
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	_ = deaf.Close()
	n.ask(400)

	p := start(t, dir)
	n.counted(p)
	p.kill(t)
	n.ask(400)
	p = start(t, dir)
	n.counted(p)
	n.ledger(p)
}

// A client can choose the value of a label, but no value ever becomes another line.
func TestEdgeLabelsForgeNoLines(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	n := startNginx(t, "unix:"+p.Unixgram, 100*time.Millisecond, traced)
	routes := []string{
		"a|c\nforged:1|c", "a\r\n", "a\x00b", "a,forged:1", "a:1|c|#x:y", "a#b", "|", ",", ":", "_e{1,1}:a|b", "\xff\xfe",
		"a\x7fb", "größe", "é",
		strings.Repeat("x", 5000), strings.Repeat("ü", 1000), "a\u202eb", "", " ", "{}", `"\`, "nan", "|nh",
	}
	for _, route := range routes {
		for range 3 {
			if err := n.get(route); err != nil {
				t.Fatalf("a request with route %q: %v", route, err)
			}
		}
	}
	n.counted(p)
	n.ledger(p)
	names, err := p.query(`count by (__name__) ({__name__=~".+",` +
		`__name__!~"http_requests|http_request_duration|datadog_.*|freshet_.*"})`)
	if err != nil || len(names) != 0 {
		t.Errorf("the forged names are %v, want none; error %v", names, err)
	}
	keys, err := p.query(`{__name__="http_requests"}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range keys {
		for key, value := range r.Metric {
			switch key {
			case "__name__", "route", "method", "status", "host", "instance":
			default:
				t.Errorf("a client forged the label %s=%q", key, value)
			}
			if len(value) > 256 {
				t.Errorf("label %s has %d bytes, want at most 256", key, len(value))
			}
		}
	}
}

// Prometheus' functions read the library's classic buckets as if Prometheus had scraped them.
func TestEdgeClassicBuckets(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	n := startNginx(t, "unix:"+p.Unixgram, 100*time.Millisecond, `buckets = {0.5, 30, 60}`)
	n.ask(100)
	n.end(syscall.SIGQUIT)
	for expr, want := range map[string]float64{
		"sum(http_request_duration_count)": float64(
			n.sent.Load()),
		`sum(http_request_duration_bucket{le="+Inf"})`: float64(
			n.sent.Load()),
		`sum(http_request_duration_bucket{le="60"})`: float64(
			n.sent.Load()),
		"sum(http_request_duration_sum) < bool 60":                                                     1,
		"histogram_quantile(1, sum by (le) (http_request_duration_bucket{route=\"home\"})) <= bool 60": 1,
		"count(http_request_duration_bucket)":                                                          4,
	} {
		eventually(t, 30*time.Second, "the buckets are stored", func() error {
			if v, err := p.value(expr); err != nil || v != want {
				return fmt.Errorf("%s is %v, want %v; %w", expr, v, want, err)
			}
			return nil
		})
	}
	n.ledger(p)
}

// A request's trace is the exemplar of its latency. With an invalid trace id, only the
// exemplar is lost.
func TestEdgeExemplars(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	n := startNginx(t, "unix:"+p.Unixgram, 100*time.Millisecond, traced)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for route, trace := range map[string]string{"home": trace, "forged": "1|c\nforged:1|c"} {
		if err := n.getTraced(route, trace); err != nil {
			t.Fatal(err)
		}
	}
	n.counted(p)
	n.ledger(p)
	eventually(t, 30*time.Second, "the exemplar is stored", func() error {
		found, err := p.exemplars("http_request_duration")
		if err != nil || len(found) != 1 || found[0].Series["route"] != "home" || found[0].Labels["trace_id"] != trace ||
			found[0].Value < 0 || found[0].Value > 60 {
			return fmt.Errorf("the exemplars are %+v, want one; error %v", found, err)
		}
		return nil
	})
}
