package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// TestLateSamplesChangePanels refreshes a panel while samples come by remote write, some of them late. Each answer is
// the one that a query without kept steps gets, and has the late sample as soon as its write is acknowledged.
func TestLateSamplesChangePanels(t *testing.T) {
	t.Parallel()
	p := start(t, dataDir(t))
	begin := time.Now().Truncate(time.Minute).Add(-time.Hour)
	write := func(at time.Time, v float64) {
		t.Helper()
		status, text, _, err := p.write(remoteWriteV2, pack(t, requestV2(at.UnixMilli(), v, "panel")))
		if err != nil || status != http.StatusNoContent {
			t.Fatalf("%d %s, %v", status, text, err)
		}
	}
	refresh := func(end time.Time, params ...string) []byte {
		t.Helper()
		all := url.Values{"query": {"sum(sum_over_time(panel[1m]))"}, "start": {fmt.Sprint(end.Add(-time.Hour).Unix())},
			"end": {fmt.Sprint(end.Unix())}, "step": {"60"}}
		for _, name := range params {
			all.Set(name, "1")
		}
		text, err := p.get("/api/v1/query_range", all)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for at := begin; at.Before(begin.Add(50 * time.Minute)); at = at.Add(15 * time.Second) {
		write(at, 1)
	}
	var last []byte
	for i := range 8 {
		end := begin.Add(time.Duration(50+i) * time.Minute)
		write(end, 1)
		if i%2 > 0 {
			write(end.Add(-20*time.Minute-time.Second), 1000)
		}
		kept, evaluated := refresh(end), refresh(end, "nocache")
		if !bytes.Equal(kept, evaluated) {
			t.Fatalf("refresh %d: the panel shows\n%s\nand without kept steps\n%s", i, kept, evaluated)
		}
		if bytes.Equal(kept, last) {
			t.Errorf("refresh %d: the panel has not changed", i)
		}
		last = kept
	}
	used, err := p.metric(`freshet_query_kept_total{result="used"}`)
	if err != nil || used != 7 {
		t.Errorf("%v of 8 refreshes had kept steps, want 7; %v", used, err)
	}
	steps, err := p.metric(`freshet_query_steps_total{from="kept"}`)
	if err != nil || steps < 7*30 {
		t.Errorf("%v steps were kept, %v", steps, err)
	}
}
