package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReloadsUnderLoad checks that reloads neither lose a metric nor count it twice. It changes rules,
// labels, retention and sockets a thousand times while metrics arrive on every kind of socket.
func TestReloadsUnderLoad(t *testing.T) {
	const reloads = 1000
	dir := dataDir(t)
	file := filepath.Join(dir, "freshet.yaml")
	write := func(i int) {
		extra := ""
		if i%2 == 1 {
			extra = fmt.Sprintf("  listeners: [{network: unixgram, address: %s, tenant: default}]\n",
				filepath.Join(dir, "extra.sock"))
		}
		text := fmt.Sprintf("dogstatsd:\n  labels: {round: \"%d\"}\n%s"+
			"mapping:\n  rules: [{match: reload.*, name: reloaded, labels: {part: $1, rule: \"%d\"}}]\n"+
			"store:\n  retention: {10s: %dh}\n", i%3, extra, i%5, 24+i%24)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	p := start(t, dir, "--config", file)
	stop := make(chan struct{})
	sent := make(chan int)
	for network, address := range map[string]string{"udp": p.UDP, "unixgram": p.Unixgram, "unix": p.Unix} {
		conn, line := dialTap(t, network, address), "reload."+network+":1|c"
		if network == "unix" { // a frame begins with its length
			line = string(binary.LittleEndian.AppendUint32(nil, uint32(len(line)))) + line
		}
		go func() { sent <- sendUntil(t, stop, conn, line) }()
	}
	begun := time.Now()
	for i := range reloads {
		write(i + 1)
		if status, body := p.post(t, "/-/reload"); status != http.StatusOK {
			t.Fatalf("reload %d: %d %s", i, status, body)
		}
	}
	took := time.Since(begun)
	// Rules hold from the next window on, so the last rules get some windows, too.
	reach(time.Now().Add(1500 * time.Millisecond))
	close(stop)
	total := <-sent + <-sent + <-sent
	t.Logf("%d reloads in %v, %d metrics sent", reloads, took.Round(time.Millisecond), total)
	eventually(t, 30*time.Second, "all metrics are counted", func() error {
		return p.expect("sum(reloaded)", float64(total), 0)
	})
	if n, err := p.ownMetric("freshet_dogstatsd_kernel_dropped_packets_total"); err != nil || n != 0 {
		t.Errorf("the kernel dropped %v datagrams, want none; error %v", n, err)
	}
	if rules, err := p.query(fmt.Sprintf(`count by (rule) (reloaded{rule="%d",round="%d"})`, reloads%5, reloads%3)); err !=
		nil || len(rules) != 1 {
		t.Errorf("the last rules are not in force: %v, error %v", rules, err)
	}
	if n, err := p.ownMetric("freshet_config_reloads_total"); err != nil || int(n) != reloads {
		t.Errorf("the metric counts %v reloads, want %d; error %v", n, reloads, err)
	}
}

// sendUntil sends one line 4,000 times a second until stop is closed, and returns how often it sent
// the line.
func sendUntil(t *testing.T, stop <-chan struct{}, conn net.Conn, line string) (n int) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return n
		case <-tick.C:
		}
		for range 4 {
			if _, err := io.WriteString(conn, line); err != nil {
				t.Errorf("after %d: %v", n, err)
				return n
			}
			n++
		}
	}
}

// post sends a POST without a body, and returns the status and body of its answer.
func (p *process) post(t *testing.T, path string) (int, string) {
	t.Helper()
	r, err := http.Post("http://"+p.HTTP+path, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

// TestABadFileChangesNothing checks that a reload of a bad file changes nothing, and says why in the
// answer and in the log. After that, SIGHUP makes the server load a good file.
func TestABadFileChangesNothing(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	file := filepath.Join(dir, "freshet.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("log_level: warn\n")
	p := start(t, dir, "--config", file)
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := func() string {
		b, err := p.get("/api/v1/status/config", nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before := config()
	for _, tt := range []struct{ name, text, want string }{
		{"an unknown key", "dogstatsd: {udpp: x}", "did you mean dogstatsd.udp?"},
		{"an invalid rule", "mapping: {rules: [{match: 'a.**b'}]}", "mapping.rules[0].match"},
		{"a port in use",
			"log_level: debug\ndogstatsd: {listeners: [{network: udp, address: '" + taken.LocalAddr().String() +
				"', tenant: default}]}", "address already in use"},
		{"not YAML", "a: [", "freshet.yaml"},
	} {
		write(tt.text)
		status, body := p.post(t, "/-/reload")
		if status != http.StatusBadRequest || !strings.Contains(body, tt.want) ||
			!strings.HasPrefix(body, "nothing has changed:") {
			t.Errorf("a reload with %s: got %d %s, want 400", tt.name, status, body)
		}
		if after := config(); after != before {
			t.Errorf("a reload with %s changed the configuration to %s", tt.name, after)
		}
		if n, err := p.ownMetric("freshet_config_last_reload_successful"); err != nil || n != 0 {
			t.Errorf("%s: the metric of the last reload is %v, want 0; error %v", tt.name, n, err)
		}
		p.says(t, "nothing has changed")
	}
	write("log_level: warn\ndogstatsd: {labels: {zone: a}, max_packet: 4096}\n")
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the file is reloaded", func() error {
		if n, err := p.ownMetric("freshet_config_last_reload_successful"); err != nil || n != 1 {
			return fmt.Errorf("the metric of the last reload is %v, want 1; error %v", n, err)
		}
		return nil
	})
	increment(t, p, "after.reload", 1)
	eventually(t, 30*time.Second, "the new label is in force", func() error {
		increment(t, p, "after.reload", 1)
		_, err := p.value(`after_reload{zone="a"}`)
		return err
	})
	// A setting that needs a restart is logged, and keeps its value.
	p.says(t, "dogstatsd.max_packet", "a restart")
	if !strings.Contains(config(), "max_packet: 64KiB") {
		t.Errorf("the configuration in force is %s\nwant max_packet: 64KiB in it", config())
	}
}
