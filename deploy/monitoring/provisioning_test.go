package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// The types below have the keys of Grafana's manual and sources for provisioning. Grafana would ignore a key that it
// does not know without a word.
type (
	grafanaSources struct {
		APIVersion  int `yaml:"apiVersion"`
		DataSources []struct {
			OrgID           int               `yaml:"orgId"`
			OrgName         string            `yaml:"orgName"`
			Version         int               `yaml:"version"`
			Name            string            `yaml:"name"`
			Type            string            `yaml:"type"`
			Access          string            `yaml:"access"`
			URL             string            `yaml:"url"`
			User            string            `yaml:"user"`
			Database        string            `yaml:"database"`
			BasicAuth       bool              `yaml:"basicAuth"`
			BasicAuthUser   string            `yaml:"basicAuthUser"`
			WithCredentials bool              `yaml:"withCredentials"`
			IsDefault       bool              `yaml:"isDefault"`
			Correlations    []map[string]any  `yaml:"correlations"`
			JSONData        prometheusOptions `yaml:"jsonData"`
			SecureJSONData  map[string]string `yaml:"secureJsonData"`
			Editable        bool              `yaml:"editable"`
			UID             string            `yaml:"uid"`
		} `yaml:"datasources"`
	}
	prometheusOptions struct { // of the data source Prometheus
		HTTPMethod        string `yaml:"httpMethod"`
		TimeInterval      string `yaml:"timeInterval"`
		QueryTimeout      string `yaml:"queryTimeout"`
		PrometheusType    string `yaml:"prometheusType"`
		PrometheusVersion string `yaml:"prometheusVersion"`
		ManageAlerts      bool   `yaml:"manageAlerts"`
	}
	grafanaProviders struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name                  string         `yaml:"name"`
			Type                  string         `yaml:"type"`
			OrgID                 int            `yaml:"orgId"`
			Folder                string         `yaml:"folder"`
			FolderUID             string         `yaml:"folderUid"`
			Editable              bool           `yaml:"editable"`
			Options               map[string]any `yaml:"options"`
			DisableDeletion       bool           `yaml:"disableDeletion"`
			UpdateIntervalSeconds int            `yaml:"updateIntervalSeconds"`
			AllowUIUpdates        bool           `yaml:"allowUiUpdates"`
		} `yaml:"providers"`
	}
	grafanaAlerting struct {
		APIVersion int `yaml:"apiVersion"`
		Groups     []struct {
			OrgID    int                `yaml:"orgId"`
			Name     string             `yaml:"name"`
			Folder   string             `yaml:"folder"`
			Interval string             `yaml:"interval"`
			Rules    []grafanaAlertRule `yaml:"rules"`
		} `yaml:"groups"`
	}
	grafanaAlertRule struct {
		UID           string `yaml:"uid"`
		Title         string `yaml:"title"`
		Condition     string `yaml:"condition"`
		DashboardUID  string `yaml:"dashboardUid"`
		PanelID       int    `yaml:"panelId"`
		NoDataState   string `yaml:"noDataState"`
		ExecErrState  string `yaml:"execErrState"`
		For           string `yaml:"for"`
		KeepFiringFor string `yaml:"keepFiringFor"`
		IsPaused      bool   `yaml:"isPaused"`
		Data          []struct {
			RefID             string `yaml:"refId"`
			QueryType         string `yaml:"queryType"`
			RelativeTimeRange struct {
				From int `yaml:"from"`
				To   int `yaml:"to"`
			} `yaml:"relativeTimeRange"`
			DatasourceUID string    `yaml:"datasourceUid"`
			Model         ruleModel `yaml:"model"`
		} `yaml:"data"`
		Labels      map[string]string `yaml:"labels"`
		Annotations map[string]string `yaml:"annotations"`
	}
	ruleModel struct { // of a query, and of the expressions math and threshold
		RefID      string            `yaml:"refId"`
		Datasource map[string]string `yaml:"datasource"`
		Expr       string            `yaml:"expr"`
		Instant    bool              `yaml:"instant"`
		Range      bool              `yaml:"range"`
		Type       string            `yaml:"type"`
		Expression string            `yaml:"expression"`
		Conditions []struct {
			Evaluator struct {
				Type   string    `yaml:"type"`
				Params []float64 `yaml:"params"`
			} `yaml:"evaluator"`
		} `yaml:"conditions"`
	}
)

