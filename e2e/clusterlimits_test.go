package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// limitsOf returns how many DogStatsD series of the default tenant have a place, and how many samples were folded: at
// a node alone, or in the cluster as the node knows it.
func (p *process) limitsOf(local bool) (series, folded int, err error) {
	var data struct {
		Tenants []struct {
			Tenant string `json:"tenant"`
			Series int    `json:"series"`
			Folded int    `json:"folded_samples"`
		} `json:"tenants"`
	}
	of := url.Values{"local": {strconv.FormatBool(local)}}
	if err := p.ask("/api/v1/status/limits", of, &data); err != nil {
		return 0, 0, err
	}
	for _, t := range data.Tenants {
		if t.Tenant == "default" {
			return t.Series, t.Folded, nil
		}
	}
	return 0, 0, errors.New("the answer has no limits of the default tenant")
}

// The part of a limit that a tenant uses at one node counts at the other nodes, too. The test covers the
// limit of DogStatsD series and the rate limit of remote write.
func TestLimitsHoldForTheCluster(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	const maxSeries = 10
	c := startTrioWith(t, []string{"--limits-max-series", fmt.Sprint(maxSeries), "--distributor-rate", "100"})
	a, b := c.nodes["a"], c.nodes["b"]
	count := func(p *process, line string) {
		flood(t, "unixgram", p.Unixgram, 1, 1, func(packet []byte, _ int) []byte { return append(packet, line...) })
	}

	for i := range maxSeries - 1 {
		count(a, fmt.Sprintf("limited:1|c|#at:a,id:%d", i))
	}
	eventually(t, 30*time.Second, "node b knows of the places that node a has", func() error {
		series, _, err := b.limitsOf(false)
		if err == nil && series != maxSeries-1 {
			err = fmt.Errorf("it knows of %d series", series)
		}
		return err
	})
	sent := 0
	eventually(t, time.Minute, "node b folds new series, since node a has the places", func() error {
		sent++
		count(b, fmt.Sprintf("limited:1|c|#at:b,id:%d", sent))
		reach(time.Now().Add(300 * time.Millisecond))
		series, folded, err := b.limitsOf(true)
		if err != nil {
			return err
		}
		if series >= maxSeries {
			t.Fatalf("node b has %d series, but the whole cluster may have only %d", series, maxSeries)
		}
		if folded == 0 {
			return fmt.Errorf("node b folded no sample; it has %d series", series)
		}
		return nil
	})
	eventually(t, 30*time.Second, "each node has the sums of the cluster", func() error {
		series, folded := 0, 0
		for _, n := range nodeNames {
			s, f, err := c.nodes[n].limitsOf(true)
			if err != nil {
				return err
			}
			series, folded = series+s, folded+f
		}
		for _, n := range nodeNames {
			if s, f, err := c.nodes[n].limitsOf(false); err != nil || s != series || f != folded {
				return fmt.Errorf("node %s has %d series and %d folded samples, %v; want %d and %d", n, s, f, err, series, folded)
			}
		}
		return nil
	})
	eventually(t, 30*time.Second, "nothing that was folded is lost", func() error {
		v, err := c.nodes["c"].value("sum(limited)")
		if err == nil && v != float64(maxSeries-1+sent) {
			err = fmt.Errorf("node c has counted %v of %d samples", v, maxSeries-1+sent)
		}
		return err
	})

	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("burst_%d", i))
	}
	eventually(t, time.Minute, "node b refuses samples, since the tenant sends too many to node a", func() error {
		now := time.Now().UnixMilli()
		if _, _, _, err := a.write(remoteWriteV2, pack(t, requestV2(now, 1, names...))); err != nil {
			return err
		}
		status, text, _, err := b.write(remoteWriteV2, pack(t, requestV2(now, 1, "few")))
		if err == nil && (status != http.StatusServiceUnavailable || !strings.Contains(text, "distributor.rate")) {
			err = fmt.Errorf("node b answers %d %s, want 503", status, text)
		}
		return err
	})
}
