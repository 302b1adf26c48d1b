package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/freshet-io/freshet/internal/settings"
)

const rulesPath = "/prometheus/config/v1/rules"

// ask sends a request and compares the status, and the start of the answer.
func (s *server) ask(t *testing.T, method, path, body string, status int, begins string) string {
	t.Helper()
	resp, text := s.answer(t, method, path, "", body, false)
	if resp.StatusCode != status || !strings.HasPrefix(text, begins) {
		t.Fatalf("%s %s: %s, %.300q; want %d, %q", method, path, resp.Status, text, status, begins)
	}
	return text
}

const accepted = `{"status":"success","data":null,"errorType":"","error":""}`

// Clients of Mimir go by these statuses and texts. Names may have slashes, which clients escape.
func TestTheLifeOfARuleSet(t *testing.T) {
	s := withoutSockets(t)
	s.ask(t, "GET", rulesPath, "", 404, "no rule groups found\n")
	s.ask(t, "GET", rulesPath+"/test/test", "", 404, "group does not exist\n") // how Grafana finds the API
	s.ask(t, "DELETE", rulesPath+"/test/test", "", 404, "group does not exist\n")
	s.ask(t, "DELETE", rulesPath+"/test", "", 404, "group namespace does not exist\n")
	namespace, group := "team a/prod", "cpu / 100%"
	at := rulesPath + "/" + url.PathEscape(namespace)
	sent := "name: " + group + "\ninterval: 1h\nrules:\n    - record: r\n      expr: sum by (a) (x)\n" +
		"    - alert: A\n      expr: r > 1\n      for: 5m\n"
	s.ask(t, "POST", at, sent, 202, accepted)
	if got := s.ask(t, "GET", at+"/"+url.PathEscape(group), "", 200, "name:"); got != sent {
		t.Errorf("read\n%s\nwant what was sent:\n%s", got, sent)
	}
	s.ask(t, "POST", rulesPath+"/second", "{name: g, rules: [{record: s, expr: y}]}", 202, accepted)
	s.lists(t, rulesPath, map[string][]string{namespace: {group}, "second": {"g"}})
	s.lists(t, at, map[string][]string{namespace: {group}})
	s.ask(t, "GET", rulesPath+"/third", "", 404, "no rule groups found\n")
	// Without a reload, the rules are evaluated, and each has its namespace as the file.
	s.evaluates(t, "second/g", namespace+"/"+group)
	s.ask(t, "POST", rulesPath+"/second", "{name: h, rules: [{record: s, expr: y}]}", 202, accepted)
	s.ask(t, "DELETE", rulesPath+"/second/g", "", 202, accepted)
	s.evaluates(t, "second/h", namespace+"/"+group)
	s.ask(t, "DELETE", at, "", 202, accepted)
	s.ask(t, "DELETE", rulesPath+"/second/h", "", 202, accepted)
	s.evaluates(t)
	s.ask(t, "GET", "/config/v1/rules", "", 404, "no rule groups found\n")
}

