package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

// The output is a configuration of Freshet, and the exit code tells whether all of it is equivalent to
// the input.
func TestConvert(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"same.yml":  "mappings:\n- {match: a.*, name: b, labels: {which: $1}}\n",
		"other.yml": "mappings:\n- {match: a.*, name: b, ttl: 1m}\n",
		"bad.yml":   "mappings:\n- {match: a.*}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		file string
		code int
		says string
	}{{"same.yml", command.OK, ""}, {"other.yml", command.Failure, "other.yml:2: ttl"},
		{"other.yml", command.Failure, "see the 1 note above"},
		{"bad.yml", command.Usage, "line 2"}, {"none.yml", command.Usage, "no such file"}} {
		out, errs, code := shell(t, "convert", "statsd_exporter", filepath.Join(dir, c.file))
		if code != c.code || !strings.Contains(errs, c.says) || (c.says == "") != (errs == "") {
			t.Errorf("%s: exit %d\n%s", c.file, code, errs)
		}
		if c.code == command.Usage {
			if out != "" {
				t.Errorf("%s: the command printed %q, want nothing", c.file, out)
			}
			continue
		}
		converted := filepath.Join(dir, "freshet.yaml")
		if err := os.WriteFile(converted, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := conf.New("X", settings.Default()).Load(converted,
			func(string) (string, bool) { return "", false }); err != nil {
			t.Errorf("%s: %v\n%s", c.file, err, out)
		}
		shown, errs, code := shell(t, "explain", "a.x:1|c", "--config", converted)
		if code != command.OK || !strings.Contains(shown, " b") {
			t.Errorf("%s: exit %d, %s\n%s", c.file, code, errs, shown)
		}
	}
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs([]string{"convert", "statsd_exporter", "-"})
	root.SetIn(strings.NewReader("mappings:\n- {match: a.*, name: b}\n"))
	root.SetOut(&out)
	if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), "name: 'b'") {
		t.Errorf("convert from standard input: error %v, output\n%s", err, &out)
	}
	if _, errs, code := shell(t, "convert", "graphite", "x"); code != command.Usage ||
		!strings.Contains(errs, "unknown command: graphite") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// shopDashboard has a query that needs the server, one that changes, and one that cannot be converted.
const shopDashboard = `{"title": "Shop", "panels": [{"title": "P", "type": "graph", "targets": [
  {"refId": "A", "expr": "rate(lat_count[5m])"},
  {"refId": "B", "expr": "lat{quantile=\"0.9\"}", "legendFormat": "p90"},
  {"refId": "C", "expr": "rate(lat{quantile=\"0.9\"}[5m])"}]}]}
`

// The exit code tells whether everything was converted. The notes name the panel, the query and the reason.
func TestConvertDashboard(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.json")
	if err := os.WriteFile(file, []byte(shopDashboard), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := shell(t, "convert", "dashboard", file)
	want := strings.NewReplacer("rate(lat_count[5m])", "histogram_count(rate(lat[5m]))",
		`"lat{quantile=\"0.9\"}"`, `"histogram_quantile(0.9, rate(lat[10m]))"`).Replace(shopDashboard)
	if code != command.Failure || out != want || !strings.Contains(errs, "2 of 3 queries changed") ||
		!strings.Contains(errs, "P, query C: takes rate of lat, which is not a counter\n    "+
			"rate(lat{quantile=\"0.9\"}[5m])\n    To do: ask for deriv") {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
	for _, c := range []struct{ flag, says string }{
		{"--from=graphite", "--from = graphite: is not one of statsd_exporter, statsd, datadog"},
		{"--summary-age=long", "--summary-age: "},
		{"--summary-quantiles=0.5,90", "--summary-quantiles: 90 is no number from 0 to 1"},
	} {
		if out, errs, code := shell(t, "convert", "dashboard", file, c.flag); code != command.Usage || out != "" ||
			!strings.Contains(errs, c.says) {
			t.Errorf("%s: exit %d, %s\n%s", c.flag, code, out, errs)
		}
	}
	if _, errs, code := shell(t, "convert", "dashboard", file+"x"); code != command.Usage ||
		!strings.Contains(errs, "no such file") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// answers is a server that answers instant queries: each with a series of a value, or with none.
func answers(t *testing.T, values map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") && values["secret"] == "" {
			t.Error("the user's token was sent to the old server")
		}
		if r.UserAgent() != build.UserAgent() {
			t.Errorf("a request has the User-Agent %q", r.UserAgent())
		}
		result := ""
		if v := values[r.FormValue("query")]; v != "" {
			result = `{"metric": {"__name__": "x", "job": "j", "a": "b"}, "value": [0, "` + v + `"]}`
		}
		_, _ = w.Write([]byte(`{"status": "success", "data": {"resultType": "vector", "result": [` + result + `]}}`))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// With --check, queries whose answers differ are listed. Only Freshet gets the user's token, and only the old
// Prometheus the password in its URL.
func TestConvertDashboardChecks(t *testing.T) {
	t.Setenv(apiclient.TokenVariable, "secret")
	file := filepath.Join(t.TempDir(), "shop.json")
	text := strings.Replace(shopDashboard, "rate(lat{", "max_over_time(lat{", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	old := answers(t, map[string]string{"rate(lat_count[5m])": "100", `lat{quantile="0.9"}`: "5"})
	old = strings.Replace(old, "://", "://user:password@", 1)
	for _, c := range []struct {
		quantile, count, says string
		code                  int
	}{
		{"5.4", "99", "2 queries had an answer", command.OK},
		{"NaN", "99", `P, query B: Freshet has no {a="b"}, which was 5`, command.Failure},
		{"5", "80", `P, query A: {a="b"} was 100 and is 80`, command.Failure},
	} {
		now := answers(t, map[string]string{"secret": "known",
			`count(last_over_time({__name__="lat"}[1h]))`:                  "1",
			`count(histogram_count(last_over_time({__name__="lat"}[1h])))`: "1",
			"histogram_count(rate(lat[5m]))":                               c.count,
			"histogram_quantile(0.9, rate(lat[10m]))":                      c.quantile})
		_, errs, code := shell(t, "convert", "dashboard", file, "--drop-label", "job", "--server", now, "--check", old)
		if code != c.code || !strings.Contains(errs, c.says) || strings.Contains(errs, "password") {
			t.Errorf("%s: exit %d\n%s", c.says, code, errs)
		}
	}
}