// strictly reads a file of the provisioning, and fails for a key that Grafana does not know.
func strictly[T any](t *testing.T, name string) (v T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../grafana/provisioning", name))
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

// Grafana takes the data sources, and the dashboards choose one of them.
func TestDataSources(t *testing.T) {
	sources := strictly[grafanaSources](t, "datasources/freshet.yaml")
	var uids []string
	defaults := 0
	for _, s := range sources.DataSources {
		u, err := url.Parse(s.URL)
		if err != nil || u.Host == "" || s.Type != "prometheus" || s.Access != "proxy" || s.Name == "" {
			t.Errorf("%+v: %v", s, err)
		}
		if _, err := model.ParseDuration(s.JSONData.TimeInterval); err != nil {
			t.Errorf("%s: timeInterval: %v", s.Name, err)
		}
		if s.IsDefault {
			defaults++
		}
		uids = append(uids, s.UID)
	}
	if sources.APIVersion != 1 || defaults != 1 || !slices.Equal(uids, []string{dataUID, selfUID}) {
		t.Errorf("version %d, %d defaults, sources %v", sources.APIVersion, defaults, uids)
	}
	for _, d := range dashboards() {
		var text struct {
			Templating struct {
				List []struct {
					Name    string
					Current struct{ Value string }
				}
			}
		}
		if err := json.Unmarshal(d.grafana(), &text); err != nil {
			t.Fatal(err)
		}
		if first := text.Templating.List[0]; first.Name != "datasource" || !slices.Contains(uids, first.Current.Value) {
			t.Errorf("%s: the first variable is %+v, want a datasource of %q", d.UID, first, uids)
		}
	}
}

// The directory of dashboards, found as Grafana finds it, has those that are written, and no other JSON.
func TestProvider(t *testing.T) {
	at, err := filepath.Abs("../grafana/provisioning")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GF_PATHS_PROVISIONING", at)
	f := strictly[grafanaProviders](t, "dashboards/freshet.yaml")
	if f.APIVersion != 1 || len(f.Providers) != 1 || f.Providers[0].Type != "file" {
		t.Fatalf("%+v", f)
	}
	path, _ := f.Providers[0].Options["path"].(string)
	found := 0
	err = filepath.WalkDir(os.ExpandEnv(path), func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".json") {
			found++
		}
		return err
	})
	if err != nil || found != len(dashboards()) {
		t.Errorf("%s has %d dashboards, want %d: %v", path, found, len(dashboards()), err)
	}
	// Without the variable Grafana must not search the whole disk.
	t.Setenv("GF_PATHS_PROVISIONING", "")
	if got := filepath.Clean(os.ExpandEnv(path)); got != "/grafana" {
		t.Errorf("without the variable the directory is %s", got)
	}
}

// Grafana's rules are those of alerts.yaml: the same expression, duration, labels and texts.
func TestGrafanasRules(t *testing.T) {
	text, err := os.ReadFile("../alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	f := strictly[grafanaAlerting](t, "alerting/freshet.yaml")
	if f.APIVersion != 1 || len(f.Groups) != 1 || f.Groups[0].Folder == "" ||
		len(f.Groups[0].Rules) != len(want.Groups[0].Rules) {
		t.Fatalf("version %d, %d groups, want 1 with %d rules", f.APIVersion, len(f.Groups), len(want.Groups[0].Rules))
	}
	interval, err := model.ParseDuration(f.Groups[0].Interval)
	if err != nil || time.Duration(interval)%(10*time.Second) != 0 {
		t.Errorf("interval %s: %v; it must be a multiple of 10 s", f.Groups[0].Interval, err)
	}
	for i, rule := range f.Groups[0].Rules {
		of := want.Groups[0].Rules[i]
		checkRule(t, &rule)
		if rule.Title != of.Alert || rule.Data[0].Model.Expr != of.Expr || rule.For != orZero(of.For) ||
			rule.Labels["severity"] != of.Labels["severity"] ||
			rule.Annotations["runbook_url"] != of.Annotations["runbook_url"] ||
			strings.ReplaceAll(rule.Annotations["summary"], "$values.A.Value", "$value") != of.Annotations["summary"] {
			t.Errorf("got %+v, want %+v", rule, of)
		}
	}
}

// checkRule checks what Grafana checks when it reads a rule, and that its annotations are templates that it can fill.
func checkRule(t *testing.T, r *grafanaAlertRule) {
	t.Helper()
	if !regexp.MustCompile(`^[a-z0-9_-]{1,40}$`).MatchString(r.UID) {
		t.Errorf("%s: %q cannot be a UID", r.Title, r.UID)
	}
	if _, err := model.ParseDuration(r.For); err != nil {
		t.Errorf("%s: %v", r.Title, err)
	}
	if !slices.Contains([]string{"Alerting", "NoData", "OK", "KeepLast"}, r.NoDataState) ||
		!slices.Contains([]string{"Alerting", "Error", "OK", "KeepLast"}, r.ExecErrState) {
		t.Errorf("%s: %s, %s", r.Title, r.NoDataState, r.ExecErrState)
	}
	var refs []string
	for _, q := range r.Data {
		refs = append(refs, q.RefID)
		source := selfUID
		if q.Model.Expr == "" {
			source = "__expr__"
		}
		if q.RefID != q.Model.RefID || q.DatasourceUID != source || q.Model.Datasource["uid"] != source ||
			source == selfUID && (!q.Model.Instant || q.RelativeTimeRange.From <= q.RelativeTimeRange.To) {
			t.Errorf("%s: %+v", r.Title, q)
		}
	}
	if !slices.Equal(refs, []string{"A", "B", "C"}) || r.Condition != "C" || r.Data[2].Model.Expression != "B" ||
		!strings.Contains(r.Data[1].Model.Expression, "$A") {
		t.Errorf("%s: the queries are %q, and the condition is %s", r.Title, refs, r.Condition)
	}
	for name, text := range r.Annotations {
		format := func(float64) string { return "" }
		tmpl, err := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{"humanize": format,
			"humanize1024": format, "humanizeDuration": format}).
			Parse("{{ $labels := .Labels }}{{ $values := .Values }}" + text)
		if err == nil {
			err = tmpl.Execute(io.Discard, map[string]any{"Values": map[string]any{"A": struct{ Value float64 }{1}},
				"Labels": anyLabel()})
		}
		if err != nil {
			t.Errorf("%s: %s: %v", r.Title, name, err)
		}
	}
}

// anyLabel has the labels that summaries name.
func anyLabel() map[string]string {
	all := map[string]string{}
	for _, name := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(string(rulesFile(alerts)), -1) {
		all[name[1]] = ""
	}
	return all
}