// lists compares the names of the groups in a list, by namespace.
func (s *server) lists(t *testing.T, path string, want map[string][]string) {
	t.Helper()
	var all map[string][]struct{ Name string }
	if err := yaml.Unmarshal([]byte(s.ask(t, "GET", path, "", 200, "")), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for namespace, groups := range all {
		for _, g := range groups {
			got[namespace] = append(got[namespace], g.Name)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s lists %q, want %q", path, got, want)
	}
}

// evaluates compares the groups of /api/v1/rules, as FILE/GROUP.
func (s *server) evaluates(t *testing.T, want ...string) {
	t.Helper()
	var answer struct {
		Data struct{ Groups []struct{ File, Name string } }
	}
	if err := json.Unmarshal([]byte(s.ask(t, "GET", "/prometheus/api/v1/rules", "", 200, "")), &answer); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range answer.Data.Groups {
		got = append(got, g.File+"/"+g.Name)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("evaluates %q, want %q", got, want)
	}
}

// A wrong group changes nothing, and the answer has every mistake.
func TestARefusedRuleSetSaysWhy(t *testing.T) {
	dir := t.TempDir()
	file := writeIn(t, dir, "of-a-file.yaml", "groups: [{name: f, rules: [{record: f, expr: x}]}]")
	s := running(t, fmt.Sprintf(`
data_dir: %s
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "", unixgram: "", unix: ""}
rules:
  files: [%s]
  api: {max_groups: 1, max_bytes: 1KiB}
`, filepath.Join(dir, "data"), file))
	good := "{name: g, rules: [{record: r, expr: x}]}"
	s.ask(t, "POST", rulesPath+"/n", good, 202, accepted)
	for _, c := range []struct {
		namespace, body string
		status          int
		want            []string
	}{
		{"n", "name: g\nrulez: []\nintervall: 5s", 400, []string{"unable to decoded rule group", "line 2: ", "line 3: "}},
		{"n", "name: g\nrules:\n- {record: r, expr: sum(}\n- {record: '', expr: x}", 400, []string{"\n4:", "3:"}},
		{"n", "{name: h, rules: [{record: r, expr: x}]}", 400,
			[]string{"per-user rule groups limit (limit: 1 actual: 2) exceeded", "rules.api.max_groups"}},
		{"n", "name: " + strings.Repeat("x", 1024), 413, []string{"1KiB of rules.api.max_bytes"}},
		{"a%3Bb", good, 400, []string{"semicolon"}},
		{"%FF", good, 400, []string{"UTF-8"}},
		{url.PathEscape(file), good, 400, []string{"the name of a rule file"}},
	} {
		text := s.ask(t, "POST", rulesPath+"/"+c.namespace, c.body, c.status, "")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("namespace %s, %.40q: answer %q, want %q in it", c.namespace, c.body, text, want)
			}
		}
	}
	s.evaluates(t, file+"/f", "n/g")
	if text := s.ask(t, "GET", "/metrics", "", 200, ""); !strings.Contains(text, "freshet_rules_api_refused_total 7\n") {
		t.Error("freshet_rules_api_refused_total does not count the 7 refused requests")
	}
	if resp, text := s.answer(t, "POST", "/-/reload", "", "", false); resp.StatusCode != 200 {
		t.Fatalf("reload: %s %s", resp.Status, text)
	}
	s.evaluates(t, file+"/f", "n/g")
}

// A data source at /prometheus is a Mimir for Grafana, so that people may edit rules. At the address itself it is
// a Prometheus.
func TestGrafanaFindsTheAPI(t *testing.T) {
	s := withoutSockets(t)
	var info struct {
		Data struct {
			Application string
			Features    map[string]string
		}
	}
	text := s.ask(t, "GET", "/prometheus/api/v1/status/buildinfo", "", 200, "")
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		t.Fatal(err)
	}
	if info.Data.Application != "Grafana Mimir" || info.Data.Features["ruler_config_api"] != "true" {
		t.Errorf("buildinfo is %+v", info.Data)
	}
	s.ask(t, "GET", "/prometheus/api/v1/query?query=1", "", 200, `{"status":"success"`)
	for _, path := range []string{"config", "flags"} { // they show the whole process
		s.ask(t, "GET", "/prometheus/api/v1/status/"+path, "", 404, "404 page not found")
	}
}

// A process that evaluates no rules must not take any.
func TestOnlyAServerThatEvaluatesRulesTakesThem(t *testing.T) {
	s := running(t, `
data_dir: `+t.TempDir()+`
role: collector
http: {listen: "127.0.0.1:0"}
dogstatsd: {udp: "127.0.0.1:0", unixgram: "", unix: ""}
`)
	for _, method := range []string{"POST", "DELETE"} {
		s.ask(t, method, rulesPath+"/n", "", http.StatusNotImplemented, "this process evaluates no rules")
	}
	s.ask(t, "GET", "/config/v1/rules", "", http.StatusNotImplemented, "this process evaluates no rules")
	if _, err := os.Stat(s.path("rules")); err == nil {
		t.Error("there is a directory for rules")
	}
}

// What one machine has kept before it joined a cluster is not forgotten in silence.
func TestFilesOfRulesBeforeACluster(t *testing.T) {
	var log strings.Builder
	s := &server{config: settings.Default(), registry: prometheus.NewRegistry(),
		logger: slog.New(slog.NewTextHandler(&log, nil))}
	s.config.DataDir = t.TempDir()
	s.config.Cluster = settings.Cluster{Node: "a", Nodes: []settings.NodeAddress{{Node: "a", Address: "10.0.0.1:7126"}}}
	s.current.Store(&s.config)
	if err := errors.Join(s.openAccess(), os.MkdirAll(s.path("rules", "acme"), 0o700)); err != nil {
		t.Fatal(err)
	}
	writeIn(t, s.path("rules", "acme"), "n.yaml", "namespace: n")
	s.serveRuleSets(&routes{http.NewServeMux(), s.guard})
	if !strings.Contains(log.String(), "set them again") {
		t.Errorf("the log does not say that there are rules: %s", &log)
	}
}
