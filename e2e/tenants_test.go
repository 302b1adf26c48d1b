package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestABrokenTenantHarmsNoOther checks that a tenant whose store cannot be opened affects no other
// tenant. For 90 s, or 5 minutes in `make soak`, a file is in the place of the store's directory. Such a
// store once stopped the whole server after 50 s. Now the other tenant's tiles are stored as usual, its
// answers are fresh and its counter is exact. The broken tenant's samples beyond store.pending are
// refused and counted in its books, and freshet diagnose names the store. When the file is gone,
// everything that was not refused is stored.
func TestABrokenTenantHarmsNoOther(t *testing.T) {
	t.Parallel()
	lasts := 90 * time.Second
	if soak {
		lasts = 5 * time.Minute
	}
	dir := dataDir(t)
	inTheWay := filepath.Join(dir, "tsdb", "b", "10s")
	if err := errors.Join(os.MkdirAll(filepath.Dir(inTheWay), 0o755),
		os.WriteFile(inTheWay, []byte("no store"), 0o600)); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "b")
	config := filepath.Join(t.TempDir(), "freshet.yaml")
	text := fmt.Sprintf(`dogstatsd: {listeners: [{network: unixgram, address: %s, tenant: b}]}
http: {listeners: [{listen: "127.0.0.1:0", tenant: b}]}
`, socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "--config", config, "--store-pending", "1MiB", "--aggregator-counter-ttl", "15m",
		"--limits-max-series-per-metric", "0", "--limits-max-new-series-per-minute", "0", "--self-probe=false")
	a, b := dialed(t, p.Unixgram), dialed(t, socket)
	sentA, sentB := 0, 0
	load := func(until time.Time) {
		// 5,000 series of b fill the 1 MiB of store.pending in about 40 s.
		for next := time.Now(); next.Before(until); next = next.Add(100 * time.Millisecond) {
			reach(next)
			sentA += mustSend(t, a, "healthy:1|c")
			for range 10 {
				var lines []string
				for range 5 {
					lines = append(lines, fmt.Sprintf("broken.m%d:1|c|#n:%d", sentB%50, sentB/50%100))
					sentB++
				}
				mustSend(t, b, strings.Join(lines, "\n"))
			}
			if sentA%10 == 0 {
				checkHealthy(t, p)
			}
		}
	}
	load(time.Now().Add(lasts))
	refused, err := p.ofTenant("freshet_ledger_samples_total", "b", `reason="store_pending"`)
	if err != nil || refused == 0 {
		t.Errorf("%v samples of the broken tenant were refused, want some; error %v", refused, err)
	}
	if n, err := p.ofTenant("freshet_ledger_samples_total", "default", `reason="store_pending"`); err == nil && n > 0 {
		t.Errorf("%v samples of the healthy tenant were refused, want none", n)
	}
	said, err := exec.Command(freshet, "diagnose", "--server", p.HTTP).CombinedOutput()
	if err != nil || !strings.Contains(string(said), "tenant b, store 10s") || !strings.Contains(string(said), inTheWay) {
		t.Errorf("freshet diagnose does not name the store: %v\n%s", err, said)
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "all waiting samples are stored", func() error {
		load(time.Now().Add(200 * time.Millisecond))
		n, err := p.ofTenant("freshet_aggregator_pending_seconds", "b")
		if err == nil && n > 12 {
			err = fmt.Errorf("the oldest sample that waits is %v s old, want at most 12 s", n)
		}
		return err
	})
	expectSoon(t, p, "healthy", float64(sentA))
	eventually(t, time.Minute, "every sample of the broken tenant is stored or refused", func() error {
		refused, err := p.ofTenant("freshet_ledger_samples_total", "b", `state="refused"`)
		if err != nil {
			return err
		}
		stored, err := p.ofTenant("freshet_ledger_samples_total", "b", `state="stored"`)
		if err == nil && int(refused+stored) != sentB {
			err = fmt.Errorf("%v samples are refused and %v stored, want %d together", refused, stored, sentB)
		}
		return err
	})
	p.terminate(t)
}

// checkHealthy checks that no tile of the healthy tenant waits longer than 12 s for its store, and that
// the tenant's answers are fresh. A wait of 6 s is usual: 2 s of lateness, and 4 s over which the shards
// close.
func checkHealthy(t *testing.T, p *process) {
	t.Helper()
	if late, err := p.ofTenant("freshet_aggregator_pending_seconds", "default"); err == nil && late > 12 {
		t.Fatalf("the healthy tenant's tile is %v s old and not stored", late)
	}
	if age, err := p.value("time() - timestamp(healthy)"); err == nil && age > 10 {
		t.Fatalf("the healthy tenant's answer is %v s old, want at most 10 s", age)
	}
}

func dialed(t *testing.T, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func mustSend(t *testing.T, conn net.Conn, packet string) int {
	t.Helper()
	if _, err := conn.Write([]byte(packet)); err != nil {
		t.Fatal(err)
	}
	return 1
}

// ofTenant returns the sum of one of the process's own metrics. It adds only series that belong to the
// tenant and have all `texts` in their labels.
func (p *process) ofTenant(name, tenant string, texts ...string) (sum float64, err error) {
	body, err := p.get("/metrics", url.Values{})
	if err != nil {
		return 0, err
	}
	found := false
lines:
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		for _, text := range append(texts, fmt.Sprintf("tenant=%q", tenant)) {
			if !strings.HasPrefix(line, name+"{") || !strings.Contains(line, text) {
				continue lines
			}
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("/metrics has no %s of tenant %s with %q", name, tenant, texts)
	}
	return sum, nil
}
