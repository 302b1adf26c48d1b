package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"
)

// Each tenant is shown with the limits that hold for it, and one that has sent nothing
// with none of them used.
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
		return len(got.Data.Tenants) == 2 && got.Data.Tenants[0].Refused > 0
	})
	alpha, quiet := got.Data.Tenants[0], got.Data.Tenants[1]
	if alpha.Tenant != "team-alpha" || alpha.Series < 2 || alpha.Folded != 1 || alpha.Refused != 1 || alpha.Limits.MaxSeriesPerMetric != 1 || alpha.Limits.MaxSeries != 100_000 {
		t.Errorf("team-alpha: %+v", alpha)
	}
	if got.Data.Tenant != "team-quiet" || quiet.Tenant != "team-quiet" || quiet.Series != 0 || quiet.Limits.MaxSeriesPerMetric != 100 || quiet.Limits.MaxSeriesBytes != 4096 {
		t.Errorf("%s: %+v", got.Data.Tenant, quiet)
	}
}
