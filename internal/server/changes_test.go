package server

import (
	"net/http"
	"strings"
	"testing"
)

// changes says, of each route that may change something, how the nodes of a cluster stay equal. A new route needs a
// line here. If it changes stored data, it writes an entry to the log, or is refused.
var changes = map[string]string{
	"/api/v1/write":           entryOfLog,
	"/api/v1/otlp/v1/metrics": entryOfLog,
	"/v1/metrics":             entryOfLog,

	"POST /api/v1/admin/cluster/drain":   entryOfLog,
	"POST /api/v1/admin/cluster/remove":  entryOfLog,
	"POST /api/v1/admin/cluster/replace": entryOfLog,
	"POST /api/v1/admin/cluster/undrain": entryOfLog,

	"POST /api/v1/admin/tsdb/delete_series":    isRefused,
	"PUT /api/v1/admin/tsdb/delete_series":     isRefused,
	"POST /api/v1/admin/tsdb/clean_tombstones": isRefused,
	"PUT /api/v1/admin/tsdb/clean_tombstones":  isRefused,

	"PUT /api/v1/admin/history/{block}":    notInCluster,
	"DELETE /api/v1/admin/history/{block}": notInCluster,

	"POST /config/v1/rules/{namespace}":                      entryOfLog,
	"DELETE /config/v1/rules/{namespace}":                    entryOfLog,
	"DELETE /config/v1/rules/{namespace}/{group}":            entryOfLog,
	"POST /prometheus/config/v1/rules/{namespace}":           entryOfLog,
	"DELETE /prometheus/config/v1/rules/{namespace}":         entryOfLog,
	"DELETE /prometheus/config/v1/rules/{namespace}/{group}": entryOfLog,

	"/api/v1/":                         noData,
	"/prometheus/api/v1/":              noData,
	"/api/v1/events":                   noData, // a POST is a query, too
	"/api/v1/status/explain":           noData,
	"/self/api/v1/":                    noData,
	"/debug/pprof/":                    noData,
	"/debug/pprof/cmdline":             noData,
	"/debug/pprof/profile":             noData,
	"/debug/pprof/symbol":              noData,
	"/debug/pprof/trace":               noData,
	"POST /-/reload":                   noData, // nodes with other settings are named in settings_differ
	"POST /-/record":                   noData,
	"POST /api/v1/admin/history/read":  noData,
	"POST /api/v1/admin/snapshot":      noData,
	"POST /api/v1/admin/tsdb/snapshot": noData,
	"PUT /api/v1/admin/tsdb/snapshot":  noData,
	"POST /api/v1/status/diff":         noData,
}

const (
	entryOfLog   = "an entry of the log"
	isRefused    = "refused"
	notInCluster = "refused in a cluster" // see TestAClusterImportsNothing
	noData       = "changes no stored data"
)

func TestNoRouteChangesOneNodeAlone(t *testing.T) {
	s := withoutSockets(t)
	for pattern := range exposures {
		if strings.HasPrefix(pattern, "GET ") {
			continue
		}
		how, decided := changes[pattern]
		if !decided {
			t.Errorf("%s: how do the nodes of a cluster stay equal? Add it to changes", pattern)
		}
		if how != isRefused {
			continue
		}
		method, path, _ := strings.Cut(pattern, " ")
		resp, text := s.answer(t, method, path, "", "", false)
		if resp.StatusCode != http.StatusNotImplemented || !strings.Contains(text, "store.retention") {
			t.Errorf("%s: %s: %s", pattern, resp.Status, text)
		}
	}
	for pattern := range changes {
		if _, is := exposures[pattern]; !is {
			t.Errorf("%s is no route", pattern)
		}
	}
}
