package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/freshet-io/freshet/internal/answer"
)

// The answer lists each tenant with the limits that apply to it. A tenant that has sent nothing uses
// none of its limits.
func TestLimitsOfTenants(t *testing.T) {
	s := running(t, `
data_dir: `+filepath.Join(t.TempDir(), "data")+`
http: {listen: "127.0.0.1:0", tenant: team-quiet}
limits: {max_series_per_metric: 100, tenants: {team-alpha: {max_series_per_metric: 1}}}
dogstatsd: {udp: "127.0.0.1:0", unixgram: "", unix: "", tenant: team-alpha}
`)
	s.send(t, "team-alpha", "hits:1|c|#a:b\nhits:1|c|#a:c\ndepth:1|g|#a:b\ndepth:1|g|#a:c")
	var got struct {
		Data struct {
			Tenant  string
			Tenants []tenantLimits
		}
	}
	eventually(t, "the limits of team-alpha", func() bool {
		got.Data.Tenants = nil
		resp, text := s.answer(t, http.MethodGet, "/api/v1/status/limits", "", "", false)
		if err := json.Unmarshal([]byte(text), &got); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v, %s: %s", err, resp.Status, text)
		}
		return tenantIn(got.Data.Tenants, "team-alpha").Refused > 0
	})
	alpha, quiet := tenantIn(got.Data.Tenants, "team-alpha"), tenantIn(got.Data.Tenants, "team-quiet")
	if alpha.Tenant != "team-alpha" || alpha.Series < 2 || alpha.Folded != 1 || alpha.Refused != 1 ||
		alpha.Limits.MaxSeriesPerMetric != 1 || alpha.Limits.MaxSeries != 100_000 {
		t.Errorf("team-alpha: %+v", alpha)
	}
	if got.Data.Tenant != "team-quiet" || quiet.Tenant != "team-quiet" || quiet.Series != 0 ||
		quiet.Limits.MaxSeriesPerMetric != 100 || quiet.Limits.MaxSeriesBytes != 4096 {
		t.Errorf("%s: %+v", got.Data.Tenant, quiet)
	}
}

// tenantIn returns the tenant with a name.
func tenantIn(all []tenantLimits, name string) (found tenantLimits) {
	for _, t := range all {
		if t.Tenant == name {
			return t
		}
	}
	return found
}

// sendAs posts a body with a user agent, and returns the status of the answer.
func (s *server) sendAs(t *testing.T, agent, path string, body []byte) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.http[0].addr()+path,
		bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User-Agent", agent)
	r.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// flood returns a remote-write request with the given number of series, each with one sample.
func flood(t *testing.T, series int) []byte {
	t.Helper()
	var w prompb.WriteRequest
	for i := range series {
		w.Timeseries = append(w.Timeseries, prompb.TimeSeries{
			Labels: []prompb.Label{
				{Name: "__name__", Value: "flood"}, {Name: "env", Value: "prod"}, {Name: "id", Value: fmt.Sprint(i)},
			},
			Samples: []prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: 1}},
		})
	}
	body, err := w.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return snappy.Encode(nil, body)
}

// data sends a GET request for a path of the API, and decodes the data of the answer.
func (s *server) data(t *testing.T, path string, data any) {
	t.Helper()
	resp, text := s.answer(t, http.MethodGet, path, "", "", false)
	if err := json.Unmarshal([]byte(text), &struct{ Data any }{data}); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %s: %s", err, resp.Status, text)
	}
}

