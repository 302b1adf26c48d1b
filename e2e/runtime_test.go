package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// runtimeInfo are the fields of status/runtimeinfo that dashboards and checks of Prometheus read.
type runtimeInfo struct {
	StartTime, ServerTime, LastConfigTime time.Time
	Hostname                              string
	ReloadConfigSuccess                   bool
	GOMEMLIMIT                            int64
	GOGC                                  string
}

// status/runtimeinfo says whether and when the configuration was last loaded, after a start and
// after good and bad reloads. It once said that the configuration had failed to load, in the year 1.
func TestRuntimeInfo(t *testing.T) {
	dir := dataDir(t)
	file := filepath.Join(dir, "freshet.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("log_level: info\n")
	before := time.Now()
	p := start(t, dir, "--config", file)
	ask := func() (i runtimeInfo) {
		t.Helper()
		if err := p.ask("/api/v1/status/runtimeinfo", nil, &i); err != nil {
			t.Fatal(err)
		}
		return i
	}
	first := ask()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if !first.ReloadConfigSuccess || first.Hostname != host || first.LastConfigTime.Before(before) ||
		first.StartTime.Before(before) ||
		first.ServerTime.Before(first.LastConfigTime) || first.GOMEMLIMIT <= 0 || first.GOGC == "" {
		t.Errorf("after the start, runtimeinfo is %+v, want a successful load just now, and all fields set", first)
	}
	write("log_level: nonsense\n")
	if status, _ := p.post(t, "/-/reload"); status == http.StatusOK {
		t.Fatal("a bad configuration was accepted")
	}
	if refused := ask(); refused.ReloadConfigSuccess || !refused.LastConfigTime.Equal(first.LastConfigTime) {
		t.Errorf("after a refused reload, runtimeinfo is %+v, want no success and the time of the first load", refused)
	}
	write("log_level: warn\n")
	if status, body := p.post(t, "/-/reload"); status != http.StatusOK {
		t.Fatal(body)
	}
	if applied := ask(); !applied.ReloadConfigSuccess || !applied.LastConfigTime.After(first.LastConfigTime) {
		t.Errorf("after a reload, runtimeinfo is %+v, want a success and a later time", applied)
	}
	if n, err := p.ownMetric("freshet_build_info"); err != nil || n != 1 {
		t.Errorf("freshet_build_info is %v, want 1; error %v", n, err)
	}
}

// A Prometheus can federate from the server, and also gets samples of the open tile.
func TestFederate(t *testing.T) {
	p := start(t, dataDir(t))
	conn := dialTap(t, "udp", p.UDP)
	if _, err := fmt.Fprint(conn, "shop.orders:3|c|#zone:eu"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the count is federated", func() error {
		body, err := p.get("/federate", url.Values{"match[]": {`{zone="eu"}`}})
		if err != nil {
			return err
		}
		text := string(body)
		if !strings.HasPrefix(text, "# TYPE shop_orders untyped\nshop_orders{") || !strings.Contains(text, `instance=""`) ||
			!strings.Contains(text, "} 3 ") {
			return fmt.Errorf("got %s", text)
		}
		return nil
	})
}
