package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/top"
)

// The answer has the rate and the lag of each sender, and how many of its samples or requests were refused, by reason.
func TestSenders(t *testing.T) {
	s := running(t, `
data_dir: `+filepath.Join(t.TempDir(), "data")+`
http: {listen: "127.0.0.1:0"}
self: {probe: false, metrics: false}
dogstatsd: {udp: "127.0.0.1:0", unixgram: "", unix: ""}
`)
	now := time.Now()
	late := func(name string, age time.Duration) prompb.TimeSeries {
		return prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: name}},
			Samples: []prompb.Sample{{Timestamp: now.Add(-age).UnixMilli(), Value: 1}}}
	}
	body, err := (&prompb.WriteRequest{
		Timeseries: []prompb.TimeSeries{late("new", time.Minute), late("old", 30*24*time.Hour)},
	}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for agent, c := range map[string]struct {
		body []byte
		want int
	}{
		"shop/1": {snappy.Encode(nil, body), http.StatusBadRequest}, "bad/1": {[]byte("no snappy"), http.StatusBadRequest},
	} {
		if status := s.sendAs(t, agent, "/api/v1/write", c.body); status != c.want {
			t.Fatalf("the server answered %s with %d, want %d", agent, status, c.want)
		}
	}
	var a answer.Senders
	eventually(t, "the counting of DogStatsD", func() bool {
		s.data(t, "/api/v1/status/senders", &a)
		return a.Counting
	})
	by := map[string]answer.Sender{}
	for _, from := range a.Senders {
		by[from.Agent] = from
	}
	shop, bad := by["shop/1"], by["bad/1"]
	if shop.Input != "remote_write" || shop.Address != "127.0.0.1" || shop.Lag == nil || *shop.Lag < 60 ||
		shop.Samples <= 0 || shop.Refused["too_old"] != 1 || len(shop.History) != top.HistorySteps {
		t.Errorf("shop/1 is %+v", shop)
	}
	if bad.Lag != nil || bad.Samples != 0 || bad.Refused["malformed"] != 1 || bad.Seen < float64(now.Unix()) {
		t.Errorf("bad/1 is %+v", bad)
	}
	if s.data(t, "/api/v1/status/senders?limit=1", &a); len(a.Senders) != 1 || a.Others.Senders != 1 {
		t.Errorf("with a limit of 1: %+v", a)
	}
	var process answer.Process
	s.data(t, "/api/v1/status/process", &process)
	packets, err := net.Dial("udp", process.Listening.DogStatsDUDP)
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	eventually(t, "malformed lines by reason", func() bool {
		if _, err := packets.Write([]byte("a:1|c\na:x|c\na\nb:y|c")); err != nil {
			t.Fatal(err)
		}
		var a answer.Senders
		s.data(t, "/api/v1/status/senders", &a)
		i := slices.IndexFunc(a.Senders, func(from answer.Sender) bool { return from.Input == answer.SenderDogStatsD })
		return i >= 0 && a.Senders[i].Refused["no_type"] > 0 &&
			a.Senders[i].Refused["bad_value"] == 2*a.Senders[i].Refused["no_type"]
	})
}

// The list is of all nodes. A collector is told to one leader after the other, and is one sender.
func TestSumOfSenders(t *testing.T) {
	collector := func(seen float64) answer.Sender {
		return answer.Sender{Input: answer.SenderCollector, Name: "web", ID: "7", Samples: seen, Seen: seen}
	}
	of := func(node string, samples float64, told float64) []byte {
		text, err := json.Marshal(answer.Senders{Tenant: "default", Counting: node != "c", Node: node,
			Others:  answer.OtherSenders{Senders: 2, Samples: 1},
			Senders: []answer.Sender{{Input: "otlp", Node: node, Agent: "x", Samples: samples}, collector(told)}})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var sum answer.Senders
	if err := json.Unmarshal(of("a", 5, 10), &sum); err != nil {
		t.Fatal(err)
	}
	sumSenders(&sum, []toldFigures{
		{node: "c", json: of("c", 7, 30)}, {node: "b", json: of("b", 6, 20)}, {node: "d", err: errors.New("too old")},
	}, true)
	sum.Cut(3)
	got := ""
	for _, s := range sum.Senders {
		got += fmt.Sprint(s.Input, s.Node, " ", s.Samples, "; ")
	}
	if got != "collector 30; otlpc 7; otlpb 6; " || sum.Others != (answer.OtherSenders{Senders: 7, Samples: 8}) {
		t.Errorf("%s and %+v", got, sum.Others)
	}
	if nodes := fmt.Sprint(sum.Nodes); !sum.Short || sum.Counting || nodes != "[{a } {b } {c } {d too old}]" {
		t.Errorf("%s, short %t, counting %t", nodes, sum.Short, sum.Counting)
	}
}

// A collector's rate is over the last 15 to 30 seconds. A new process of it begins anew.
func TestRateOfACollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b collectorBooks
		tell := func(started int64, received uint64) answer.Sender {
			time.Sleep(time.Second)
			books := ledger.Tenant{Samples: ledger.Samples{Received: received,
				Malformed: map[string]uint64{"no_type": 3}, Refused: map[string]uint64{"negative": 4}}}
			b.note("web", &ledger.Claim{Producer: 7, Started: started, Tenants: map[string]ledger.Tenant{"default": books}}, nil)
			return b.senders("default")[0]
		}
		var got answer.Sender
		for second := range uint64(100) { // it receives 450 samples every ninth second, which is 50 a second
			got = tell(1, 1_000_000+second/9*450)
			if second > 15 && (got.Samples < 25 || got.Samples > 75) {
				t.Fatalf("in second %d the rate is %v, want about 50", second, got.Samples)
			}
		}
		if got.Name != "web" || got.ID != "0000000000000007" || got.Refused["no_type"] != 3 || got.Refused["negative"] != 4 {
			t.Errorf("the collector is %+v", got)
		}
		if got = tell(2, 10); got.Samples != 0 {
			t.Errorf("a new process has the rate %v before it told its books twice", got.Samples)
		}
		if all := b.senders("other"); len(all) != 0 {
			t.Errorf("another tenant sees %+v", all)
		}
	})
}

// A collector of many tenants tells the books of some of them each time. If a tenant comes back among these, its rate
// is not everything that it ever sent.
func TestRateOfATenantThatWasNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b collectorBooks
		for second := range uint64(100) {
			time.Sleep(time.Second)
			received := ledger.Tenant{Samples: ledger.Samples{Received: 1_000_000 + 50*second}}
			tenants := map[string]ledger.Tenant{"a": received}
			if second%20 > 10 {
				tenants["default"] = received
			}
			b.note("web", &ledger.Claim{Producer: 7, Started: 1, Tenants: tenants}, nil)
			for _, got := range b.senders("default") {
				if got.Samples != 0 && got.Samples != 50 {
					t.Fatalf("in second %d the rate is %v, want 50, or 0 while it is not known", second, got.Samples)
				}
			}
		}
	})
}