// The API shows limits and senders of remote write and OTLP beside those of DogStatsD: the number of
// series and its limit, the refused samples, the senders, and the metric and label with the most growth.
func TestLimitsAndSendersOfRequests(t *testing.T) {
	s := running(t, `
data_dir: `+filepath.Join(t.TempDir(), "data")+`
http: {listen: "127.0.0.1:0"}
distributor: {max_series: 4, max_labels: 50}
self: {probe: false, metrics: false}
dogstatsd: {udp: "127.0.0.1:0", unixgram: "", unix: ""}
`)
	s.send(t, "default", "hits:1|c") // a series with a total
	export, err := exportRequest().MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	known := flood(t, 3)
	send := func() {
		t.Helper()
		otlp, write := s.sendAs(t, "otel/2", "/v1/metrics", export), s.sendAs(t, "shop/1", "/api/v1/write", known)
		if otlp != http.StatusOK || write != http.StatusNoContent {
			t.Fatalf("the server answered OTLP with %d and remote write with %d, want 200 and 204", otlp, write)
		}
	}
	send()
	if status := s.sendAs(t, "shop/1", "/api/v1/write", flood(t, 25)); status != http.StatusTooManyRequests {
		t.Fatalf("the server answered %d, want 429", status)
	}

	// The senders' rates cover only the last seconds, so the test keeps sending the same samples.
	var limits struct{ Tenants []tenantLimits }
	eventually(t, "the limits of remote write and OTLP", func() bool {
		send()
		s.data(t, "/api/v1/status/limits", &limits)
		from := limits.Tenants[0].Distributor.Sender
		return limits.Tenants[0].Distributor.Totals > 0 && from != nil && from.Input == "remote_write" &&
			from.Agent == "shop/1" && from.Address == "127.0.0.1"
	})
	got := limits.Tenants[0].Distributor
	got.Sender = nil
	want := distributorLimits{
		Series: 4, Totals: 1, Refused: 22,
		Limits: distributorJSON{MaxSeries: 4, MaxLabels: 50, MaxLabelName: 1024, MaxLabelValue: 4096},
	}
	if *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}

	var top answer.TopAll
	eventually(t, "the senders of remote write and OTLP", func() bool {
		send()
		s.data(t, "/api/v1/status/top", &top)
		r := top.Requests
		return len(r) == 2 && r[0].Agent == "shop/1" && r[0].Samples > r[0].Requests && r[1].Agent == "otel/2" &&
			r[1].Input == "otlp" &&
			r[1].Samples == r[1].Requests && r[1].Bytes > 0
	})
	if len(top.Growing) == 0 || top.Growing[0].Metric != "flood" {
		t.Fatalf("growing metrics: %+v", top.Growing)
	}
	g := top.Growing[0]
	if g.New != 3 || g.Refused != 22 || g.Label != "id" || g.Values < 20 || g.Values > 30 ||
		g.Sender != "127.0.0.1 (shop/1)" {
		t.Errorf("growing metrics: %+v", g)
	}
	eventually(t, "one row of each list, as requested", func() bool {
		send()
		s.data(t, "/api/v1/status/top?limit=1", &top)
		return len(top.Requests) == 1 && len(top.Growing) == 1 && top.View.Tenant == "default"
	})
}

// A process that stores nothing accepts neither remote write nor OTLP, and has no limits for them.
func TestLimitsWhereNothingIsStored(t *testing.T) {
	s := running(t, `
role: collector
data_dir: `+filepath.Join(t.TempDir(), "data")+`
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "127.0.0.1:0", unixgram: "", unix: ""}
`)
	var limits struct{ Tenants []tenantLimits }
	s.data(t, "/api/v1/status/limits", &limits)
	if len(limits.Tenants) != 1 || limits.Tenants[0].Distributor != nil || limits.Tenants[0].Limits.MaxSeries != 100_000 {
		t.Errorf("got %+v", limits)
	}
	var top answer.TopAll
	s.data(t, "/api/v1/status/top", &top)
	if top.View.Tenant != "default" || len(top.Requests)+len(top.Growing) > 0 {
		t.Errorf("got %+v", top)
	}
}

// A sender above distributor.rate is told to retry later. The limits show how often that happened.
func TestRequestsOverTheRate(t *testing.T) {
	s := running(t, `
data_dir: `+filepath.Join(t.TempDir(), "data")+`
http: {listen: "127.0.0.1:0"}
distributor: {tenants: {default: {rate: 1}}}
self: {probe: false, metrics: false}
dogstatsd: {udp: "", unixgram: "", unix: ""}
`)
	for _, want := range []int{http.StatusNoContent, http.StatusServiceUnavailable, http.StatusServiceUnavailable} {
		if status := s.sendAs(t, "shop/1", "/api/v1/write", flood(t, 10_000)); status != want {
			t.Fatalf("the server answered %d, want %d", status, want)
		}
	}
	var limits struct{ Tenants []tenantLimits }
	s.data(t, "/api/v1/status/limits", &limits)
	if got := limits.Tenants[0].Distributor; got.Delayed != 2 || got.Limits.Rate != 1 || got.Series != 10_000 ||
		got.Refused != 0 {
		t.Errorf("got %+v", got)
	}
}
