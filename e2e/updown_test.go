package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// With a rule, counters that clients also decrement become up/down counters. Their totals over senders
// and hosts are exact, even after kill -9 and SIGTERM. Prometheus' metadata calls them gauges. They
// count towards the limits as long as their totals are kept. Without a rule, decrements are refused.
func TestUpDownCountersSurvive(t *testing.T) {
	t.Parallel() // it mostly waits for windows
	dir := dataDir(t)
	file := filepath.Join(dir, "freshet.yaml")
	if err := os.WriteFile(file, []byte(upDownConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "--config", file)
	rng := rand.New(rand.NewPCG(1, 1))
	var total, host1 float64
	for round := range 3 {
		before, sent := p.journalled(t), 0
		for sender := range 2 {
			conn, err := net.Dial("unixgram", p.Unixgram)
			if err != nil {
				t.Fatal(err)
			}
			for range 50 {
				v := float64(rng.IntN(401)-200) / 4
				if _, err := fmt.Fprintf(conn, "e2e.open:%v|c|#host:h%d\ne2e.plain:-1|c", v, sender); err != nil {
					t.Fatal(err)
				}
				if total += v; sender == 1 {
					host1 += v
				}
				sent++
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, 20*time.Second, "all increments are acknowledged", func() error {
			if got := p.journalled(t) - before; got < float64(sent) {
				return fmt.Errorf("%v samples are journalled, want %d", got, sent)
			}
			return nil
		})
		if refused, err := p.ownMetric("freshet_dogstatsd_negative_samples_total"); err != nil || refused != float64(sent) {
			t.Errorf("%v increments are refused, want all %d of e2e.plain; error %v", refused, sent, err)
		}
		if round == 1 {
			p.terminate(t)
		} else {
			p.kill(t)
		}
		p = start(t, dir, "--config", file)
		eventually(t, 20*time.Second, "the totals are right", func() error {
			if err := p.expect("sum(e2e_open)", total, 0); err != nil {
				return err
			}
			return p.expect(`e2e_open{host="h1"}`, host1, 0)
		})
		conflicts(t, p)
	}
	restarted := time.Now()
	var metadata map[string][]struct{ Type string }
	if err := p.ask("/api/v1/metadata", url.Values{}, &metadata); err != nil || len(metadata["e2e_open"]) != 1 ||
		metadata["e2e_open"][0].Type != "gauge" {
		t.Errorf("metadata: %+v, %v", metadata, err)
	}
	reach(restarted.Add(idleContexts + 3*time.Second)) // by then idle counters have lost their places
	if places, err := p.ownMetric("freshet_limit_series"); err != nil || places != 2 {
		t.Errorf("%v series have a place, want only the two totals; error %v", places, err)
	}
	if err := p.expect("sum(e2e_open)", total, 0); err != nil {
		t.Error(err)
	}
}

// upDownConfig sets dogstatsd.idle_contexts to idleContexts.
const (
	upDownConfig = `
mapping: {rules: [{match: e2e.open, updown: true}]}
dogstatsd: {idle_contexts: 10s}
`
	idleContexts = 10 * time.Second
)
