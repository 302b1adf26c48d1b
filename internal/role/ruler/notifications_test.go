package ruler

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/notifier"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/rulestate"
	"github.com/freshet-io/freshet/internal/core/watermark"
	"github.com/freshet-io/freshet/internal/settings"
)

// A flood of alerts meets an Alertmanager that hangs. The queue stays bounded, the ledger has each alert that it
// dropped, and the other Alertmanager gets all.
func TestNotificationsThatWaitAreBounded(t *testing.T) {
	release := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	good := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	config := settings.DefaultRules()
	for _, am := range []*httptest.Server{hangs, good} {
		config.Alertmanagers = append(config.Alertmanagers,
			settings.Alertmanager{Targets: []string{am.Listener.Addr().String()}, Timeout: time.Hour})
	}
	p := parser.NewParser(parser.Options{})
	r, err := New(Options{
		Config: config, Files: Files{"acme": groupsOf("f/g")}, Sets: &setByAPI{}, Parser: p,
		Engine: promql.NewEngine(promql.EngineOpts{Parser: p}), Distributor: &taker{}, Watermarks: new(watermark.All),
		Windows: func() int64 { return time.Now().UnixMilli() }, ExternalURL: &url.URL{},
		States: &process{disk: &disk{groups: map[rulestate.Key][]byte{}}}, Registry: prometheus.NewRegistry(),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	acme := r.tenants["acme"]
	var running sync.WaitGroup
	acme.start(&running)
	defer good.Close()
	defer hangs.Close()
	defer running.Wait()
	defer acme.stop()
	defer close(release)
	const flood, batch = 5000, 500
	await(t, "both Alertmanagers are found", func() error {
		if n := len(acme.notifier.Alertmanagers()); n != 2 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	at := func(am *httptest.Server) answer.Notifications {
		for _, n := range r.Retriever("acme").Notifications() {
			if n.Alertmanager == am.URL+"/api/v2/alerts" {
				return n
			}
		}
		return answer.Notifications{}
	}
	const all = queueCapacity + flood
	for handed := 0; handed < all; handed += batch {
		var alerts []*notifier.Alert
		for n := range batch {
			alerts = append(alerts, &notifier.Alert{Labels: labels.FromStrings("alertname", fmt.Sprint(handed+n))})
		}
		acme.notifier.Send(alerts...)
		await(t, "the good one gets them", func() error {
			if n := at(good); n.Sent != uint64(handed+batch) || n.Dropped != 0 {
				return fmt.Errorf("the ledger has %+v", n)
			}
			return nil
		})
	}
	// One request is under way, with at most 256 alerts.
	await(t, "what does not fit is dropped", func() error {
		n := at(hangs)
		underWay := all - int(n.Dropped) - int(n.Waiting)
		if n.Sent != 0 || n.Waiting > queueCapacity || underWay < 1 || underWay > notifier.DefaultMaxBatchSize {
			return fmt.Errorf("the ledger has %+v", n)
		}
		return nil
	})
}

// await waits until cond returns nil.
func await(t *testing.T, what string, cond func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = cond(); err == nil {
			return
		}
	}
	t.Fatalf("not true after a minute: %s: %v", what, err)
}
