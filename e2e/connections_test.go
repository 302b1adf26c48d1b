package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestConnectionsLeaveFiles checks that idle connections do not use up the descriptors that stores and
// the journal need. The server may open 256 files, while a client opens 400 connections and closes
// none. Earlier, such connections left no descriptor for the journal's next segment, and stores could
// not open.
func TestConnectionsLeaveFiles(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	serve := fmt.Sprintf(`ulimit -n 256; exec %s serve --data-dir %s --http-listen 127.0.0.1:0 `+
		`--distributor-otlp-grpc-listen 127.0.0.1:0 --dogstatsd-udp 127.0.0.1:0 --dogstatsd-unixgram '' --dogstatsd-unix `+
		`%s --http-trust-tenant-header --http-allow-unknown-tenants --aggregator-checkpoint 1MiB `+
		`--limits-max-series-per-metric 0`,
		freshet, dir, filepath.Join(dir, "stream.sock"))
	p := launch(t, dir, exec.Command("sh", "-c", serve))
	p.says(t, "the limit of open files is low", "files=256")
	for i := range 400 {
		network, address, asks := "tcp", p.HTTP, true // each connection sends one request, and then stays idle
		switch i % 4 {
		case 1:
			address, asks = p.OTLPGRPC, false
		case 2:
			network, address, asks = "unix", p.Unix, false
		}
		conn, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(i, err)
		}
		t.Cleanup(func() { conn.Close() })
		if asks {
			if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(i, err)
			}
			fmt.Fprintf(conn, "GET /-/healthy HTTP/1.1\r\nHost: %s\r\n\r\n", p.HTTP)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(i, err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(i, err)
			}
		}
	}
	// Stores of new tenants open, for both inputs, and a checkpoint can be written.
	checkpoints, err := p.metric("freshet_aggregator_checkpoints_total")
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"team-a", "team-b", "team-c"} {
		r, err := http.NewRequest(http.MethodPost, "http://"+p.HTTP+"/api/v1/write",
			bytes.NewReader(pack(t, v1Of(requestV2(time.Now().UnixMilli(), 1, "written")))))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-protobuf")
		r.Header.Set("X-Scope-OrgID", tenant)
		answer, err := (&http.Client{Timeout: time.Minute}).Do(r)
		if err != nil || answer.Body.Close() != nil || answer.StatusCode != http.StatusNoContent {
			t.Errorf("a write of tenant %s: %v, error %v", tenant, answer, err)
		}
	}
	const series = 25_000 // a window of so many series takes more than a MiB of journal
	flood(t, "udp", p.UDP, series, 1000, func(packet []byte, i int) []byte {
		return append(packet, fmt.Sprintf("counted:1|c|#of:%d\n", i)...)
	})
	eventually(t, time.Minute, "all that was sent is counted", func() error { return p.expect("sum(counted)", series, 0) })
	eventually(t, 3*time.Minute, "a checkpoint is written", func() error {
		if n, err := p.metric("freshet_aggregator_checkpoints_total"); err != nil || n <= checkpoints {
			return fmt.Errorf("there are still %v checkpoints, want more; error %v", n, err)
		}
		return nil
	})
	for _, name := range []string{"freshet_aggregator_checkpoint_errors_total",
		"freshet_aggregator_journal_errors_total"} {
		if n, err := p.metric(name); err == nil && n != 0 {
			t.Errorf("%s is %v", name, n)
		}
	}
	// 32 of the 100 Unix streams stay open. The other 300 connections share one address, so 72 of them
	// stay open: three quarters of the limit of 96.
	if n, err := p.metric(`freshet_http_closed_connections_total{reason="idle"}`); err != nil || n < 300-96 {
		t.Errorf("%v connections are counted as closed, want at least 204; error %v", n, err)
	}
	if n, err := p.metric("freshet_http_connections_limit"); err != nil || n != 96 {
		t.Errorf("the limit of connections is %v, want 96; error %v", n, err)
	}
	if n, err := p.ownMetric("freshet_dogstatsd_refused_connections_total"); err != nil || n != 100-32 {
		t.Errorf("%v stream connections are counted as refused, want 68; error %v", n, err)
	}
	if n, err := p.metric("process_open_fds"); err != nil || n > 256-32 {
		t.Errorf("%v descriptors are open, want at most 224; error %v", n, err)
	}
	p.says(t, "too many connections: some are closed", "LimitNOFILE=")
}
